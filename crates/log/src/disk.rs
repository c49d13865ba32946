//! Files and directories: what is synced, replaced and marked deleted, and how.
use crate::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that the coordinator may be asked to sync.
#[derive(Debug)]
pub(crate) struct SyncFile {
    /// Where it was opened; for messages.
    pub path: PathBuf,
    /// The descriptor.
    pub file: File,
    round: AtomicU64,
}

impl SyncFile {
    /// Wraps an open file.
    pub fn new(path: PathBuf, file: File) -> Arc<Self> {
        Arc::new(Self {
            path,
            file,
            round: AtomicU64::new(0),
        })
    }

    /// Whether this is the first time the file is met in this round; rounds count from 1 within one coordinator.
    pub fn first_in(&self, round: u64) -> bool {
        self.round.swap(round, Ordering::Relaxed) != round
    }

    /// Syncs the data, and the size when it changed.
    pub fn sync(&self) -> Result<(), Error> {
        rustix::fs::fdatasync(&self.file)
            .map_err(|errno| Error::io("sync", &self.path, errno.into()))
    }
}

/// Whether the error means that no space or quota is left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Whether the error means that no file can be opened at the moment.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        rustix::io::Errno::from_io_error(error),
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    )
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| Error::io("sync", path, source))
}

/// Replaces a small file as a whole: temporary, sync, rename, sync of the directory. Blocks.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("tmp");
    let file =
        File::create(&temporary).map_err(|source| Error::io("create", &temporary, source))?;
    file.write_all_at(bytes, 0)
        .and_then(|()| file.sync_data())
        .map_err(|source| Error::io("write", &temporary, source))?;
    fs::rename(&temporary, path).map_err(|source| Error::io("rename", &temporary, source))?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// The name under which a file or directory waits to be unlinked: `<name>.deleted-<time in ns>`.
pub(crate) fn deleted_name(path: &Path, now_ns: i64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".deleted-{}", now_ns.max(0)));
    PathBuf::from(name)
}

/// When the name was marked deleted, ns since 1970; `None` when it is not.
pub(crate) fn deleted_at(path: &Path) -> Option<i64> {
    let (_, time) = path.file_name()?.to_str()?.rsplit_once(".deleted-")?;
    time.parse().ok()
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// The paths in a directory, sorted by name.
pub(crate) fn list(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(directory).map_err(|source| Error::io("list", directory, source))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(
            entry
                .map_err(|source| Error::io("list", directory, source))?
                .path(),
        );
    }
    paths.sort();
    Ok(paths)
}

/// Time of day, ns since 1970; only for marking deleted names when no caller's clock is at hand.
pub(crate) fn wall_clock_ns() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| {
            i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)
        })
}
