//! The state of the compaction of a log.
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by a log and its compaction.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    pub cancelled: Arc<AtomicBool>,
    /// A run was submitted and has not ended.
    pub busy: AtomicBool,
    /// Held during a run.
    pub progress: Mutex<Progress>,
}

impl Compacting {
    /// Ends the current run and prevents others. Waits for the current step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        drop(self.progress.lock());
    }
}

/// The progress of the last run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Below this offset every sealed segment holds only the latest record of each key.
    pub clean_to: u64,
    /// End of the last scan: base offset of the segment, bytes in it.
    pub scanned_to: (u64, u64),
    /// When the earliest remaining tombstone may be removed, ns.
    pub tombstone_due: Option<i64>,
}
