//! Records that are lost at the end of a segment or of the log: what retention knows of them, what the journal still holds.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod harmed;
mod support;

use bascule_log::integrity::verify;
use bascule_log::{GroupCommitter, Log, OsStorage, Retention, WalOptions};
use harmed::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use support::*;

#[test]
fn retention_by_age_counts_records_that_are_lost() {
    let home = closed(10, 100);
    let path = home.segments()[3].clone();
    flip(&path, 64 + 30);
    forget_index(&path);
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
    let home = closed(10, WIDE);
    let path = &home.segments()[0];
    let at = positions(path);
    zero(path, at[0]..at[10]);
    forget_index(path);
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
    let home = closed(10, WIDE);
    let path = home.segments()[0].clone();
    let (whole, at) = (fs::read(&path).unwrap(), positions(&path));
    cut(&path, at[8]);
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

#[test]
fn an_append_behind_a_damaged_last_batch_is_found_after_a_crash() {
    for torn in [true, false] {
        let home = Home::new();
        let mut log = home.create(small(WIDE));
        append(&mut log, 0..3);
        settle(&mut log);
        log.close().unwrap();
        let path = home.segments()[0].clone();
        forget_index(&path);
        let checkpoint = fs::read(home.path().join("checkpoint")).unwrap();
        let at = positions(&path);
        let (mut log, _) = home.open(small(WIDE));
        append(&mut log, 3..4);
        settle(&mut log);
        drop(log);
        // Batch 2 is damaged below the durable point, and the one behind it was never synced, or only in part.
        flip(&path, at[2] + 123);
        if torn {
            flip(&path, at[3] + 130);
        } else {
            cut(&path, at[3]);
        }
        let crash = || fs::write(home.path().join("checkpoint"), &checkpoint).unwrap();
        crash();
        let (mut log, recovery) = home.open(small(WIDE));
        assert_eq!(recovery.damaged, [(2, 3)]);
        append(&mut log, 3..5);
        settle(&mut log);
        drop(log);
        for _ in 0..2 {
            crash();
            let (log, _) = home.open(small(WIDE));
            expect_exactly(&log, 5, &[(2, 3)]);
        }
    }
}

#[test]
fn a_partial_removal_on_disk_is_not_damage() {
    let home = Home::new();
    let mut log = home.create(small(100));
    append(&mut log, 0..4);
    settle(&mut log);
    assert_eq!(log.trim(4, 2_000).unwrap(), 4);
    log.close().unwrap();
    // The power went before the names were synced; the last one had been written.
    let name = |base: u64| home.path().join(format!("{base:020}.seg"));
    for marked in fs::read_dir(home.path()).unwrap() {
        let marked = marked.unwrap().path();
        if marked.to_str().unwrap().contains("01.seg.deleted") {
            fs::rename(&marked, name(1)).unwrap();
        }
    }
    assert_eq!(home.segments(), [name(1), name(4)]);
    let (log, recovery) = home.open(small(100));
    assert_eq!(recovery.damaged, []);
    let reader = log.reader();
    assert_eq!((reader.log_start(), reader.log_end()), (4, 4));
}

/// A stepped group committer whose every round goes through the journal, and whose segments are never synced afterwards.
fn journaled(root: &Path) -> Arc<GroupCommitter> {
    let options = WalOptions {
        from_dirty_files: 1,
        file_bytes: 64 << 10,
        files: 2,
        flush_rounds: u32::MAX,
        ..WalOptions::new(root.join("journal"), root.join("partitions"))
    };
    GroupCommitter::stepped_with_wal(Arc::new(OsStorage), options).unwrap()
}

#[test]
fn the_journal_is_taken_over_behind_a_lost_tail() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("partitions/7");
    let committer = journaled(root.path());
    let mut log = Log::create(&directory, IDENTITY, small(WIDE), &committer).unwrap();
    (0..5).for_each(|i| one_step(&mut log, &committer, i));
    log.close().unwrap();
    drop(committer);
    let committer = journaled(root.path());
    let (mut log, _) = Log::open(&directory, IDENTITY, small(WIDE), &committer).unwrap();
    (5..8).for_each(|i| one_step(&mut log, &committer, i));
    drop((log, committer));
    // What was acked since lies in the journal only, and the last batch before that is damaged.
    let path = &files(&directory, "seg")[0];
    let at = positions(path);
    cut(path, at[5]);
    flip(path, at[4] + 30);
    for _ in 0..2 {
        let committer = journaled(root.path());
        let (log, _) = Log::open(&directory, IDENTITY, small(WIDE), &committer).unwrap();
        expect_exactly(&log, 8, &[(4, 5)]);
    }
}

#[test]
fn records_in_the_journal_are_not_damage_without_a_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("partitions/7");
    let committer = journaled(root.path());
    let mut log = Log::create(&directory, IDENTITY, small(WIDE), &committer).unwrap();
    (0..3).for_each(|i| one_step(&mut log, &committer, i));
    log.set_options(small(100));
    append(&mut log, 3..4); // rolls; no round has synced the segment before
    drop((log, committer));
    // The first round made the journal's file and synced the segment itself.
    let path = &files(&directory, "seg")[0];
    let at = positions(path);
    cut(path, at[1]);
    fs::remove_file(directory.join("checkpoint")).unwrap();
    let committer = journaled(root.path());
    let (log, _) = Log::open(&directory, IDENTITY, small(WIDE), &committer).unwrap();
    expect_exactly(&log, 3, &[]);
}

#[test]
fn a_trim_loses_nothing_that_only_the_journal_holds() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("partitions/7");
    let committer = journaled(root.path());
    let mut log = Log::create(&directory, IDENTITY, small(WIDE), &committer).unwrap();
    let synced = |path: &Path| positions(path)[1];
    one_step(&mut log, &committer, 0);
    let values: Vec<Vec<u8>> = (1..9).map(value).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    log.append(batch_of(&values, 2_000, None), 1, 2_000)
        .unwrap();
    stepped_commit(&mut log, &committer);
    log.set_high_watermark(9);
    assert_eq!(log.trim(5, 2_000).unwrap(), 5);
    while committer.step() {}
    drop((log, committer));
    // The power goes: of the segment only what the first round synced is there.
    let path = &files(&directory, "seg")[0];
    cut(path, synced(path));
    let committer = journaled(root.path());
    let (log, recovery) = Log::open(&directory, IDENTITY, small(WIDE), &committer).unwrap();
    assert_eq!((recovery.damaged, log.reader().log_end()), (vec![], 9));
    log.set_high_watermark(9);
    let (mut records, refused) = read_around(&log.reader(), 0);
    records.retain(|(offset, _)| *offset >= 5);
    let expected: Records = (5..9).map(|offset| (offset, value(offset))).collect();
    assert_eq!((records, refused), (expected, vec![]));
}
