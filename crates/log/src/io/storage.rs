//! Access to files: everything this crate reads or writes goes through [`Storage`] and [`StorageFile`].
//!
//! [`OsStorage`] is the operating system. Tests and the simulator bring implementations that fail, lose power or lie on demand.
//! Errors are those of the operating system: callers distinguish a full disk, a lack of descriptors and other failures by
//! them. An implementation is used by several threads at once and must not panic.
use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// For reading and writing; created if missing, otherwise unchanged.
    Create,
    /// For reading and writing; created if missing, otherwise truncated to 0.
    Replace,
    /// An existing directory, to be synced by [`StorageFile::sync_all`].
    Directory,
}

/// Files by path.
pub trait Storage: Debug + Send + Sync {
    /// Opens a file or a directory.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when it is missing and the mode does not create it; the operating system's.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>>;

    /// Renames a file or directory, replacing a file of that name. Atomic; durable only after a sync of the directory.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a name; the file stays readable to those who have it open.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], [`io::ErrorKind::IsADirectory`]; the operating system's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Creates one directory; its parent must exist.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], [`io::ErrorKind::NotFound`]; the operating system's.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// The paths of the entries of a directory, in any order.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; the operating system's.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Free space on the filesystem of an existing path, bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Time of day, ns since 1970; only for the names of removed files and the creation time of segments.
    fn wall_clock_ns(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |elapsed| {
                i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)
            })
    }

    /// Monotonic time since a moment of this process, ns; independent of the time of day. Measures how long removed files are
    /// kept, and how long segments are protected from retention.
    fn monotonic_ns(&self) -> i64 {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        let elapsed = BEGAN.get_or_init(Instant::now).elapsed();
        i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)
    }
}

/// An open file.
#[allow(clippy::len_without_is_empty)] // a file is asked for its length, never whether it is empty
pub trait StorageFile: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes at `position`; 0 at the end of the file.
    ///
    /// # Errors
    /// The operating system's; [`io::ErrorKind::Interrupted`] asks for another try.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// As [`StorageFile::read_at`], from memory only.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the bytes are not in memory; those of [`StorageFile::read_at`].
    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buffer, position)
    }

    /// Writes all bytes at `position`, in memory until a sync. After an error any part of them may be written.
    ///
    /// # Errors
    /// The operating system's.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Length, bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or makes it longer with zeros.
    ///
    /// # Errors
    /// The operating system's.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the data durable, and the length when it changed.
    ///
    /// # Errors
    /// The operating system's. Afterwards nothing is known of what was written since the last success.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the data durable, then drops the page cache from position `from` on, so that the next read returns what the disk
    /// holds.
    ///
    /// After a failed write the page cache may show bytes that never reached the disk, even to the next process. Recovery must
    /// not rely on them.
    ///
    /// # Errors
    /// As [`StorageFile::sync_data`].
    fn forget_cached(&self, from: u64) -> io::Result<()> {
        let _ = from;
        self.sync_data()
    }

    /// Hints that bytes just read will not be read again soon and need not stay in the page cache.
    fn drop_cached(&self, _position: u64, _bytes: u64) {}

    /// As [`StorageFile::sync_data`], with all that is known of the file; for a directory, its names.
    ///
    /// # Errors
    /// As [`StorageFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;
}

/// A [`StorageFile`] around another one: it overrides some methods and delegates the rest. Methods with a default in
/// [`StorageFile`] use this file's own reads and syncs.
#[allow(clippy::missing_errors_doc, clippy::len_without_is_empty)] // as there
pub trait FileWrapper: Debug + Send + Sync {
    /// Where the other methods are delegated to.
    fn inner(&self) -> &dyn StorageFile;

    /// As [`StorageFile::read_at`].
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner().read_at(buffer, position)
    }

    /// As [`StorageFile::read_cached_at`].
    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buffer, position)
    }

    /// As [`StorageFile::write_all_at`].
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.inner().write_all_at(bytes, position)
    }

    /// As [`StorageFile::len`].
    fn len(&self) -> io::Result<u64> {
        self.inner().len()
    }

    /// As [`StorageFile::set_len`].
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner().set_len(len)
    }

    /// As [`StorageFile::sync_data`].
    fn sync_data(&self) -> io::Result<()> {
        self.inner().sync_data()
    }

    /// As [`StorageFile::forget_cached`].
    fn forget_cached(&self, _from: u64) -> io::Result<()> {
        self.sync_data()
    }

    /// As [`StorageFile::drop_cached`].
    fn drop_cached(&self, _position: u64, _bytes: u64) {}

    /// As [`StorageFile::sync_all`].
    fn sync_all(&self) -> io::Result<()> {
        self.inner().sync_all()
    }
}

