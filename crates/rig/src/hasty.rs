//! The machine's own files under a clock that runs ahead: what waits for minutes comes due within a life.
use bascule_log::{OpenMode, OsStorage, Storage, StorageFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many times faster time passes: the minute for which removed files are kept is 6 ms.
const HASTE: i64 = 10_000;

/// [`OsStorage`] but for [`Storage::monotonic_ns`]. Time of day stays true.
#[derive(Debug)]
pub struct HastyStorage;

impl Storage for HastyStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        OsStorage.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
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

    fn monotonic_ns(&self) -> i64 {
        OsStorage.monotonic_ns().saturating_mul(HASTE)
    }
}
