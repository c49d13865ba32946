//! A log that is emptied begins where its leader says, with what the leader knows; a crash at any step of it leaves the log as it
//! was or as it is to be.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod support;
mod volatile;

use bascule_log::{
    Error, GroupCommitter, Log, LogOptions, ReadError, ReadMode, Start, Storage, WalDamage,
    WalOptions,
};
use bascule_record::Producer;
use bytes::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::*;
use volatile::{Cut, Volatile};

const RECORDS: u64 = 24;
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1 << 10,
        preallocate_bytes: 512,
        ..LogOptions::default()
    }
}

fn data() -> PathBuf {
    PathBuf::from("/data")
}

fn start_on(storage: &Volatile) -> Arc<GroupCommitter> {
    let options = WalOptions {
        from_dirty_files: 2,
        file_bytes: 4 << 10,
        files: 2,
        flush_rounds: 7,
        ..WalOptions::new(data().join("journal"), data().join("partitions"))
    };
    GroupCommitter::stepped_with_wal(Arc::new(storage.clone()), options).unwrap()
}

fn open(committer: &Arc<GroupCommitter>, incarnation: u64) -> Log {
    let directory = data().join("partitions").join(incarnation.to_string());
    match Log::open(&directory, identity(incarnation), options(), committer) {
        Ok((log, found)) => {
            assert_eq!(found.damaged, [], "{incarnation}");
            log
        }
        Err(Error::Absent { .. }) => {
            Log::create(&directory, identity(incarnation), options(), committer).unwrap()
        }
        Err(error) => panic!("{error}"),
    }
}

fn append(log: &mut Log, values: std::ops::Range<u64>, epoch: u64) {
    for value in values {
        log.append(batch(&value.to_le_bytes(), 0), epoch, 0)
            .unwrap();
        log.commit(Box::new(|_| {}));
    }
}

fn held(log: &Log) -> Vec<(u64, u64)> {
    log.set_high_watermark(log.reader().log_end());
    let records = read_from(&log.reader(), 0).unwrap().into_iter();
    records
        .map(|(offset, value)| (offset, u64::from_le_bytes(value.try_into().unwrap())))
        .collect()
}

/// A leader of the first log whose history is another one: where it begins, and what it has from there on.
fn leader(home: &Home) -> (Start, Bytes, Vec<(u64, u64)>) {
    let directory = home.root.path().join("leader");
    let mut log = Log::create(&directory, identity(1), options(), &home.committer).unwrap();
    append(&mut log, 200..240, 3);
    append(&mut log, 240..250, 5);
    let start = log.start_of(35).unwrap().unwrap();
    let mut cursor = log.replica_cursor(35);
    let mut bytes = Vec::new();
    while let Some(part) = cursor.next(u64::MAX, 4096, ReadMode::Blocking).unwrap() {
        bytes.extend_from_slice(&part);
    }
    let mut records = held(&log);
    records.retain(|(offset, _)| *offset >= 35);
    (start, Bytes::from(bytes), records)
}

/// A run that is killed at a call of the reset, and what later runs find. Returns whether it was killed.
fn killed_at(calls: u64, cut: Option<Cut>, from: &(Start, Bytes, Vec<(u64, u64)>)) -> bool {
    let (start, bytes, records) = from;
    let storage = Volatile::new();
    storage.create_directory(&data()).unwrap();
    let root = storage.open(Path::new("/"), bascule_log::OpenMode::Directory);
    root.unwrap().sync_all().unwrap();
    let committer = start_on(&storage);
    let mut logs = [1, 2].map(|i| open(&committer, i));
    for value in 0..RECORDS {
        for log in &mut logs {
            append(log, value..value + 1, 1);
        }
        while committer.step() {}
    }
    let [first, second] = logs;
    storage.kill_after(calls);
    // An error is what a dead process gets.
    let reset = first.reset_at(start);
    drop((reset, second, committer));
    let was_killed = storage.restart();
    if let Some(cut) = cut {
        storage.cut(cut);
    }

    let committer = start_on(&storage);
    let mut first = open(&committer, 1);
    if first.reader().log_end() == RECORDS {
        let whole: Vec<_> = (0..RECORDS).map(|offset| (offset, offset)).collect();
        assert_eq!(held(&first), whole);
        first = first.reset_at(start).unwrap();
    }
    let reader = first.reader();
    let ends = [
        reader.log_start(),
        reader.log_end(),
        reader.high_watermark(),
        reader.durable_end(),
    ];
    assert_eq!(ends, [35; 4]);
    assert_eq!(held(&first), []);
    first.append_verbatim(bytes.clone(), 0).unwrap();
    first.commit(Box::new(|_| {}));
    while committer.step() {}
    assert_eq!(first.start_of(35).unwrap().as_ref(), Some(start));
    assert_eq!(first.epochs(), [(3, 0), (5, 40)]);
    drop((first, committer));
    if let Some(cut) = cut {
        storage.cut(cut);
    }

    let committer = start_on(&storage);
    assert_eq!(held(&open(&committer, 1)), *records);
    let second: Vec<_> = (0..RECORDS).map(|offset| (offset, offset)).collect();
    assert_eq!(held(&open(&committer, 2)), second);
    let is_acked = |damage: &WalDamage| damage.was_acked;
    assert!(!committer.wal_damages().iter().any(is_acked));
    was_killed
}

