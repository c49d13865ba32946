//! A cut of a live log in the WAL: what lies after it never comes back.
use super::damaged::home::destroy;
use super::*;
use crate::io::file_names::journal_name;
use crate::io::storage::{Storage, StorageWrapper};
use crate::segment::scan::LogPosition;
use crate::state::shared::UnsyncedBatches;
use crate::wal::ring::make;

/// Two logs whose batches from the first one on are in the WAL alone, ten each; the first log is cut at 4. Returns where frames
/// of the WAL end before the cut and after it.
fn cut(home: &Path) -> (usize, usize) {
    let (committer, logs) = logs_with_rounds_in_wal_after_copy(home, 2, 10);
    let before = committer.statistics().wal_bytes as usize;
    assert!(committer.record_cut(identity(1), 4, 1).unwrap());
    drop((logs, committer));
    restore(&home.join("copy"), home);
    (before, before + format::FRAME_BYTES + format::CUT_BYTES)
}

/// What the two logs serve after a start.
fn served(home: &Path) -> [Vec<u64>; 2] {
    let committer = committer(home);
    [1, 2].map(|i| values(&open(home, i, &committer).0))
}

#[test]
fn replay_brings_nothing_back_from_behind_a_cut() {
    let home = tempfile::tempdir().unwrap();
    cut(home.path());
    for _ in 0..2 {
        assert_eq!(
            served(home.path()),
            [(0..4).collect(), (0..10).collect::<Vec<_>>()]
        );
    }
}

#[test]
fn what_was_appended_since_is_replayed_behind_it() {
    let home = tempfile::tempdir().unwrap();
    cut(home.path());
    let second = committer(home.path());
    let mut logs = [1, 2].map(|i| open(home.path(), i, &second).0);
    let later = home.path().join("later");
    copy_tree(&home.path().join("partitions"), &later);
    assert_eq!(round(&mut logs, 10, &second), 2);
    assert!(second.record_cut(identity(2), 9, 1).unwrap());
    drop((logs, second));
    restore(&later, home.path());
    let [first, other] = served(home.path());
    assert_eq!(first, [0, 1, 2, 3, 10]);
    assert_eq!(other, (0..10).collect::<Vec<_>>(), "the segment has it");
}

#[test]
fn a_cut_behind_damage_is_found() {
    let home = tempfile::tempdir().unwrap();
    let (end, _) = cut(home.path());
    let path = home.path().join("journal").join(journal_name(0));
    let whole = fs::read(&path).unwrap();
    let manifest = fs::read(home.path().join("journal.head")).unwrap();
    for zeros in [false, true] {
        restore(&home.path().join("copy"), home.path());
        let mut bytes = whole.clone();
        destroy(&mut bytes[end - 200..end], zeros);
        fs::write(&path, bytes).unwrap();
        fs::write(home.path().join("journal.head"), &manifest).unwrap();
        let [first, _] = served(home.path());
        assert_eq!(first, (0..4).collect::<Vec<_>>());
    }
}

#[test]
fn a_cut_that_is_damaged_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = cut(home.path());
    let path = home.path().join("journal").join(journal_name(0));
    let whole = fs::read(&path).unwrap();
    let manifest = fs::read(home.path().join("journal.head")).unwrap();
    for at in from..to {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        fs::write(home.path().join("journal.head"), &manifest).unwrap();
        let damages = committer(home.path()).wal_damages();
        assert_eq!(damages.len(), 1, "byte {at}: {damages:?}");
        assert_eq!(damages[0].position, from as u64);
    }
}

