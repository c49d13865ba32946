//! The time of day.
use bascule_log::ClockGuard;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as i64)
}

/// Nanoseconds since 1970, for removing by age: a clock that was set forward does not make records old. Each call reads the
/// clock.
pub(crate) fn cautious_now_ns() -> i64 {
    static CLOCK: OnceLock<(Instant, Mutex<ClockGuard>)> = OnceLock::new();
    let (began, guard) =
        CLOCK.get_or_init(|| (Instant::now(), Mutex::new(ClockGuard::new(now_ns(), 0))));
    let elapsed = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
    guard.lock().trusted_ns(now_ns(), elapsed)
}
