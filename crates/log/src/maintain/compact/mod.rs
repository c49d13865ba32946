//! Key compaction: of the records with a key, the latest of each key stays.
//!
//! Applies to sealed segments whose records are all committed and durable; the search for the latest record also looks
//! at the active one, up to the same point. Records without a key stay. A null value (a tombstone) stays as the latest
//! of its key for a grace time, so that readers see it, and then goes too. Offsets and order never change.
//!
//! * `latest`: keys and their last offsets, within a bound of memory. When the keys are more, a run makes several
//!   passes, each over the next stretch of the log.
//! * `run`: what is to be done, segment by segment from the oldest on, and the order that makes it safe to stop anywhere.
//! * `rewriter`: one segment without its superseded records, in a file beside it.
//! * `swap`: the new file takes the old one's place; the table of what a crash leaves is there.
//!
//! One thread per data directory compacts one log at a time, at a bounded rate; appends and reads go on meanwhile. The
//! log is only asked when the work is due ([`Log::compact`]) and when it closes, which ends the work within a step.
//! What a run knows is kept in memory only: the first run of a life looks at the whole log.
mod input;
mod latest;
mod pace;
mod rewriter;
mod run;
mod swap;

use crate::state::compaction::Compacting;
use crate::{Error, Log};
use bascule_record::Batch;
use pace::Pace;
use run::Run;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A run begins when one byte in so many has not been looked at. So a byte is read about so many times in all.
const DUE_SHARE: u64 = 8;

/// What a record with this key and value is about, where that is not its key alone: the latest record about it stays.
/// `None`: it is about nothing, stays, and supersedes no other.
pub type Subject = fn(key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>>;

/// How a log is compacted.
#[derive(Clone, Copy, Debug)]
pub struct Compaction {
    /// How long a null value stays as the latest of its key, ns; by the record's timestamp.
    pub tombstone_grace_ns: i64,
    /// Memory for keys, bytes; about 29 a key. With less than all keys need, a run makes several passes.
    pub map_bytes: usize,
    /// Bytes read and written per second, at most; 0 = no limit.
    pub bytes_per_second: u64,
    /// Batches that lost all their records keep the place of their producer for so long, ns.
    pub producer_grace_ns: i64,
    /// What records are about; `None` = their key.
    pub subject: Option<Subject>,
}
impl Default for Compaction {
    /// A day for tombstones, 64 MiB for keys (2.3 million), 768 MiB/s, 15 minutes for producers.
    fn default() -> Self {
        Self {
            tombstone_grace_ns: 86_400_000_000_000,
            map_bytes: 64 << 20,
            bytes_per_second: 768 << 20,
            producer_grace_ns: 900_000_000_000,
            subject: None,
        }
    }
}
impl Compaction {
    /// What record `i` of a batch is about.
    fn subject_of<'a>(&self, batch: &'a Batch, i: usize) -> Option<Cow<'a, [u8]>> {
        let key = batch.key(i)?;
        match self.subject {
            None => Some(Cow::Borrowed(key)),
            Some(subject) => subject(key, batch.value(i)).map(Cow::Owned),
        }
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Segments rewritten.
    pub segments: u64,
    /// Segments left as they are because something in them is damaged or locked.
    pub skipped: u64,
    /// Records removed.
    pub records: u64,
    /// Bytes of the rewritten segments before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
    /// Stretches of the log that the keys were gathered in.
    pub passes: u64,
    /// Whether the log was closed before the end; what was done stays done.
    pub cancelled: bool,
}

/// Called on the compacting thread at the end of a run. Must be quick.
pub type Compacted = Box<dyn FnOnce(Result<CompactionReport, Error>) + Send>;

/// Why the work on a segment stopped.
#[derive(Debug)]
enum Stopped {
    /// The log is being closed.
    Cancelled,
    /// Something in it does not check.
    Damaged,
    /// A key is missing.
    Locked,
    /// It cannot be read at the moment.
    Unreadable(Error),
    /// The new file could not be made.
    Failed(Error),
}
impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Says that nothing runs any more, also when the run was dropped before it began.
struct Busy(Arc<Compacting>);
impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl Log {
    /// Has the log compacted, when that is due: an eighth of it is new since the last run, or a tombstone has had its
    /// time. Returns at once; `false` = not due, or the last run still goes on, and `done` was dropped.
    ///
    /// `now_ns`: a time of day that is not ahead of the true one, for tombstones.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed. Those of the work go to `done`: [`Error::Full`] leaves
    /// everything as it was; after any other error of writing the log refuses writes.
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
            .is_some_and(|progress| progress.is_due(&self.shared, now_ns));
        if !due || self.compacting.busy.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let busy = Busy(Arc::clone(&self.compacting));
        let mut compaction = *compaction;
        if self.committer.is_stepped() {
            // Whoever steps the work decides on its speed.
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
