//! What a log and its compaction share.
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a log and its compaction share.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    pub cancelled: Arc<AtomicBool>,
    /// A run was asked for and has not ended.
    pub busy: AtomicBool,
    /// Held during a run.
    pub progress: Mutex<Progress>,
}

impl Compacting {
    /// Ends the run, if there is one, and keeps others from beginning. Waits for the current step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        drop(self.progress.lock());
    }
}

/// What the last run came to.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Below it every sealed segment holds only the latest of what was known below it.
    pub clean_to: u64,
    /// Where the search ended: base offset of the segment, bytes in it.
    pub looked_to: (u64, u64),
    /// When the earliest tombstone that was left may go, ns.
    pub tombstone_due: Option<i64>,
}
