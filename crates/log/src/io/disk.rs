//! Operations on files and directories: open, sync, replace, remove. Every access goes through [`Storage`].
use crate::io::storage::{OpenMode, Storage, StorageFile};
use crate::{Error, IoOp};
use bascule_record::planted_bug::{self, PlantedBug};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file that a sync request can name.
#[derive(Debug)]
pub(crate) struct SyncFile {
    /// Where it was opened; for messages.
    pub path: PathBuf,
    /// The open file.
    pub file: Arc<dyn StorageFile>,
    round: AtomicU64,
}

impl SyncFile {
    /// Wraps an open file.
    pub fn new(path: PathBuf, file: Arc<dyn StorageFile>) -> Arc<Self> {
        Arc::new(Self {
            path,
            file,
            round: AtomicU64::new(0),
        })
    }

    /// Opens a file.
    pub fn open(storage: &dyn Storage, path: &Path, mode: OpenMode) -> Result<Arc<Self>, Error> {
        Ok(Self::new(path.to_path_buf(), open(storage, path, mode)?))
    }

    /// Returns whether this is the first call for this file in this round; rounds count from 1.
    pub fn first_in(&self, round: u64) -> bool {
        self.round.swap(round, Ordering::Relaxed) != round
    }

    /// Syncs the data, and the size when it changed.
    pub fn sync(&self) -> Result<(), Error> {
        let mut synced = self.file.sync_data();
        if planted_bug::is_active(PlantedBug::SyncRetried) {
            synced = synced.or_else(|_| self.file.sync_data());
        }
        synced.map_err(|source| Error::io(IoOp::Sync, &self.path, source))
    }

    /// Syncs a directory with `fsync`: not every filesystem counts an added name as data.
    pub fn sync_names(&self) -> Result<(), Error> {
        self.file
            .sync_all()
            .map_err(|source| Error::io(IoOp::Sync, &self.path, source))
    }
}

/// Opens a file.
pub(crate) fn open(
    storage: &dyn Storage,
    path: &Path,
    mode: OpenMode,
) -> Result<Arc<dyn StorageFile>, Error> {
    let operation = match mode {
        OpenMode::Create | OpenMode::Replace => IoOp::Create,
        OpenMode::Read | OpenMode::ReadWrite | OpenMode::Directory => IoOp::Open,
    };
    storage
        .open(path, mode)
        .map_err(|source| Error::io(operation, path, source))
}

/// Opens a directory, so that the group committer can sync it.
pub(crate) fn open_directory(storage: &dyn Storage, path: &Path) -> Result<Arc<SyncFile>, Error> {
    SyncFile::open(storage, path, OpenMode::Directory)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    open_directory(storage, path)?.sync_names()
}

/// Makes the names in a directory durable, and the directory's own.
pub(crate) fn sync_directory_and_name(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    sync_directory(storage, path)?;
    sync_name(storage, path)
}

/// Creates a directory and its missing parents. On return the names of all parents are durable; the directory's own name
/// is not.
///
/// A name is created in a directory only after that directory's own name is synced, even if the directory existed: the
/// process that created it may have been killed before its sync.
pub(crate) fn create_directories(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        match open_directory(storage, parent) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create_directories(storage, parent)?;
                sync_name(storage, parent)?;
            }
            found => {
                drop(found?);
                sync_found_name(storage, parent)?;
            }
        }
    }
    match storage.create_directory(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::io(IoOp::Create, path, error))
        }
        _ => Ok(()),
    }
}

/// Makes the name of a directory durable.
fn sync_name(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    match path.parent() {
        None => Ok(()),
        // A relative name with one part.
        Some(parent) if parent == Path::new("") => sync_directory(storage, Path::new(".")),
        Some(parent) => sync_directory(storage, parent),
    }
}

/// As [`sync_name`], for a directory that existed. Without the right to read its parent, this software did not create it.
fn sync_found_name(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    match sync_name(storage, path) {
        Err(Error::Io {
            operation: IoOp::Open,
            source,
            ..
        }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// All bytes of a small file.
///
/// # Errors
/// Those of the storage; the file may be absent.
pub(crate) fn read(storage: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = storage.open(path, OpenMode::Read)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    let read = read_up_to(&*file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads until the buffer is full or the file ends. Returns the bytes read.
pub(crate) fn read_up_to(
    file: &dyn StorageFile,
    buffer: &mut [u8],
    position: u64,
) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, position + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes a small derived file without a sync; its checksum reveals an incomplete one.
pub(crate) fn write(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    open(storage, path, OpenMode::Replace)?
        .write_all_at(bytes, 0)
        .map_err(|source| Error::io(IoOp::Write, path, source))
}

/// Replaces a small file as a whole: temporary, sync, rename, sync of the directory. Blocks.
pub(crate) fn replace(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("tmp");
    let file = SyncFile::open(storage, &temporary, OpenMode::Replace)?;
    file.file
        .write_all_at(bytes, 0)
        .map_err(|source| Error::io(IoOp::Write, &temporary, source))?;
    file.sync()?;
    rename(storage, &temporary, path)?;
    path.parent()
        .map_or(Ok(()), |parent| sync_directory(storage, parent))
}

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Copies a file under a temporary name, syncs it, and gives it its own, which is durable when this returns.
///
/// # Errors
/// [`Error::Io`], [`Error::Full`].
pub(crate) fn copy(storage: &dyn Storage, from: &Path, to: &Path) -> Result<(), Error> {
    let source = open(storage, from, OpenMode::Read)?;
    let temporary = to.with_extension("tmp");
    let target = open(storage, &temporary, OpenMode::Replace)?;
    let copy = || -> io::Result<()> {
        let (len, mut position) = (source.len()?, 0);
        let mut buffer = vec![0; COPY_BYTES];
        while position < len {
            let read = read_up_to(&*source, &mut buffer, position)?;
            if read == 0 {
                break;
            }
            target.write_all_at(buffer.get(..read).unwrap_or_default(), position)?;
            position += read as u64;
        }
        target.sync_all()
    };
    copy().map_err(|error| Error::io(IoOp::Copy, from, error))?;
    rename(storage, &temporary, to)?;
    to.parent()
        .map_or(Ok(()), |parent| sync_directory(storage, parent))
}

/// Gives a file or directory another name.
pub(crate) fn rename(storage: &dyn Storage, from: &Path, to: &Path) -> Result<(), Error> {
    storage
        .rename(from, to)
        .map_err(|source| Error::io(IoOp::Rename, from, source))
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_file(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    match storage.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(IoOp::Remove, path, error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory and everything in it; entries that disappear meanwhile are ignored.
pub(crate) fn remove_tree(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    let inside = match list(storage, path) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        inside => inside?,
    };
    for inside in inside {
        match storage.remove_file(&inside) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                remove_tree(storage, &inside)?;
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(IoOp::Remove, &inside, error));
            }
            _ => {}
        }
    }
    match storage.remove_directory(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(IoOp::Remove, path, error))
        }
        _ => Ok(()),
    }
}

/// The paths in a directory, sorted by name.
pub(crate) fn list(storage: &dyn Storage, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = storage
        .list(directory)
        .map_err(|source| Error::io(IoOp::List, directory, source))?;
    paths.sort();
    Ok(paths)
}
