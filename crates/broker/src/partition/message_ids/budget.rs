//! Memory for message ids, over the whole broker.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound on bytes; `limits.nats_message_id_bytes`.
#[derive(Clone, Debug)]
pub(crate) struct IdBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    used: AtomicUsize,
    limit: usize,
}

impl IdBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Inner {
            used: AtomicUsize::new(0),
            limit,
        }))
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.0.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.0.limit
    }

    /// Counts bytes, also beyond the limit: ids that are in the log are remembered in any case.
    pub(super) fn take(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }
}
