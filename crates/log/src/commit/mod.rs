//! Group commit: one sync at a time for a whole data directory.
pub(crate) mod group_committer;
pub(crate) mod histogram;
mod progress;
pub(crate) mod sync_queue;
