//! A time of day for retention that never runs ahead when the clock is set forward.
//!
//! The guard trusts the time of day at the start and advances it with the monotonic clock. A wall clock that is ahead of
//! that was set forward, or jumps, and is ignored until the next start. A wall clock that was behind during the last
//! quarter of an hour is used instead. So removal may be late, never early. The next start trusts the time of day again;
//! [`crate::Retention::min_age_ns`] leaves time to correct a wrong one.

/// For how long a clock that was behind is remembered at least, ns; at most twice that.
const WINDOW_NS: i64 = 900_000_000_000;

/// Knows how far the time of day is ahead of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockGuard {
    /// Time of day − monotonic time at the start.
    anchor: i64,
    /// The least of that in this window and in the one before.
    least: [i64; 2],
    window_began: i64,
}

impl ClockGuard {
    /// Begins with both clocks, ns.
    pub fn new(wall_ns: i64, monotonic_ns: i64) -> Self {
        let anchor = wall_ns.saturating_sub(monotonic_ns);
        Self {
            anchor,
            least: [anchor; 2],
            window_began: monotonic_ns,
        }
    }

    /// A time of day that is not ahead of the true one if that of the start was not, ns. To be asked every few seconds.
    pub fn trusted_ns(&mut self, wall_ns: i64, monotonic_ns: i64) -> i64 {
        let ahead = wall_ns.saturating_sub(monotonic_ns);
        if monotonic_ns.saturating_sub(self.window_began) >= WINDOW_NS {
            self.least = [ahead, self.least[0]];
            self.window_began = monotonic_ns;
        }
        self.least[0] = self.least[0].min(ahead);
        let least = self.least[0].min(self.least[1]).min(self.anchor);
        monotonic_ns.saturating_add(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const HOUR: i64 = 3_600_000_000_000;
    const DAY: i64 = 24 * HOUR;

    #[test]
    fn a_clock_set_forward_is_not_believed() {
        let mut guard = ClockGuard::new(1_000 * DAY, 0);
        for minute in 1..10_000 {
            let elapsed = minute * (HOUR / 60);
            let shown = guard.trusted_ns(1_000 * DAY + elapsed + DAY, elapsed);
            assert_eq!(shown, 1_000 * DAY + elapsed);
        }
    }

    #[test]
    fn a_clock_that_jumps_to_and_fro_is_believed_at_its_least() {
        let mut guard = ClockGuard::new(1_000 * DAY + DAY, 0);
        guard.trusted_ns(1_000 * DAY - DAY, 1);
        for tick in 1..100_000 {
            let elapsed = tick * 100_000_000;
            let error = [DAY, -DAY][tick as usize % 2];
            let shown = guard.trusted_ns(1_000 * DAY + elapsed + error, elapsed);
            assert!(shown <= 1_000 * DAY + elapsed, "tick {tick}");
        }
    }

    #[test]
    fn a_clock_that_was_behind_for_a_moment_is_forgiven() {
        let mut guard = ClockGuard::new(1_000 * DAY, 0);
        assert!(guard.trusted_ns(0, HOUR) < DAY);
        guard.trusted_ns(1_000 * DAY + 2 * HOUR, 2 * HOUR);
        let shown = guard.trusted_ns(1_000 * DAY + 3 * HOUR, 3 * HOUR);
        assert_eq!(shown, 1_000 * DAY + 3 * HOUR);
    }

    #[test]
    fn a_clock_corrected_backwards_is_believed() {
        let mut guard = ClockGuard::new(1_000 * DAY + DAY, 0);
        assert_eq!(
            guard.trusted_ns(1_000 * DAY + HOUR, HOUR),
            1_000 * DAY + HOUR
        );
    }
}
