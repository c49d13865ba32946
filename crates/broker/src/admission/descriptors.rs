//! The number of descriptors for connections: the limit of the process, less a reserve for segments and WAL files.
use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that the broker needs for files other than segments: WAL, lock, metadata, and files that are open briefly.
const OTHER_FILES: usize = 64;

/// The number of segments to hold open: `wanted`, but at most half the descriptors of the process.
pub(crate) fn for_segments(wanted: usize) -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let half = usize::try_from(most / 2).unwrap_or(usize::MAX);
    wanted.min(half.saturating_sub(OTHER_FILES)).max(1)
}

/// The descriptors to reserve for files: at least those for segments.
pub(super) fn reserve(descriptors: usize, segments: usize) -> usize {
    descriptors.max(segments.saturating_add(OTHER_FILES))
}

/// Raises the soft limit to the hard one. Returns the number from which on descriptors are kept for files: a new socket
/// gets the lowest free number, so one of this number or above means that all below are in use.
pub(super) fn usable(reserve: usize) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let mut raised = limit;
        raised.current = raised.maximum;
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    let most = limit.current.unwrap_or(u64::MAX);
    // Half at most: a machine that gives few descriptors still serves.
    most - (reserve as u64).min(most / 2)
}
