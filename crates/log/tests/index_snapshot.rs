//! Where recovery begins: the index snapshot, and what becomes of one that is not true.
#![allow(clippy::unwrap_used)]
mod snapshots;
mod support;
use bascule_log::integrity::verify;
use bascule_log::{GroupCommitter, Log, LogOptions, OsStorage, ReadError, Recovery};
use bascule_record::Producer;
use snapshots::Snapshots;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use support::*;

const BATCHES: usize = 60;

/// One segment holds everything, and an index snapshot is due after every 4 KiB.
fn options() -> LogOptions {
    small(1 << 20)
}

fn value(i: usize) -> Vec<u8> {
    vec![i as u8; 700 + i]
}

fn values_to(end: usize) -> Vec<Vec<u8>> {
    (0..end).map(value).collect()
}

fn producer(sequence: u32) -> Producer {
    Producer {
        id: 5,
        epoch: 0,
        base_sequence: sequence,
    }
}

/// Appends batches [from, to), each of one record of a producer, under an epoch for every 20; synced.
fn append(log: &mut Log, from: usize, to: usize) {
    for i in from..to {
        let sealed = batch_of(&[&value(i)], 1_000 + i as i64, Some(producer(i as u32)));
        log.append(sealed, 1 + i as u64 / 20, 0).unwrap();
    }
    log.commit(Box::new(|outcome| assert!(outcome.is_ok())));
}

fn step(committer: &Arc<GroupCommitter>) {
    while committer.step() {}
}

/// A log of [`BATCHES`] batches that was killed, with an index snapshot after the first `snapshot_after` of them.
fn killed(snapshot_after: usize) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("7");
    let committer = GroupCommitter::stepped(Arc::new(OsStorage));
    let mut log = Log::create(&path, IDENTITY, options(), &committer).unwrap();
    append(&mut log, 0, snapshot_after);
    step(&committer);
    log.checkpoint().unwrap();
    step(&committer);
    append(&mut log, snapshot_after, BATCHES);
    step(&committer);
    assert!(path.join("landmark").exists());
    (root, path)
}

fn open(path: &Path) -> (Log, Recovery) {
    let (log, recovery) = Log::open(path, IDENTITY, options(), &GroupCommitter::start()).unwrap();
    log.set_high_watermark(log.reader().log_end());
    (log, recovery)
}

/// Checks that all written records are there, and what the log knows beside them.
fn check_whole(log: &Log, count: usize) {
    let found = read_from(&log.reader(), 0).unwrap();
    assert_eq!(values(&found), values_to(count));
    let epochs: Vec<_> = (0..count.div_ceil(20) as u64)
        .map(|i| (1 + i, 20 * i))
        .collect();
    assert_eq!(log.epochs(), &epochs[..]);
    for i in [0, count / 2, count - 1] {
        let time = 1_000 + i as i64;
        let found = log.reader().offset_at_or_after(time).unwrap();
        assert_eq!(found, Some(i as u64));
    }
    let repeated = log.find_duplicate(producer(count as u32 - 1), 1, 0);
    assert_eq!(repeated.unwrap().unwrap().base_offset, count as u64 - 1);
    assert!(log.find_duplicate(producer(count as u32), 1, 0).is_none());
}

#[test]
fn recovery_reads_only_what_lies_behind_the_index_snapshot() {
    let (_root, path) = killed(50);
    let (log, recovery) = open(&path);
    assert_eq!((recovery.batches, recovery.cut_bytes), (10, 0));
    check_whole(&log, BATCHES);
    drop(log);
    let (log, recovery) = open(&path);
    assert_eq!(recovery.batches, 10, "the snapshot still holds");
    check_whole(&log, BATCHES);
}

#[test]
fn a_log_that_rests_has_an_index_snapshot_at_its_end() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("7");
    let committer = GroupCommitter::stepped(Arc::new(OsStorage));
    let mut log = Log::create(&path, IDENTITY, options(), &committer).unwrap();
    append(&mut log, 0, 3);
    step(&committer);
    assert!(!log.has_more_to_snapshot(), "so little is walked faster");
    append(&mut log, 3, 9);
    assert!(log.has_more_to_snapshot());
    let mut checkpoints = 0;
    while log.has_more_to_snapshot() {
        log.checkpoint().unwrap();
        step(&committer);
        checkpoints += 1;
        assert!(checkpoints < 5, "it never rests");
    }
    drop(log);
    let (log, recovery) = open(&path);
    assert_eq!(recovery.batches, 0);
    check_whole(&log, 9);
}

#[test]
fn a_crash_at_every_step_of_an_index_snapshot_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::new(root.path());
    let committer = GroupCommitter::stepped(snapshots.storage());
    let mut log = Log::create(&snapshots.of, IDENTITY, options(), &committer).unwrap();
    append(&mut log, 0, 20);
    step(&committer);
    log.checkpoint().unwrap();
    step(&committer);
    append(&mut log, 20, 40);
    step(&committer);
    snapshots.on.store(true, Ordering::Relaxed);
    log.checkpoint().unwrap();
    step(&committer);
    append(&mut log, 40, BATCHES);
    step(&committer);
    snapshots.on.store(false, Ordering::Relaxed);
    let mut walked = Vec::new();
    for (state, home) in snapshots.homes().iter().enumerate() {
        let (log, recovery) = open(home);
        assert_eq!(recovery.damaged, [], "state {state}");
        let end = log.reader().log_end() as usize;
        assert!((40..=BATCHES).contains(&end), "state {state}: {end}");
        check_whole(&log, end);
        assert!(!home.join("landmark.tmp").exists());
        walked.push(recovery.batches as usize + 60 - end);
    }
    assert!(walked.len() > 10, "{} states", walked.len());
    assert_eq!((walked.first(), walked.last()), (Some(&40), Some(&20)));
}

