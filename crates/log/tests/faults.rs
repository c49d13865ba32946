//! Row S12: every error at every call of the engine that can have it (reliability P14, P15, F11–F17, I25).
//!
//! One life of a log is run with one fault: from its n-th call on, once or for a while, for all n. Whatever the fault:
//! no panic, no ack after a failed sync, every error names its path, reads continue, writes resume automatically after a lack of
//! space or descriptors, and the next open yields everything that was acked and nothing but what was appended, in order.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod faulty;

use bascule_log::integrity::Fault as DamageFault;
use bascule_log::{
    Error, GroupCommitter, Log, LogId, LogOptions, ReadError, ReadMode, Retention, WalOptions,
};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Batches, Codec, RecordRef, SealedBatch};
use faulty::{Fault, Faulty, Kind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const IDENTITY: LogId = LogId {
    incarnation: 1,
    partition: 0,
};

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 2 << 10,
        preallocate_bytes: 4 << 10,
        ..LogOptions::default()
    }
}

fn batch(value: u64) -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let value = value.to_le_bytes();
    let record = RecordRef {
        value: Some(&value),
        ..RecordRef::default()
    };
    builder.push(&record).unwrap();
    builder.seal(Codec::None, None, None).unwrap()
}

/// The values in the log from its start to its high watermark.
fn values(log: &Log) -> Result<Vec<u64>, ReadError> {
    let mut values = Vec::new();
    let mut cursor = log.reader().cursor(0);
    while let Some(bytes) = cursor.next(u64::MAX, 1 << 20, ReadMode::Blocking)? {
        for bytes in Batches::new(bytes) {
            let batch = Batch::read(&bytes.unwrap()).unwrap();
            values.extend(
                (0..batch.len())
                    .map(|i| u64::from_le_bytes(batch.value(i).unwrap().try_into().unwrap())),
            );
        }
    }
    Ok(values)
}

/// What became of one life.
struct Life<'a> {
    directory: &'a Path,
    storage: Arc<Faulty>,
    committer: Arc<GroupCommitter>,
    log: Option<Log>,
    /// Values in the log by offset, as appended.
    appended: Vec<u64>,
    /// The end of what was acked.
    acked: Arc<AtomicU64>,
    acked_wrongly: Arc<AtomicBool>,
    next: u64,
}

/// With a journal, every commit goes through it, its files are soon full, and segments are synced late.
fn committer(directory: &Path, storage: &Arc<Faulty>, journaled: bool) -> Arc<GroupCommitter> {
    if !journaled {
        return GroupCommitter::stepped(storage.clone());
    }
    let partitions = directory.parent().unwrap();
    let options = WalOptions {
        from_dirty_files: 1,
        file_bytes: 4 << 10,
        files: 2,
        ..WalOptions::new(
            partitions.with_file_name("journal"),
            partitions.to_path_buf(),
        )
    };
    GroupCommitter::stepped_with_wal(storage.clone(), options).unwrap()
}

impl<'a> Life<'a> {
    fn new(directory: &'a Path, storage: &Arc<Faulty>, journaled: bool) -> Self {
        Self {
            directory,
            storage: Arc::clone(storage),
            committer: committer(directory, storage, journaled),
            log: None,
            appended: Vec::new(),
            acked: Arc::default(),
            acked_wrongly: Arc::default(),
            next: 100,
        }
    }

    fn note(&self, error: &Error) {
        let text = error.to_string();
        let home = self.directory.ancestors().nth(3).unwrap();
        assert!(
            text.contains(home.to_str().unwrap()),
            "names no path: {text}"
        );
    }

    fn start(&mut self) {
        if self.log.is_some() {
            return;
        }
        let opened = Log::open(self.directory, IDENTITY, options(), &self.committer);
        let log = match opened {
            Ok((log, _)) => Ok(log),
            Err(Error::Absent { .. }) if self.acked.load(Ordering::Relaxed) == 0 => {
                Log::create(self.directory, IDENTITY, options(), &self.committer)
            }
            Err(error) => Err(error),
        };
        match log {
            Ok(log) => {
                let end = log.reader().log_end();
                assert!(
                    end >= self.acked.load(Ordering::Relaxed),
                    "acked records are gone"
                );
                self.appended.truncate(usize::try_from(end).unwrap());
                assert_eq!(self.appended.len() as u64, end, "more than was appended");
                log.set_high_watermark(end);
                self.log = Some(log);
            }
            Err(error) => self.note(&error),
        }
    }

    fn append(&mut self, epoch: u64) {
        let Some(log) = &mut self.log else { return };
        let value = self.next;
        self.next += 1;
        match log.append(batch(value), epoch, 0) {
            Ok(appended) => {
                assert_eq!(appended.base_offset, self.appended.len() as u64);
                self.appended.push(value);
            }
            Err(error) => self.note(&error),
        }
    }

    fn commit(&mut self) {
        let Some(log) = &mut self.log else { return };
        let (acked, wrongly) = (Arc::clone(&self.acked), Arc::clone(&self.acked_wrongly));
        let storage = Arc::clone(&self.storage);
        let failed_sync = move || storage.hits().iter().any(|(kind, _)| *kind == Kind::Sync);
        log.commit(Box::new(move |outcome| {
            if let Ok(end) = outcome {
                wrongly.fetch_or(failed_sync(), Ordering::Relaxed);
                acked.fetch_max(end, Ordering::Relaxed);
            }
        }));
        while self.committer.step() {}
        log.set_high_watermark(log.reader().durable_end());
    }

