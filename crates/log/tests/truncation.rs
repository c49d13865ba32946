//! A log ends at an offset: what was truncated never comes back, what stays is whole, and a crash at any step of it leaves a log
//! of the same history that can be truncated again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod support;
mod volatile;

use bascule_log::{
    Error, GroupCommitter, Log, LogOptions, ReadError, ReadMode, Storage, WalDamage, WalOptions,
};
use bascule_record::Producer;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::*;
use volatile::{Cut, Volatile};

const LOGS: u64 = 3;
const RECORDS: u64 = 24;

fn data() -> PathBuf {
    PathBuf::from("/data")
}

fn start(storage: &Volatile) -> Result<Arc<GroupCommitter>, Error> {
    let options = WalOptions {
        from_dirty_files: 2,
        file_bytes: 4 << 10,
        files: 2,
        flush_rounds: 7,
        ..WalOptions::new(data().join("journal"), data().join("partitions"))
    };
    GroupCommitter::stepped_with_wal(Arc::new(storage.clone()), options)
}

fn open(committer: &Arc<GroupCommitter>, incarnation: u64) -> Result<Log, Error> {
    let directory = data().join("partitions").join(incarnation.to_string());
    let options = LogOptions {
        segment_bytes: 1 << 10,
        preallocate_bytes: 512,
        ..LogOptions::default()
    };
    let identity = identity(incarnation);
    match Log::open(&directory, identity, options.clone(), committer) {
        Ok((log, found)) => {
            assert_eq!(found.damaged, [], "{incarnation}");
            Ok(log)
        }
        Err(Error::Absent { .. }) => Log::create(&directory, identity, options, committer),
        Err(error) => Err(error),
    }
}

/// Appends the values to all logs, a round each; all are acked.
fn write(
    logs: &mut [Log],
    values: std::ops::Range<u64>,
    epoch: u64,
    committer: &GroupCommitter,
) -> Result<(), Error> {
    for value in values {
        for log in &mut *logs {
            log.append(batch(&value.to_le_bytes(), 0), epoch, 0)?;
            log.commit(Box::new(|_| {}));
        }
        while committer.step() {}
    }
    Ok(())
}

fn held(log: &Log) -> Vec<u64> {
    log.set_high_watermark(log.reader().log_end());
    let records = read_from(&log.reader(), 0).unwrap();
    let number = |(_, value): (u64, Vec<u8>)| u64::from_le_bytes(value.try_into().unwrap());
    records.into_iter().map(number).collect()
}

/// A run that is killed at a call of the truncation, and what later runs find. Returns whether it was killed.
fn killed_at(calls: u64, to: u64, cut: Option<Cut>, opens_others: bool) -> bool {
    let storage = Volatile::new();
    storage.create_directory(&data()).unwrap();
    let root = storage.open(Path::new("/"), bascule_log::OpenMode::Directory);
    root.unwrap().sync_all().unwrap();
    let committer = start(&storage).unwrap();
    let mut logs: Vec<Log> = (1..=LOGS).map(|i| open(&committer, i).unwrap()).collect();
    write(&mut logs, 0..RECORDS, 1, &committer).unwrap();
    logs[0].set_high_watermark(3);
    let first = logs.remove(0);
    storage.kill_after(calls);
    // An error is what a dead process gets.
    let truncated = first.truncate(to, 2, None).map(|(log, _)| log);
    if let Ok(log) = &truncated {
        assert_eq!(log.reader().log_end(), to);
    }
    drop((truncated, logs, committer));
    let was_killed = storage.restart();
    let lose_power = || cut.into_iter().for_each(|cut| storage.cut(cut));
    lose_power();

    let expected: Vec<u64> = (0..RECORDS).collect();
    let committer = start(&storage).unwrap();
    let first = open(&committer, 1).unwrap();
    let end = first.reader().log_end();
    assert!((to..=RECORDS).contains(&end), "{end}");
    assert_eq!(held(&first), expected[..end as usize]);
    // As the broker does with a log that its leader does not confirm.
    drop(first);
    let first = open(&committer, 1).unwrap();
    let (first, _) = first.truncate(to, 2, None).unwrap();
    let mut logs = vec![first];
    if opens_others {
        logs.extend((2..=LOGS).map(|i| open(&committer, i).unwrap()));
    } else {
        logs.push(open(&committer, 9).unwrap());
    }
    write(&mut logs, 100..110, 2, &committer).unwrap();
    committer.flush_wal();
    write(&mut logs, 110..113, 2, &committer).unwrap();
    drop((logs, committer));
    lose_power();

    let committer = start(&storage).unwrap();
    let first: Vec<u64> = (0..to).chain(100..113).collect();
    assert_eq!(held(&open(&committer, 1).unwrap()), first);
    for i in 2..=LOGS {
        let others: Vec<u64> = (0..RECORDS)
            .chain((100..113).filter(|_| opens_others))
            .collect();
        assert_eq!(held(&open(&committer, i).unwrap()), others, "{i}");
    }
    let is_acked = |damage: &WalDamage| damage.was_acked;
    assert!(!committer.wal_damages().iter().any(is_acked));
    was_killed
}

