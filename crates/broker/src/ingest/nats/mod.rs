//! From NATS subscriptions into partitions: one router per broker feeds local partitions from one subscription per subject.
//!
//! * `router`, `inbox`, `feed` (`detach`, `losses`): from a subscription through groups of records into the partitions that
//!   listen on it; `absent`: those that are paused.
//! * `acks`: after commit, to the ack inbox of enveloped publishes.
//! * `publish_acks`: to the reply subject of plain messages, where a stream acknowledges JetStream publishers.
//!
//! Nothing here blocks a committer: every queue is bounded, and what does not fit is dropped and counted.
pub(crate) mod absent;
pub(crate) mod acks;
pub(crate) mod detach;
pub(crate) mod feed;
pub(crate) mod inbox;
pub(crate) mod losses;
pub(crate) mod publish_acks;
pub(crate) mod router;
