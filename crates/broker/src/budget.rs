//! Bounds on what waits between NATS and the partitions.
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often a [`StallBudget`] is refilled.
const PERIOD: Duration = Duration::from_secs(5);

/// A bound on bytes that wait somewhere.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
    /// Threads in [`Budget::wait_for_room`].
    waiting: AtomicUsize,
    lock: Mutex<()>,
    freed: Condvar,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            limit,
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// Takes `bytes` until the result is dropped; `None` when that would pass the limit.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let before = self.used.fetch_add(bytes, Ordering::SeqCst);
        let taken = Reservation {
            budget: self.clone(),
            bytes,
        };
        (before.saturating_add(bytes) <= self.limit).then_some(taken)
    }

    /// Whether `bytes` could be taken now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used.load(Ordering::SeqCst).saturating_add(bytes) <= self.limit
    }

    /// Blocks until `bytes` could be taken, at most for `limit`.
    pub(crate) fn wait_for_room(&self, bytes: usize, limit: Duration) {
        let until = Instant::now() + limit;
        let mut guard = self.lock.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.has_room(bytes) && !self.freed.wait_until(&mut guard, until).timed_out() {}
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes of a [`Budget`], given back on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.budget.waiting.load(Ordering::SeqCst) > 0 {
            // A waiting thread checks the room under the lock: it either sees these bytes or is notified.
            drop(self.budget.lock.lock());
            self.budget.freed.notify_all();
        }
    }
}

/// Time that may be spent waiting, so much in any [`PERIOD`]: whoever waits leaves messages with NATS, which does not keep
/// them for ever.
#[derive(Debug)]
pub(crate) struct StallBudget {
    limit: Duration,
    /// When the period began, and what is left of it.
    left: Mutex<(Instant, Duration)>,
}

impl StallBudget {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            left: Mutex::new((Instant::now(), limit)),
        }
    }

    /// Waits with `wait`, which gets the most it may take; not at all when nothing is left.
    pub(crate) fn spend(&self, wait: impl FnOnce(Duration)) {
        let mut left = self.left.lock();
        let start = Instant::now();
        if start.duration_since(left.0) >= PERIOD {
            *left = (start, self.limit);
        }
        if !left.1.is_zero() {
            wait(left.1);
            left.1 = left.1.saturating_sub(start.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_up_to_its_limit_and_takes_back() {
        let budget = Arc::new(Budget::new(10));
        let all = budget.try_reserve(10);
        assert!(all.is_some());
        assert!(budget.try_reserve(1).is_none());
        drop(all);
        assert!(budget.try_reserve(11).is_none());
        assert!(budget.try_reserve(10).is_some());
    }

    #[test]
    fn waiting_ends_when_there_is_room_and_no_later_than_the_limit() {
        let budget = Arc::new(Budget::new(10));
        let all = budget.try_reserve(10);
        let start = Instant::now();
        budget.wait_for_room(1, Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
        let other = budget.clone();
        let waiter = std::thread::spawn(move || {
            other.wait_for_room(1, Duration::from_mins(1));
            other.has_room(1)
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(all);
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn patience_is_used_up_until_the_next_period() {
        let stall_budget = StallBudget::new(Duration::from_millis(10));
        let mut waits = Vec::new();
        stall_budget.spend(|limit| {
            std::thread::sleep(limit);
            waits.push(limit);
        });
        stall_budget.spend(|limit| waits.push(limit));
        assert_eq!(waits, [Duration::from_millis(10)]);
        stall_budget.left.lock().0 -= PERIOD;
        stall_budget.spend(|limit| waits.push(limit));
        assert_eq!(waits.len(), 2);
    }
}
