//! Logs that stay empty take no space, and files that are deleted wait for their whole grace period.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod clocked;
mod support;

use bascule_log::{DeletedLogs, GroupCommitter, Log, LogOptions, OpenMode, OsStorage, Storage};
use clocked::Clocked;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use support::*;

const SECOND: i64 = 1_000_000_000;
const GRACE: i64 = 60 * SECOND;

fn allocated(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512)
        .sum()
}

fn segment_len(directory: &Path) -> u64 {
    let segment = directory.join(format!("{:020}.seg", 0));
    fs::metadata(segment).unwrap().len()
}

#[test]
fn an_empty_log_takes_hardly_any_space_also_after_a_crash() {
    let home = Home::new();
    drop(home.create(LogOptions::default()));
    for _ in 0..3 {
        let (log, _) = home.open(LogOptions::default());
        assert!(segment_len(&home.path()) < 4096);
        assert!(allocated(&home.path()) <= 32 << 10);
        // As a kill leaves it.
        drop(log);
    }
}

#[test]
fn the_first_append_makes_room_for_the_next_ones() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    log.append(batch(b"first", 1), 1, 1).unwrap();
    log.checkpoint().unwrap();
    let (done, prepared) = std::sync::mpsc::channel();
    log.commit(Box::new(move |outcome| done.send(outcome).unwrap()));
    prepared.recv().unwrap().unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while segment_len(&home.path()) < 128 << 10 {
        assert!(
            std::time::Instant::now() < until,
            "nothing was written ahead"
        );
        std::thread::yield_now();
    }
}

#[test]
fn the_first_append_after_a_crash_covers_what_the_last_block_may_hold() {
    let home = Home::new();
    drop(home.create(LogOptions::default()));
    let (mut log, _) = home.open(LogOptions::default());
    assert!(segment_len(&home.path()) < 4096);
    log.append(batch(b"first", 1), 1, 1).unwrap();
    assert!(
        segment_len(&home.path()) >= 64 << 10,
        "zeros up to the end of the largest block"
    );
    drop(log);
    let (log, _) = home.open(LogOptions::default());
    log.set_high_watermark(1);
    assert_eq!(values(&read_from(&log.reader(), 0).unwrap()), [b"first"]);
}

#[test]
fn a_partition_that_was_trimmed_empty_takes_hardly_any_space() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    log.append(batch(b"first", 1), 1, 1).unwrap();
    log.set_high_watermark(1);
    log.trim(1, 2).unwrap();
    let active = home.path().join(format!("{:020}.seg", 1));
    assert!(fs::metadata(active).unwrap().len() < 4096);
}

#[test]
fn no_clock_shortens_the_grace_of_deleted_logs() {
    let home = Home::new();
    let clocked = Arc::new(Clocked::default());
    // Marked by an earlier run, by a clock that was years behind, and by one that was years ahead.
    for name in ["5.deleted-7", "6.deleted-9000000000000000000"] {
        fs::create_dir_all(home.root.path().join(name)).unwrap();
    }
    let storage: &dyn Storage = &*clocked;
    let mut deleted = DeletedLogs::default();
    let mut sweep = |seconds: i64| {
        clocked.pass(seconds * SECOND);
        deleted.sweep_on(storage, home.root.path(), GRACE).unwrap()
    };
    assert_eq!(sweep(0), 0, "it counts from the start");
    assert_eq!(sweep(40), 0);
    let committer = GroupCommitter::start();
    let path = home.root.path().join("8");
    Log::create(&path, identity(8), LogOptions::default(), &committer)
        .unwrap()
        .delete()
        .unwrap();
    assert_eq!(sweep(0), 0);
    assert_eq!(sweep(20), 2);
    assert_eq!(sweep(39), 0);
    assert_eq!(sweep(1), 1);
    assert_eq!(fs::read_dir(home.root.path()).unwrap().count(), 0);
}

#[test]
fn one_log_is_removed_without_its_grace_and_no_other() {
    let home = Home::new();
    for name in ["5.deleted-7", "5.deleted-8", "55.deleted-7", "5"] {
        fs::create_dir_all(home.root.path().join(name)).unwrap();
    }
    DeletedLogs::remove_now(home.root.path(), "5").unwrap();
    let mut left: Vec<_> = fs::read_dir(home.root.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["5", "55.deleted-7"]);
}

#[test]
fn what_is_made_only_its_own_user_may_use() {
    let home = Home::new();
    let directory = home.root.path().join("a");
    OsStorage.create_directory(&directory).unwrap();
    let file = directory.join("b");
    OsStorage.open(&file, OpenMode::Create).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
}
