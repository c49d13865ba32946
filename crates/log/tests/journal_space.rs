//! The journal on a filesystem with little space.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod clocked;
mod support;

use bascule_log::{
    FileWrapper, GroupCommitter, Log, LogId, OpenMode, OsStorage, Storage, StorageFile,
    StorageWrapper, WalOptions,
};
use clocked::Clocked;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{batch, small};

const FILE_BYTES: u64 = 16 << 10;
const MINUTE_NS: i64 = 60_000_000_000;

fn create(home: &Path, incarnation: u64, committer: &Arc<GroupCommitter>) -> Log {
    let directory = home.join("partitions").join(incarnation.to_string());
    let identity = LogId {
        incarnation,
        partition: 0,
    };
    Log::create(&directory, identity, small(1 << 20), committer).unwrap()
}

/// So many rounds of all logs; returns how many of them went through the journal.
fn rounds(logs: &mut [Log], count: u64, committer: &GroupCommitter) -> u64 {
    let before = committer.statistics().wal_rounds;
    for _ in 0..count {
        for log in &mut *logs {
            log.append(batch(b"value", 0), 1, 0).unwrap();
            log.commit(Box::new(|outcome| assert!(outcome.is_ok())));
        }
        while committer.step() {}
    }
    committer.statistics().wal_rounds - before
}

/// Three files, used from two dirty segments on.
fn options(home: &Path) -> WalOptions {
    WalOptions {
        from_dirty_files: 2,
        file_bytes: FILE_BYTES,
        files: 3,
        ..WalOptions::new(home.join("journal"), home.join("partitions"))
    }
}

#[test]
fn without_room_for_two_files_none_is_made_and_a_minute_later_it_is_tried_again() {
    let home = tempfile::tempdir().unwrap();
    let storage = Arc::new(Clocked::default());
    let options = options(home.path());
    let committer = GroupCommitter::stepped_with_wal(storage.clone(), options).unwrap();
    let mut logs = [
        create(home.path(), 1, &committer),
        create(home.path(), 2, &committer),
    ];
    storage.leave(2 * FILE_BYTES - 1);
    assert_eq!(rounds(&mut logs, 20, &committer), 0);
    assert_eq!(storage.asked(), 1);
    assert_eq!(
        std::fs::read_dir(home.path().join("journal"))
            .unwrap()
            .count(),
        0
    );
    storage.leave(2 * FILE_BYTES);
    storage.pass(MINUTE_NS - 1);
    assert_eq!(rounds(&mut logs, 5, &committer), 0);
    storage.pass(1);
    assert_eq!(rounds(&mut logs, 5, &committer), 4, "the first has it made");
    assert_eq!(storage.asked(), 2);
}

/// A journal's file whose next write writes and then says that there is no space, when that is asked for.
#[derive(Debug)]
struct Filling {
    file: Arc<dyn StorageFile>,
    fails: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct FillingStorage(Arc<AtomicBool>);

impl StorageWrapper for FillingStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        if path.extension().is_none_or(|name| name != "journal") {
            return Ok(file);
        }
        let fails = Arc::clone(&self.0);
        Ok(Arc::new(Filling { file, fails }))
    }
}

impl FileWrapper for Filling {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)?;
        if self.fails.swap(false, Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[test]
fn bytes_of_a_failed_journal_write_are_not_replayed() {
    let home = tempfile::tempdir().unwrap();
    let storage = Arc::new(FillingStorage::default());
    let options = options(home.path());
    let committer = GroupCommitter::stepped_with_wal(storage.clone(), options.clone()).unwrap();
    let mut logs: Vec<Log> = (1..=4)
        .map(|i| create(home.path(), i, &committer))
        .collect();
    assert_eq!(rounds(&mut logs, 3, &committer), 2);
    storage.0.store(true, Ordering::Relaxed);
    assert_eq!(rounds(&mut logs, 1, &committer), 0, "synced directly");
    assert!(!storage.0.load(Ordering::Relaxed));
    // Fewer logs: of the frames that were left some would lie after these.
    assert!(rounds(&mut logs[..3], 4, &committer) > 0);
    drop((logs, committer));
    let again = GroupCommitter::stepped_with_wal(storage, options).unwrap();
    assert_eq!(again.wal_damages(), vec![]);
}
