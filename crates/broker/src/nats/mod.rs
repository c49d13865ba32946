//! NATS: two connections from one `connect` to the next. *ingest* has the subscriptions without queue group and publishes
//! copies with `no_echo`, so NATS never sends us our own copies there; *streams* has the subscriptions with a queue group, so
//! NATS keeps choosing the member, and everything else that is published.
//!
//! * [`NatsLink`]: the facade everyone else holds; cheap to clone, works (and refuses) while disconnected.
//! * `session`: what lives from one `connect` to the next. `presence`: whether other brokers of the namespace are there.
//! * `client`: a NATS client of our own; `connections`: the two that a session has.
//!
//! What comes in is in `ingest`, copies go out by `republish`.
pub(crate) mod client;
pub(crate) mod connections;
mod link;
mod presence;
mod session;

pub use crate::ingest::nats::PausedPartition;
pub use client::{NatsSettings, NatsTls, Reason};
pub use connections::{ConnectionState, NatsContext, NatsState};
pub use link::NatsLink;
