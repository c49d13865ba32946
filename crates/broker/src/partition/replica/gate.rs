//! Stops the role of a leader that resigns, visible to everybody at once: also while the partition's task hangs.
//!
//! A resignation is sent after the role has stopped, and the role may resume only when the resignation is void: when an entry
//! with a newer partition epoch was taken over (N43). The step function keeps to that for what it sends itself. What is sent
//! for a task that hangs is noted here, and given to the step function before anything else it does.
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of one partition. Readers and the task look at it; the task, and whoever watches it, close it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Leader epoch in which this broker has led last; 0 = none.
    led: AtomicU64,
    /// Leader epochs up to this have stopped.
    stopped: AtomicU64,
    stop: Mutex<Stop>,
}

/// Why the role has stopped.
#[derive(Clone, Copy, Debug, Default)]
struct Stop {
    leader_epoch: u64,
    /// The newest that a resignation names.
    partition_epoch: u64,
    /// The task hung: others resign for it.
    is_from_outside: bool,
}

impl Gate {
    /// A leader epoch begins here.
    pub fn begin(&self, leader_epoch: u64) {
        self.led.store(leader_epoch, Ordering::SeqCst);
    }

    /// The last leader epoch that began here; 0 = none.
    pub fn led(&self) -> u64 {
        self.led.load(Ordering::SeqCst)
    }

    /// Whether the present role as the leader has stopped: it takes and acknowledges nothing, and shows nothing.
    pub fn has_stopped(&self) -> bool {
        let led = self.led.load(Ordering::SeqCst);
        led > 0 && led <= self.stopped.load(Ordering::SeqCst)
    }

    /// Stops the role for a resignation with these epochs, which may be sent after it.
    pub fn stop(&self, leader_epoch: u64, partition_epoch: u64, is_from_outside: bool) {
        let mut stop = self.stop.lock();
        if leader_epoch < stop.leader_epoch {
            return;
        }
        if leader_epoch > stop.leader_epoch {
            *stop = Stop::default();
        }
        *stop = Stop {
            leader_epoch,
            partition_epoch: stop.partition_epoch.max(partition_epoch),
            is_from_outside: stop.is_from_outside || is_from_outside,
        };
        self.stopped.fetch_max(leader_epoch, Ordering::SeqCst);
    }

    /// The partition epoch of the last resignation of this leader epoch, while its role has stopped.
    pub fn stopped_at(&self, leader_epoch: u64) -> Option<u64> {
        let stop = self.stop.lock();
        (stop.leader_epoch == leader_epoch).then_some(stop.partition_epoch)
    }

    /// The same, of one that others sent.
    pub fn stopped_from_outside_at(&self, leader_epoch: u64) -> Option<u64> {
        let stop = self.stop.lock();
        (stop.leader_epoch == leader_epoch && stop.is_from_outside).then_some(stop.partition_epoch)
    }

    /// The role has taken over this partition epoch and continues, unless a resignation names it, too.
    pub fn resume(&self, leader_epoch: u64, partition_epoch: u64) {
        let mut stop = self.stop.lock();
        if stop.leader_epoch == leader_epoch && stop.partition_epoch < partition_epoch {
            *stop = Stop::default();
            self.stopped.store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_has_stopped_resumes_with_a_newer_partition_epoch_only() {
        let gate = Gate::default();
        assert!(!gate.has_stopped());
        gate.begin(5);
        gate.stop(5, 8, false);
        assert!(gate.has_stopped());
        assert_eq!(gate.stopped_at(5), Some(8));
        assert_eq!(gate.stopped_from_outside_at(5), None);
        gate.resume(5, 8);
        assert!(gate.has_stopped());
        gate.stop(5, 9, true);
        gate.resume(5, 9);
        assert!(gate.has_stopped(), "the second resignation may be applied");
        assert_eq!(gate.stopped_from_outside_at(5), Some(9));
        gate.resume(5, 10);
        assert!(!gate.has_stopped());
        assert_eq!(gate.stopped_at(5), None);
    }

    #[test]
    fn a_stop_of_an_earlier_epoch_does_not_stop_a_later_one() {
        let gate = Gate::default();
        gate.begin(5);
        gate.begin(9);
        gate.stop(5, 8, true);
        assert!(!gate.has_stopped());
        gate.stop(9, 9, true);
        gate.stop(5, 12, true);
        assert!(gate.has_stopped());
        assert_eq!(gate.stopped_at(9), Some(9));
        gate.resume(5, 13);
        assert!(gate.has_stopped());
    }

    #[test]
    fn an_epoch_may_be_stopped_before_the_task_begins_it() {
        let gate = Gate::default();
        gate.begin(5);
        gate.stop(9, 9, true);
        assert!(gate.has_stopped(), "nobody leads in the epoch before");
        gate.begin(9);
        assert!(gate.has_stopped());
        gate.begin(11);
        assert!(!gate.has_stopped());
    }
}
