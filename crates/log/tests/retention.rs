//! What is removed from the start of a log, when, and what a crash in between leaves.
#![allow(clippy::unwrap_used)]
mod support;
use bascule_log::{Log, ReadMode, Retention};
use std::time::{Duration, Instant};
use support::*;

/// Ten records, each in a segment of its own; offset i at time 100 i.
fn ten(home: &Home) -> Log {
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
fn maintain(log: &mut Log, retention: Retention, now: i64) -> u64 {
    log.maintain(&retention, now).unwrap()
}

fn offsets(log: &Log) -> Vec<u64> {
    read_from(&log.reader(), 0)
        .unwrap()
        .into_iter()
        .map(|(offset, _)| offset)
        .collect()
}

/// A log whose active segment is not due for rolling: nine sealed segments and the tenth record in the active one.
fn nine_sealed_and_one(home: &Home) -> Log {
    let mut log = ten(home);
    log.set_options(small(1 << 20));
    log
}

#[test]
fn a_message_limit_keeps_the_newest() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    assert_eq!(
        maintain(
            &mut log,
            Retention {
                messages: 5,
                ..Retention::default()
            },
            0
        ),
        5
    );
    assert_eq!(offsets(&log), [5, 6, 7, 8, 9]);
    assert_eq!(log.reader().log_start(), 5);
}

#[test]
fn a_byte_limit_below_two_records_keeps_only_the_last() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    assert_eq!(
        maintain(
            &mut log,
            Retention {
                bytes: 300,
                ..Retention::default()
            },
            0
        ),
        9
    );
    assert_eq!(offsets(&log), [9]);
}

#[test]
fn the_active_segment_is_never_removed() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    let everything = Retention {
        bytes: 1,
        messages: 1,
        age_ns: 1,
    };
    assert_eq!(maintain(&mut log, everything, i64::MAX), 9);
    assert_eq!(offsets(&log), [9]);
}

#[test]
fn age_counts_from_the_last_record_of_a_segment() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    let retention = Retention {
        age_ns: 1_000,
        ..Retention::default()
    };
    assert_eq!(
        maintain(&mut log, retention, 1_400),
        4,
        "400 is not older than 1,400 − 1,000"
    );
    assert_eq!(maintain(&mut log, retention, 1_401), 5);
    assert_eq!(
        maintain(&mut log, Retention::default(), i64::MAX),
        5,
        "0 = no limit"
    );
}

#[test]
fn a_call_that_rolls_does_nothing_else() {
    let home = Home::new();
    let mut log = ten(&home);
    let retention = Retention {
        messages: 1,
        ..Retention::default()
    };
    assert_eq!(maintain(&mut log, retention, 0), 0);
    assert_eq!(log.reader().segment_count(), 11);
    assert_eq!(maintain(&mut log, retention, 0), 9);
}

#[test]
fn uncommitted_records_are_kept() {
    let home = Home::new();
    let mut log = home.create(small(100));
    for i in 0..6 {
        log.append(batch(&[1; 60], i), 1, 0).unwrap();
    }
    log.set_high_watermark(2);
    log.set_options(small(1 << 20));
    assert_eq!(
        maintain(
            &mut log,
            Retention {
                messages: 1,
                ..Retention::default()
            },
            0
        ),
        2
    );
}

#[test]
fn a_reader_in_removed_segments_goes_on_at_the_log_start() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    let mut cursor = log.reader().cursor(0);
    cursor.next(1, 1, ReadMode::Blocking).unwrap().unwrap();
    assert_eq!(cursor.offset(), 1);
    maintain(
        &mut log,
        Retention {
            messages: 3,
            ..Retention::default()
        },
        0,
    );
    cursor
        .next(u64::MAX, 1, ReadMode::Blocking)
        .unwrap()
        .unwrap();
    assert_eq!(cursor.offset(), 8, "read offset 7");
    assert_eq!(log.reader().offset_at_or_after(0).unwrap(), Some(7));
    assert_eq!(log.reader().offset_at_or_before(100).unwrap(), None);
}

#[test]
fn files_stay_under_marked_names_and_go_after_the_grace() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    maintain(
        &mut log,
        Retention {
            messages: 4,
            ..Retention::default()
        },
        1_000,
    );
    let marked = |home: &Home| {
        let names = std::fs::read_dir(home.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_str().unwrap().contains(".deleted-1000"))
            .count()
    };
    wait_until(|| marked(&home) == 6 && home.segments().len() == 4);
    maintain(&mut log, Retention::default(), 2_000);
    maintain(&mut log, Retention::default(), 1_000 + 60_000_000_000);
    wait_until(|| marked(&home) == 0);
}

#[test]
fn a_crash_after_the_log_start_moved_finishes_the_removal() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    let before = Home::new();
    copy(&home.path(), &before.path());
    maintain(
        &mut log,
        Retention {
            messages: 4,
            ..Retention::default()
        },
        1_000,
    );
    log.close().unwrap();
    // The checkpoint is there, the files have not gone yet; the directory still has every segment.
    std::fs::copy(
        home.path().join("checkpoint"),
        before.path().join("checkpoint"),
    )
    .unwrap();
    for home in [home, before] {
        let (log, recovery) = home.open(small(1 << 20));
        assert_eq!(recovery.damaged, []);
        assert_eq!((log.reader().log_start(), home.segments().len()), (6, 4));
        assert_eq!(offsets(&log), [6, 7, 8, 9]);
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}
