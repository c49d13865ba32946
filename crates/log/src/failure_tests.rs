//! A failing disk, simulated by device files that cannot be synced or written.
use crate::commit::group_committer::SyncRequest;
use crate::io::disk::SyncFile;
use crate::io::preallocate::Preallocation;
use crate::io::storage::{OpenMode, OsStorage, Storage};
use crate::{Durability, Error, GroupCommitter, IoOp, Log, LogId, LogOptions, ReadMode};
use bascule_record::{BatchBuilder, BatchLimits, Codec, RecordRef, SealedBatch};
use std::path::Path;
use std::sync::{Arc, mpsc};

fn batch() -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let record = RecordRef {
        value: Some(b"value"),
        ..RecordRef::default()
    };
    builder.push(&record).unwrap();
    builder.seal(Codec::None, None, None).unwrap()
}

fn create(directory: &Path, committer: &Arc<GroupCommitter>) -> Log {
    let identity = LogId {
        incarnation: 1,
        partition: 0,
    };
    Log::create(directory, identity, LogOptions::default(), committer).unwrap()
}

fn commit(log: &mut Log) -> Result<u64, Arc<Error>> {
    let (done, result) = mpsc::channel();
    log.commit(Box::new(move |outcome| done.send(outcome).unwrap()));
    result.recv().unwrap()
}

/// A device that accepts writes but no sync.
fn unsyncable() -> Arc<SyncFile> {
    SyncFile::open(&OsStorage, Path::new("/dev/null"), OpenMode::ReadWrite).unwrap()
}

fn sync(committer: &GroupCommitter, file: &Arc<SyncFile>) -> bool {
    let (done, result) = mpsc::channel();
    committer.sync_queue().submit(SyncRequest {
        file: Some(Arc::clone(file)),
        also: None,
        range: None,
        directory: None,
        answer: Box::new(move |outcome| done.send(outcome.is_ok()).unwrap()),
    });
    result.recv().unwrap()
}

#[test]
fn after_a_failed_sync_nothing_is_acked_from_the_directory() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let mut log = create(&home.path().join("1"), &committer);
    log.append(batch(), 1, 0).unwrap();
    assert_eq!(commit(&mut log).unwrap(), 1);
    log.set_high_watermark(1);
    log.append(batch(), 1, 0).unwrap();
    assert!(!sync(&committer, &unsyncable()));
    let refused = commit(&mut log).unwrap_err();
    assert!(
        matches!(
            *refused,
            Error::Failed {
                operation: IoOp::Sync,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(log.reader().durable_end(), 1, "not moved by later syncs");
    assert!(matches!(
        log.append(batch(), 1, 0),
        Err(Error::Failed { .. })
    ));
    assert!(committer.failure().unwrap().contains("/dev/null"));
    let read = log
        .reader()
        .cursor(0)
        .next(9, 9, ReadMode::Blocking)
        .unwrap();
    assert!(read.is_some(), "reads continue");
    assert!(matches!(log.close(), Err(Error::Failed { .. })));
    let other = Log::open(
        &home.path().join("1"),
        LogId {
            incarnation: 1,
            partition: 0,
        },
        LogOptions::default(),
        &committer,
    );
    assert!(
        matches!(other, Err(Error::Failed { .. })),
        "until a restart"
    );
}

#[test]
fn the_directory_has_failed_before_a_failed_sync_returns() {
    let committer = GroupCommitter::start();
    let storage = committer.files().storage();
    let file = storage
        .open(Path::new("/dev/null"), OpenMode::ReadWrite)
        .unwrap();
    let reported = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let theirs = Arc::clone(&reported);
    committer.on_failure(Box::new(move |text| theirs.lock().push(text.to_owned())));
    assert!(file.sync_data().is_err());
    assert!(committer.failure().unwrap().contains("/dev/null"));
    assert!(file.sync_all().is_err());
    assert_eq!(*reported.lock(), [committer.failure().unwrap()]);
}

#[test]
fn nothing_fails_between_the_decision_to_ack_and_the_ack() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let mut log = create(&home.path().join("1"), &committer);
    let (failed, failures) = mpsc::channel();
    committer.on_failure(Box::new(move |_| failed.send(()).unwrap()));
    let file = committer
        .files()
        .storage()
        .open(Path::new("/dev/null"), OpenMode::ReadWrite)
        .unwrap();
    log.append(batch(), 1, 0).unwrap();
    let (done, outcome) = mpsc::channel();
    log.commit(Box::new(move |result| {
        let syncing = std::thread::spawn(move || assert!(file.sync_data().is_err()));
        // Nothing may come; a wrong order shows itself within this time on any machine, a right one at any time.
        let early = failures.recv_timeout(std::time::Duration::from_millis(200));
        done.send((result.is_ok(), early.is_err(), syncing, failures))
            .unwrap();
    }));
    let (acked, in_order, syncing, failures) = outcome.recv().unwrap();
    syncing.join().unwrap();
    assert!(acked && in_order);
    assert_eq!(failures.recv(), Ok(()));
    log.append(batch(), 1, 0).unwrap_err();
    assert!(commit(&mut log).is_err());
}

#[test]
fn one_failure_among_many_files_fails_all_waiting_commits() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let mut logs: Vec<Log> = (0..9)
        .map(|i| create(&home.path().join(i.to_string()), &committer))
        .collect();
    let (done, answers) = mpsc::channel();
    // The round that is running while the others are handed in holds them together.
    for log in &mut logs {
        log.append(batch(), 1, 0).unwrap();
        let done = done.clone();
        log.commit(Box::new(move |outcome| done.send(outcome.is_ok()).unwrap()));
    }
    assert!(!sync(&committer, &unsyncable()));
    let early = answers.iter().take(9).filter(|ok| *ok).count();
    let durable = logs
        .iter()
        .filter(|log| log.reader().durable_end() == 1)
        .count();
    assert_eq!(
        early, durable,
        "acknowledged logs are durable, the others are not"
    );
    assert!(!sync(&committer, &unsyncable()), "and it stays so");
}

