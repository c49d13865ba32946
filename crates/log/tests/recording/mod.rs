//! The operating system's storage, with a list of what it was asked for and a clock that stands still.
use bascule_log::{FileWrapper, OpenMode, OsStorage, Storage, StorageFile, StorageWrapper};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Writes down each call with its path relative to `home`.
#[derive(Clone, Debug)]
pub struct Recording {
    home: PathBuf,
    calls: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug)]
struct RecordingFile {
    storage: Recording,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

impl Recording {
    pub fn new(home: &Path) -> Arc<Self> {
        Arc::new(Self {
            home: home.to_path_buf(),
            calls: Arc::default(),
        })
    }

    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn note(&self, call: &str, path: &Path) {
        let path = path.strip_prefix(&self.home).unwrap_or(path);
        let call = format!("{call} {}", path.display());
        self.calls.lock().unwrap().push(call);
    }
}

impl StorageWrapper for Recording {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.note(&format!("open {mode:?}"), path);
        Ok(Arc::new(RecordingFile {
            storage: self.clone(),
            path: path.to_path_buf(),
            file: OsStorage.open(path, mode)?,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note("rename", from);
        OsStorage.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.note("remove", path);
        OsStorage.remove_file(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.note("create", path);
        OsStorage.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.note("remove", path);
        OsStorage.remove_directory(path)
    }

    fn wall_clock_ns(&self) -> i64 {
        1
    }
}

impl FileWrapper for RecordingFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let call = format!(
            "write {position}+{} {:x}",
            bytes.len(),
            crc32c::crc32c(bytes)
        );
        self.storage.note(&call, &self.path);
        self.file.write_all_at(bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage.note(&format!("cut {len}"), &self.path);
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.storage.note("sync", &self.path);
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.storage.note("sync all", &self.path);
        self.file.sync_all()
    }
}
