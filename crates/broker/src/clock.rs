//! The time of day, and the time since the machine started.
use bascule_log::ClockGuard;
use bascule_replica::types::Instant64;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as i64)
}

/// Milliseconds of the clock that continues while the machine sleeps: for leases, expiry and authority.
pub(crate) fn since_boot() -> Instant64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Instant64(seconds.saturating_mul(1_000) + nanos / 1_000_000)
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
