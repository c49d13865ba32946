//! A log whose group committer has no threads: nothing happens but in `step`, and always the same.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod recording;

use bascule_log::{GroupCommitter, Log, LogId, LogOptions, Retention, WalOptions};
use bascule_record::{BatchBuilder, BatchLimits, Codec, RecordRef, SealedBatch};
use recording::Recording;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const IDENTITY: LogId = LogId {
    incarnation: 1,
    partition: 0,
};

fn batch() -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let record = RecordRef {
        value: Some(b"value"),
        ..RecordRef::default()
    };
    builder.push(&record).unwrap();
    builder.seal(Codec::None, None, None).unwrap()
}

/// Everything a log does in its life; returns what the storage was asked for.
fn life(directory: &Path) -> Vec<String> {
    let storage = Recording::new(directory);
    let committer = GroupCommitter::stepped(storage.clone());
    let options = LogOptions {
        segment_bytes: 1 << 10,
        ..LogOptions::default()
    };
    let mut log = Log::create(directory, IDENTITY, options.clone(), &committer).unwrap();
    for i in 0..40 {
        log.append(batch(), 1 + i / 20, 0).unwrap();
        log.commit(Box::new(|_| {}));
        if i % 3 == 0 {
            while committer.step() {}
            log.set_high_watermark(log.reader().durable_end());
        }
    }
    log.maintain(
        &Retention {
            messages: 10,
            ..Retention::default()
        },
        0,
    )
    .unwrap();
    log.close().unwrap();
    let (log, _) = Log::open(directory, IDENTITY, options, &committer).unwrap();
    log.delete().unwrap();
    storage.calls()
}

#[test]
fn nothing_is_synced_or_answered_before_a_step() {
    let home = tempfile::tempdir().unwrap();
    let storage = Recording::new(home.path());
    let committer = GroupCommitter::stepped(storage.clone());
    let directory = home.path().join("1");
    let mut log = Log::create(&directory, IDENTITY, LogOptions::default(), &committer).unwrap();
    let answered = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&answered);
    log.append(batch(), 1, 0).unwrap();
    let before = storage.calls().len();
    log.commit(Box::new(move |end| {
        theirs.store(end.unwrap(), Ordering::Relaxed);
    }));
    assert_eq!(
        (storage.calls().len(), answered.load(Ordering::Relaxed)),
        (before, 0)
    );
    assert!(committer.step());
    assert_eq!(
        (answered.load(Ordering::Relaxed), log.reader().durable_end()),
        (1, 1)
    );
    assert!(!committer.step(), "nothing is left");
}

#[test]
fn the_same_calls_do_the_same_to_the_storage() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (life(&home.path().join("a")), life(&home.path().join("b")));
    assert!(one.len() > 100, "{}", one.len());
    assert_eq!(one, two);
}

#[test]
fn nothing_outlives_a_group_committer_that_ends_with_work_undone() {
    let home = tempfile::tempdir().unwrap();
    let storage = Recording::new(home.path());
    let seen = Arc::downgrade(&storage);
    let options = LogOptions {
        segment_bytes: 1 << 10,
        ..LogOptions::default()
    };
    let journal = WalOptions {
        from_dirty_files: 1,
        file_bytes: 2 << 10,
        ..WalOptions::new(home.path().join("journal"), home.path().to_path_buf())
    };
    let committer = GroupCommitter::stepped_with_wal(storage, journal).unwrap();
    let directory = home.path().join("1");
    let mut log = Log::create(&directory, IDENTITY, options, &committer).unwrap();
    for i in 0..200 {
        log.append(batch(), 1, 0).unwrap();
        log.commit(Box::new(|_| {}));
        if i < 100 && i % 7 == 0 {
            committer.step();
        }
    }
    // Since the last step: rolls, commits and their checkpoints that nobody does any more.
    drop(log);
    drop(committer);
    assert_eq!(seen.strong_count(), 0);
}

#[test]
fn what_is_before_a_frame_of_the_journal_is_synced_before_the_frame_is() {
    let home = tempfile::tempdir().unwrap();
    let storage = Recording::new(home.path());
    let options = LogOptions {
        segment_bytes: 1 << 10,
        ..LogOptions::default()
    };
    let journal = WalOptions {
        from_dirty_files: 1,
        file_bytes: 64 << 10,
        flush_rounds: u32::MAX,
        ..WalOptions::new(home.path().join("journal"), home.path().to_path_buf())
    };
    let committer = GroupCommitter::stepped_with_wal(storage.clone(), journal).unwrap();
    let create = |incarnation: u64, options: &LogOptions| {
        let directory = home.path().join(incarnation.to_string());
        let identity = LogId {
            incarnation,
            ..IDENTITY
        };
        Log::create(&directory, identity, options.clone(), &committer).unwrap()
    };
    let (mut log, mut other) = (create(1, &options), create(2, &LogOptions::default()));
    let mut rolls = 0;
    for _ in 0..60 {
        // What a roll leaves behind is asked for by the roll alone.
        log.append(batch(), 1, 0).unwrap();
        log.append(batch(), 1, 0).unwrap();
        log.commit(Box::new(|_| {}));
        other.append(batch(), 1, 0).unwrap();
        other.commit(Box::new(|_| {}));
        let before = storage.calls().len();
        let rounds = committer.statistics().wal_rounds;
        committer.step();
        let calls = storage.calls().split_off(before);
        let sealed = calls.iter().position(|call| call.starts_with("sync 1/"));
        let frames = calls
            .iter()
            .position(|call| call.starts_with("write") && call.ends_with(".journal"));
        if committer.statistics().wal_rounds > rounds && sealed.is_some() {
            assert!(sealed < frames, "{calls:?}");
            rolls += 1;
        }
    }
    assert!(rolls > 0, "no round had a roll and the journal");
}
