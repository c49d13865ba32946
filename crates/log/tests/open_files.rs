//! Which files are held open, and that none is closed with something unsynced in it.
#![allow(clippy::unwrap_used)]
mod support;
use bascule_log::{
    Error, FileWrapper, GroupCommitter, IoOp, Log, OpenMode, OsStorage, ReadError, ReadMode,
    Storage, StorageFile, StorageWrapper, WalOptions,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;

/// The operating system's files, counted.
#[derive(Debug, Default)]
struct Counted {
    /// Files that are open, by name without directory; and how many handles each has.
    open: Mutex<BTreeMap<PathBuf, usize>>,
    /// Written and not synced since, by whichever handle.
    unsynced: Mutex<BTreeSet<PathBuf>>,
    /// Segments whose last handle was closed with something unsynced in it.
    forgotten: Mutex<Vec<PathBuf>>,
    /// No file can be opened.
    exhausted: AtomicBool,
}

impl Counted {
    fn held(&self, extension: &str) -> usize {
        let open = self.open.lock();
        open.keys()
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .count()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.open.lock().keys().cloned().collect()
    }
}

#[derive(Debug)]
struct CountingStorage(Arc<Counted>);

#[derive(Debug)]
struct CountedFile {
    counted: Arc<Counted>,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        let mut open = self.counted.open.lock();
        let handles = open.get_mut(&self.path).unwrap();
        *handles -= 1;
        if *handles > 0 {
            return;
        }
        open.remove(&self.path);
        let is_segment = self.path.extension().is_some_and(|found| found == "seg");
        if is_segment && self.counted.unsynced.lock().contains(&self.path) {
            self.counted.forgotten.lock().push(self.path.clone());
        }
    }
}

impl StorageWrapper for CountingStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if self.0.exhausted.load(Ordering::Relaxed) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let file = OsStorage.open(path, mode)?;
        *self.0.open.lock().entry(path.to_path_buf()).or_default() += 1;
        Ok(Arc::new(CountedFile {
            counted: Arc::clone(&self.0),
            path: path.to_path_buf(),
            file,
        }))
    }
}

impl FileWrapper for CountedFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.counted.unsynced.lock().insert(self.path.clone());
        self.file.write_all_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.counted.unsynced.lock().remove(&self.path);
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        FileWrapper::sync_data(self)
    }
}

const LOGS: u64 = 20;
const LIMIT: usize = 4;

struct Many {
    root: tempfile::TempDir,
    counted: Arc<Counted>,
    committer: Arc<GroupCommitter>,
    logs: Vec<Log>,
}

/// [`LOGS`] logs without threads, of which [`LIMIT`] segments may be open.
fn many(journaled: bool) -> Many {
    let root = tempfile::tempdir().unwrap();
    let counted = Arc::new(Counted::default());
    let storage = Arc::new(CountingStorage(Arc::clone(&counted)));
    let partitions = root.path().join("partitions");
    let committer = if journaled {
        let journal = WalOptions::new(root.path().join("journal"), partitions.clone());
        GroupCommitter::stepped_with_wal(storage, journal).unwrap()
    } else {
        GroupCommitter::stepped(storage)
    };
    committer.set_open_segments(LIMIT);
    let create = |i: u64| {
        let path = partitions.join(i.to_string());
        Log::create(&path, identity(i), small(4_000), &committer).unwrap()
    };
    let logs = (0..LOGS).map(create).collect();
    Many {
        root,
        counted,
        committer,
        logs,
    }
}

impl Many {
    fn step(&self) {
        while self.committer.step() {}
    }

    fn append(&mut self, i: usize, value: u8) {
        let log = &mut self.logs[i];
        let time = i64::from(value);
        log.append(batch(&[value; 300], time), 1 + u64::from(value) / 4, time)
            .unwrap();
        log.commit(Box::new(|outcome| assert!(outcome.is_ok())));
    }

    /// Every log holds these values, for its readers and after a crash.
    fn check(self, values_of_each: u8) {
        let wanted: Vec<_> = (0..values_of_each).map(|value| vec![value; 300]).collect();
        for log in &self.logs {
            log.set_high_watermark(log.reader().log_end());
            assert_eq!(values(&read_from(&log.reader(), 0).unwrap()), wanted);
        }
        assert_eq!(*self.counted.forgotten.lock(), Vec::<PathBuf>::new());
        drop(self.logs);
        let committer = GroupCommitter::start();
        for i in 0..LOGS {
            let path = self.root.path().join("partitions").join(i.to_string());
            let (log, _) = Log::open(&path, identity(i), small(4_000), &committer).unwrap();
            log.set_high_watermark(log.reader().log_end());
            assert_eq!(values(&read_from(&log.reader(), 0).unwrap()), wanted);
        }
    }
}