    /// Reads what is committed: a fault that is not a read's must not be noticed.
    fn read(&mut self) {
        let Some(log) = &self.log else { return };
        let committed = usize::try_from(log.reader().high_watermark()).unwrap();
        let start = usize::try_from(log.reader().log_start()).unwrap();
        match values(log) {
            Ok(values) => assert_eq!(values, self.appended[start..committed]),
            Err(ReadError::Damaged(damage)) => {
                assert_eq!(damage.fault, DamageFault::Unreadable, "{damage}");
                let hits = self.storage.hits();
                assert!(hits.iter().any(|(kind, _)| *kind == Kind::Read), "{damage}");
            }
            Err(ReadError::Io { .. }) => {
                let (kind, _) = self.storage.hits().last().cloned().unwrap();
                assert!(
                    matches!(kind, Kind::Read | Kind::Open),
                    "{kind:?} broke a read"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn maintain(&mut self) {
        let Some(log) = &mut self.log else { return };
        let retention = Retention {
            messages: 30,
            ..Retention::default()
        };
        log.maintain(&retention, 0)
            .map_or_else(|error| self.note(&error), |_| ());
        while self.committer.step() {}
    }

    fn end(&mut self) {
        if let Some(Err(error)) = self.log.take().map(Log::close) {
            self.note(&error);
        }
    }

    /// Creates, writes, rolls, removes, closes, opens, loses its tail and opens again.
    fn run(&mut self) {
        for round in 0..3_u64 {
            self.start();
            for i in 0..24 {
                self.append(1 + round);
                if i % 4 == 3 {
                    self.commit();
                    self.read();
                }
            }
            if let Some(log) = &mut self.log {
                log.checkpoint()
                    .map_or_else(|error| self.note(&error), |()| ());
                while self.committer.step() {}
            }
            self.maintain();
            if round == 1 {
                // As a crash: what waits is not done.
                self.log = None;
            } else {
                self.end();
            }
        }
    }
}

/// Runs a life with the fault and says at how many calls it could have happened.
fn survive(fault: Fault, calls: u64, failures: u64, journaled: bool) -> u64 {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let directory = data.join("partitions").join("1");
    let storage = Faulty::disarmed(fault, calls, failures);
    let mut life = Life::new(&directory, &storage, journaled);
    storage.arm();
    life.run();
    let seen = storage.seen();
    let in_journal = life.committer.statistics().wal_rounds;
    assert!(!journaled || failures > 0 || in_journal > 5, "{in_journal}");
    assert!(
        !life.acked_wrongly.load(Ordering::Relaxed),
        "acked after a failed sync"
    );
    storage.heal();
    let hits = storage.hits();
    let failed_sync = hits.iter().any(|(kind, _)| *kind == Kind::Sync);
    assert_eq!(hits.len() as u64, failures.min(seen.saturating_sub(calls)));
    if fault.passes() && !failed_sync {
        // Space and descriptors are back: no restart, no remedy.
        assert_eq!(life.committer.failure(), None, "{hits:?}");
        life.start();
        let before = life.acked.load(Ordering::Relaxed);
        life.append(9);
        life.commit();
        assert!(life.acked.load(Ordering::Relaxed) > before, "{hits:?}");
        life.read();
    } else if failed_sync {
        let failure = life.committer.failure();
        assert!(failure.is_some(), "a failed sync was overlooked: {hits:?}");
    }
    life.end();
    // The broker is started again, on an intact disk.
    life.log = None;
    life.committer = committer(&directory, &storage, journaled);
    life.start();
    life.read();
    life.append(10);
    let before = life.acked.load(Ordering::Relaxed);
    life.log.is_some().then_some(()).unwrap();
    // What failed before is known; from here on nothing fails.
    life.storage = Faulty::new(fault, u64::MAX, 0);
    life.commit();
    assert!(life.acked.load(Ordering::Relaxed) > before);
    seen
}

/// Every `step`-th call of every fault.
fn survive_all(failures: u64, step: usize, journaled: bool) {
    let (mut sites, mut failed) = (0, Vec::new());
    for fault in Fault::ALL {
        let seen = survive(fault, u64::MAX, 0, journaled);
        for calls in (0..seen).step_by(step) {
            let outcome = std::panic::catch_unwind(|| survive(fault, calls, failures, journaled));
            if outcome.is_err() {
                failed.push((fault, calls));
            }
        }
        sites += seen.div_ceil(step as u64);
    }
    println!(
        "{} of {sites} sites survived, {failures} failures each",
        sites - failed.len() as u64
    );
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn one_error_at_every_call_is_survived() {
    survive_all(1, 1, false);
}

#[test]
fn errors_that_last_for_a_while_are_survived() {
    survive_all(7, 4, false);
}

#[test]
fn errors_that_do_not_end_are_survived() {
    survive_all(u64::MAX, 4, false);
}

#[test]
fn one_error_at_every_call_with_a_journal_is_survived() {
    survive_all(1, 1, true);
}

#[test]
fn errors_that_last_with_a_journal_are_survived() {
    survive_all(7, 4, true);
    survive_all(u64::MAX, 8, true);
}

#[test]
fn a_group_committer_that_is_dropped_keeps_no_file_open() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let directory = data.join("partitions").join("1");
    let storage = Faulty::disarmed(Fault::ALL[0], u64::MAX, 0);
    Life::new(&directory, &storage, true).run();
    let open: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(home.path()))
        .collect();
    assert_eq!(open, Vec::<std::path::PathBuf>::new());
}
