//! A page cache that still shows what a failed sync has lost: recovery must not rely on it.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod support;

use bascule_log::{
    Error, GroupCommitter, Log, LogOptions, OpenMode, OsStorage, Storage, StorageFile,
    StorageWrapper,
};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::{IDENTITY, batch};

/// A segment as the disk and as the page cache have it.
#[derive(Debug, Default)]
struct Pages {
    disk: Vec<u8>,
    cache: Vec<u8>,
    dirty: bool,
}

/// Keeps segments in memory; a sync that has to fail loses what is dirty and leaves it in the cache, as Linux does.
#[derive(Clone, Debug, Default)]
struct Amnesiac {
    segments: Arc<Mutex<BTreeMap<PathBuf, Pages>>>,
    fails: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Segment {
    storage: Amnesiac,
    path: PathBuf,
}

impl StorageWrapper for Amnesiac {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        if path.extension().is_none_or(|extension| extension != "seg") {
            return Ok(file);
        }
        self.segments
            .lock()
            .unwrap()
            .entry(path.to_path_buf())
            .or_default();
        Ok(Arc::new(Segment {
            storage: self.clone(),
            path: path.to_path_buf(),
        }))
    }
}

impl Segment {
    fn with<T>(&self, work: impl FnOnce(&mut Pages) -> T) -> T {
        work(
            self.storage
                .segments
                .lock()
                .unwrap()
                .get_mut(&self.path)
                .unwrap(),
        )
    }
}

impl StorageFile for Segment {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.with(|pages| {
            let rest = pages.cache.get(position as usize..).unwrap_or_default();
            let read = rest.len().min(buffer.len());
            buffer[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        })
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.with(|pages| {
            let end = position as usize + bytes.len();
            pages.cache.resize(pages.cache.len().max(end), 0);
            pages.cache[position as usize..end].copy_from_slice(bytes);
            pages.dirty = true;
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|pages| Ok(pages.cache.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|pages| {
            pages.cache.resize(len as usize, 0);
            pages.disk.resize(len as usize, 0);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let fails = self.storage.fails.swap(false, Ordering::Relaxed);
        self.with(|pages| {
            if fails {
                pages.disk.resize(pages.cache.len(), 0);
            } else if pages.dirty {
                pages.disk.clone_from(&pages.cache);
            }
            pages.dirty = false;
        });
        if fails {
            Err(io::Error::other("the device lost a write"))
        } else {
            Ok(())
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn forget_cached(&self, from: u64) -> io::Result<()> {
        self.sync_data()?;
        self.with(|pages| {
            pages.cache.truncate(from as usize);
            let behind = pages.disk.get(from as usize..).unwrap_or_default();
            pages.cache.extend_from_slice(behind);
        });
        Ok(())
    }
}

fn acked(log: &mut Log, committer: &GroupCommitter) -> bool {
    log.append(batch(&[1; 5_000], 0), 1, 0).unwrap();
    let failed = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&failed);
    log.commit(Box::new(move |outcome| {
        theirs.store(outcome.is_ok(), Ordering::Relaxed);
    }));
    while committer.step() {}
    failed.load(Ordering::Relaxed)
}

fn lose_and_recover(checkpointed: bool, options: &LogOptions) -> bool {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("7");
    let storage = Amnesiac::default();
    let committer = GroupCommitter::stepped(Arc::new(storage.clone()));
    let mut log = Log::create(&directory, IDENTITY, options.clone(), &committer).unwrap();
    assert!(acked(&mut log, &committer));
    if checkpointed {
        log.checkpoint().unwrap();
        while committer.step() {}
    }
    let has_snapshot = directory.join("landmark").exists();
    storage.fails.store(true, Ordering::Relaxed);
    assert!(!acked(&mut log, &committer));
    drop(log);
    let again = Log::open(&directory, IDENTITY, options.clone(), &committer);
    assert!(
        matches!(again, Err(Error::Failed { .. })),
        "not in this run"
    );

    // A restart of the process leaves the page cache as it is.
    let committer = GroupCommitter::stepped(Arc::new(storage));
    let (mut log, _) = Log::open(&directory, IDENTITY, options.clone(), &committer).unwrap();
    assert_eq!(
        log.reader().log_end(),
        1,
        "the second record is not on the disk"
    );
    assert!(acked(&mut log, &committer));
    has_snapshot
}

#[test]
fn what_a_failed_sync_lost_is_not_recovered_from_the_page_cache() {
    assert!(!lose_and_recover(false, &LogOptions::default()));
}

#[test]
fn nor_when_the_durable_point_lies_within_the_segment() {
    assert!(!lose_and_recover(true, &LogOptions::default()));
}

#[test]
fn nor_when_recovery_begins_at_an_index_snapshot() {
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ..LogOptions::default()
    };
    assert!(lose_and_recover(true, &options), "there is a landmark");
}

#[test]
fn nor_when_the_checkpoint_on_the_disk_is_that_of_a_clean_end_long_ago() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("7");
    let options = LogOptions {
        segment_bytes: 6_000,
        ..LogOptions::default()
    };
    let storage = Amnesiac::default();
    let committer = GroupCommitter::stepped(Arc::new(storage.clone()));
    let mut log = Log::create(&directory, IDENTITY, options.clone(), &committer).unwrap();
    assert!(acked(&mut log, &committer) && acked(&mut log, &committer));
    log.close().unwrap();
    let closed = std::fs::read(directory.join("checkpoint")).unwrap();
    let (mut log, found) = Log::open(&directory, IDENTITY, options.clone(), &committer).unwrap();
    assert!(found.clean);
    assert!(acked(&mut log, &committer), "in a segment that begins here");
    storage.fails.store(true, Ordering::Relaxed);
    assert!(!acked(&mut log, &committer));
    drop(log);
    // The device lost that write too.
    std::fs::write(directory.join("checkpoint"), closed).unwrap();
    let committer = GroupCommitter::stepped(Arc::new(storage));
    let (log, found) = Log::open(&directory, IDENTITY, options, &committer).unwrap();
    assert_eq!((log.reader().log_end(), found.clean), (3, false));
}