fn at_every_call(cut: Option<Cut>) {
    let home = Home::new();
    let from = leader(&home);
    let mut call = 0;
    while killed_at(call, cut, &from) {
        call += 1;
    }
    assert!(call > 30, "{call}");
}

#[test]
fn a_kill_at_any_call_leaves_the_log_as_it_was_or_is_to_be() {
    at_every_call(None);
}

#[test]
fn so_does_a_power_cut() {
    at_every_call(Some(Cut::Loses));
    at_every_call(Some(Cut::Tears));
}

#[test]
fn a_producer_continues_at_a_follower_that_was_reset() {
    let home = Home::new();
    let mut leader = home.create(small(400));
    let producer = |base_sequence| Producer {
        id: 5,
        epoch: 0,
        base_sequence,
    };
    for sequence in 0..14 {
        let batch = batch_of(
            &[&[7; 60]],
            1_000 + i64::from(sequence),
            Some(producer(sequence)),
        );
        leader.append(batch, 1, 0).unwrap();
    }
    let directory = home.root.path().join("follower");
    for offset in [9, 14] {
        let follower = Log::create(&directory, IDENTITY, small(400), &home.committer).unwrap();
        let start = leader.start_of(offset).unwrap().unwrap();
        let follower = follower.reset_at(&start).unwrap();
        let known = |sequence| follower.find_duplicate(producer(sequence), 1, 2_000);
        assert!(known(offset as u32).is_none(), "its next one");
        assert!(matches!(known(offset as u32 - 5), Some(Ok(_))));
        assert!(matches!(known(offset as u32 + 1), Some(Err(_))));
        drop(follower);
        fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn a_log_begins_only_where_a_batch_does() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    log.append(batch_of(&[b"a", b"b"], 1_000, None), 1, 0)
        .unwrap();
    assert_eq!(log.start_of(1).unwrap(), None);
    assert_eq!(log.start_of(3).unwrap(), None);
    assert_eq!(log.start_of(2).unwrap().unwrap().epochs, [(1, 0)]);
}

#[test]
fn bytes_of_a_start_are_read_back_and_damage_is_seen() {
    let home = Home::new();
    let (start, ..) = leader(&home);
    let bytes = start.to_bytes(identity(1));
    assert_eq!(Start::read(&bytes, identity(1)), Some(start));
    assert_eq!(Start::read(&bytes, identity(2)), None);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert_eq!(Start::read(&bytes, identity(1)), None, "{at}");
        assert_eq!(Start::read(&bytes[..at], identity(1)), None, "{at}");
    }
}

#[test]
fn a_follower_removes_what_its_leader_removed_and_no_more() {
    let home = Home::new();
    let mut log = home.create(small(200));
    fill(&mut log, (0..10).map(|i| vec![i; 60]));
    log.append(batch(b"not committed", 9_000), 1, 0).unwrap();
    assert_eq!(log.follow(6, 0).unwrap(), 6);
    assert_eq!(log.follow(4, 0).unwrap(), 6);
    assert_eq!(log.follow(40, 0).unwrap(), 10, "the high watermark");
    assert_eq!(
        (log.reader().log_end(), log.reader().high_watermark()),
        (11, 10)
    );
}

#[test]
fn readers_of_the_log_before_it_end() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    fill(&mut log, (0..4).map(|i| vec![i; 10]));
    let start = log.start_of(4).unwrap().unwrap();
    let mut cursor = log.reader().cursor(0);
    let log = log.reset_at(&start).unwrap();
    assert!(matches!(
        cursor.next(u64::MAX, 1, ReadMode::Blocking),
        Err(ReadError::Closed)
    ));
    assert_eq!(log.link_at(4).unwrap(), Some(start.chain));
}
