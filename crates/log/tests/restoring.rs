//! What a repair takes from a backup, and what not.
#![allow(clippy::unwrap_used)]
mod harmed;
mod support;
use bascule_log::OsStorage;
use bascule_log::integrity::{Action, RepairOptions, Verified, repair, verify};
use harmed::*;
use std::fs;
use std::path::PathBuf;
use support::*;

const SEGMENT: u64 = 4000;

fn repaired(home: &Home, backup: &Home) -> (Vec<Action>, Verified) {
    let options = RepairOptions {
        from: Some(backup.path()),
        ..RepairOptions::default()
    };
    repair(&OsStorage, &home.path(), IDENTITY, &options).unwrap()
}

fn of<'a>(done: &'a [Action], what: &str) -> Vec<&'a PathBuf> {
    let actions = done.iter().filter(|action| action.what == what);
    actions.map(|action| &action.path).collect()
}

#[test]
fn a_segment_in_which_the_log_start_lies_comes_back() {
    let home = closed(100, SEGMENT);
    let first = home.segments()[0].clone();
    let (mut log, _) = home.open(small(SEGMENT));
    assert_eq!(log.trim(3, 0).unwrap(), 3);
    log.close().unwrap();
    assert!(first.exists(), "the log start lies within it");
    let backup = Home::new();
    copy(&home.path(), &backup.path());
    fs::remove_file(&first).unwrap();
    let (done, left) = repaired(&home, &backup);
    assert_eq!(of(&done, "restore"), [&first]);
    assert!(!left.is_damaged(), "{:?}", left.findings);
    let (log, _) = home.open(small(SEGMENT));
    assert_eq!(read_from(&log.reader(), 3).unwrap().len(), 97);
}

#[test]
fn what_is_torn_in_a_backup_does_not_take_the_place_of_ours() {
    let home = closed(20, SEGMENT);
    let checkpoint = fs::read(home.path().join("checkpoint")).unwrap();
    let (mut log, _) = home.open(small(SEGMENT));
    append(&mut log, 20..100);
    log.close().unwrap();
    // As of a broker that was running: an early checkpoint, and a segment in the middle that is not all there.
    let backup = Home::new();
    copy(&home.path(), &backup.path());
    fs::write(backup.path().join("checkpoint"), checkpoint).unwrap();
    let (ours, theirs) = (home.segments(), backup.segments());
    assert!(ours.len() > 5);
    cut(&theirs[3], fs::metadata(&theirs[3]).unwrap().len() - 300);
    let backed = verify(&OsStorage, &backup.path(), IDENTITY).unwrap();
    assert!(!backed.is_damaged(), "{:?}", backed.findings);
    let before: Vec<_> = [3, 4].map(|i| flipped(&ours[i])).into();
    let (done, left) = repaired(&home, &backup);
    assert_eq!(of(&done, "restore"), [] as [&PathBuf; 0]);
    assert_eq!(of(&done, "not_restored"), [&ours[3], &ours[4]]);
    assert_eq!(left.findings.len(), 2);
    let after: Vec<_> = [3, 4].map(|i| fs::read(&ours[i]).unwrap()).into();
    assert_eq!(after, before, "ours are as they were");
}

/// Changes one bit, and returns the bytes.
fn flipped(path: &std::path::Path) -> Vec<u8> {
    flip(path, 300);
    fs::read(path).unwrap()
}
