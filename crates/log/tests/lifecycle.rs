//! A log from creation to deletion: append, commit, roll, read, reopen.
#![allow(clippy::unwrap_used)]
mod support;
use bascule_log::{DeletedLogs, Error, Log, LogId, LogOptions, ReadError, ReadMode};
use bascule_record::Producer;
use support::*;

fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| format!("value {i}").into_bytes())
        .collect()
}

#[test]
fn what_was_appended_is_read_back_after_commit() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    let appended = log
        .append(batch_of(&[b"a", b"b"], 50, None), 3, 50)
        .unwrap();
    assert_eq!(
        (
            appended.base_offset,
            appended.next_offset,
            appended.base_timestamp
        ),
        (0, 2, 50)
    );
    assert!(
        read_from(&log.reader(), 0).unwrap().is_empty(),
        "not committed, so not shown"
    );
    settle(&mut log);
    assert_eq!(
        read_from(&log.reader(), 0).unwrap(),
        [(0, b"a".to_vec()), (1, b"b".to_vec())]
    );
    assert_eq!(read_from(&log.reader(), 1).unwrap(), [(1, b"b".to_vec())]);
    assert_eq!(log.reader().durable_end(), 2);
    assert_eq!(log.reader().last_timestamp(), Some(51));
    assert_eq!(log.epochs(), [(3, 0)]);
}

#[test]
fn timestamps_never_decrease() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    log.append(batch(b"late", 900), 1, 0).unwrap();
    let early = log.append(batch(b"early", 100), 1, 0).unwrap();
    assert_eq!(early.base_timestamp, 900);
}

#[test]
fn segments_roll_by_size_and_all_are_read_in_order() {
    let home = Home::new();
    let mut log = home.create(small(1000));
    fill(&mut log, numbered(100));
    assert!(home.segments().len() > 10, "{:?}", home.segments());
    assert_eq!(values(&read_from(&log.reader(), 0).unwrap()), numbered(100));
    assert_eq!(
        values(&read_from(&log.reader(), 57).unwrap()),
        numbered(100)[57..]
    );
}

#[test]
fn a_segment_rolls_by_age_of_its_first_record() {
    let home = Home::new();
    let mut log = home.create(LogOptions {
        segment_age_ns: 100,
        ..small(1 << 20)
    });
    log.append(batch(b"a", 1000), 1, 1000).unwrap();
    log.append(batch(b"b", 1099), 1, 1099).unwrap();
    assert_eq!(log.reader().segment_count(), 1);
    log.append(batch(b"c", 1100), 1, 1100).unwrap();
    assert_eq!(log.reader().segment_count(), 2);
}

#[test]
fn a_clean_close_is_reopened_without_a_scan() {
    let home = Home::new();
    let mut log = home.create(small(1000));
    fill(&mut log, numbered(50));
    let (hw, bytes) = (log.reader().high_watermark(), log.reader().bytes());
    log.close().unwrap();
    let (mut log, recovery) = home.open(small(1000));
    assert!(recovery.clean);
    assert_eq!(
        (recovery.scanned_bytes, recovery.cut_bytes, recovery.batches),
        (0, 0, 0)
    );
    let reader = log.reader();
    assert_eq!(
        (
            reader.high_watermark(),
            reader.log_end(),
            reader.durable_end(),
            reader.bytes()
        ),
        (hw, 50, 50, bytes)
    );
    fill(&mut log, numbered(3));
    assert_eq!(read_from(&log.reader(), 0).unwrap().len(), 53);
    drop(log);
    let (log, recovery) = home.open(small(1000));
    assert!(!recovery.clean);
    log.set_high_watermark(u64::MAX);
    assert_eq!(read_from(&log.reader(), 0).unwrap().len(), 53);
}

#[test]
fn a_crash_keeps_what_was_committed() {
    let home = Home::new();
    let mut log = home.create(small(4000));
    fill(&mut log, numbered(40));
    drop(log);
    let (log, recovery) = home.open(small(4000));
    assert_eq!(recovery.cut_bytes, 0);
    assert!(recovery.damaged.is_empty());
    log.set_high_watermark(log.reader().log_end());
    assert_eq!(values(&read_from(&log.reader(), 0).unwrap()), numbered(40));
    assert_eq!(log.reader().last_timestamp(), Some(1039));
}

