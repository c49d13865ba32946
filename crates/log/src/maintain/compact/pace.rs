//! The rate limit and the cancellation of a compaction.
use super::Stopped;
use crate::state::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest sleep between two checks for cancellation.
const NAP: Duration = Duration::from_millis(20);

/// Counts bytes against the clock. Called between two steps of a batch, or of 256 KiB at most.
pub(super) struct Pace {
    shared: Arc<Shared>,
    cancelled: Arc<AtomicBool>,
    /// 0 = no limit.
    bytes_per_second: u64,
    began: Instant,
    bytes: u64,
}

impl Pace {
    /// Starts the clock.
    pub fn new(shared: Arc<Shared>, cancelled: Arc<AtomicBool>, bytes_per_second: u64) -> Self {
        Self {
            shared,
            cancelled,
            bytes_per_second,
            began: Instant::now(),
            bytes: 0,
        }
    }

    /// Accounts for `bytes` read or written; sleeps if that was too fast.
    ///
    /// # Errors
    /// [`Stopped::Cancelled`]: the log is being closed.
    pub fn took(&mut self, bytes: usize) -> Result<(), Stopped> {
        self.bytes += bytes as u64;
        loop {
            if self.cancelled.load(Ordering::Acquire) || self.shared.is_closed() {
                return Err(Stopped::Cancelled);
            }
            if self.bytes_per_second == 0 {
                std::thread::yield_now();
                return Ok(());
            }
            let due = Duration::from_secs_f64(self.bytes as f64 / self.bytes_per_second as f64);
            match due.checked_sub(self.began.elapsed()) {
                Some(early) if !early.is_zero() => std::thread::sleep(early.min(NAP)),
                _ => return Ok(()),
            }
        }
    }
}