fn at_every_call(to: u64, cut: Option<Cut>, opens_others: bool) {
    let mut call = 0;
    while killed_at(call, to, cut, opens_others) {
        call += 1;
    }
    assert!(call > 20, "{call}");
}

#[test]
fn a_kill_at_any_call_leaves_a_log_that_can_be_truncated() {
    // In the middle of the first segment, where one begins, and at the end.
    for to in [3, 7, 13, RECORDS - 1] {
        at_every_call(to, None, true);
        at_every_call(to, None, false);
    }
}

#[test]
fn so_does_a_power_cut() {
    for to in [4, 12] {
        at_every_call(to, Some(Cut::Loses), true);
        at_every_call(to, Some(Cut::Tears), false);
    }
}

fn five(options: &LogOptions) -> (Home, Log) {
    let home = Home::new();
    let mut log = home.create(options.clone());
    for i in 0..5_u8 {
        let time = 1_000 + i64::from(i);
        let batch = batch_of(&[&[i; 30], &[i; 30]], time, None);
        log.append(batch, 1 + u64::from(i / 2), time).unwrap();
    }
    settle(&mut log);
    (home, log)
}

#[test]
fn committed_records_are_truncated_only_where_they_are_kept() {
    let (home, log) = five(&small(300));
    let error = log.check_truncation(4, false).unwrap_err();
    assert!(
        matches!(
            error,
            Error::BelowHighWatermark {
                wanted: 4,
                high_watermark: 10,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        read_from(&log.reader(), 0).unwrap().len(),
        10,
        "it is still open"
    );
    let before = home.segments();
    let keep = home.root.path().join("kept/1");
    let links: Vec<_> = (0..=4).map(|offset| log.link_at(offset).unwrap()).collect();
    let contents: Vec<_> = before.iter().map(|path| fs::read(path).unwrap()).collect();
    let (mut log, found) = log.truncate(4, 9, Some(&keep)).unwrap();
    assert_eq!(found.damaged, []);
    let reader = log.reader();
    assert_eq!(
        (
            reader.log_end(),
            reader.high_watermark(),
            reader.durable_end()
        ),
        (4, 4, 4)
    );
    let after: Vec<_> = (0..=4).map(|offset| log.link_at(offset).unwrap()).collect();
    assert_eq!((after, log.epochs()), (links, &[(1, 0)][..]));
    // Whole segments, with the batches before the end too.
    for (path, content) in before.iter().zip(&contents) {
        let copy = keep.join(path.file_name().unwrap());
        if let Ok(copied) = fs::read(&copy) {
            let used = copied.iter().rposition(|byte| *byte != 0).unwrap();
            assert_eq!(copied[..=used], content[..=used], "{}", copy.display());
        }
    }
    assert!(files(&keep, "seg").len() > 1);
    log.append(batch(b"another", 2_000), 9, 0).unwrap();
    settle(&mut log);
    assert_eq!(log.epochs(), [(1, 0), (9, 4)]);
    assert_eq!(
        read_from(&log.reader(), 4).unwrap(),
        [(4, b"another".to_vec())]
    );
}

#[test]
fn only_the_beginning_of_a_batch_is_an_end() {
    let (_home, log) = five(&small(1 << 20));
    let last = |to| match log.check_truncation(to, true) {
        Err(Error::NotABoundary { wanted, last, .. }) => (wanted, last),
        other => panic!("{other:?}"),
    };
    assert_eq!([last(3), last(11), last(7)], [(3, 2), (11, 10), (7, 6)]);
    for to in [0, 2, 4, 6, 8, 10] {
        log.check_truncation(to, true).unwrap();
    }
}

#[test]
fn readers_end_and_those_of_the_log_after_it_see_its_records() {
    let home = Home::new();
    let mut log = home.create(LogOptions::default());
    fill(&mut log, (0..4).map(|i| vec![i; 10]));
    log.append(batch(b"not committed", 9_000), 1, 0).unwrap();
    let mut cursor = log.reader().cursor(0);
    let (log, _) = log.truncate(4, 2, None).unwrap();
    assert!(matches!(
        cursor.next(u64::MAX, 1, ReadMode::Blocking),
        Err(ReadError::Closed)
    ));
    assert_eq!(read_from(&log.reader(), 0).unwrap().len(), 4);
}

#[test]
fn a_producer_continues_after_its_last_batch_that_stays() {
    let home = Home::new();
    let mut log = home.create(small(400));
    let producer = |base_sequence| Producer {
        id: 5,
        epoch: 0,
        base_sequence,
    };
    for sequence in 0..12 {
        let batch = batch_of(
            &[&[7; 60]],
            1_000 + i64::from(sequence),
            Some(producer(sequence)),
        );
        log.append(batch, 1, 0).unwrap();
    }
    let (log, _) = log.truncate(6, 2, None).unwrap();
    let known = |sequence| log.find_duplicate(producer(sequence), 1, 2_000);
    assert!(known(6).is_none(), "its next one");
    for sequence in 1..6 {
        assert!(matches!(known(sequence), Some(Ok(_))), "{sequence}");
    }
    assert!(matches!(known(7), Some(Err(_))));
    // And after a restart.
    drop(log);
    let (log, _) = home.open(small(400));
    assert!(log.find_duplicate(producer(6), 1, 2_000).is_none());
}

#[test]
fn damage_above_the_end_goes_with_it() {
    let (home, log) = five(&small(1 << 20));
    let path = home.segments().remove(0);
    let size = log.reader().bytes() / 5;
    let mut bytes = fs::read(&path).unwrap();
    for batch in [1, 3] {
        bytes[64 + (batch * size) as usize + 20] ^= 0xff;
    }
    fs::write(&path, bytes).unwrap();
    assert!(read_from(&log.reader(), 2).is_err() && read_from(&log.reader(), 6).is_err());
    let ranges = |log: &Log| -> Vec<_> {
        let known = log.reader().quarantine();
        known
            .iter()
            .map(|damage| (damage.start, damage.end))
            .collect()
    };
    assert_eq!(ranges(&log), [(2, 4), (6, 8)]);
    let keep = home.root.path().join("kept");
    // The batch before the end is whole, the one that begins there is damaged.
    let (log, _) = log.truncate(6, 2, Some(&keep)).unwrap();
    assert_eq!((ranges(&log), log.reader().log_end()), (vec![(2, 4)], 6));
    assert!(fs::read_dir(keep).unwrap().count() > 0);
}

#[test]
fn nothing_is_lost_by_truncating_at_the_end() {
    let (home, log) = five(&small(300));
    let before = read_from(&log.reader(), 0).unwrap();
    let (log, found) = log.truncate(10, 3, None).unwrap();
    assert_eq!(
        (read_from(&log.reader(), 0).unwrap(), found.cut_bytes),
        (before, 0)
    );
    drop((log, home));
}
