//! A crash at every step of a compaction, and readers and appends beside one.
#![allow(clippy::unwrap_used)]
mod keyed;
mod support;
use bascule_log::{Compaction, Coordinator, Log, OpenMode, OsStorage, Storage, StorageFile};
use keyed::*;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use support::*;

/// Copies the directory before each call that changes something, while it is told to.
#[derive(Debug)]
struct Snapshots {
    of: PathBuf,
    to: PathBuf,
    on: AtomicBool,
    taken: AtomicUsize,
}

#[derive(Debug)]
struct Watched(Arc<Snapshots>, Arc<dyn StorageFile>);

impl Snapshots {
    fn take(&self) {
        if self.on.load(Ordering::Relaxed) {
            let number = self.taken.fetch_add(1, Ordering::Relaxed);
            copy(&self.of, &self.to.join(number.to_string()).join("7"));
        }
    }
}

impl StorageFile for Watched {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.1.read_at(buffer, position)
    }
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.take();
        let half = bytes.len() / 2;
        self.1.write_all_at(&bytes[..half], position)?;
        self.0.take();
        self.1.write_all_at(&bytes[half..], position + half as u64)
    }
    fn len(&self) -> io::Result<u64> {
        self.1.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.take();
        self.1.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.1.sync_all()
    }
}

#[derive(Debug)]
struct Watching(Arc<Snapshots>);

impl Storage for Watching {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if mode == OpenMode::Replace {
            self.0.take();
        }
        let file = OsStorage.open(path, mode)?;
        Ok(Arc::new(Watched(Arc::clone(&self.0), file)))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.take();
        OsStorage.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.take();
        OsStorage.remove_file(path)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        OsStorage.create_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_directory(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        OsStorage.list(path)
    }
}

/// Three keys, a tombstone, records without a key, in segments of a few batches.
fn fill_keyed(log: &mut Log, from: u8) -> Vec<Written> {
    let mut written = Vec::new();
    for i in from..from + 12 {
        let value = [i; 30];
        let tombstone = (i % 5 != 0).then_some(&value[..]);
        written.extend(put(log, &[(b"a", Some(&value)), (b"", Some(&value))]));
        written.extend(put(log, &[(b"b", tombstone), (b"c", Some(&value))]));
    }
    written
}

#[test]
fn a_crash_at_every_step_loses_no_latest_record_and_brings_none_back() {
    let root = tempfile::tempdir().unwrap();
    let snapshots = Arc::new(Snapshots {
        of: root.path().join("7"),
        to: root.path().join("snapshots"),
        on: AtomicBool::new(false),
        taken: AtomicUsize::new(0),
    });
    let coordinator = Coordinator::stepped(Arc::new(Watching(Arc::clone(&snapshots))));
    let mut log = Log::create(&snapshots.of, IDENTITY, small(600), &coordinator).unwrap();
    let mut written = put(&mut log, &[(b"gone", Some(b"value"))]);
    written.extend(fill_keyed(&mut log, 0));
    written.extend(put(&mut log, &[(b"gone", None)]));
    written.extend(fill_keyed(&mut log, 12));
    log.commit(Box::new(|outcome| assert!(outcome.is_ok())));
    while coordinator.step() {}
    let end = log.reader().log_end();
    log.set_high_watermark(end);
    log.checkpoint().unwrap();
    while coordinator.step() {}
    snapshots.on.store(true, Ordering::Relaxed);
    let (done, report) = mpsc::channel();
    let once = Compaction {
        tombstone_grace_ns: 0,
        ..Compaction::default()
    };
    let tell = Box::new(move |outcome| done.send(outcome).unwrap());
    assert!(log.compact(&once, i64::MAX, tell).unwrap());
    while coordinator.step() {}
    snapshots.on.store(false, Ordering::Relaxed);
    assert!(report.recv().unwrap().unwrap().segments > 3);
    let finished = read_keyed(&log.reader(), 0);
    let taken = snapshots.taken.load(Ordering::Relaxed);
    assert!(taken > 30, "{taken} states");
    let mut before = written.len();
    for number in 0..taken {
        let home = snapshots.to.join(number.to_string()).join("7");
        let coordinator = Coordinator::start();
        let (log, recovery) = Log::open(&home, IDENTITY, small(600), &coordinator).unwrap();
        assert_eq!(
            (recovery.cut_bytes, &recovery.damaged[..]),
            (0, &[][..]),
            "state {number}"
        );
        log.set_high_watermark(log.reader().log_end());
        let found = read_keyed(&log.reader(), 0);
        assert_eq!(log.reader().log_end(), end);
        assert!(
            found.iter().all(|record| written.contains(record)),
            "state {number}"
        );
        assert!(
            finished.iter().all(|record| found.contains(record)),
            "state {number}"
        );
        assert!(found.len() <= before, "state {number}: nothing comes back");
        before = found.len();
        for key in [&b"a"[..], b"b", b"c", b"gone"] {
            let last = |records: &[Written]| records.iter().rfind(|one| one.key == key).cloned();
            let shown = last(&found);
            assert!(
                shown.is_none() || shown == last(&written),
                "state {number}: {shown:?}"
            );
        }
        drop(log);
        check_chain(&home);
        assert_eq!(files(&home, "tmp"), Vec::<PathBuf>::new());
    }
}

#[test]
fn readers_and_appends_go_on_beside_compactions() {
    let home = Home::new();
    let mut log = home.create(small(2_000));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|i| {
            let (reader, stop) = (log.reader(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut rounds = 0_usize;
                while !stop.load(Ordering::Relaxed) || rounds == 0 {
                    let committed = reader.high_watermark();
                    let found = read_keyed(&reader, i * 10);
                    let ascends = found.windows(2).all(|pair| pair[0].offset < pair[1].offset);
                    assert!(ascends, "in order, each once");
                    assert!(
                        found
                            .iter()
                            .all(|one| one.timestamp as u64 <= 1_000 + one.offset)
                    );
                    let keyless = found.iter().filter(|one| one.key.is_empty()).count() as u64;
                    assert!(
                        keyless >= committed.saturating_sub(i * 10) / 4,
                        "none is skipped"
                    );
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let mut written = Vec::new();
    let (done, ended) = mpsc::channel();
    let (mut asked, mut heard) = (0, 0);
    for round in 0..40 {
        written.extend(fill_keyed(&mut log, round * 6));
        settle(&mut log);
        let done = done.clone();
        let tell = Box::new(move |outcome| done.send(outcome).unwrap());
        asked += usize::from(log.compact(&Compaction::default(), 0, tell).unwrap());
        // None is begun while one is under way, and a busy machine takes long over one.
        while round % 8 == 7 && heard < asked {
            ended.recv().unwrap().unwrap();
            heard += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
    assert!(asked > 3, "{asked} runs");
    let found = read_keyed(&log.reader(), 0);
    assert!(found.len() < written.len() && found.iter().all(|one| written.contains(one)));
    check_chain(&home.path());
}
