//! Tracks whether the data directory has space, from the errors of appends and of opening partitions; purges check it.
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An append that is stored so long after the last refusal shows that there is space again: on a disk that is nearly full
/// small appends pass between large ones that do not.
const RECOVERED: Duration = Duration::from_secs(1);
/// For so long a refusal counts by itself: a quota does not show in the free space.
const RECENT: Duration = Duration::from_mins(1);
/// Less than this free means that an older refusal still stands, bytes.
const LOW: u64 = 64 << 20;

/// The last refusal for want of space, of any partition.
#[derive(Debug)]
pub struct DiskFullTracker {
    began: Instant,
    /// Milliseconds since `began`, plus 1; 0 = nothing is refused.
    refused: AtomicU64,
}

impl Default for DiskFullTracker {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            refused: AtomicU64::new(0),
        }
    }
}

impl DiskFullTracker {
    /// Something could not be stored for want of space.
    pub fn refused(&self) {
        self.refused.store(self.now(), Ordering::Relaxed);
    }

    /// An append was stored.
    pub fn stored(&self) {
        let refused = self.refused.load(Ordering::Relaxed);
        if refused != 0 && self.since(refused) >= RECOVERED {
            // A refusal of just now stays.
            let _ = self
                .refused
                .compare_exchange(refused, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether writes to the data directory are refused for want of space.
    pub fn is_full(&self, data: &Path) -> bool {
        let refused = self.refused.load(Ordering::Relaxed);
        if refused == 0 {
            return false;
        }
        // Where the free space cannot be asked for, the refusal stands.
        let is_low = || {
            rustix::fs::statvfs(data).map_or(true, |about| {
                about.f_bavail.saturating_mul(about.f_frsize) < LOW
            })
        };
        self.since(refused) < RECENT || is_low()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn since(&self, refused: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(elapsed: Duration) -> DiskFullTracker {
        let began = Instant::now().checked_sub(elapsed).unwrap();
        DiskFullTracker {
            began,
            refused: AtomicU64::new(1),
        }
    }

    #[test]
    fn a_refusal_stands_until_an_append_is_stored_a_while_later() {
        let space = DiskFullTracker::default();
        assert!(!space.is_full(Path::new("/")));
        space.refused();
        space.stored();
        assert!(
            space.is_full(Path::new("/")),
            "a small append passes on a nearly full disk"
        );
        let space = ago(RECOVERED);
        assert!(space.is_full(Path::new("/")));
        space.stored();
        assert!(!space.is_full(Path::new("/")));
    }

    #[test]
    fn an_old_refusal_counts_while_there_is_little_space() {
        let home = tempfile::tempdir().unwrap();
        assert!(
            !ago(RECENT).is_full(home.path()),
            "the disk of this test has space"
        );
        assert!(ago(RECENT).is_full(Path::new("/proc/self/absent")));
    }
}
