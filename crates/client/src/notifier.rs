//! Waits for the first of several subscriptions that has records.
use crate::runtime::{ASK, Patience};
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Notified whenever one of its subscriptions has records or has ended. Safe to share between threads.
#[derive(Debug, Default)]
pub struct Notifier {
    count: Mutex<u64>,
    changed: Condvar,
}
impl Notifier {
    /// Wakes the waiting threads.
    pub fn notify(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until the number of notifications differs from `seen`, at most for `timeout` or until the caller interrupts;
    /// returns the number.
    pub fn wait(&self, seen: u64, timeout: Duration, patience: Patience<'_>) -> u64 {
        let deadline = Instant::now().checked_add(timeout);
        let mut count = self.count.lock();
        while *count == seen {
            let left = deadline.map_or(ASK, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break;
            }
            if self.changed.wait_for(&mut count, left.min(ASK)).timed_out() {
                let broken =
                    parking_lot::MutexGuard::unlocked(&mut count, || patience().is_break());
                if broken {
                    break;
                }
            }
        }
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;
    use std::sync::Arc;

    #[test]
    fn a_notification_before_or_during_the_wait_ends_it() {
        let notifier = Arc::new(Notifier::default());
        let mut never_interrupt = || ControlFlow::Continue(());
        assert_eq!(notifier.wait(0, Duration::ZERO, &mut never_interrupt), 0);
        notifier.notify();
        assert_eq!(
            notifier.wait(0, Duration::from_mins(1), &mut never_interrupt),
            1
        );
        let other = notifier.clone();
        let notifying = std::thread::spawn(move || other.notify());
        assert_eq!(
            notifier.wait(1, Duration::from_mins(1), &mut never_interrupt),
            2
        );
        notifying.join().unwrap();
        assert_eq!(
            notifier.wait(2, Duration::from_mins(1), &mut || ControlFlow::Break(())),
            2
        );
    }
}