#[test]
fn a_cut_beside_an_older_file_that_a_log_waits_for_makes_no_file_missing() {
    let home = tempfile::tempdir().unwrap();
    drop(logs_with_rounds_in_wal_after_copy(home.path(), 2, 10));
    restore(&home.path().join("copy"), home.path());
    // The first log is not opened: its file stays. The next file is flushed, and nothing needs it.
    let second = committer(home.path());
    let mut logs = [
        open(home.path(), 2, &second).0,
        create(home.path(), 3, &second),
    ];
    for value in 10..13 {
        assert_eq!(round(&mut logs, value, &second), 2);
    }
    assert!(second.statistics().wal_rounds > 0);
    second.flush_wal();
    drop((logs, second));
    let asked = RepairOptions {
        cut_at: Some(1),
        wal: Some(options(home.path())),
        ..RepairOptions::default()
    };
    let at = directory(home.path(), 1);
    let (done, _) = repair(&OsStorage, &at, identity(1), &asked).unwrap();
    assert!(
        done.iter()
            .any(|action| action.path == options(home.path()).directory)
    );
    let third = committer(home.path());
    assert_eq!(third.wal_damages(), []);
    assert_eq!(values(&open(home.path(), 1, &third).0), [0]);
}

/// Logs 1 and 2 with nine records each in the WAL alone; then log 1 is cut at 1, its segments are what they were before, and it
/// is opened again.
fn cut_and_reopen(home: &Path) -> (Arc<GroupCommitter>, Log, Log) {
    let (committer, mut logs) = logs_with_rounds_in_wal_after_copy(home, 2, 10);
    let [first, other] = [logs.remove(0), logs.remove(0)];
    assert!(committer.record_cut(identity(1), 1, 1).unwrap());
    drop(first);
    fs::remove_dir_all(directory(home, 1)).unwrap();
    copy_tree(&home.join("copy/1"), &directory(home, 1));
    let first = open(home, 1, &committer).0;
    assert_eq!(first.reader().log_end(), 1);
    (committer, first, other)
}

/// Has the next round begin another file, although the current one is not full.
fn switch_file(committer: &GroupCommitter) {
    let wal = committer.sync_queue().wal().unwrap();
    let ring = &mut wal.state.lock().ring;
    for _ in 0..2 {
        let path = wal.options.directory.join(ring.take_name());
        ring.made(Some(&make(&OsStorage, &path, FILE_BYTES).unwrap()), 0);
    }
    ring.end_current();
}

/// The value of the batch that the WAL finds for an offset of the first log.
fn looked_up(committer: &GroupCommitter, offset: u64) -> Option<u64> {
    let wal = committer.sync_queue().wal().unwrap();
    let place = LogPosition::at(0, offset);
    let (_, bytes) = wal.find(identity(1), &place)?;
    let batch = Batch::read(&bytes).unwrap();
    Some(u64::from_le_bytes(
        batch.value(0).unwrap().try_into().unwrap(),
    ))
}

#[test]
fn a_look_up_returns_the_batch_behind_a_cut_and_none_from_before_it() {
    // Both batches in one file, and each in a file of its own.
    for files in 1..=2 {
        let home = tempfile::tempdir().unwrap();
        let (committer, first, other) = cut_and_reopen(home.path());
        assert_eq!(looked_up(&committer, 1), None, "only what was cut is there");
        if files == 2 {
            switch_file(&committer);
        }
        let mut logs = [first, other];
        assert_eq!(round(&mut logs, 100, &committer), 2);
        let wal = committer.sync_queue().wal().unwrap();
        assert_eq!(wal.state.lock().ring.newest_first().len(), files);
        assert_eq!(looked_up(&committer, 1), Some(100));
        assert_eq!(looked_up(&committer, 5), None);
    }
}

