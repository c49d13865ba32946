//! Cursors and look-ups by time, alone and beside a writer.
#![allow(clippy::unwrap_used)]
mod support;
use bascule_log::{LogOptions, ReadMode, Retention};
use bascule_record::{Batch, Batches};
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;

#[test]
fn a_cursor_stops_at_its_bound_and_at_the_high_watermark() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    for i in 0..6 {
        log.append(batch(b"v", i), 1, 0).unwrap();
    }
    log.set_high_watermark(4);
    let mut cursor = log.reader().cursor(0);
    let read = cursor.next(3, 1 << 20, ReadMode::NoWait).unwrap().unwrap();
    assert_eq!((Batches::new(read).count(), cursor.offset()), (3, 3));
    assert!(cursor.next(3, 1 << 20, ReadMode::NoWait).unwrap().is_none());
    let read = cursor
        .next(u64::MAX, 1 << 20, ReadMode::NoWait)
        .unwrap()
        .unwrap();
    assert_eq!((Batches::new(read).count(), cursor.offset()), (1, 4));
    assert!(
        cursor
            .next(u64::MAX, 1 << 20, ReadMode::NoWait)
            .unwrap()
            .is_none()
    );
    log.set_high_watermark(100);
    assert_eq!(log.reader().high_watermark(), 6, "never past the log end");
    let read = cursor.next(u64::MAX, 1, ReadMode::NoWait).unwrap().unwrap();
    assert_eq!(
        Batches::new(read).count(),
        1,
        "at least one, however small the limit"
    );
}

#[test]
fn a_batch_is_shown_only_as_a_whole() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    log.append(batch_of(&[b"a", b"b", b"c"], 1, None), 1, 0)
        .unwrap();
    log.set_high_watermark(2);
    let mut cursor = log.reader().cursor(0);
    assert!(
        cursor
            .next(u64::MAX, 1 << 20, ReadMode::Blocking)
            .unwrap()
            .is_none()
    );
    log.set_high_watermark(3);
    cursor.skip_to(2);
    let read = cursor
        .next(u64::MAX, 1 << 20, ReadMode::Blocking)
        .unwrap()
        .unwrap();
    let batch = Batch::read(&read).unwrap();
    assert_eq!((batch.offset(0), batch.seek(2), cursor.offset()), (0, 2, 3));
}

#[test]
fn batches_larger_than_the_limit_and_cursors_beyond_the_end_work() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    let mut ahead = log.reader().cursor(3);
    let large = vec![9; 700_000];
    fill(&mut log, [b"a".to_vec(), large.clone(), b"c".to_vec()]);
    assert!(
        ahead
            .next(u64::MAX, 10, ReadMode::Blocking)
            .unwrap()
            .is_none()
    );
    assert_eq!(
        values(&read_from(&log.reader(), 1).unwrap()),
        [large, b"c".to_vec()]
    );
    fill(&mut log, [b"d".to_vec()]);
    assert!(
        ahead
            .next(u64::MAX, 10, ReadMode::Blocking)
            .unwrap()
            .is_some()
    );
    assert_eq!(ahead.offset(), 4);
}

#[test]
fn offsets_are_found_by_time() {
    let home = Home::new();
    for segment_bytes in [3_000, 1 << 20] {
        let path = home.root.path().join(segment_bytes.to_string());
        let mut log =
            bascule_log::Log::create(&path, IDENTITY, small(segment_bytes), &home.committer)
                .unwrap();
        let reader = log.reader();
        assert_eq!(
            (
                reader.offset_at_or_after(0).unwrap(),
                reader.offset_at_or_before(9).unwrap()
            ),
            (None, None)
        );
        // Offsets 2i and 2i+1 at times 100i and 100i+1; long values, so that the index has several entries.
        for i in 0..200 {
            log.append(batch_of(&[&[1; 900], &[2; 900]], 100 * i, None), 1, 0)
                .unwrap();
        }
        log.set_high_watermark(398);
        for i in 0..199_u64 {
            let time = 100 * i as i64;
            assert_eq!(reader.offset_at_or_after(time).unwrap(), Some(2 * i));
            assert_eq!(
                reader.offset_at_or_after(time + 1).unwrap(),
                Some(2 * i + 1)
            );
            assert_eq!(reader.offset_at_or_before(time).unwrap(), Some(2 * i));
            assert_eq!(
                reader.offset_at_or_before(time + 50).unwrap(),
                Some(2 * i + 1)
            );
        }
        assert_eq!(reader.offset_at_or_after(i64::MIN).unwrap(), Some(0));
        assert_eq!(reader.offset_at_or_before(-1).unwrap(), None);
        assert_eq!(
            reader.offset_at_or_after(19_900).unwrap(),
            None,
            "not committed"
        );
        assert_eq!(reader.offset_at_or_before(i64::MAX).unwrap(), Some(397));
    }
}

#[test]
fn an_empty_active_segment_does_not_disturb_look_ups() {
    let home = Home::new();
    let mut log = home.create(LogOptions {
        segment_age_ns: 10,
        ..small(1 << 20)
    });
    log.append(batch(b"a", 100), 1, 100).unwrap();
    settle(&mut log);
    log.maintain(&Retention::default(), 200).unwrap();
    assert_eq!(log.reader().segment_count(), 2);
    assert_eq!(log.reader().offset_at_or_after(100).unwrap(), Some(0));
    assert_eq!(log.reader().offset_at_or_before(500).unwrap(), Some(0));
}

#[test]
fn readers_beside_a_writer_see_every_record_once_and_in_order() {
    const RECORDS: u64 = 6_000;
    let home = Home::new();
    let mut log = home.create(small(30_000));
    let writing = AtomicBool::new(true);
    let (reader, writing) = (log.reader(), &writing);
    std::thread::scope(|scope| {
        for mode in [ReadMode::Blocking, ReadMode::NoWait] {
            let reader = reader.clone();
            scope.spawn(move || {
                let (mut cursor, mut next) = (reader.cursor(0), 0);
                while next < RECORDS {
                    let last_round = !writing.load(Ordering::Acquire);
                    let Some(bytes) = cursor.next(u64::MAX, 2_000, mode).unwrap() else {
                        assert!(!last_round, "{mode:?} ends at {next}");
                        std::thread::yield_now();
                        continue;
                    };
                    for bytes in Batches::new(bytes) {
                        let batch = Batch::read(&bytes.unwrap()).unwrap();
                        for i in 0..batch.len() {
                            assert_eq!(batch.offset(i), next);
                            assert_eq!(batch.value(i).unwrap(), next.to_le_bytes());
                            next += 1;
                        }
                    }
                }
            });
        }
        for i in (0..RECORDS).step_by(3) {
            let values = [i, i + 1, i + 2].map(u64::to_le_bytes);
            log.append(
                batch_of(&[&values[0], &values[1], &values[2]], 1, None),
                1,
                0,
            )
            .unwrap();
            if i % 60 == 0 {
                log.set_high_watermark(u64::MAX);
            }
        }
        settle(&mut log);
        writing.store(false, Ordering::Release);
    });
    assert!(log.reader().segment_count() > 5);
}
