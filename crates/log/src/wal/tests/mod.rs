//! The WAL: its bytes, and its use by logs: filled, flushed, recycled, replayed.
mod copies;
mod crash_points;
mod damaged;
mod end_markers;
mod golden;
mod missing;
mod power;
mod truncation;

use super::{FEW_BYTES, WalOptions, format};
use crate::integrity::{RepairOptions, repair};
use crate::io::storage::OsStorage;
use crate::{GroupCommitter, Log, LogId, LogOptions, ReadMode};
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Batches, Codec, RecordRef, SealedBatch, Stamp,
};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FILE_BYTES: u64 = (16 << 10) + format::PREAMBLE_BYTES as u64;

fn options(home: &Path) -> WalOptions {
    WalOptions {
        from_dirty_files: 2,
        file_bytes: FILE_BYTES,
        files: 3,
        ..WalOptions::new(home.join("journal"), home.join("partitions"))
    }
}

fn committer(home: &Path) -> Arc<GroupCommitter> {
    GroupCommitter::stepped_with_wal(Arc::new(OsStorage), options(home)).unwrap()
}

fn identity(incarnation: u64) -> LogId {
    LogId {
        incarnation,
        partition: 0,
    }
}

fn directory(home: &Path, incarnation: u64) -> PathBuf {
    home.join("partitions").join(incarnation.to_string())
}

fn create(home: &Path, incarnation: u64, committer: &Arc<GroupCommitter>) -> Log {
    let options = LogOptions {
        preallocate_bytes: 4 << 10,
        ..LogOptions::default()
    };
    Log::create(
        &directory(home, incarnation),
        identity(incarnation),
        options,
        committer,
    )
    .unwrap()
}

fn open(home: &Path, incarnation: u64, committer: &Arc<GroupCommitter>) -> (Log, u64) {
    let (log, found) = Log::open(
        &directory(home, incarnation),
        identity(incarnation),
        LogOptions::default(),
        committer,
    )
    .unwrap();
    log.set_high_watermark(log.reader().log_end());
    (log, found.replayed)
}

fn batch(value: u64) -> SealedBatch {
    sealed(&value.to_le_bytes())
}

fn sealed(value: &[u8]) -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let record = RecordRef {
        value: Some(value),
        ..RecordRef::default()
    };
    builder.push(&record).unwrap();
    builder.seal(Codec::None, None, None).unwrap()
}

fn values(log: &Log) -> Vec<u64> {
    let mut values = Vec::new();
    let mut cursor = log.reader().cursor(0);
    while let Some(bytes) = cursor.next(u64::MAX, 1 << 20, ReadMode::Blocking).unwrap() {
        for bytes in Batches::new(bytes) {
            let batch = Batch::read(&bytes.unwrap()).unwrap();
            let value = |i| u64::from_le_bytes(batch.value(i).unwrap().try_into().unwrap());
            values.extend((0..batch.len()).map(value));
        }
    }
    values
}

/// Appends one record to each log and commits all in one round. Returns how many were acked.
fn round(logs: &mut [Log], value: u64, committer: &GroupCommitter) -> u64 {
    let acked = Arc::new(AtomicU64::new(0));
    for log in logs {
        log.append(batch(value), 1, 0).unwrap();
        let acked = Arc::clone(&acked);
        log.commit(Box::new(move |outcome| {
            acked.fetch_add(u64::from(outcome.is_ok()), Ordering::Relaxed);
        }));
    }
    committer.step();
    acked.load(Ordering::Relaxed)
}

