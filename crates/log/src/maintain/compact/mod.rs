//! Key compaction: keeps the latest record of each key.
//!
//! Applies to sealed segments whose records are all committed and durable; the search for the latest record includes the
//! active segment, up to the same point. Segments that [`Log::hold`] holds stay as they are. Records without a key stay. A
//! null value (a tombstone) stays as the latest of its key for a grace period, so that readers see it, and is then removed.
//! Offsets, their order and the log start never change.
//!
//! * `latest`: keys and their last offsets, in bounded memory. With more keys a run makes several passes, each over the next
//!   part of the log.
//! * `run`: the order of the work, segment by segment from the oldest on; it may stop anywhere.
//! * `rewriter`: writes a segment without its superseded records to a temporary file.
//! * `merge`: makes one segment of adjacent ones without records.
//! * `swap`: replaces the segments by the new file, with a table of what a crash leaves.
//!
//! One thread per data directory compacts one log at a time, at a bounded rate; appends and reads continue meanwhile.
//! [`Log::compact`] starts a run; closing the log ends it within a step. The progress is kept in memory only: the first run
//! of a process scans the whole log.
mod input;
mod latest;
mod merge;
mod pace;
mod rewriter;
mod run;
mod swap;

use crate::state::compaction::Compacting;
use crate::{Error, Log};
use bascule_record::Batch;
use input::{CompactionInput, Next};
use pace::Pace;
use run::Run;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A run is due when one byte in this many is new. So a byte is read about this many times in all.
const DUE_SHARE: u64 = 8;

/// The compaction key of a record with this key and value: the latest record of each compaction key stays.
/// `None`: the record has no compaction key, stays, and supersedes no other.
pub type CompactionKeyFn = fn(key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>>;

/// Settings of a compaction.
#[derive(Clone, Copy, Debug)]
pub struct Compaction {
    /// Grace period of a tombstone, ns from the timestamp of its record.
    pub tombstone_grace_ns: i64,
    /// Memory for keys, bytes; about 29 per key. With too little for all keys a run makes several passes.
    pub map_bytes: usize,
    /// Maximum bytes read and written per second; 0 = no limit.
    pub bytes_per_second: u64,
    /// How long a batch without records keeps the state of its producer, ns.
    pub producer_grace_ns: i64,
    /// The compaction keys of records; `None` = their own keys.
    pub key_fn: Option<CompactionKeyFn>,
    /// Segments with records from this offset on stay as they are, because a reader has not processed them; `u64::MAX` = none.
    pub held_from: u64,
    /// End (exclusive) of what every replica has on disk: records from there on supersede nothing, and segments with them stay as
    /// they are; `u64::MAX` = the log has no other replica.
    pub replicated_to: u64,
}
impl Default for Compaction {
    /// A day for tombstones, 64 MiB for keys (2.3 million), 768 MiB/s, 15 minutes for producers.
    fn default() -> Self {
        Self {
            tombstone_grace_ns: 86_400_000_000_000,
            map_bytes: 64 << 20,
            bytes_per_second: 768 << 20,
            producer_grace_ns: 900_000_000_000,
            key_fn: None,
            held_from: u64::MAX,
            replicated_to: u64::MAX,
        }
    }
}
impl Compaction {
    /// The compaction key of record `i` of a batch.
    fn key_of<'a>(&self, batch: &'a Batch, i: usize) -> Option<Cow<'a, [u8]>> {
        let key = batch.key(i)?;
        match self.key_fn {
            None => Some(Cow::Borrowed(key)),
            Some(key_fn) => key_fn(key, batch.value(i)).map(Cow::Owned),
        }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Segments rewritten.
    pub segments: u64,
    /// Segments skipped because of damaged or locked batches.
    pub skipped: u64,
    /// Records removed.
    pub records: u64,
    /// Bytes of the rewritten segments before.
    pub bytes_before: u64,
    /// Bytes of the rewritten segments after.
    pub bytes_after: u64,
    /// Passes over parts of the log.
    pub passes: u64,
    /// Whether the log was closed before the end; completed segments stay rewritten.
    pub cancelled: bool,
}

/// Called on the compacting thread at the end of a run. Must be quick.
pub type Compacted = Box<dyn FnOnce(Result<CompactionReport, Error>) + Send>;

/// Why the work on a segment stopped.
#[derive(Debug)]
enum Stopped {
    /// The log is being closed.
    Cancelled,
    /// A batch fails its checksum.
    Damaged,
    /// A key is missing.
    Locked,
    /// The segment cannot be read at the moment.
    Unreadable(Error),
    /// The new file could not be written.
    Failed(Error),
}
impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Clears the busy flag at the end of a run, or when the job is dropped before it begins.
struct Busy(Arc<Compacting>);
impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl Log {
    /// Submits a compaction if one is due: an eighth of the log is new since the last run, or the grace period of a tombstone is
    /// over. Returns at once; `false` = not due, or the last run has not ended, and `done` was dropped.
    ///
    /// `now_ns`: a time of day that is not ahead of the true one, for tombstones.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed. Errors of the run go to `done`: [`Error::Full`] changes nothing; after any
    /// other write error the log refuses writes.
    pub fn compact(
        &mut self,
        compaction: &Compaction,
        now_ns: i64,
        done: Compacted,
    ) -> Result<bool, Error> {
        self.committer.check_usable()?;
        let due = self
            .compacting
            .progress
            .try_lock()
            .is_some_and(|progress| progress.is_due(&self.shared, compaction, now_ns));
        if !due || self.compacting.busy.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let busy = Busy(Arc::clone(&self.compacting));
        let mut compaction = *compaction;
        if self.committer.is_stepped() {
            // The owner decides on the speed of a stepped group committer.
            compaction.bytes_per_second = 0;
        }
        let (shared, files) = (Arc::clone(&self.shared), Arc::clone(self.committer.files()));
        self.committer.compactor().submit(Box::new(move || {
            let mut progress = busy.0.progress.lock();
            let cancelled = Arc::clone(&busy.0.cancelled);
            let pace = Pace::new(Arc::clone(&shared), cancelled, compaction.bytes_per_second);
            let run = Run::new(&shared, &files, compaction, now_ns, pace);
            let outcome = run.all(&mut progress);
            if let Err(error) = &outcome {
                files.fail_if_fatal(error);
            }
            drop(progress);
            drop(busy);
            done(outcome);
        }));
        Ok(true)
    }
}
