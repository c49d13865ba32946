//! What links of sinks need of a log: rows that are counted, records that stay, a sync in every class.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod keyed;
mod support;
use bascule_log::{Compaction, Log, LogOptions, Produced, Retention};
use bascule_record::Producer;
use keyed::{compact, put_each, read_keyed};
use std::sync::mpsc;
use support::*;

const SINK: u64 = Producer::FIRST_SINK_ID + 12;
const HOUR: i64 = 3_600_000_000_000;

/// Appends `count` rows of the sink from number `sequence` on; the offset of the first.
fn link(log: &mut Log, epoch: u32, sequence: u32, count: usize) -> u64 {
    let producer = Producer {
        id: SINK,
        epoch,
        base_sequence: sequence,
    };
    let rows = vec![&[7_u8; 50][..]; count];
    let time = 1_000 + log.reader().log_end() as i64;
    let batch = batch_of(&rows, time, Some(producer));
    log.append(batch, 1, time).unwrap().base_offset
}

fn count(log: &Log, epoch: u32, from: u64) -> (u64, Option<u64>) {
    let whole = log.reader().produced(SINK, epoch, from).read(usize::MAX);
    let Produced {
        records,
        base_offset,
    } = whole.unwrap().unwrap();
    let mut scan = log.reader().produced(SINK, epoch, from);
    let by_parts = (0..1000).find_map(|_| scan.read(1).unwrap());
    assert_eq!(
        by_parts,
        Some(Produced {
            records,
            base_offset
        })
    );
    (records, base_offset)
}

/// Opens it again without closing it.
fn crash(home: &Home, log: Log, options: LogOptions) -> Log {
    drop(log);
    let (log, _) = home.open(options);
    log.set_high_watermark(log.reader().log_end());
    log
}

#[test]
fn rows_are_counted_after_a_crash_at_every_batch() {
    let home = Home::new();
    let mut log = home.create(small(600));
    fill(&mut log, (0..3).map(|i| vec![i; 50]));
    let from = log.reader().log_end();
    assert_eq!(count(&log, 2, from), (0, None));
    let mut rows = 0;
    let mut first = None;
    for batch in 0..6 {
        fill(&mut log, [vec![batch; 50]]);
        let base = link(&mut log, 2, rows, 2 + batch as usize);
        first.get_or_insert(base);
        rows += 2 + u32::from(batch);
        // Another epoch and another producer do not count.
        link(&mut log, 3, 0, 1);
        log = crash(&home, log, small(600));
        assert_eq!(count(&log, 2, from), (u64::from(rows), first));
    }
    assert!(log.reader().segment_count() > 4);
    assert_eq!(count(&log, 1, from), (0, None));
    assert_eq!(
        count(&log, 2, log.reader().log_end()),
        (0, None),
        "only from there on"
    );
}