/// Simulates a power cut after which the segments have only what they had when the copy was taken.
fn restore(copy: &Path, home: &Path) {
    fs::remove_dir_all(home.join("partitions")).unwrap();
    copy_tree(copy, &home.join("partitions"));
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Creates `count` logs with a record each, copies them to `copy` in the home, and then appends records with the values 1 to
/// `end` (exclusive) to each log. The WAL has all records of these later rounds.
fn logs_with_rounds_in_wal_after_copy(
    home: &Path,
    count: u64,
    end: u64,
) -> (Arc<GroupCommitter>, Vec<Log>) {
    let committer = committer(home);
    let mut logs: Vec<Log> = (1..=count).map(|i| create(home, i, &committer)).collect();
    round(&mut logs, 0, &committer);
    copy_tree(&home.join("partitions"), &home.join("copy"));
    for value in 1..end {
        assert_eq!(round(&mut logs, value, &committer), count);
    }
    assert_eq!(committer.statistics().wal_rounds, end - 1);
    (committer, logs)
}

#[test]
fn a_round_of_many_dirty_segments_uses_the_wal_and_one_of_few_does_not() {
    let home = tempfile::tempdir().unwrap();
    let committer = committer(home.path());
    let mut logs: Vec<Log> = (1..=4)
        .map(|i| create(home.path(), i, &committer))
        .collect();
    let (many, one) = logs.split_at_mut(3);
    let journaled = || committer.statistics().wal_rounds;
    // The first round finds no WAL file and requests one.
    assert_eq!(round(many, 0, &committer), 3);
    assert_eq!(journaled(), 0);
    assert_eq!(round(many, 1, &committer), 3);
    assert_eq!(journaled(), 1);
    assert_eq!(round(one, 0, &committer), 1);
    assert_eq!(journaled(), 1, "one alone is synced");
    let ends = |log: &Log| (log.shared.durable_end(), log.shared.segment_synced_end());
    assert_eq!(
        logs.iter().map(ends).collect::<Vec<_>>(),
        [(2, 1), (2, 1), (2, 1), (1, 1)]
    );
}

#[test]
fn a_segment_with_unsynced_batches_stays_in_the_wal_until_it_is_synced() {
    let home = tempfile::tempdir().unwrap();
    let rounds = u64::from(options(home.path()).flush_rounds);
    let (committer, mut logs) = logs_with_rounds_in_wal_after_copy(home.path(), 2, 2);
    let journaled = || committer.statistics().wal_rounds;
    for value in 1..rounds {
        assert_eq!(round(&mut logs[..1], value, &committer), 1);
        assert_eq!(journaled(), value + 1);
    }
    assert_eq!(
        logs[0].shared.segment_synced_end(),
        rounds + 1,
        "synced now"
    );
    assert_eq!(round(&mut logs[..1], rounds, &committer), 1);
    assert_eq!(journaled(), rounds);
    logs[0].set_high_watermark(rounds + 2);
    let expected: Vec<u64> = (0..=1).chain(1..=rounds).collect();
    assert_eq!(values(&logs[0]), expected);
}

#[test]
fn a_large_round_of_few_segments_syncs_them_with_earlier_batches() {
    let home = tempfile::tempdir().unwrap();
    let options = WalOptions {
        file_bytes: 1 << 20,
        ..options(home.path())
    };
    let committer = GroupCommitter::stepped_with_wal(Arc::new(OsStorage), options).unwrap();
    let mut logs = [1, 2].map(|i| create(home.path(), i, &committer));
    for value in 0..3 {
        assert_eq!(round(&mut logs, value, &committer), 2);
    }
    let ends = |log: &Log| (log.shared.durable_end(), log.shared.segment_synced_end());
    assert_eq!(logs.each_ref().map(ends), [(3, 1), (3, 1)]);
    logs[0].append(sealed(&vec![0; FEW_BYTES]), 1, 0).unwrap();
    logs[0].commit(Box::new(|outcome| assert_eq!(outcome.unwrap(), 4)));
    committer.step();
    assert_eq!(logs.each_ref().map(ends), [(4, 4), (3, 1)]);
    assert_eq!(committer.statistics().wal_rounds, 2);
}

#[test]
fn batches_only_in_the_wal_are_replayed_once() {
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy");
    let (_first, logs) = logs_with_rounds_in_wal_after_copy(home.path(), 3, 10);
    drop(logs);
    restore(&copy, home.path());
    // The third log was deleted meanwhile; replay does not create it again.
    fs::remove_dir_all(directory(home.path(), 3)).unwrap();

    let second = committer(home.path());
    let (log, replayed) = open(home.path(), 1, &second);
    assert_eq!((replayed, values(&log)), (9, (0..10).collect()));
    assert_eq!(log.shared.segment_synced_end(), 10);
    drop(log);
    // A second crash, before log 2 was opened: its batches are replayed now, those of log 1 were replayed before.
    let third = committer(home.path());
    let (log, replayed) = open(home.path(), 1, &third);
    assert_eq!((replayed, log.reader().log_end()), (0, 10));
    let (other, replayed) = open(home.path(), 2, &third);
    assert_eq!((replayed, values(&other)), (9, (0..10).collect()));
    assert!(!directory(home.path(), 3).exists());
    // All have replayed: the files are recycled, and their earlier content is ignored.
    let mut logs = [log, other];
    assert_eq!(round(&mut logs, 10, &third), 2);
    assert_eq!(third.statistics().wal_rounds, 1);
    drop(logs);
    let fourth = committer(home.path());
    let (log, replayed) = open(home.path(), 1, &fourth);
    assert_eq!((replayed, log.reader().log_end()), (0, 11));
}

#[test]
fn batches_that_a_segment_lost_before_its_sync_are_read_from_the_wal() {
    let home = tempfile::tempdir().unwrap();
    let committer = committer(home.path());
    let mut logs: Vec<Log> = (1..=2)
        .map(|i| create(home.path(), i, &committer))
        .collect();
    for value in 0..9 {
        assert_eq!(round(&mut logs, value, &committer), 2);
    }
    let log = &logs[0];
    log.set_high_watermark(8);
    let synced = log.shared.segment_synced_end();
    assert!(synced < 7, "{synced}");
    // As a filesystem that finds an error drops pages it had not written.
    forget_from(&directory(home.path(), 1), synced + 1, log);
    assert_eq!(
        values(log),
        (0..8).collect::<Vec<_>>(),
        "up to the watermark"
    );
    log.set_high_watermark(9);
    assert_eq!(values(log), (0..9).collect::<Vec<_>>());
    let late = log.reader().cursor(8).next(9, 1, ReadMode::Blocking);
    assert!(late.unwrap().is_some());
    assert_eq!(log.shared.quarantine.list(0), Vec::new());
    // What was synced in the segment has no second place: it is damage.
    forget_from(&directory(home.path(), 1), 0, log);
    assert!(
        log.reader()
            .cursor(0)
            .next(9, 1, ReadMode::Blocking)
            .is_err()
    );
}

#[test]
fn files_are_recycled_and_every_record_stays() {
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy");
    let first = committer(home.path());
    let mut logs: Vec<Log> = (1..=4).map(|i| create(home.path(), i, &first)).collect();
    for value in 0..200 {
        assert_eq!(round(&mut logs, value, &first), 4);
        // What is only in the journal must not be in a checkpoint: recovery would take its absence for damage.
        for log in &mut logs {
            log.checkpoint().unwrap();
        }
    }
    let statistics = first.statistics();
    assert!(statistics.wal_rounds > 150, "{statistics:?}");
    assert!(statistics.wal_bytes > 5 * FILE_BYTES, "{statistics:?}");
    let files = fs::read_dir(home.path().join("journal")).unwrap().count();
    assert!((2..=3).contains(&files), "{files}");
    // Segments as they were synced last; later batches are only in the WAL.
    let synced: Vec<u64> = logs
        .iter()
        .map(|log| log.shared.segment_synced_end())
        .collect();
    assert!(synced.iter().all(|end| *end < 200), "{synced:?}");
    copy_tree(&home.path().join("partitions"), &copy);
    for (i, end) in (1..).zip(&synced) {
        forget_from(&copy.join(i.to_string()), *end, &logs[i as usize - 1]);
    }
    drop(logs);
    restore(&copy, home.path());
    let second = committer(home.path());
    for (i, end) in (1..).zip(synced) {
        let (log, replayed) = open(home.path(), i, &second);
        assert_eq!((replayed, values(&log)), (200 - end, (0..200).collect()));
    }
}

/// Overwrites with zeros what the only segment in `directory` holds from `offset` on.
fn forget_from(directory: &Path, offset: u64, log: &Log) {
    let end = log.active.end();
    let size = log.active.batch_bytes() / log.reader().log_end();
    let path = directory.join(log.active.path().file_name().unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[(64 + offset * size) as usize..end as usize].fill(0);
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_log_that_was_cut_stays_cut_and_the_others_take_over_their_part() {
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy");
    let (_first, mut logs) = logs_with_rounds_in_wal_after_copy(home.path(), 3, 10);
    let cut = logs.remove(0);
    cut.close().unwrap();
    drop(logs);
    // Of the other two nothing but the journal has what came since the copy.
    for i in 2..=3 {
        fs::remove_dir_all(directory(home.path(), i)).unwrap();
        copy_tree(&copy.join(i.to_string()), &directory(home.path(), i));
    }
    let wal = options(home.path());
    let files = || fs::read_dir(&wal.directory).unwrap().count();
    let before = files();
    let mut asked = RepairOptions {
        cut_at: Some(4),
        wal: Some(wal.clone()),
        dry_run: true,
        ..RepairOptions::default()
    };
    let at = directory(home.path(), 1);
    let (planned, _) = repair(&OsStorage, &at, identity(1), &asked).unwrap();
    assert!(planned.iter().any(|action| action.path == wal.directory));
    assert_eq!(files(), before);
    asked.dry_run = false;
    let (done, left) = repair(&OsStorage, &at, identity(1), &asked).unwrap();
    assert_eq!((done, left.log_end), (planned, 4));
    assert_eq!(files(), before + 1);

    let second = committer(home.path());
    let (log, replayed) = open(home.path(), 1, &second);
    assert_eq!((replayed, values(&log)), (0, (0..4).collect()));
    let mut logs = vec![log];
    for i in 2..=3 {
        let (log, replayed) = open(home.path(), i, &second);
        assert_eq!((replayed, values(&log)), (9, (0..10).collect()));
        logs.push(log);
    }
    // The file is used again, for all of them.
    copy_tree(&home.path().join("partitions"), &home.path().join("later"));
    assert_eq!(round(&mut logs, 10, &second), 3);
    assert_eq!(second.statistics().wal_rounds, 1);
    drop(logs);
    restore(&home.path().join("later"), home.path());
    let third = committer(home.path());
    let (log, replayed) = open(home.path(), 1, &third);
    assert_eq!((replayed, values(&log)), (1, vec![0, 1, 2, 3, 10]));
}

/// Runs in which the second and third log of `home` fill the journal, and the others are not opened.
fn more_runs(home: &Path, runs: u64) {
    for _ in 0..runs {
        let committer = committer(home);
        let mut logs = vec![open(home, 2, &committer).0, open(home, 3, &committer).0];
        for value in 0..200 {
            assert_eq!(round(&mut logs, value, &committer), 2);
        }
    }
}

fn journal_files(home: &Path) -> usize {
    fs::read_dir(home.join("journal")).unwrap().count()
}

#[test]
fn a_log_that_is_not_opened_keeps_no_file_once_its_segments_are_synced() {
    let home = tempfile::tempdir().unwrap();
    let first = committer(home.path());
    let mut logs: Vec<Log> = (1..=3).map(|i| create(home.path(), i, &first)).collect();
    for value in 0..20 {
        round(&mut logs, value, &first);
    }
    logs.remove(0).close().unwrap();
    drop((logs, first));
    more_runs(home.path(), 3);
    assert!(journal_files(home.path()) <= 3);
    let last = committer(home.path());
    let (log, replayed) = open(home.path(), 1, &last);
    assert_eq!((replayed, values(&log)), (0, (0..20).collect()));
}

#[test]
fn logs_that_are_never_opened_keep_at_most_as_many_files_again() {
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy");
    let first = committer(home.path());
    drop(
        (2..=3)
            .map(|i| create(home.path(), i, &first))
            .collect::<Vec<_>>(),
    );
    drop(first);
    for i in 4..9 {
        let run = committer(home.path());
        let mut logs = vec![open(home.path(), 2, &run).0, create(home.path(), i, &run)];
        for value in 0..200 {
            assert_eq!(round(&mut logs, value, &run), 2);
        }
        // Only the WAL has the batches of this log that were not synced in the segment.
        let (at, synced) = (
            directory(home.path(), i),
            logs[1].shared.segment_synced_end(),
        );
        copy_tree(&at, &copy);
        forget_from(&copy, synced, &logs[1]);
        drop((logs, run));
        fs::remove_dir_all(&at).unwrap();
        fs::rename(&copy, &at).unwrap();
        more_runs(home.path(), 1);
        assert!(journal_files(home.path()) <= 6);
    }
    assert!(journal_files(home.path()) > 3);
    let (last, mut replayed_logs) = (committer(home.path()), 0);
    for i in 4..9 {
        let (log, replayed) = open(home.path(), i, &last);
        assert_eq!(values(&log), (0..200).collect::<Vec<_>>(), "{i}");
        replayed_logs += u64::from(replayed > 0);
    }
    assert!(
        (1..5).contains(&replayed_logs),
        "{replayed_logs}: the last synced directly"
    );
    for i in 2..=3 {
        open(home.path(), i, &last);
    }
    assert!(journal_files(home.path()) <= 3);
}