#[test]
fn class_memory_answers_at_once_and_syncs_at_checkpoints() {
    let home = Home::new();
    let mut log = home.create(memory(1 << 20));
    fill(&mut log, numbered(3));
    assert_eq!(log.reader().durable_end(), 0);
    log.checkpoint().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while log.reader().durable_end() < 3 {
        assert!(std::time::Instant::now() < deadline, "the checkpoint syncs");
        std::thread::yield_now();
    }
    log.close().unwrap();
    let (log, recovery) = home.open(memory(1 << 20));
    assert!(recovery.clean);
    assert_eq!(read_from(&log.reader(), 0).unwrap().len(), 3);
}

#[test]
fn an_older_epoch_is_refused_and_a_newer_one_recorded() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    log.append(batch(b"a", 1), 4, 1).unwrap();
    log.append(batch(b"b", 2), 6, 2).unwrap();
    assert!(matches!(
        log.append(batch(b"c", 3), 5, 3),
        Err(Error::StaleEpoch {
            got: 5,
            current: 6,
            ..
        })
    ));
    settle(&mut log);
    drop(log);
    std::fs::remove_file(home.path().join("epochs")).unwrap();
    let (log, _) = home.open(LogOptions::default());
    assert_eq!(log.epochs(), [(4, 0), (6, 1)], "rebuilt from the headers");
}

#[test]
fn producers_are_remembered_across_segments_and_lives() {
    let home = Home::new();
    let mut log = home.create(small(600));
    let producer = |sequence| Producer {
        id: 99,
        epoch: 1,
        base_sequence: sequence,
    };
    let mut first = None;
    for i in 0..12_u32 {
        let sent = producer(i * 2);
        assert_eq!(log.find_duplicate(sent, 2, 10), None);
        let appended = log
            .append(batch_of(&[b"x", b"y"], 10, Some(sent)), 1, 10)
            .unwrap();
        first = first.or((i == 8).then_some(appended));
    }
    settle(&mut log);
    for clean in [true, false] {
        assert_eq!(log.find_duplicate(producer(16), 2, 10), first.map(Ok));
        assert!(
            matches!(log.find_duplicate(producer(2), 2, 10), Some(Err(_))),
            "outside the window of 5"
        );
        assert_eq!(log.find_duplicate(producer(24), 2, 10), None);
        if clean {
            log.close().unwrap();
        } else {
            drop(log);
            // Without the snapshot the headers tell the same.
            std::fs::remove_file(home.path().join("producers")).unwrap();
        }
        log = home.open(small(600)).0;
    }
    assert_eq!(log.find_duplicate(producer(16), 2, 10), first.map(Ok));
}

#[test]
fn create_refuses_an_existing_log_and_open_a_missing_one() {
    let home = Home::new();
    assert!(matches!(
        home.try_open(LogOptions::default()),
        Err(Error::Absent { .. })
    ));
    drop(home.create(LogOptions::default()));
    let again = Log::create(
        &home.path(),
        IDENTITY,
        LogOptions::default(),
        &home.committer,
    );
    assert!(matches!(again, Err(Error::Exists { .. })));
}

#[test]
fn another_incarnation_or_partition_is_refused() {
    let home = Home::new();
    home.create(LogOptions::default()).close().unwrap();
    for identity in [
        LogId {
            incarnation: 8,
            ..IDENTITY
        },
        LogId {
            partition: 3,
            ..IDENTITY
        },
    ] {
        let opened = Log::open(
            &home.path(),
            identity,
            LogOptions::default(),
            &home.committer,
        );
        assert!(matches!(opened, Err(Error::Foreign { .. })), "{opened:?}");
    }
}