#[test]
fn damage_hides_no_rows() {
    let home = Home::new();
    let mut log = home.create(small(100));
    link(&mut log, 1, 0, 1);
    link(&mut log, 1, 1, 1);
    fill(&mut log, [vec![1; 60]]);
    log.close().unwrap();
    let harm = |segment: usize| {
        let path = &home.segments()[segment];
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.len() - 1 - 60;
        // In the header of its only batch.
        let header = bytes.windows(4).position(|part| part == b"BSC1").unwrap();
        assert!(header < at);
        bytes[header + 10] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    harm(0);
    let (log, _) = home.open(small(100));
    log.set_high_watermark(log.reader().log_end());
    assert_eq!(
        count(&log, 1, 0),
        (2, Some(1)),
        "the second says that there was one before"
    );
    let (log, _) = {
        log.close().unwrap();
        harm(1);
        home.open(small(100))
    };
    log.set_high_watermark(log.reader().log_end());
    let unknown = log.reader().produced(SINK, 1, 0).read(usize::MAX);
    assert!(unknown.is_err(), "{unknown:?}");
}

#[test]
fn retention_stops_below_the_hold_and_continues_after_it() {
    let home = Home::new();
    let mut log = home.create(small(100));
    fill(&mut log, (0..10).map(|i| vec![i; 60]));
    log.set_options(small(1 << 20));
    let everything = Retention {
        bytes: 1,
        messages: 1,
        age_ns: 1,
        ..Retention::default()
    };
    log.hold(Some(0));
    assert_eq!(log.maintain(&everything, i64::MAX).unwrap(), 0);
    log.hold(Some(4));
    assert_eq!(log.maintain(&everything, i64::MAX).unwrap(), 4);
    log.hold(None);
    assert_eq!(log.maintain(&everything, i64::MAX).unwrap(), 9);
}

#[test]
fn a_trim_stops_at_the_hold_and_continues_after_it() {
    let home = Home::new();
    let mut log = home.create(small(100));
    fill(&mut log, (0..10).map(|i| vec![i; 60]));
    log.hold(Some(4));
    assert_eq!(log.trim(8, 0).unwrap(), 4);
    assert_eq!(read_from(&log.reader(), 0).unwrap().len(), 6);
    assert_eq!(log.trim(10, 0).unwrap(), 4, "to the end, too");
    log.hold(None);
    assert_eq!(log.trim(10, 0).unwrap(), 10);
    log.hold(Some(4));
    assert_eq!(
        log.trim(12, 0).unwrap(),
        12,
        "lost offsets are not used again"
    );
    assert_eq!(log.reader().log_end(), 12);
}

#[test]
fn compaction_leaves_what_is_held_with_its_producer() {
    let home = Home::new();
    let mut log = home.create(small(100));
    let record = |value: &'static [u8]| (&b"k"[..], Some(value));
    put_each(&mut log, &[record(b"0"), record(b"1")]);
    let from = log.reader().log_end();
    let producer = Producer {
        id: SINK,
        epoch: 1,
        base_sequence: 0,
    };
    log.hold(Some(from));
    log.append(
        keyed::keyed_batch(&[record(b"2")], 2_000, Some(producer)),
        1,
        0,
    )
    .unwrap();
    put_each(&mut log, &[record(b"3"), record(b"4")]);
    let values = |log: &Log| -> Vec<_> {
        let records = read_keyed(&log.reader(), 0);
        records
            .into_iter()
            .map(|record| record.value.unwrap())
            .collect()
    };
    let all = Compaction::default();
    compact(&mut log, &all, HOUR).unwrap();
    assert_eq!(values(&log), [b"2", b"3", b"4"]);
    assert_eq!(count(&log, 1, from), (1, Some(from)));
    log.hold(None);
    put_each(&mut log, &[record(b"5")]);
    compact(&mut log, &all, HOUR).unwrap();
    assert_eq!(values(&log), [b"5"]);
    log.hold(Some(0));
    put_each(&mut log, &[record(b"6")]);
    assert!(compact(&mut log, &all, HOUR).is_none(), "nothing is due");
}

#[test]
fn compaction_leaves_what_a_reader_needs_until_it_has_processed_that() {
    let home = Home::new();
    let mut log = home.create(small(100));
    let record = |value: &'static [u8]| (&b"k"[..], Some(value));
    put_each(
        &mut log,
        &[record(b"0"), record(b"1"), record(b"2"), record(b"3")],
    );
    let held_from = |held_from| Compaction {
        held_from,
        ..Compaction::default()
    };
    assert!(
        compact(&mut log, &held_from(0), HOUR).is_none(),
        "nothing is due"
    );
    compact(&mut log, &held_from(2), HOUR).unwrap();
    let offsets = |log: &Log| -> Vec<u64> {
        let records = read_keyed(&log.reader(), 0);
        records.into_iter().map(|record| record.offset).collect()
    };
    assert_eq!(offsets(&log), [2, 3]);
    put_each(&mut log, &[record(b"4")]);
    compact(&mut log, &held_from(u64::MAX), HOUR).unwrap();
    assert_eq!(offsets(&log), [4]);
}

#[test]
fn a_sync_makes_class_memory_durable_over_rolls() {
    let home = Home::new();
    let mut log = home.create(memory(300));
    for sequence in 0..12 {
        link(&mut log, 1, sequence, 1);
    }
    assert!(log.reader().segment_count() > 3);
    let (done, result) = mpsc::channel();
    log.sync(Box::new(move |outcome| done.send(outcome).unwrap()));
    assert_eq!(result.recv().unwrap().unwrap(), 12);
    assert_eq!(log.reader().durable_end(), 12);
}

#[test]
fn producers_of_sinks_are_not_kept() {
    let home = Home::new();
    let mut log = home.create(small(1 << 20));
    let producer = |id, base_sequence| Producer {
        id,
        epoch: 1,
        base_sequence,
    };
    // As many as are kept, all of them recent.
    for id in 1..=10_000 {
        log.append(batch_of(&[b"v"], 1, Some(producer(id, 0))), 1, 1)
            .unwrap();
    }
    for sequence in 0..3 {
        let sink = producer(SINK, sequence);
        assert_eq!(log.find_duplicate(sink, 1, 1), None);
        log.append(batch_of(&[b"v"], 1, Some(sink)), 1, 1).unwrap();
        assert_eq!(log.find_duplicate(sink, 1, 1), None, "never a duplicate");
    }
    for id in [1, 10_000] {
        let known = log.find_duplicate(producer(id, 0), 1, 1);
        assert!(known.unwrap().is_ok());
    }
}
