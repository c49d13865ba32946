//! What lies in the files of a log and does not belong there, and what is missing beside something that was never synced.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
mod recording;
mod support;

use bascule_log::damage::verify;
use bascule_log::{
    Compaction, CompactionReport, Coordinator, Error, Identity, JournalOptions, Log, LogOptions,
    LogReader, OsStorage, ReadError, ReadMode, Retention,
};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Batches, Codec, Header, RecordRef, Stamp};
use recording::Recording;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;

const WIDE: u64 = 1 << 20;

fn value(i: u64) -> Vec<u8> {
    format!("record {i} ").repeat(20).into_bytes()
}

/// Offsets served with their values, and the ranges refused.
fn read_around(reader: &LogReader) -> (Records, Vec<(u64, u64)>) {
    let (mut records, mut refused) = (Vec::new(), Vec::new());
    let mut cursor = reader.cursor(0);
    loop {
        match cursor.next(u64::MAX, 3000, ReadMode::Blocking) {
            Ok(None) => return (records, refused),
            Ok(Some(bytes)) => {
                for bytes in Batches::new(bytes) {
                    let batch = Batch::read(&bytes.unwrap()).unwrap();
                    records.extend(
                        (0..batch.len())
                            .map(|i| (batch.offset(i), batch.value(i).unwrap().to_vec())),
                    );
                }
            }
            Err(ReadError::Damaged(damage)) => {
                cursor.skip_to(damage.end);
                refused.push((damage.start, damage.end));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Below `end` everything is served with its value but what is lost.
fn expect_exactly(log: &Log, end: u64, lost: &[(u64, u64)]) {
    log.set_high_watermark(u64::MAX);
    let (records, refused) = read_around(&log.reader());
    assert_eq!(refused, lost);
    let expected: Records = (0..end)
        .filter(|offset| !lost.iter().any(|(a, b)| (*a..*b).contains(offset)))
        .map(|offset| (offset, value(offset)))
        .collect();
    let offsets = |records: &Records| records.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!(offsets(&records), offsets(&expected));
    assert!(records == expected, "a value is another one");
    assert_eq!(log.reader().log_end(), end);
}

fn append(log: &mut Log, offsets: std::ops::Range<u64>) {
    for i in offsets {
        let time = 1_000 + i as i64;
        log.append(batch(&value(i), time), 1, time).unwrap();
    }
}

/// Positions of the batches of a segment, and of its end.
fn positions(path: &Path) -> Vec<usize> {
    let bytes = fs::read(path).unwrap();
    let mut at = vec![64];
    while let Ok(header) = Header::read(&bytes[*at.last().unwrap()..]) {
        at.push(at.last().unwrap() + header.batch_bytes());
    }
    at
}

fn overwrite(path: &Path, position: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, position as u64).unwrap();
}

fn zero(path: &Path, from: usize, to: usize) {
    overwrite(path, from, &vec![0; to - from]);
}

fn flip(path: &Path, position: usize) {
    let byte = fs::read(path).unwrap()[position];
    overwrite(path, position, &[byte ^ 0x10]);
}

/// The directory as a crash at this moment leaves it, when everything written so far is on the disk.
fn crashed(from: &Home) -> Home {
    let home = Home::new();
    copy(&from.path(), &home.path());
    home
}

#[test]
fn a_batch_behind_a_torn_tail_is_not_the_way_on_behind_damage() {
    let home = Home::new();
    let mut log = home.create(small(WIDE));
    append(&mut log, 0..10);
    settle(&mut log);
    log.close().unwrap();
    let (mut log, _) = home.open(small(WIDE));
    append(&mut log, 10..40);
    let home = crashed(&home);
    let path = &home.segments()[0];
    let at = positions(path);
    zero(path, at[4], at[5]);
    zero(path, at[10], at[11]); // the power went before this one was written
    let (log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, [(4, 5)]);
    expect_exactly(&log, 10, &[(4, 5)]);
}

#[test]
fn a_batch_that_denies_its_place_is_not_the_way_on_behind_a_damaged_header() {
    let home = Home::new();
    let mut log = home.create(small(WIDE));
    append(&mut log, 0..10);
    settle(&mut log);
    log.close().unwrap();
    let path = &home.segments()[0];
    let at = positions(path);
    let stale = batch(b"of an earlier life", 1).stamp(&Stamp {
        incarnation: IDENTITY.incarnation,
        partition: IDENTITY.partition,
        leader_epoch: 1,
        base_offset: 10,
        chain: 0x1234_5678,
        not_before: 0,
    });
    overwrite(path, at[10], &stale);
    fs::remove_file(path.with_extension("idx")).unwrap();
    flip(path, at[9] + 40);
    let (log, _) = home.open(small(WIDE));
    expect_exactly(&log, 10, &[(9, 10)]);
}

#[test]
fn headers_damaged_one_after_the_other_cost_their_batches_only() {
    let home = Home::new();
    let mut log = home.create(small(WIDE));
    append(&mut log, 0..10);
    settle(&mut log);
    log.close().unwrap();
    let path = &home.segments()[0];
    let at = positions(path);
    fs::remove_file(path.with_extension("idx")).unwrap();
    (3..6).for_each(|i| flip(path, at[i] + 30));
    let (log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, [(3, 6)]);
    expect_exactly(&log, 10, &[(3, 6)]);
}

#[test]
fn a_misdirected_copy_of_the_end_is_not_taken_for_it() {
    let home = Home::new();
    let mut log = home.create(small(4_000));
    append(&mut log, 0..60);
    settle(&mut log);
    log.close().unwrap();
    let [first, second] = &home.segments()[..2] else {
        panic!("two segments");
    };
    let (bytes, at) = (fs::read(first).unwrap(), positions(first));
    let count = at.len() - 1;
    // Over batches 2 and 3: the last one of the segment, and what an earlier life appended behind it.
    let last = Header::read(&bytes[at[count - 1]..]).unwrap();
    let stale = batch(b"cut since", 1).stamp(&Stamp {
        incarnation: IDENTITY.incarnation,
        partition: IDENTITY.partition,
        leader_epoch: 1,
        base_offset: last.next_offset(),
        chain: last.link(),
        not_before: 0,
    });
    let mut copy = bytes[at[count - 1]..at[count]].to_vec();
    copy.extend_from_slice(&stale);
    assert!(copy.len() > at[3] - at[2] && copy.len() < at[4] - at[2]);
    overwrite(first, at[2], &copy);
    fs::remove_file(first.with_extension("idx")).unwrap();
    assert!(second.exists());
    let (log, _) = home.open(small(4_000));
    expect_exactly(&log, 60, &[(2, 4)]);
}

#[test]
fn retention_by_age_counts_records_that_are_lost() {
    let home = Home::new();
    let mut log = home.create(small(100));
    append(&mut log, 0..10);
    settle(&mut log);
    log.close().unwrap();
    let path = home.segments()[3].clone();
    flip(&path, 64 + 30);
    fs::remove_file(path.with_extension("idx")).unwrap();
    let (mut log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, [(3, 4)]);
    log.set_high_watermark(u64::MAX);
    let by_age = |age_ns| Retention {
        age_ns,
        ..Retention::default()
    };
    // The lost record was of 1,003.
    assert_eq!(log.maintain(&by_age(10), 1_013).unwrap(), 3);
    assert_eq!(log.maintain(&by_age(10), 1_014).unwrap(), 4);
}

#[test]
fn a_lost_tail_is_not_hurried_out_by_retention() {
    let home = Home::new();
    let mut log = home.create(small(WIDE));
    append(&mut log, 0..10);
    settle(&mut log);
    log.close().unwrap();
    let path = &home.segments()[0];
    let at = positions(path);
    zero(path, at[0], at[10]);
    fs::remove_file(path.with_extension("idx")).unwrap();
    let (mut log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, [(0, 10)]);
    append(&mut log, 10..11);
    settle(&mut log);
    let hour = Retention {
        age_ns: 3_600_000_000_000,
        ..Retention::default()
    };
    assert_eq!(log.maintain(&hour, i64::MAX / 2).unwrap(), 0);
}

#[test]
fn a_segment_begun_behind_a_lost_tail_follows_the_tail_that_came_back() {
    let home = Home::new();
    let mut log = home.create(small(WIDE));
    append(&mut log, 0..10);
    settle(&mut log);
    log.close().unwrap();
    let path = home.segments()[0].clone();
    let (whole, at) = (fs::read(&path).unwrap(), positions(&path));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(at[8] as u64).unwrap();
    let (mut log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, [(8, 10)]);
    append(&mut log, 10..12);
    settle(&mut log);
    log.close().unwrap();
    fs::write(&path, whole).unwrap();
    let _ = fs::remove_file(path.with_extension("idx"));
    let (log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, []);
    expect_exactly(&log, 12, &[]);
    drop(log);
    let found = verify(&OsStorage, &home.path(), IDENTITY).unwrap();
    assert!(!found.is_damaged(), "{:?}", found.findings);
}

/// A stepped coordinator whose every round goes through the journal, and whose segments are never synced behind it.
fn journaled(root: &Path) -> Arc<Coordinator> {
    let options = JournalOptions {
        from_dirty_files: 1,
        file_bytes: 64 << 10,
        files: 2,
        lazy_rounds: u32::MAX,
        ..JournalOptions::new(root.join("journal"), root.join("partitions"))
    };
    Coordinator::stepped_journaled(Arc::new(OsStorage), options).unwrap()
}

fn stepped_commit(log: &mut Log, coordinator: &Coordinator) {
    log.commit(Box::new(|outcome| {
        outcome.unwrap();
    }));
    while coordinator.step() {}
}

fn segments_of(directory: &Path) -> Vec<PathBuf> {
    files(directory, "seg")
}

fn one_step(log: &mut Log, coordinator: &Coordinator, offset: u64) {
    append(log, offset..offset + 1);
    stepped_commit(log, coordinator);
}

#[test]
fn the_journal_is_taken_over_behind_a_lost_tail() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("partitions/7");
    let coordinator = journaled(root.path());
    let mut log = Log::create(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
    (0..5).for_each(|i| one_step(&mut log, &coordinator, i));
    log.close().unwrap();
    drop(coordinator);
    let coordinator = journaled(root.path());
    let (mut log, _) = Log::open(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
    (5..8).for_each(|i| one_step(&mut log, &coordinator, i));
    drop((log, coordinator));
    // What was acked since lies in the journal only, and the last batch before that is damaged.
    let path = &segments_of(&directory)[0];
    let at = positions(path);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(at[5] as u64).unwrap();
    flip(path, at[4] + 30);
    for _ in 0..2 {
        let coordinator = journaled(root.path());
        let (log, _) = Log::open(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
        expect_exactly(&log, 8, &[(4, 5)]);
    }
}

#[test]
fn what_the_journal_holds_is_no_damage_without_a_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("partitions/7");
    let coordinator = journaled(root.path());
    let mut log = Log::create(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
    (0..3).for_each(|i| one_step(&mut log, &coordinator, i));
    log.set_options(small(100));
    append(&mut log, 3..4); // rolls; no round has synced the segment before
    drop((log, coordinator));
    // The first round made the journal's file and synced the segment itself.
    let path = &segments_of(&directory)[0];
    let at = positions(path);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(at[1] as u64).unwrap();
    fs::remove_file(directory.join("checkpoint")).unwrap();
    let coordinator = journaled(root.path());
    let (log, _) = Log::open(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
    expect_exactly(&log, 3, &[]);
}

#[test]
fn a_trim_loses_nothing_that_only_the_journal_holds() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("partitions/7");
    let coordinator = journaled(root.path());
    let mut log = Log::create(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
    let synced = |path: &Path| positions(path)[1];
    one_step(&mut log, &coordinator, 0);
    let values: Vec<Vec<u8>> = (1..9).map(value).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    log.append(batch_of(&values, 2_000, None), 1, 2_000)
        .unwrap();
    stepped_commit(&mut log, &coordinator);
    log.set_high_watermark(9);
    assert_eq!(log.trim(5, 2_000).unwrap(), 5);
    while coordinator.step() {}
    drop((log, coordinator));
    // The power goes: of the segment only what the first round synced is there.
    let path = &segments_of(&directory)[0];
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(synced(path) as u64).unwrap();
    let coordinator = journaled(root.path());
    let (log, recovery) = Log::open(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
    assert_eq!((recovery.damaged, log.reader().log_end()), (vec![], 9));
    log.set_high_watermark(9);
    let (mut records, refused) = read_around(&log.reader());
    records.retain(|(offset, _)| *offset >= 5);
    let expected: Records = (5..9).map(|offset| (offset, value(offset))).collect();
    assert_eq!((records, refused), (expected, vec![]));
}

#[test]
fn a_segment_whose_only_batch_is_damaged_is_not_vacant() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("7");
    let coordinator = Coordinator::stepped(Arc::new(OsStorage));
    let mut log = Log::create(&directory, IDENTITY, small(100), &coordinator).unwrap();
    for i in 0..5 {
        let record = RecordRef {
            key: Some(b"key"),
            value: Some(b"value of some length, so that the segment is full"),
            ..RecordRef::default()
        };
        let mut builder = BatchBuilder::new(BatchLimits::default());
        builder.push(&record).unwrap();
        let batch = builder.seal(Codec::None, None, None).unwrap();
        log.append(batch, 1, i).unwrap();
        stepped_commit(&mut log, &coordinator);
    }
    log.close().unwrap();
    let path = segments_of(&directory)[0].clone();
    flip(&path, 64 + 30);
    fs::remove_file(path.with_extension("idx")).unwrap();
    let (mut log, recovery) = Log::open(&directory, IDENTITY, small(WIDE), &coordinator).unwrap();
    assert_eq!(recovery.damaged, [(0, 1)]);
    log.set_high_watermark(5);
    let skipped = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&skipped);
    let done = Box::new(move |outcome: Result<CompactionReport, Error>| {
        theirs.store(outcome.unwrap().skipped, Ordering::Relaxed);
    });
    assert!(log.compact(&Compaction::default(), 5_000, done).unwrap());
    while coordinator.step() {}
    assert_eq!(log.maintain(&Retention::default(), 5_000).unwrap(), 0);
    assert_eq!(skipped.load(Ordering::Relaxed), 1);
}

#[test]
fn the_rest_of_a_roll_that_found_no_space_is_nothing() {
    for (closed, content) in [(true, 0), (false, 0), (true, 64), (false, 64)] {
        let home = Home::new();
        let mut log = home.create(small(WIDE));
        append(&mut log, 0..5);
        log.set_options(small(100));
        append(&mut log, 5..7);
        settle(&mut log);
        if closed {
            log.close().unwrap();
        } else {
            drop(log);
        }
        let [first, second, ..] = &home.segments()[..] else {
            panic!("two segments");
        };
        // The roll was tried before batch 3: all of the preamble, or nothing, of another file lies there.
        let like = fs::read(second).unwrap();
        let path = first.with_file_name("00000000000000000003.seg");
        fs::write(&path, &like[..content]).unwrap();
        let found = verify(&OsStorage, &home.path(), IDENTITY).unwrap();
        assert!(!found.is_damaged(), "{:?}", found.findings);
        for _ in 0..2 {
            let (log, recovery) = home.open(small(WIDE));
            assert_eq!((recovery.damaged, recovery.cut_bytes), (vec![], 0));
            expect_exactly(&log, 7, &[]);
            log.close().unwrap();
        }
        assert!(!path.exists());
    }
}

#[test]
fn the_rest_of_a_roll_is_no_proof_of_a_removal() {
    let home = Home::new();
    let mut log = home.create(small(WIDE));
    append(&mut log, 0..7);
    settle(&mut log);
    log.trim(3, 2_000).unwrap();
    log.close().unwrap();
    fs::write(home.path().join("00000000000000000003.seg"), []).unwrap();
    let (log, recovery) = home.open(small(WIDE));
    assert_eq!((recovery.damaged, recovery.cut_bytes), (vec![], 0));
    log.set_high_watermark(7);
    let (mut records, refused) = read_around(&log.reader());
    records.retain(|(offset, _)| *offset >= 3);
    assert_eq!((records.len(), refused), (4, vec![]));
}

#[test]
fn a_sole_segment_is_made_anew_by_the_open_after_one_that_was_cut_short() {
    let home = Home::new();
    drop(home.create(small(WIDE)));
    let path = home.segments()[0].clone();
    fs::rename(&path, path.with_extension("seg.deleted-1")).unwrap();
    let (mut log, _) = home.open(small(WIDE));
    append(&mut log, 0..3);
    settle(&mut log);
    expect_exactly(&log, 3, &[]);
    drop(log);
    // Without that trace nobody knows what became of the segment.
    fs::remove_dir_all(home.path()).unwrap();
    drop(home.create(small(WIDE)));
    fs::remove_file(&home.segments()[0]).unwrap();
    let absent = home.try_open(small(WIDE)).map(|_| ());
    assert!(matches!(absent, Err(Error::Absent { .. })), "{absent:?}");
}

#[test]
fn a_directory_is_another_logs_when_only_its_checkpoint_says_so() {
    let home = Home::new();
    let mut log = home.create(small(WIDE));
    append(&mut log, 0..10);
    settle(&mut log);
    log.close().unwrap();
    let path = home.segments()[0].clone();
    zero(&path, 0, 300);
    let names = || {
        let entries = fs::read_dir(home.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (names(), fs::read(&path).unwrap());
    let other = Identity {
        incarnation: 8,
        ..IDENTITY
    };
    let refused = Log::open(&home.path(), other, small(WIDE), &home.coordinator).map(|_| ());
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert_eq!((names(), fs::read(&path).unwrap()), before);
}

#[test]
fn the_first_segment_that_stays_is_synced_before_those_before_it_go() {
    let home = tempfile::tempdir().unwrap();
    let storage = Recording::new(home.path());
    let coordinator = Coordinator::stepped(storage.clone());
    let options = LogOptions {
        segment_bytes: 100,
        ..LogOptions::default()
    };
    let directory = home.path().join("7");
    let mut log = Log::create(&directory, IDENTITY, options.clone(), &coordinator).unwrap();
    one_step(&mut log, &coordinator, 0);
    append(&mut log, 1..2);
    log.set_options(small(WIDE));
    log.set_high_watermark(u64::MAX);
    let before = storage.calls().len();
    let latest = Retention {
        messages: 1,
        ..Retention::default()
    };
    assert_eq!(log.maintain(&latest, 0).unwrap(), 1);
    while coordinator.step() {}
    let calls = storage.calls().split_off(before);
    let (first, second) = ("00000000000000000000.seg", "00000000000000000001.seg");
    let marked = calls
        .iter()
        .position(|call| call.starts_with("rename") && call.contains(first));
    let own = calls
        .iter()
        .position(|call| call.starts_with("open") && call.contains(second));
    assert!(own.is_some() && own < marked, "{calls:#?}");
}
