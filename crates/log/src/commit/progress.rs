//! How far the calls to the disk of a round of syncs are, for those who watch whether one does not end.
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is odd while a round waits for the disk, and another one after each of its calls.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU64);

impl Progress {
    /// A round begins.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One of its calls has ended.
    pub fn passed(&self) {
        self.0.fetch_add(2, Ordering::Relaxed);
    }

    /// The round has ended.
    pub fn end(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number now.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
