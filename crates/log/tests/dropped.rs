//! A log that is dropped leaves nothing behind that works on its files: another may be opened there at once.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod support;

use bascule_log::{GroupCommitter, Log, LogOptions, Retention};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::{Home, IDENTITY, batch, fill, read_from, small, values};

const STEP: u64 = 4 << 10;

fn options() -> LogOptions {
    LogOptions {
        preallocate_bytes: STEP,
        ..small(16 << 10)
    }
}

fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(directory).unwrap();
    paths
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn zeros_asked_for_by_a_dropped_log_are_not_written_over_its_successor() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("7");
    let committer = GroupCommitter::stepped(std::sync::Arc::new(bascule_log::OsStorage));
    let mut log = Log::create(&directory, IDENTITY, options(), &committer).unwrap();
    // More than half of the zeros are used: more are asked for, and not written before the next step.
    log.append(batch(&[1; 3 << 10], 0), 1, 0).unwrap();
    drop(log);
    let (mut log, _) = Log::open(&directory, IDENTITY, options(), &committer).unwrap();
    let records = [vec![2; 2 << 10], vec![3; 2 << 10]];
    for value in &records {
        log.append(batch(value, 0), 1, 0).unwrap();
    }
    log.commit(Box::new(|outcome| assert_eq!(outcome.unwrap(), 3)));
    while committer.step() {}
    log.set_high_watermark(3);
    assert_eq!(values(&read_from(&log.reader(), 1).unwrap()), records);
}

#[test]
fn what_a_dropped_log_asked_for_changes_none_of_its_files() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("7");
    let committer = GroupCommitter::stepped(std::sync::Arc::new(bascule_log::OsStorage));
    let mut log = Log::create(&directory, IDENTITY, options(), &committer).unwrap();
    for _ in 0..20 {
        log.append(batch(&[1; 3 << 10], 0), 1, 0).unwrap();
    }
    log.set_high_watermark(20);
    log.checkpoint().unwrap();
    let least = Retention {
        bytes: 1,
        ..Retention::default()
    };
    assert!(log.maintain(&least, 0).unwrap() > 0);
    log.commit(Box::new(|_| {}));
    drop(log);
    let before = contents(&directory);
    assert!(committer.step(), "something was asked for");
    while committer.step() {}
    assert_eq!(committer.failure(), None);
    assert!(contents(&directory) == before, "{directory:?} has changed");
}

#[test]
fn a_log_may_be_dropped_and_opened_again_and_again() {
    let home = Home::new();
    let least = Retention {
        bytes: 20 << 10,
        ..Retention::default()
    };
    let mut log = home.create(options());
    let mut next = 0;
    for round in 0..200 {
        fill(
            &mut log,
            (next..next + 4).map(|n: u64| vec![n as u8; 3 << 10]),
        );
        next += 4;
        log.checkpoint().unwrap();
        log.maintain(&least, round).unwrap();
        log.append(batch(&[next as u8; 3 << 10], 0), 1, 0).unwrap();
        next += 1;
        drop(log);
        let (again, found) = home.open(options());
        assert_eq!((found.damaged, found.cut_bytes), (Vec::new(), 0), "{round}");
        log = again;
        log.set_high_watermark(next);
        let start = log.reader().log_start();
        let there = read_from(&log.reader(), start).unwrap();
        let expected = (start..next).map(|n| (n, vec![n as u8; 3 << 10]));
        assert!(there.into_iter().eq(expected), "{round}");
        assert_eq!(home.committer.failure(), None);
    }
}
