//! How many descriptors connections may have: what the process may open, less a reserve for segments and journals.
use rustix::process::{Resource, getrlimit, setrlimit};

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