impl<F: FileWrapper> StorageFile for F {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        FileWrapper::read_at(self, buffer, position)
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        FileWrapper::read_cached_at(self, buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileWrapper::write_all_at(self, bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        FileWrapper::len(self)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        FileWrapper::set_len(self, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        FileWrapper::sync_data(self)
    }

    fn forget_cached(&self, from: u64) -> io::Result<()> {
        FileWrapper::forget_cached(self, from)
    }

    fn drop_cached(&self, position: u64, bytes: u64) {
        FileWrapper::drop_cached(self, position, bytes);
    }

    fn sync_all(&self) -> io::Result<()> {
        FileWrapper::sync_all(self)
    }
}

/// A [`Storage`] around another one: it overrides some methods and delegates the rest.
#[allow(clippy::missing_errors_doc)] // as there
pub trait StorageWrapper: Debug + Send + Sync {
    /// Where the other methods are delegated to.
    fn inner(&self) -> &dyn Storage {
        &OsStorage
    }

    /// As [`Storage::open`].
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.inner().open(path, mode)
    }

    /// As [`Storage::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner().rename(from, to)
    }

    /// As [`Storage::remove_file`].
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner().remove_file(path)
    }

    /// As [`Storage::create_directory`].
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner().create_directory(path)
    }

    /// As [`Storage::remove_directory`].
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.inner().remove_directory(path)
    }

    /// As [`Storage::list`].
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner().list(path)
    }

    /// As [`Storage::free_bytes`].
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner().free_bytes(path)
    }

    /// As [`Storage::wall_clock_ns`].
    fn wall_clock_ns(&self) -> i64 {
        self.inner().wall_clock_ns()
    }

    /// As [`Storage::monotonic_ns`].
    fn monotonic_ns(&self) -> i64 {
        self.inner().monotonic_ns()
    }
}

impl<S: StorageWrapper> Storage for S {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        StorageWrapper::open(self, path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        StorageWrapper::rename(self, from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        StorageWrapper::remove_file(self, path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        StorageWrapper::create_directory(self, path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        StorageWrapper::remove_directory(self, path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        StorageWrapper::list(self, path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        StorageWrapper::free_bytes(self, path)
    }

    fn wall_clock_ns(&self) -> i64 {
        StorageWrapper::wall_clock_ns(self)
    }

    fn monotonic_ns(&self) -> i64 {
        StorageWrapper::monotonic_ns(self)
    }
}

/// The operating system's files. New files and directories are for the user of this process only (modes 0600 and 0700).
#[derive(Clone, Copy, Debug, Default)]
pub struct OsStorage;

impl Storage for OsStorage {
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let about = rustix::fs::statvfs(path)?;
        Ok(about.f_bavail.saturating_mul(about.f_frsize))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let writes = !matches!(mode, OpenMode::Read | OpenMode::Directory);
        let file = OpenOptions::new()
            .read(true)
            .write(writes)
            .create(matches!(mode, OpenMode::Create | OpenMode::Replace))
            .mode(0o600)
            .truncate(mode == OpenMode::Replace)
            .open(path)?;
        Ok(Arc::new(OsFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    }
}

#[derive(Debug)]
struct OsFile(File);

impl StorageFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let into = &mut [IoSliceMut::new(buffer)];
        match preadv2(&self.0, into, position, ReadWriteFlags::NOWAIT) {
            // Not every filesystem can tell what is in memory.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.0.read_at(buffer, position),
            result => result.map_err(Into::into),
        }
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn forget_cached(&self, from: u64) -> io::Result<()> {
        // Only whole pages are forgotten.
        const PAGE: u64 = 64 << 10;
        self.0.sync_data()?;
        rustix::fs::fadvise(
            &self.0,
            from - from % PAGE,
            None,
            rustix::fs::Advice::DontNeed,
        )?;
        Ok(())
    }

    fn drop_cached(&self, position: u64, bytes: u64) {
        let dropped = rustix::fs::Advice::DontNeed;
        // Only advice: nothing depends on its being taken.
        let _ = rustix::fs::fadvise(&self.0, position, std::num::NonZeroU64::new(bytes), dropped);
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
