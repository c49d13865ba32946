//! What JetStream publishers send and expect: control headers of a message, and the publish ack.
//!
//! Meaning and error codes are those of nats-server 2.15 (`docs/decisions/jetstream-acks.md`).
mod ack;
mod control;

pub use ack::{AckTemplate, Refusal};
pub use control::{Control, MESSAGE_ID};
