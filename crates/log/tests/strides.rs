//! Zeros that the writer brings itself, while the journal bears the acks.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod support;

use bascule_log::{
    FileWrapper, GroupCommitter, Log, LogOptions, OpenMode, OsStorage, Storage, StorageFile,
    StorageWrapper, WalOptions,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::{batch, identity};

const STRIDE: u64 = 64 << 10;
const ROUNDS: u64 = 600;

/// Segments' writes of nothing but zeros: counted, and refused for want of space when that is asked for.
#[derive(Debug, Default)]
struct Zeros {
    written: AtomicU64,
    is_full: AtomicBool,
}

#[derive(Debug, Default)]
struct Counting(Arc<Zeros>);

#[derive(Debug)]
struct Counted(Arc<dyn StorageFile>, Arc<Zeros>);

impl StorageWrapper for Counting {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        if path.extension().is_none_or(|name| name != "seg") {
            return Ok(file);
        }
        Ok(Arc::new(Counted(file, Arc::clone(&self.0))))
    }
}

impl FileWrapper for Counted {
    fn inner(&self) -> &dyn StorageFile {
        &*self.0
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if bytes.iter().all(|byte| *byte == 0) {
            if self.1.is_full.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1.written.fetch_add(1, Ordering::Relaxed);
        }
        self.0.write_all_at(bytes, position)
    }
}

fn directory(home: &Path, incarnation: u64) -> PathBuf {
    home.join("partitions").join(incarnation.to_string())
}

fn begin(home: &Path, storage: Arc<dyn Storage>) -> Arc<GroupCommitter> {
    let options = WalOptions {
        from_dirty_files: 2,
        file_bytes: 4 << 20,
        flush_rounds: u32::MAX,
        ..WalOptions::new(home.join("journal"), home.join("partitions"))
    };
    GroupCommitter::stepped_with_wal(storage, options).unwrap()
}

/// Rounds in which both logs get a batch of 2 KiB, all acked through the journal but for the first.
fn publish(logs: &mut [Log], committer: &GroupCommitter) {
    let before = committer.statistics().wal_rounds;
    for _ in 0..ROUNDS {
        for log in &mut *logs {
            log.append(batch(&[7; 2 << 10], 0), 1, 0).unwrap();
            log.commit(Box::new(|outcome| assert!(outcome.is_ok())));
        }
        while committer.step() {}
    }
    let journaled = committer.statistics().wal_rounds - before;
    assert!(journaled + 1 >= ROUNDS, "{journaled} of {ROUNDS} rounds");
}

fn two(home: &Path, storage: Arc<dyn Storage>) -> (Arc<GroupCommitter>, [Log; 2]) {
    let committer = begin(home, storage);
    let create = |incarnation| {
        let options = LogOptions::default();
        let at = directory(home, incarnation);
        Log::create(&at, identity(incarnation), options, &committer).unwrap()
    };
    let logs = [create(1), create(2)];
    (committer, logs)
}

fn segment(home: &Path, incarnation: u64) -> PathBuf {
    let name = format!("{:020}.seg", 0);
    directory(home, incarnation).join(name)
}

/// All that was acknowledged is there in the next life, without the journal.
fn all_there(home: &Path) {
    for name in ["journal", "journal.head"] {
        let _ = std::fs::remove_dir_all(home.join(name));
        let _ = std::fs::remove_file(home.join(name));
    }
    let committer = begin(home, Arc::new(OsStorage));
    for incarnation in [1, 2] {
        let at = directory(home, incarnation);
        let options = LogOptions::default();
        let (log, _) = Log::open(&at, identity(incarnation), options, &committer).unwrap();
        assert_eq!(log.reader().log_end(), ROUNDS);
    }
}

#[test]
fn many_small_batches_share_one_write_of_zeros() {
    let home = tempfile::tempdir().unwrap();
    let zeros = Arc::<Zeros>::default();
    let (committer, mut logs) = two(home.path(), Arc::new(Counting(zeros.clone())));
    let before = zeros.written.load(Ordering::Relaxed);
    publish(&mut logs, &committer);
    let bytes = ROUNDS * (2 << 10);
    let (written, least) = (
        zeros.written.load(Ordering::Relaxed) - before,
        bytes / STRIDE,
    );
    assert!(
        (least..4 * least).contains(&written),
        "{written} writes of zeros"
    );
    for incarnation in [1, 2] {
        let len = segment(home.path(), incarnation).metadata().unwrap().len();
        assert!(len > bytes && len.is_multiple_of(STRIDE), "{len} bytes");
    }
    drop(logs);
    drop(committer);
    all_there(home.path());
}

#[test]
fn without_room_for_zeros_the_batches_are_written_all_the_same() {
    let home = tempfile::tempdir().unwrap();
    let zeros = Arc::<Zeros>::default();
    let (committer, mut logs) = two(home.path(), Arc::new(Counting(zeros.clone())));
    zeros.is_full.store(true, Ordering::Relaxed);
    publish(&mut logs, &committer);
    drop(logs);
    drop(committer);
    all_there(home.path());
}
