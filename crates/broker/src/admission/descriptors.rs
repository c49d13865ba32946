//! How many descriptors connections may have: what the process may open, less a reserve for segments and journals.
use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that the broker needs for files beside segments: journal, lock, metadata, what is opened for a moment.
const OTHER_FILES: usize = 64;

/// How many segments may be held open when `wanted` should: not more than half of what the process may open.
pub(crate) fn for_segments(wanted: usize) -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let half = usize::try_from(most / 2).unwrap_or(usize::MAX);
    wanted.min(half.saturating_sub(OTHER_FILES)).max(1)
}

/// What is kept for files: at least what the segments take.
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