#[test]
fn logs_that_are_written_in_turn_hold_no_more_files_than_they_may() {
    let mut many = many(false);
    for value in 0..40 {
        for i in 0..LOGS as usize {
            many.append(i, value);
            many.step();
            assert!(many.counted.held("seg") <= LIMIT);
        }
    }
    for log in &mut many.logs {
        log.checkpoint().unwrap();
    }
    many.step();
    let others: Vec<_> = many.counted.files();
    assert!(
        others
            .iter()
            .all(|path| path.extension().is_some_and(|found| found == "seg")),
        "{others:?}"
    );
    many.check(40);
}

#[test]
fn what_is_unsynced_stays_open_beyond_the_limit() {
    let mut many = many(false);
    for value in 0..3 {
        for i in 0..LOGS as usize {
            many.append(i, value);
        }
        assert_eq!(many.counted.held("seg"), LOGS as usize);
        many.step();
    }
    many.append(0, 3);
    many.step();
    many.committer.set_open_segments(LIMIT);
    assert!(many.counted.held("seg") <= LIMIT);
    for i in 1..LOGS as usize {
        many.append(i, 3);
    }
    many.step();
    many.check(4);
}

#[test]
fn what_is_only_in_the_journal_stays_open() {
    let mut many = many(true);
    // The first rounds have a file of the journal made.
    for value in 0..40 {
        for i in 0..LOGS as usize {
            many.append(i, value);
        }
        many.step();
        many.committer.set_open_segments(LIMIT);
    }
    assert!(many.committer.statistics().wal_rounds > 20);
    many.check(40);
}

#[test]
fn a_log_that_rests_holds_no_file() {
    let mut many = many(false);
    for i in 0..LOGS as usize {
        many.append(i, 0);
    }
    many.step();
    many.committer.close_idle_files();
    many.committer.close_idle_files();
    assert_eq!(many.counted.files(), Vec::<PathBuf>::new());
    for i in 0..LOGS as usize {
        many.append(i, 1);
    }
    many.step();
    many.check(2);
}

#[test]
fn without_a_descriptor_an_append_is_refused_and_a_later_one_is_not() {
    let mut many = many(false);
    for i in 0..LOGS as usize {
        many.append(i, 0);
    }
    many.step();
    many.committer.close_idle_files();
    many.committer.close_idle_files();
    many.counted.exhausted.store(true, Ordering::Relaxed);
    for log in &mut many.logs {
        let refused = log.append(batch(b"lost", 1), 1, 1).unwrap_err();
        assert!(matches!(
            refused,
            Error::Io {
                operation: IoOp::Open,
                ..
            }
        ));
        assert!(refused.is_transient());
        let end = log.reader().log_end();
        log.commit(Box::new(move |outcome| assert_eq!(outcome.unwrap(), end)));
        log.checkpoint().unwrap();
    }
    many.step();
    assert_eq!(many.committer.failure(), None);
    many.counted.exhausted.store(false, Ordering::Relaxed);
    for i in 0..LOGS as usize {
        many.append(i, 1);
    }
    many.step();
    many.check(2);
}

#[test]
fn a_log_that_was_closed_or_deleted_holds_no_file_for_readers_that_stay() {
    for deleted in [false, true] {
        let mut many = many(false);
        for value in 0..30 {
            many.append(0, value);
            many.step();
        }
        many.logs[0].set_high_watermark(30);
        let now_ns = 1_000;
        many.logs[0].trim(20, now_ns).unwrap();
        many.step();
        let reader = many.logs[0].reader();
        let mut cursor = reader.cursor(20);
        assert!(
            cursor
                .next(u64::MAX, 100, ReadMode::Blocking)
                .unwrap()
                .is_some()
        );
        let log = many.logs.remove(0);
        let ended = if deleted { log.delete() } else { log.close() };
        ended.unwrap();
        let its = many.root.path().join("partitions/0/");
        let held: Vec<_> = many
            .counted
            .files()
            .into_iter()
            .filter(|path| path.starts_with(&its))
            .collect();
        assert_eq!(held, Vec::<PathBuf>::new(), "removed segments included");
        assert!(matches!(
            cursor.next(u64::MAX, 100, ReadMode::Blocking),
            Err(ReadError::Closed)
        ));
        assert_eq!(reader.log_start(), 20);
    }
}