#[test]
fn a_callback_that_panics_does_not_silence_the_others() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let mut log = create(&home.path().join("1"), &committer);
    log.append(batch(), 1, 0).unwrap();
    log.commit(Box::new(|_| std::panic::resume_unwind(Box::new("a bug"))));
    assert_eq!(commit(&mut log).unwrap(), 1);
    assert_eq!(committer.failure(), None);
}

#[test]
fn a_write_that_fails_fails_the_directory() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let mut log = create(&home.path().join("1"), &committer);
    // Open for reading only: every write is refused.
    let path = log.active.path().to_path_buf();
    let file = OsStorage.open(&path, OpenMode::Read).unwrap();
    log.active.begin_writing(file);
    log.preallocation = Preallocation::new(u64::MAX);
    assert!(matches!(
        log.append(batch(), 1, 0),
        Err(Error::Io {
            operation: IoOp::Write,
            ..
        })
    ));
    assert!(matches!(
        log.append(batch(), 1, 0),
        Err(Error::Failed { .. })
    ));
    assert_eq!((log.reader().log_end(), log.epochs().len()), (0, 0));
    assert!(commit(&mut log).is_err());
}

#[test]
fn requests_after_the_end_of_the_group_committer_are_refused() {
    let committer = GroupCommitter::start();
    let queue = Arc::clone(committer.sync_queue());
    drop(committer);
    let (done, result) = mpsc::channel();
    queue.submit(SyncRequest {
        file: None,
        also: None,
        range: None,
        directory: None,
        answer: Box::new(move |outcome| done.send(outcome.is_ok()).unwrap()),
    });
    assert!(!result.recv().unwrap());
}

/// What the checkpoint on disk says is durable.
fn checkpointed(log: &Log) -> u64 {
    log.checkpoint.lock().last().unwrap().durable
}

#[test]
fn in_class_memory_nothing_is_durable_after_a_failed_sync() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let mut log = create(&home.path().join("1"), &committer);
    log.set_options(LogOptions {
        durability: Durability::Memory,
        segment_bytes: 1,
        ..LogOptions::default()
    });
    log.append(batch(), 1, 0).unwrap();
    // The next append seals a segment that cannot be synced; the new one can be.
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let (held, waiting) = (gate.lock(), Arc::clone(&gate));
    log.background
        .submit(Box::new(move || drop(waiting.lock())));
    log.active.begin_writing(Arc::clone(&unsyncable().file));
    log.preallocation = Preallocation::new(0);
    log.append(batch(), 1, 0).unwrap();
    log.checkpoint().unwrap();
    drop(held);
    log.wait_idle();
    assert_eq!((log.reader().durable_end(), checkpointed(&log)), (0, 0));
}

#[test]
fn a_sync_that_fails_during_the_close_is_not_tried_again() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let mut log = create(&home.path().join("1"), &committer);
    log.append(batch(), 1, 0).unwrap();
    let (files, file) = (Arc::clone(committer.files()), unsyncable());
    let checkpoint = Arc::clone(&log.checkpoint);
    // As the zeros ahead are synced: handed in, and not yet done when the log is closed.
    log.background.submit(Box::new(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        files.fail(&file.sync().unwrap_err());
    }));
    assert!(matches!(log.close(), Err(Error::Failed { .. })));
    assert_eq!(checkpoint.lock().last().unwrap().durable, 0);
}

#[test]
fn readers_of_many_segments_hold_few_files_open() {
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    committer.set_open_segments(4);
    let mut log = create(&home.path().join("1"), &committer);
    log.set_options(LogOptions {
        segment_bytes: 1,
        ..LogOptions::default()
    });
    for _ in 0..20 {
        log.append(batch(), 1, 0).unwrap();
    }
    log.set_high_watermark(20);
    let reader = log.reader();
    assert_eq!(reader.segment_count(), 20);
    let mut held = reader.cursor(0);
    for _ in 0..3 {
        for offset in 0..20 {
            let read = reader.cursor(offset).next(20, 1, ReadMode::Blocking);
            assert!(read.unwrap().is_some());
            assert!(committer.files().open_count() <= 4);
        }
        assert!(held.next(20, 1, ReadMode::Blocking).unwrap().is_some());
    }
}
