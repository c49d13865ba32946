//! Message ids of a stream that acknowledges JetStream publishers: a repeated one is recognised for two minutes.
//!
//! * [`MessageIds`]: the window; the partition's task owns it.
//! * `file`: the window beside the log, so that a start reads little of the log and ids outlive trimmed records.
//! * `recovery`: the window at a start, from that file and the log.
//!
//! Why it is so, and what was attacked: `docs/decisions/jetstream-acks.md`.
mod budget;
mod file;
pub(crate) mod fuzz;
mod hash;
mod recovery;
mod window;

pub(crate) use budget::IdBudget;
pub(super) use file::Snapshot;
pub(super) use hash::hash_message_id;
pub(crate) use hash::message_id;
pub(super) use recovery::{link_before, recover};
pub(super) use window::{MessageIds, WINDOW_NS};