#[test]
fn a_look_up_trusts_no_frame_before_one_that_cannot_be_read() {
    let home = tempfile::tempdir().unwrap();
    let (committer, _logs) = logs_with_rounds_in_wal_after_copy(home.path(), 2, 10);
    assert_eq!(looked_up(&committer, 5), Some(5));
    assert!(committer.record_cut(identity(1), 1, 1).unwrap());
    let end = committer.sync_queue().wal().unwrap();
    let end = end.state.lock().ring.newest_first()[0].1 as usize;
    let path = home.path().join("journal").join(journal_name(0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[end - format::CUT_BYTES] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(looked_up(&committer, 5), None);
}

#[test]
fn a_file_with_a_cut_stays_as_long_as_an_older_one() {
    let home = tempfile::tempdir().unwrap();
    drop(logs_with_rounds_in_wal_after_copy(home.path(), 3, 10));
    restore(&home.path().join("copy"), home.path());
    // The first log is not opened, so the file of this run stays. The second one replays it, and is cut then.
    let run = committer(home.path());
    let mut logs = [2, 3].map(|i| open(home.path(), i, &run).0);
    assert_eq!(round(&mut logs, 10, &run), 2);
    assert_eq!(round(&mut logs, 11, &run), 2);
    assert!(run.record_cut(identity(2), 1, 1).unwrap());
    let [cut, other] = logs;
    drop(cut);
    fs::remove_dir_all(directory(home.path(), 2)).unwrap();
    copy_tree(&home.path().join("copy/2"), &directory(home.path(), 2));
    run.flush_wal();
    other.close().unwrap();
    drop(run);
    // Nor is it in the next run, in which the file with the cut is one of an earlier run.
    for _ in 0..2 {
        let next = committer(home.path());
        assert_eq!(next.wal_damages(), []);
        let (log, replayed) = open(home.path(), 2, &next);
        assert_eq!((replayed, values(&log)), (0, vec![0]));
        next.flush_wal();
    }
    let last = committer(home.path());
    let (log, replayed) = open(home.path(), 1, &last);
    assert_eq!((replayed, values(&log)), (9, (0..10).collect()));
    for i in 2..=3 {
        open(home.path(), i, &last);
    }
    assert!(journal_files(home.path()) <= 3);
    assert_eq!(committer(home.path()).wal_damages(), []);
}

#[test]
fn a_file_with_a_cut_is_used_again_once_no_older_one_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    drop(logs_with_rounds_in_wal_after_copy(home.path(), 3, 10));
    restore(&home.path().join("copy"), home.path());
    let run = committer(home.path());
    let mut logs = [2, 3].map(|i| open(home.path(), i, &run).0);
    for value in 10..12 {
        assert_eq!(round(&mut logs, value, &run), 2);
    }
    assert!(run.record_cut(identity(2), 11, 1).unwrap());
    run.flush_wal();
    let held = || {
        run.sync_queue()
            .wal()
            .unwrap()
            .state
            .lock()
            .ring
            .kept()
            .len()
    };
    assert_eq!(
        held(),
        2,
        "the file of the last run, and the one with the cut"
    );
    open(home.path(), 1, &run);
    assert_eq!(held(), 0);
}

#[test]
fn a_log_without_batches_in_the_wal_needs_no_cut() {
    let home = tempfile::tempdir().unwrap();
    let (committer, _logs) = logs_with_rounds_in_wal_after_copy(home.path(), 2, 10);
    let written = || {
        committer
            .sync_queue()
            .wal()
            .unwrap()
            .state
            .lock()
            .ring
            .newest_first()[0]
            .1
    };
    let before = written();
    assert!(committer.record_cut(identity(7), 0, 1).unwrap());
    assert!(committer.record_cut(identity(1), 10, 1).unwrap());
    assert_eq!(written(), before);
    assert!(committer.record_cut(identity(1), 9, 1).unwrap());
    assert!(written() > before);
}

/// A disk that has space for one file of the WAL.
#[derive(Debug, Default)]
struct SmallDisk(std::sync::atomic::AtomicBool);

impl StorageWrapper for SmallDisk {
    fn inner(&self) -> &dyn Storage {
        &OsStorage
    }

    fn free_bytes(&self, _: &Path) -> std::io::Result<u64> {
        let is_full = self.0.swap(true, Ordering::Relaxed);
        Ok(if is_full { 0 } else { u64::MAX })
    }
}

#[test]
fn a_cut_frees_a_full_file_where_the_disk_has_no_space_for_another() {
    let home = tempfile::tempdir().unwrap();
    let disk = Arc::new(SmallDisk::default());
    let options = WalOptions {
        flush_rounds: u32::MAX,
        ..options(home.path())
    };
    let committer = GroupCommitter::stepped_with_wal(disk, options).unwrap();
    let mut logs = [1, 2].map(|i| create(home.path(), i, &committer));
    for value in 0..200 {
        assert_eq!(round(&mut logs, value, &committer), 2);
    }
    let rounds = committer.statistics().wal_rounds;
    assert!(rounds < 199, "the file is full: {rounds}");
    assert!(committer.record_cut(identity(1), 1, 1).unwrap());
}
