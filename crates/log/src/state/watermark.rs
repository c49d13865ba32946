//! Moves the high watermark from another thread: the committer does so before it answers.
use crate::failpoint;
use crate::state::shared::Shared;
use std::sync::Arc;

/// A handle that moves the high watermark of one log.
#[derive(Clone, Debug)]
pub struct HighWatermarkUpdater(Arc<Shared>);

impl HighWatermarkUpdater {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Publishes everything below `offset` (exclusive) to readers; never moves back.
    pub fn raise(&self, offset: u64) {
        self.0.raise_high_watermark(offset);
        failpoint::pass("publish.hw_advanced");
    }
}
