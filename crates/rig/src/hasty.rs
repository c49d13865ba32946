//! The machine's own files under a clock that runs ahead: what waits for minutes comes due within a life.
use bascule_log::{OsStorage, Storage, StorageOver};

/// How many times faster time passes: the minute for which removed files are kept is 6 ms.
const HASTE: i64 = 10_000;

/// [`OsStorage`] but for [`Storage::monotonic_ns`]. Time of day stays true.
#[derive(Debug)]
pub struct HastyStorage;

impl StorageOver for HastyStorage {
    fn monotonic_ns(&self) -> i64 {
        OsStorage.monotonic_ns().saturating_mul(HASTE)
    }
}
