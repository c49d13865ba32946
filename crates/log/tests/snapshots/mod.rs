//! A log's directory as a crash at each step would leave it.
use crate::support::copy;
use bascule_log::{FileWrapper, OpenMode, OsStorage, Storage, StorageFile, StorageWrapper};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Copies the directory before each call that changes something, and in the middle of each write, while it is enabled.
#[derive(Debug)]
pub struct Snapshots {
    /// The log's directory.
    pub of: PathBuf,
    to: PathBuf,
    /// Whether to copy now.
    pub on: AtomicBool,
    taken: AtomicUsize,
}

#[derive(Debug)]
struct Watched(Arc<Snapshots>, Arc<dyn StorageFile>);

impl Snapshots {
    /// Of the log that will be made in `<root>/7`; off.
    pub fn new(root: &Path) -> Arc<Self> {
        Arc::new(Self {
            of: root.join("7"),
            to: root.join("snapshots"),
            on: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
        })
    }

    /// The operating system's storage, watched.
    pub fn storage(self: &Arc<Self>) -> Arc<dyn Storage> {
        Arc::new(Watching(Arc::clone(self)))
    }

    /// The copies so far, each a log's directory, in the order in which they were made.
    pub fn homes(&self) -> Vec<PathBuf> {
        let taken = self.taken.load(Ordering::Relaxed);
        (0..taken)
            .map(|number| self.to.join(number.to_string()).join("7"))
            .collect()
    }

    fn take(&self) {
        if self.on.load(Ordering::Relaxed) {
            let number = self.taken.fetch_add(1, Ordering::Relaxed);
            copy(&self.of, &self.to.join(number.to_string()).join("7"));
        }
    }
}

impl FileWrapper for Watched {
    fn inner(&self) -> &dyn StorageFile {
        &*self.1
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.take();
        let half = bytes.len() / 2;
        self.1.write_all_at(&bytes[..half], position)?;
        self.0.take();
        self.1.write_all_at(&bytes[half..], position + half as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.take();
        self.1.set_len(len)
    }
}

#[derive(Debug)]
struct Watching(Arc<Snapshots>);

impl StorageWrapper for Watching {
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
}
