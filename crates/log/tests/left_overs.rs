//! Segments that are nothing, or seem to be: the rest of a roll, one without a batch, one of another log.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod harmed;
mod recording;
mod support;

use bascule_log::integrity::verify;
use bascule_log::{
    Compaction, CompactionReport, Error, GroupCommitter, Log, LogId, LogOptions, OsStorage,
    Retention,
};
use bascule_record::{BatchBuilder, BatchLimits, Codec, RecordRef};
use harmed::*;
use recording::Recording;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;

#[test]
fn a_segment_whose_only_batch_is_damaged_is_not_vacant() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("7");
    let committer = GroupCommitter::stepped(Arc::new(OsStorage));
    let mut log = Log::create(&directory, IDENTITY, small(100), &committer).unwrap();
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
        stepped_commit(&mut log, &committer);
    }
    log.close().unwrap();
    let path = files(&directory, "seg")[0].clone();
    flip(&path, 64 + 30);
    forget_index(&path);
    let (mut log, recovery) = Log::open(&directory, IDENTITY, small(WIDE), &committer).unwrap();
    assert_eq!(recovery.damaged, [(0, 1)]);
    log.set_high_watermark(5);
    let skipped = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&skipped);
    let done = Box::new(move |outcome: Result<CompactionReport, Error>| {
        theirs.store(outcome.unwrap().skipped, Ordering::Relaxed);
    });
    assert!(log.compact(&Compaction::default(), 5_000, done).unwrap());
    while committer.step() {}
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
fn damage_before_the_rest_of_a_roll_hides_nothing_after_it() {
    // The roll was tried before batch 3, which may be the damaged one.
    for (lost, content) in (0..5).flat_map(|lost| [(lost, 0), (lost, 64)]) {
        let home = Home::new();
        let mut log = home.create(small(WIDE));
        append(&mut log, 0..3);
        settle(&mut log);
        // A preamble as a roll would write it here.
        let other = crashed(&home);
        log.set_options(small(100));
        append(&mut log, 3..4);
        settle(&mut log);
        drop(log);
        let preamble = fs::read(&home.segments()[1]).unwrap();
        let (mut log, _) = other.open(small(WIDE));
        append(&mut log, 3..7);
        settle(&mut log);
        log.close().unwrap();
        let path = other.segments()[0].clone();
        forget_index(&path);
        flip(&path, positions(&path)[lost as usize] + 30);
        let left = path.with_file_name("00000000000000000003.seg");
        fs::write(&left, &preamble[..content]).unwrap();
        let found = verify(&OsStorage, &other.path(), IDENTITY).unwrap();
        for _ in 0..2 {
            let (log, recovery) = other.open(small(WIDE));
            assert_eq!(
                (recovery.damaged, recovery.cut_bytes),
                (vec![(lost, lost + 1)], 0)
            );
            expect_exactly(&log, 7, &[(lost, lost + 1)]);
        }
        assert!(!left.exists());
        assert!(found.is_damaged(), "{:?}", found.findings);
    }
}

#[test]
fn the_rest_of_a_roll_does_not_prove_a_removal() {
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
    let (mut records, refused) = read_around(&log.reader(), 0);
    records.retain(|(offset, _)| *offset >= 3);
    assert_eq!((records.len(), refused), (4, vec![]));
}

#[test]
fn an_only_segment_is_created_again_by_the_open_after_an_interrupted_one() {
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
    let home = closed(10, WIDE);
    let path = home.segments()[0].clone();
    zero(&path, 0..300);
    let names = || {
        let entries = fs::read_dir(home.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (names(), fs::read(&path).unwrap());
    let other = LogId {
        incarnation: 8,
        ..IDENTITY
    };
    let refused = Log::open(&home.path(), other, small(WIDE), &home.committer).map(|_| ());
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert_eq!((names(), fs::read(&path).unwrap()), before);
}

#[test]
fn the_first_segment_that_stays_is_synced_before_those_before_it_go() {
    let home = tempfile::tempdir().unwrap();
    let storage = Recording::new(home.path());
    let committer = GroupCommitter::stepped(storage.clone());
    let options = LogOptions {
        segment_bytes: 100,
        ..LogOptions::default()
    };
    let directory = home.path().join("7");
    let mut log = Log::create(&directory, IDENTITY, options.clone(), &committer).unwrap();
    one_step(&mut log, &committer, 0);
    append(&mut log, 1..2);
    log.set_options(small(WIDE));
    log.set_high_watermark(u64::MAX);
    let before = storage.calls().len();
    let latest = Retention {
        messages: 1,
        ..Retention::default()
    };
    assert_eq!(log.maintain(&latest, 0).unwrap(), 1);
    while committer.step() {}
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