#[test]
fn a_newer_format_is_refused_and_not_touched() {
    let home = Home::new();
    home.create(LogOptions::default()).close().unwrap();
    let path = home.segments().remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] = 2;
    let crc = crc32c::crc32c(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&crc);
    std::fs::write(&path, &bytes).unwrap();
    let error = home.try_open(LogOptions::default()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NewerFormat {
                found: 2,
                supported: 1,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn readers_of_a_closed_log_get_an_error() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    fill(&mut log, numbered(2));
    let reader = log.reader();
    let mut cursor = reader.cursor(0);
    log.close().unwrap();
    assert!(reader.is_closed());
    assert!(matches!(
        cursor.next(9, 9, ReadMode::NoWait),
        Err(ReadError::Closed)
    ));
}

#[test]
fn a_deleted_log_is_swept_after_its_grace() {
    let home = Home::new();
    home.create(LogOptions::default()).delete().unwrap();
    assert!(!home.path().exists());
    let mut deleted = DeletedLogs::default();
    assert_eq!(
        deleted.sweep(home.root.path(), 3_600_000_000_000).unwrap(),
        0
    );
    assert_eq!(deleted.sweep(home.root.path(), 0).unwrap(), 1);
    assert_eq!(std::fs::read_dir(home.root.path()).unwrap().count(), 0);
}

#[test]
fn a_log_is_deleted_or_closed_while_its_rolls_are_being_synced() {
    let home = Home::new();
    for round in 0..20 {
        let mut log = home.create(small(300));
        for i in 0..10 {
            log.append(batch(&[0; 200], i), 1, 0).unwrap();
        }
        log.commit(Box::new(|_| {}));
        if round % 2 == 0 {
            log.close().unwrap();
            let (reopened, recovery) = home.open(small(300));
            assert!(recovery.clean, "round {round}");
            log = reopened;
        }
        log.delete().unwrap();
        assert_eq!(home.committer.failure(), None);
    }
}

#[test]
fn a_creation_that_was_cut_short_is_completed_by_the_next_open() {
    let home = Home::new();
    drop(home.create(LogOptions::default()));
    std::fs::write(&home.segments()[0], b"").unwrap();
    let (mut log, recovery) = home.open(LogOptions::default());
    assert_eq!((log.reader().log_end(), recovery.damaged), (0, vec![]));
    fill(&mut log, numbered(2));
    drop(log);
    let (log, _) = home.open(LogOptions::default());
    assert_eq!(log.reader().log_end(), 2);
}

#[test]
fn many_logs_commit_in_one_round() {
    let home = Home::new();
    let create = |i: u64| {
        let identity = LogId {
            incarnation: i,
            partition: 0,
        };
        Log::create(
            &home.root.path().join(i.to_string()),
            identity,
            small(1 << 20),
            &home.committer,
        )
        .unwrap()
    };
    let mut logs: Vec<Log> = (0..30).map(create).collect();
    let before = home.committer.statistics();
    let (done, answers) = std::sync::mpsc::channel();
    for log in &mut logs {
        log.append(batch(b"v", 1), 1, 0).unwrap();
        for _ in 0..3 {
            let done = done.clone();
            log.commit(Box::new(move |end| done.send(end.unwrap()).unwrap()));
        }
    }
    assert!(answers.iter().take(90).all(|end| end == 1));
    let after = home.committer.statistics();
    assert_eq!(after.requests - before.requests, 90);
    assert!(
        after.files - before.files <= 120,
        "each file at most once a round"
    );
    assert!(logs.iter().all(|log| log.reader().durable_end() == 1));
}

#[test]
fn the_durability_class_may_change_while_open() {
    let home = Home::new();
    let mut log = home.create(memory(500));
    fill(&mut log, numbered(20));
    log.set_options(small(500));
    fill(&mut log, numbered(20));
    assert_eq!(log.reader().durable_end(), 40);
    log.set_options(memory(500));
    fill(&mut log, numbered(5));
    log.close().unwrap();
    let (log, recovery) = home.open(small(500));
    assert!(recovery.clean);
    assert_eq!(read_from(&log.reader(), 0).unwrap().len(), 45);
}
