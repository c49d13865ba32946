//! Waiting for whichever of several subscriptions has records first.
use crate::runtime::{ASK, Patience};
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Rung whenever a subscription that carries it has something: records or its end. Safe to share between threads.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}
impl Bell {
    /// Wakes whoever waits.
    pub fn ring(&self) {
        *self.rung.lock() += 1;
        self.changed.notify_all();
    }

    /// How often it has been rung, as soon as that is not `seen` any more; at the latest after `timeout`, or when patience
    /// ends.
    pub fn wait(&self, seen: u64, timeout: Duration, patience: Patience<'_>) -> u64 {
        let deadline = Instant::now().checked_add(timeout);
        let mut rung = self.rung.lock();
        while *rung == seen {
            let left = deadline.map_or(ASK, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break;
            }
            if self.changed.wait_for(&mut rung, left.min(ASK)).timed_out() {
                let broken = parking_lot::MutexGuard::unlocked(&mut rung, || patience().is_break());
                if broken {
                    break;
                }
            }
        }
        *rung
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;
    use std::sync::Arc;

    #[test]
    fn a_ring_before_or_during_the_wait_is_heard() {
        let bell = Arc::new(Bell::default());
        let mut go_on = || ControlFlow::Continue(());
        assert_eq!(bell.wait(0, Duration::ZERO, &mut go_on), 0);
        bell.ring();
        assert_eq!(bell.wait(0, Duration::from_mins(1), &mut go_on), 1);
        let other = bell.clone();
        let ringing = std::thread::spawn(move || other.ring());
        assert_eq!(bell.wait(1, Duration::from_mins(1), &mut go_on), 2);
        ringing.join().unwrap();
        assert_eq!(
            bell.wait(2, Duration::from_mins(1), &mut || ControlFlow::Break(())),
            2
        );
    }
}
