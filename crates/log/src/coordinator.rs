//! Group commit: one sync at a time for a whole data directory.
use std::sync::Arc;

/// Counts and times of syncs since start, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncStatistics {
    /// Rounds (barriers) done.
    pub rounds: u64,
    /// Files synced.
    pub files: u64,
    /// Requests answered.
    pub requests: u64,
    /// Time in syncs, ns.
    pub nanos: u64,
    /// Longest round, ns.
    pub longest_nanos: u64,
}

/// The committer of one data directory. Owns one thread, which ends when the last handle is dropped.
///
/// After a failed sync the directory is failed for good: every waiting and later request gets the error (promise P14).
#[derive(Debug)]
pub struct Coordinator {
    _private: (),
}
impl Coordinator {
    /// Starts the thread.
    pub fn start() -> Arc<Self> {
        todo!()
    }

    /// What was done so far.
    pub fn statistics(&self) -> SyncStatistics {
        todo!()
    }

    /// The first failure, if any: then nothing is acked from this directory until restart.
    pub fn failure(&self) -> Option<String> {
        todo!()
    }
}
