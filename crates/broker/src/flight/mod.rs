//! Arrow Flight: every stream is a table (`specs/formats/flight.md`).
//!
//! * [`mod@service`]: what the gRPC server mounts; `DoGet` and large answers go over raw bodies, the rest through the generated server.
//! * `context`: what all of it uses of the broker.
//! * `request`, `refusal`: JSON documents in, statuses with JSON details out.
//! * `get` → `scan` → `frame` → `body`: one scan of one partition, from the log to the connection. Reading and gathering
//!   run on `threads` of their own, so that a large scan does not delay other calls.
//! * `put` ← `intake`, `destination`: batched, optionally idempotent append, each row to its partition.
//! * `info`, `list`, `offsets`: planning.
//! * `stage`: what a put stages for a sink instead of appending it.
//! * `sql`: what clients of Flight SQL get for an answer.
mod body;
mod buffer_layout;
mod context;
mod destination;
mod frame;
pub(crate) mod fuzz;
mod get;
mod info;
mod intake;
mod list;
mod offsets;
mod put;
mod range;
mod refusal;
mod request;
mod resolve;
mod scan;
mod service;
mod sql;
mod stage;
mod threads;
mod unary;
mod whole;

pub(crate) use context::FlightContext;
pub(crate) use service::FlightRouter;
