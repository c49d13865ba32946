//! What is removed from the start of a log, when, and what a crash in between leaves.
#![allow(clippy::unwrap_used)]
mod clocked;
mod faulty;
mod support;
mod tenfold;
use bascule_log::{GroupCommitter, Log, LogReader, ReadMode, Retention};
use clocked::Clocked;
use faulty::{Fault, Faulty, Kind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::*;
use tenfold::*;

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
        min_age_ns: 0,
        archive: None,
        hold: None,
    };
    assert_eq!(maintain(&mut log, everything, i64::MAX), 9);
    assert_eq!(offsets(&log), [9]);
}

#[test]
fn the_newest_segment_with_records_is_never_too_much() {
    let home = Home::new();
    let mut log = ten(&home);
    let least = Retention {
        bytes: 1,
        messages: 1,
        ..Retention::default()
    };
    assert_eq!(maintain(&mut log, least, 0), 0, "seals the last one");
    assert_eq!(maintain(&mut log, least, 0), 9);
    assert_eq!(maintain(&mut log, least, 0), 9);
    assert_eq!(offsets(&log), [9]);
    // With the next record it is not the newest any more.
    log.append(batch(&[10; 60], 1_000), 1, 0).unwrap();
    settle(&mut log);
    assert_eq!(maintain(&mut log, least, 0), 9, "seals it");
    assert_eq!(maintain(&mut log, least, 0), 10);
    let old = Retention {
        age_ns: 1,
        ..Retention::default()
    };
    assert_eq!(maintain(&mut log, old, 1_000_000), 11, "by age it goes");
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
fn a_reader_in_removed_segments_continues_at_the_log_start() {
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

fn marked(home: &Home) -> usize {
    let names = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_str().unwrap().contains(".deleted-"))
        .count()
}

#[test]
fn files_stay_under_marked_names_for_a_minute_that_no_clock_shortens() {
    let clock = Arc::new(Clocked::default());
    let home = Home::on(clock.clone());
    let mut log = nine_sealed_and_one(&home);
    let four = Retention {
        messages: 4,
        ..Retention::default()
    };
    maintain(&mut log, four, 1_000);
    wait_until(|| marked(&home) == 6 && home.segments().len() == 4);
    // The time of day jumps by a century; a minute less a second has passed.
    clock.pass(59_000_000_000);
    maintain(&mut log, Retention::default(), i64::MAX);
    log.close().unwrap();
    assert_eq!(marked(&home), 6);
    let (mut log, _) = home.open(small(1 << 20));
    assert_eq!(marked(&home), 6, "a reopening does not shorten it either");
    clock.pass(59_000_000_000);
    maintain(&mut log, Retention::default(), i64::MAX);
    log.close().unwrap();
    assert_eq!(marked(&home), 6, "counted from the opening");
    let (mut log, _) = home.open(small(1 << 20));
    clock.pass(60_000_000_000);
    maintain(&mut log, Retention::default(), 2_000);
    wait_until(|| marked(&home) == 0);
}

#[test]
fn nothing_goes_before_its_least_age_whatever_the_time_of_day_says() {
    const MINUTES_15: i64 = 900_000_000_000;
    let clock = Arc::new(Clocked::default());
    let home = Home::on(clock.clone());
    let mut log = nine_sealed_and_one(&home);
    let everything = Retention {
        messages: 1,
        bytes: 1,
        age_ns: 1,
        min_age_ns: MINUTES_15,
        archive: None,
        hold: None,
    };
    assert_eq!(maintain(&mut log, everything, i64::MAX), 0);
    clock.pass(MINUTES_15 - 1);
    assert_eq!(maintain(&mut log, everything, i64::MAX), 0);
    log.close().unwrap();
    let (mut log, _) = home.open(small(1 << 20));
    clock.pass(MINUTES_15 - 1);
    assert_eq!(maintain(&mut log, everything, i64::MAX), 0, "counted again");
    log.set_high_watermark(10);
    clock.pass(1);
    assert_eq!(maintain(&mut log, everything, i64::MAX), 9);
}

#[test]
fn a_trim_hides_a_prefix_at_once_and_over_a_reopening() {
    let home = Home::new();
    let mut log = home.create(small(1 << 20));
    log.append(batch_of(&[b"0", b"1", b"2", b"3"], 100, None), 1, 0)
        .unwrap();
    log.append(batch_of(&[b"4", b"5"], 200, None), 1, 0)
        .unwrap();
    settle(&mut log);
    assert_eq!(log.trim(2, 0).unwrap(), 2);
    assert_eq!(log.trim(1, 0).unwrap(), 2, "never back");
    let reader = log.reader();
    assert_eq!(offsets_from_start(&reader), [2, 3, 4, 5]);
    assert_eq!(reader.offset_at_or_after(0).unwrap(), Some(2));
    assert_eq!(reader.offset_at_or_before(101).unwrap(), None);
    assert_eq!(reader.offset_at_or_before(103).unwrap(), Some(3));
    log.close().unwrap();
    let (mut log, _) = home.open(small(1 << 20));
    assert_eq!(offsets_from_start(&log.reader()), [2, 3, 4, 5]);
    assert_eq!(log.trim(6, 0).unwrap(), 6);
    log.append(batch(b"6", 300), 1, 0).unwrap();
    settle(&mut log);
    assert_eq!(offsets_from_start(&log.reader()), [6]);
    log.close().unwrap();
    assert_eq!(home.segments().len(), 1, "the old one is gone");
    let (log, recovery) = home.open(small(1 << 20));
    assert_eq!(
        (recovery.damaged, offsets_from_start(&log.reader())),
        (vec![], vec![6])
    );
}

#[test]
fn a_trim_beyond_the_end_leaves_no_offset_to_be_used_twice() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    assert_eq!(log.trim(100, 0).unwrap(), 100);
    let reader = log.reader();
    assert_eq!((reader.log_end(), reader.high_watermark()), (100, 100));
    assert_eq!(log.append(batch(b"x", 5), 1, 0).unwrap().base_offset, 100);
    settle(&mut log);
    let before = Home::new();
    copy(&home.path(), &before.path());
    log.close().unwrap();
    for home in [home, before] {
        let (log, recovery) = home.open(small(1 << 20));
        assert_eq!(recovery.damaged, []);
        log.set_high_watermark(101);
        assert_eq!(offsets_from_start(&log.reader()), [100]);
        assert_eq!(log.reader().last_timestamp(), Some(900), "never back");
    }
}

