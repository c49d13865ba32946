//! Files in memory, for logs that are opened many thousand times a second. Syncs do nothing.
use bascule_log::{OpenMode, Storage, StorageFile};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A few files in one directory. A clone shares nothing.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    files: Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>,
}

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct MemoryFile {
    bytes: Mutex<Vec<u8>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Puts a file there.
    pub(crate) fn put(&self, path: PathBuf, bytes: Vec<u8>) {
        let bytes = Mutex::new(bytes);
        locked(&self.files).insert(path, Arc::new(MemoryFile { bytes }));
    }

    /// Everything that is there.
    pub(crate) fn content(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = locked(&self.files);
        let content = |file: &MemoryFile| locked(&file.bytes).clone();
        files
            .iter()
            .map(|(path, file)| (path.clone(), content(file)))
            .collect()
    }
}

impl Storage for Memory {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if mode == OpenMode::Directory {
            return Ok(Arc::new(MemoryFile::default()));
        }
        let mut files = locked(&self.files);
        let found = files.get(path).cloned();
        let file = match (mode, found) {
            (OpenMode::Replace, _) | (OpenMode::Create, None) => {
                let made = Arc::new(MemoryFile::default());
                files.insert(path.to_path_buf(), made.clone());
                made
            }
            (_, Some(file)) => file,
            (_, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = locked(&self.files);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let removed = locked(&self.files).remove(path);
        removed
            .map(|_| ())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let files = locked(&self.files);
        let inside = |file: &&PathBuf| file.parent() == Some(path);
        Ok(files.keys().filter(inside).cloned().collect())
    }

    fn wall_clock_ns(&self) -> i64 {
        1
    }
}

impl StorageFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let bytes = locked(&self.bytes);
        let at = usize::try_from(position).unwrap_or(usize::MAX);
        let rest = bytes.get(at..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        Ok(length)
    }

    fn write_all_at(&self, with: &[u8], position: u64) -> io::Result<()> {
        let mut bytes = locked(&self.bytes);
        let at = usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if bytes.len() < at + with.len() {
            bytes.resize(at + with.len(), 0);
        }
        for (to, from) in bytes.iter_mut().skip(at).zip(with) {
            *to = *from;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(locked(&self.bytes).len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        locked(&self.bytes).resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
}
