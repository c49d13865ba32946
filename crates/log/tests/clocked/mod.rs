//! The operating system's storage with a monotonic clock that only the test moves.
use bascule_log::{OpenMode, OsStorage, Storage, StorageFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

#[derive(Debug, Default)]
pub struct Clocked(AtomicI64);

impl Clocked {
    pub fn pass(&self, ns: i64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Storage for Clocked {
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
        self.0.load(Ordering::Relaxed)
    }
}
