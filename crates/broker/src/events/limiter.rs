//! Bounds how often a kind of line is logged, so that rejected clients cannot fill the disk.
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Minimum time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// What was not logged since the last line, and when that was.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(Mutex<(u64, Option<Instant>)>);

impl LogLimiter {
    /// How many were not logged before this one, when this one is to be logged.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let (unreported, last) = &mut *state;
        if last.is_some_and(|last| last.elapsed() < INTERVAL) {
            *unreported += 1;
            return None;
        }
        *last = Some(Instant::now());
        Some(std::mem::take(unreported))
    }
}
