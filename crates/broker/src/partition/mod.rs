//! One partition: a handle for everyone, and a task that owns the log's tail.
//!
//! Appends enter through a bounded queue ([`Append`], bounded in bytes), the task coalesces what waits into batches,
//! writes them to the page cache and asks for a sync; while the sync runs it takes the next group. The committer's
//! thread moves the high watermark and answers. Readers use the log directly and never meet the task.
//!
//! A failed sync or a panic in the task ends writing for good: appends are rejected, an event reports the reason, reads continue.
mod append_budget;
mod commit;
mod context;
mod damage;
mod decode_batch;
mod handle;
mod incoming;
mod jetstream;
pub(crate) mod link;
mod maintenance;
mod message_id_file;
mod message_ids;
mod observer;
mod producer_batch;
mod publish_errors;
mod reader_hold;
pub(crate) mod replica;
mod spec;
mod subscriber_hint;
mod task;
#[cfg(test)]
mod tests;
mod writer;

pub use context::PartitionContext;
pub(crate) use damage::sentence as damage_sentence;
pub(crate) use decode_batch::decode_batch;
pub use handle::{EndReason, Partition, PartitionIdentity, PartitionStatus, Subscriber};
pub use incoming::{
    AckLevel, Append, AppendError, Committed, Done, IncomingRecord, Payload, RejectReason, Rejected,
};
pub use message_ids::fuzz::message_ids as fuzz_message_ids;
pub(crate) use message_ids::{IdBudget, message_id};
pub use observer::{CommitObserver, CommittedAppend};
pub(crate) use publish_errors::count_publish_errors;
pub use replica::RoleChanges;
pub use spec::{NatsAcks, NatsCopy, PartitionSpec};