#[test]
fn what_was_not_removed_for_want_of_space_or_descriptors_is_removed_later() {
    let least = Retention {
        messages: 2,
        ..Retention::default()
    };
    for fault in [Fault::Enospc, Fault::Emfile] {
        for calls in 0.. {
            let storage = Faulty::disarmed(fault, calls, u64::MAX);
            let home = Home {
                committer: GroupCommitter::stepped(storage.clone()),
                ..Home::new()
            };
            let run = || while home.committer.step() {};
            let mut log = home.create(small(100));
            let put = |log: &mut Log, count: u8| {
                for i in 0..count {
                    log.append(batch(&[i; 60], 0), 1, 0).unwrap();
                }
                log.commit(Box::new(|_| ()));
                run();
                log.set_high_watermark(u64::MAX);
            };
            put(&mut log, 10);
            log.set_options(small(1 << 20));
            storage.arm();
            assert_eq!(maintain(&mut log, least, 0), 8);
            run();
            storage.heal();
            let hits = storage.hits();
            if hits.iter().any(|(kind, _)| *kind == Kind::Sync) {
                // A sync that finds no space has failed.
                continue;
            }
            put(&mut log, 1);
            assert_eq!(maintain(&mut log, least, 0), 9);
            run();
            assert_eq!(
                (home.segments().len(), marked(&home)),
                (1, 9),
                "{fault:?} at call {calls}"
            );
            if hits.is_empty() {
                assert!(calls > 0, "{fault:?}: nothing failed");
                break;
            }
        }
    }
}

#[test]
fn a_trim_beyond_the_end_without_space_or_descriptors_changes_nothing() {
    for fault in [Fault::Enospc, Fault::Emfile] {
        for calls in 0.. {
            let storage = Faulty::disarmed(fault, calls, u64::MAX);
            let home = Home::on(storage.clone());
            let mut log = home.create(small(1 << 20));
            fill(&mut log, (0..4).map(|i| vec![i; 60]));
            storage.arm();
            let trimmed = log.trim(10, 0);
            storage.heal();
            let reader = log.reader();
            let ends = (
                reader.log_start(),
                reader.log_end(),
                reader.high_watermark(),
            );
            let Err(error) = trimmed else {
                assert_eq!(ends, (10, 10, 10));
                assert!(calls > 0, "{fault:?}: nothing failed");
                break;
            };
            assert_eq!(ends, (0, 4, 4), "{fault:?} at call {calls}");
            if !error.is_transient() {
                // A sync that finds no space has failed.
                continue;
            }
            // What is appended below is none of the trim's, and stays.
            fill(&mut log, [vec![4; 60]]);
            drop(log);
            let (mut log, recovery) = home.open(small(1 << 20));
            assert_eq!(recovery.damaged, []);
            log.set_high_watermark(u64::MAX);
            assert_eq!(offsets_from_start(&log.reader()), [0, 1, 2, 3, 4]);
            assert_eq!(log.trim(10, 0).unwrap(), 10);
            fill(&mut log, [vec![10; 60]]);
            drop(log);
            let (log, _) = home.open(small(1 << 20));
            log.set_high_watermark(u64::MAX);
            assert_eq!(offsets_from_start(&log.reader()), [10]);
        }
    }
}

fn offsets_from_start(reader: &LogReader) -> Vec<u64> {
    let start = reader.log_start();
    let records = read_from(reader, start).unwrap();
    records.into_iter().map(|(offset, _)| offset).collect()
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
