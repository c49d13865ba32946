//! The writing half of a log.
use crate::{Coordinator, Error, Identity, LogOptions, LogReader, Retention};
use bascule_record::{Producer, SealedBatch};
use std::path::Path;
use std::sync::Arc;

/// Where an append landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: u64,
    /// First offset after the batch.
    pub next_offset: u64,
    /// Timestamp of the first record as stored, ns.
    pub base_timestamp: i64,
}

/// What recovery found and did; for the log line and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes scanned.
    pub scanned_bytes: u64,
    /// Batches found valid in the scan.
    pub batches: u64,
    /// Bytes of torn tail that were cut.
    pub cut_bytes: u64,
    /// Damaged ranges below the durable point: offsets [start, end).
    pub damaged: Vec<(u64, u64)>,
    /// Whether the log had been closed cleanly.
    pub clean: bool,
}

/// Called on the coordinator's thread when everything appended before [`Log::commit`] is durable, with the durable end
/// (exclusive offset); or with the reason why it never will be. Must be quick and must not block.
pub type Committed = Box<dyn FnOnce(Result<u64, Arc<Error>>) + Send>;

/// The one writer of a partition. Not shared: the partition's task owns it.
#[derive(Debug)]
pub struct Log {
    _private: (),
}
impl Log {
    /// Creates the directory and the first segment, both synced. Fails when the directory exists with segments.
    pub fn create(_directory: &Path, _identity: Identity, _options: LogOptions, _coordinator: &Arc<Coordinator>) -> Result<Self, Error> {
        todo!()
    }

    /// Opens and recovers (§3.1): cut at the first failure at or above the durable point, sync the cut, then go on;
    /// below it: damage, nothing is cut, the range is quarantined.
    pub fn open(_directory: &Path, _identity: Identity, _options: LogOptions, _coordinator: &Arc<Coordinator>) -> Result<(Self, Recovery), Error> {
        todo!()
    }

    /// Appends one batch to the active segment (page cache), rolling first when due. Not visible to readers before
    /// [`LogReader::high_watermark`] passes it.
    ///
    /// # Errors
    /// [`Error::Full`]: nothing was appended. Any other: the log refuses writes from now on.
    pub fn append(&mut self, _batch: SealedBatch, _leader_epoch: u64, _now_ns: i64) -> Result<Appended, Error> {
        todo!()
    }

    /// Asks for durability of everything appended so far; never blocks. In class `memory` the callback runs at once on this thread.
    pub fn commit(&mut self, _done: Committed) {
        todo!()
    }

    /// A duplicate of what this producer sent before (within its last 5 batches)? Then where it went:
    /// `Some(Ok(appended))`; `Some(Err(expected))` when the sequence has a gap or the epoch is old; `None` when it is new.
    pub fn find_duplicate(&self, _producer: Producer, _count: u32) -> Option<Result<Appended, SequenceError>> {
        todo!()
    }

    /// Moves the high watermark (exclusive; never back) and shows it to readers.
    pub fn set_high_watermark(&self, _offset: u64) {
        todo!()
    }

    /// A reader's handle.
    pub fn reader(&self) -> LogReader {
        todo!()
    }

    /// Changes settings that may change while open.
    pub fn set_options(&mut self, _options: LogOptions) {
        todo!()
    }

    /// Rolls when due by age, then removes whole sealed segments by `retention`, oldest first. Returns the log start offset.
    pub fn maintain(&mut self, _retention: &Retention, _now_ns: i64) -> Result<u64, Error> {
        todo!()
    }

    /// Writes the checkpoint (high watermark, log start, durable point). Never on the path of an ack.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        todo!()
    }

    /// Syncs, writes a clean checkpoint and closes; readers get [`crate::ReadError::Closed`].
    pub fn close(self) -> Result<(), Error> {
        todo!()
    }

    /// Renames the directory to a marked name, syncs the parent; the files are unlinked by [`Log::sweep_deleted`].
    pub fn delete(self) -> Result<(), Error> {
        todo!()
    }

    /// Unlinks directories that [`Log::delete`] marked longer than `grace_ns` ago. `parent` is `<data>/partitions`.
    pub fn sweep_deleted(_parent: &Path, _grace_ns: i64, _now_ns: i64) -> Result<usize, Error> {
        todo!()
    }
}

/// A producer's batch that is neither new nor a known duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// The sequence does not follow the last one.
    #[error("sequence {got} does not follow: {expected} is next")]
    Gap {
        /// What would be right.
        expected: u32,
        /// What came.
        got: u32,
    },
    /// A newer generation of this producer exists.
    #[error("producer epoch {got} is fenced by {current}")]
    Fenced {
        /// The newest epoch seen.
        current: u32,
        /// What came.
        got: u32,
    },
}
