//! Iggy's clients (v1, v1b and v2, servers 0.4 to 0.9) on ports of their own: frames over TCP, with TLS when the broker has a certificate, and over QUIC.
//!
//! * `context`: what all of it uses of the broker.
//! * `listener`: from the socket to connections. `connection_tasks`: which of them give way.
//! * `frames`: requests out of a connection's bytes, with their bounds.
//! * `connection`: one client from its first byte to its last; login, and which command goes where.
//! * `long`: requests of v2, with `session` (which were answered) and `producers` (with which its sends are stored once).
//! * `refused`: statuses of what fails.
//! * `resolve`: streams, topics and partitions by number or name.
//! * `quic`: the same over QUIC, with a stream for each request. `http`: the same over HTTP.
//! * `send`, `poll`, `offsets` (`positions`): the commands that move records. `groups`: who reads what, `shared_members`: in a cluster. `clients`: who is connected. Every other one is decided by the control plane.
//!
//! Requests of a connection are answered in order, one at a time. Foreign words (stream for namespace, topic for stream)
//! exist only in this folder. Why it is so: `docs/decisions/iggy.md`.
mod clients;
mod connection;
mod connection_tasks;
mod context;
mod frames;
mod groups;
mod http;
mod listener;
mod long;
mod offsets;
mod poll;
mod positions;
mod producers;
mod quic;
mod refused;
mod resolve;
mod send;
mod session;
mod shared_members;
#[cfg(test)]
mod tests;

pub(crate) use context::{IggyContext, Turns};
pub use http::IggyHttpSettings;
pub(crate) use listener::{listen, listen_http};
pub(crate) use producers::Producers;
pub(crate) use quic::{QuicListening, listen_quic};
