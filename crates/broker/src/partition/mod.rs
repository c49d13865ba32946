//! One partition: a handle for everyone, and a task that owns the log's tail.
mod incoming;

pub use incoming::{Append, AppendError, Committed, Done, IncomingRecord, Payload, Rejected, RejectReason};

use bascule_log::LogReader;
use std::sync::Arc;
use tokio::sync::watch;

/// A cheap, cloneable handle.
#[derive(Clone, Debug)]
pub struct Partition(Arc<Inner>);

#[derive(Debug)]
struct Inner {}

/// What a partition is, fixed for its life in this process.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PartitionIdentity {
    pub namespace: String,
    pub stream: String,
    pub number: u32,
    pub incarnation: u64,
    /// Subject it listens on, with the partition suffix.
    pub subject: String,
    /// The stream's subject, shown in acks.
    pub base_subject: String,
    pub queue_group: String,
}

impl Partition {
    /// What it is.
    pub fn identity(&self) -> &PartitionIdentity {
        let _ = &self.0;
        todo!()
    }

    /// Queues an append; waits for room in the partition's bounded queue. Order of calls from one task is kept.
    /// `append.done` is always called exactly once, here or later, on any thread.
    ///
    /// # Errors
    /// Returned through `done` only.
    pub async fn append(&self, _append: Append) {
        todo!()
    }

    /// Queues an append without waiting.
    ///
    /// # Errors
    /// Gives the append back when the queue is full.
    pub fn try_append(&self, _append: Append) -> Result<(), Append> {
        todo!()
    }

    /// Reads the log.
    pub fn reader(&self) -> LogReader {
        todo!()
    }

    /// The high watermark (exclusive) as a watch: changes when records were committed; closed when the partition closes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        todo!()
    }

    /// Whether this broker leads it now (accepts appends).
    pub fn is_leading(&self) -> bool {
        todo!()
    }

    /// How the partition ended, once [`Partition::watch`] is closed.
    pub fn end(&self) -> EndReason {
        todo!()
    }
}

/// Why a partition is no longer served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Still open.
    Open,
    /// The stream was deleted: subscriptions end NOT_FOUND `commit log was deleted`.
    Deleted,
    /// Paused: FAILED_PRECONDITION `commit log was closed`.
    Paused,
    /// The broker stops: INTERNAL `commit log was closed`.
    Closed,
}
