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

    /// Syncs a directory: all of it, since a name added to it is not data to every filesystem.
    pub fn sync_names(&self) -> Result<(), Error> {
        rustix::fs::fsync(&self.file).map_err(|errno| Error::io("sync", &self.path, errno.into()))
    }
}

/// Whether the error passes by itself once the machine has space or descriptors again, and nothing was lost by it.
/// A failed sync never passes, whatever its reason: what it should have written may be gone from the page cache.
pub(crate) fn is_passing(error: &Error) -> bool {
    match error {
        Error::Full { .. } => true,
        Error::Io {
            operation, source, ..
        } => *operation != "sync" && (is_full(source) || is_out_of_descriptors(source)),
        _ => false,
    }
}

/// Opens a directory, so that the coordinator can sync it.
pub(crate) fn open_directory(path: &Path) -> Result<Arc<SyncFile>, Error> {
    let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
    Ok(SyncFile::new(path.to_path_buf(), file))
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
    open_directory(path)?.sync_names()
}

/// Makes the names in a directory durable, and the directory's own.
pub(crate) fn sync_directory_and_name(path: &Path) -> Result<(), Error> {
    sync_directory(path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Replaces a small file as a whole: temporary, sync, rename, sync of the directory. Blocks.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("tmp");
    let file =
        File::create(&temporary).map_err(|source| Error::io("create", &temporary, source))?;
    file.write_all_at(bytes, 0)
        .map_err(|source| Error::io("write", &temporary, source))?;
    file.sync_data()
        .map_err(|source| Error::io("sync", &temporary, source))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_passes_but_never_for_a_sync() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let too_many = || rustix::io::Errno::MFILE.into();
        let path = Path::new("x");
        assert!(is_passing(&Error::io("write", path, full())));
        assert!(is_passing(&Error::io("open", path, too_many())));
        assert!(!is_passing(&Error::io("sync", path, full())));
        assert!(!is_passing(&Error::io(
            "write",
            path,
            rustix::io::Errno::IO.into()
        )));
    }

    #[test]
    fn marked_names_carry_their_time() {
        let marked = deleted_name(Path::new("/a/00000000000000000001.seg"), 77);
        assert_eq!(deleted_at(&marked), Some(77));
        assert_eq!(deleted_at(Path::new("/a/00000000000000000001.seg")), None);
        assert_eq!(deleted_at(Path::new("/a/x.deleted-later")), None);
    }
}
