//! From NATS subscriptions into partitions: one router per broker feeds local partitions from one subscription per subject.
//!
//! * `router`, `inbox`, `feed` (`detach`, `losses`): from a subscription through groups of records into the partitions that
//!   listen on it; `absent`: those that are paused.
//! * `acks`: after commit, to the ack inbox of enveloped publishes.
//! * `publish_acks`: to the reply subject of plain messages, where a stream acknowledges JetStream publishers.
//!
//! Nothing here blocks a committer: every queue is bounded, and what does not fit is dropped and counted.
mod absent;
mod acks;
mod context;
mod detach;
mod feed;
mod group;
mod inbox;
mod losses;
mod publish_acks;
mod route;
mod router;

pub use absent::PausedPartition;
pub(crate) use acks::{AckQueue, AckSender};
pub(crate) use context::IngestContext;
pub(crate) use feed::Feed;
pub(crate) use group::Group;
pub(crate) use publish_acks::{PublishAckQueue, PublishAckSender};
pub(crate) use router::Router;