#[test]
fn an_index_snapshot_that_does_not_check_is_as_if_it_were_not_there() {
    let (_root, path) = killed(50);
    let snapshot = fs::read(path.join("landmark")).unwrap();
    let home = Home::new();
    for at in (0..snapshot.len()).step_by(7).chain([snapshot.len() - 1]) {
        let mut damaged = snapshot.clone();
        damaged[at] ^= 0x10;
        check_walk_with(&path, &home, &damaged, &format!("byte {at}"));
    }
    for len in [0, 3, 24, snapshot.len() / 2, snapshot.len() - 1] {
        check_walk_with(&path, &home, &snapshot[..len], &format!("{len} bytes"));
    }
}

/// Opens a copy of the log with this index snapshot: all of it is walked, and nothing is missing.
fn check_walk_with(path: &Path, home: &Home, snapshot: &[u8], what: &str) {
    let copied = home.root.path().join("copy");
    copy(path, &copied);
    fs::write(copied.join("landmark"), snapshot).unwrap();
    let (log, recovery) = open(&copied);
    assert_eq!(recovery.batches, BATCHES as u64, "{what}");
    check_whole(&log, BATCHES);
    drop(log);
    fs::remove_dir_all(copied).unwrap();
}

#[test]
fn an_index_snapshot_ahead_of_the_data_falls_back_to_the_whole_walk() {
    let (_root, ahead) = killed(50);
    let (_root, behind) = killed(10);
    let snapshot = fs::read(ahead.join("landmark")).unwrap();
    let segment = &files(&behind, "seg")[0];
    // The segment lost its end: by its length, and by zeros where batches were.
    for zeros in [false, true] {
        let home = Home::new();
        let copied = home.path();
        copy(&behind, &copied);
        fs::write(copied.join("landmark"), &snapshot).unwrap();
        let file = OpenOptions::new()
            .write(true)
            .open(copied.join(segment.file_name().unwrap()))
            .unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(20_000).unwrap();
        if zeros {
            file.set_len(len).unwrap();
        }
        let (log, recovery) = open(&copied);
        let end = log.reader().log_end() as usize;
        assert_eq!(recovery.batches, end as u64, "all of it was walked");
        assert!(
            (10..BATCHES).contains(&end),
            "what is whole is there: {end}"
        );
        assert_eq!(recovery.damaged, []);
        check_whole(&log, end);
    }
}

#[test]
fn an_index_snapshot_of_another_history_is_not_believed() {
    let (_root, path) = killed(50);
    let root = tempfile::tempdir().unwrap();
    let other = root.path().join("7");
    let committer = GroupCommitter::stepped(Arc::new(OsStorage));
    let mut log = Log::create(&other, IDENTITY, options(), &committer).unwrap();
    // Batches of the same sizes at the same places, with another first one.
    let first = batch_of(&[&[0xff; 700]], 1_000, Some(producer(0)));
    log.append(first, 1, 0).unwrap();
    append(&mut log, 1, BATCHES);
    step(&committer);
    drop(log);
    fs::copy(path.join("landmark"), other.join("landmark")).unwrap();
    let (log, recovery) = open(&other);
    assert_eq!(recovery.batches, BATCHES as u64);
    let found = values(&read_from(&log.reader(), 0).unwrap());
    assert_eq!(found[0], [0xff; 700]);
    assert_eq!(found[1..], values_to(BATCHES)[1..]);
}

#[test]
fn damage_before_the_index_snapshot_is_never_cut_and_found_by_reading() {
    let (_root, path) = killed(50);
    // A checkpoint that was lost with the power does not make acked batches a torn tail.
    fs::write(path.join("checkpoint"), []).unwrap();
    let segment = &files(&path, "seg")[0];
    let bytes = fs::read(segment).unwrap();
    let begins = |at: &usize| bytes[*at..].starts_with(b"BSC1");
    let sixth = (0..bytes.len()).filter(begins).nth(5).unwrap();
    let file = OpenOptions::new().write(true).open(segment).unwrap();
    file.write_all_at(&[0xee; 8], sixth as u64 + 20).unwrap();
    let (log, recovery) = open(&path);
    assert_eq!((recovery.batches, recovery.cut_bytes), (10, 0));
    let reader = log.reader();
    assert_eq!(reader.log_end(), BATCHES as u64);
    match read_from(&reader, 0) {
        Err(ReadError::Damaged(damage)) => assert_eq!((damage.start, damage.end), (5, 6)),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        values(&read_from(&reader, 6).unwrap()),
        values_to(BATCHES)[6..]
    );
    drop(log);
    let found = verify(&OsStorage, &path, IDENTITY).unwrap();
    assert!(found.is_damaged());
    assert_eq!(found.log_end, BATCHES as u64);
}
