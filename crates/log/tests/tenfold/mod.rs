//! A log of ten segments, and what retention leaves of it.
use bascule_log::{Log, Retention};

use super::support::*;

/// Ten records, each in a segment of its own; offset i at time 100 i.
pub fn ten(home: &Home) -> Log {
    let mut log = home.create(small(100));
    for i in 0..10_u8 {
        log.append(batch(&[i; 60], 100 * i64::from(i)), 1, 0)
            .unwrap();
    }
    settle(&mut log);
    assert_eq!(log.reader().segment_count(), 10);
    log
}

/// The active segment is over its size; the first call seals it, as the next append would have.
pub fn maintain(log: &mut Log, retention: Retention, now: i64) -> u64 {
    log.maintain(&retention, now).unwrap()
}

pub fn offsets(log: &Log) -> Vec<u64> {
    read_from(&log.reader(), 0)
        .unwrap()
        .into_iter()
        .map(|(offset, _)| offset)
        .collect()
}

/// A log whose active segment is not due for rolling: nine sealed segments and the tenth record in the active one.
pub fn nine_sealed_and_one(home: &Home) -> Log {
    let mut log = ten(home);
    log.set_options(small(1 << 20));
    log
}
