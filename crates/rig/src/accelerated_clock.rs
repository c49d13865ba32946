//! The files of the machine under an accelerated clock: what waits for minutes is due within one run.
use bascule_log::{OsStorage, Storage, StorageWrapper};

/// How many times faster time passes: removed files are kept for 6 ms instead of a minute.
const ACCELERATION: i64 = 10_000;

/// [`OsStorage`] with an accelerated [`Storage::monotonic_ns`]. The time of day is the true one.
#[derive(Debug)]
pub struct AcceleratedClock;

impl StorageWrapper for AcceleratedClock {
    fn monotonic_ns(&self) -> i64 {
        OsStorage.monotonic_ns().saturating_mul(ACCELERATION)
    }
}
