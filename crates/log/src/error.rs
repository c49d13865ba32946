//! Errors of a log on disk. Every error names its path or its offsets.
use bascule_record::DamageError;
use bascule_record::crypt::SealError;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An operation on a file or a directory that the operating system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoOp {
    /// Opening what exists.
    Open,
    /// Creating a file or a directory.
    Create,
    /// Reading bytes.
    Read,
    /// Listing a directory.
    List,
    /// Asking for the length or for the existence of a file.
    Stat,
    /// Writing bytes.
    Write,
    /// Copying a file.
    Copy,
    /// Making data or names durable.
    Sync,
    /// Changing the length of a file.
    Truncate,
    /// Renaming.
    Rename,
    /// Removing a name.
    Remove,
    /// Starting a thread of the engine.
    StartThread,
}

impl IoOp {
    /// Returns whether the operation cannot have changed anything on disk, even when it failed.
    fn only_reads(self) -> bool {
        matches!(self, Self::Open | Self::Read | Self::List | Self::Stat)
    }
}

impl fmt::Display for IoOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Read => "read",
            Self::List => "list",
            Self::Stat => "stat",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Sync => "sync",
            Self::Truncate => "truncate",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::StartThread => "start a thread for",
        })
    }
}

/// A failed open, append, commit or maintenance step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{operation} {path}: {source}", path = path.display())]
    Io {
        /// The operation.
        operation: IoOp,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// No space or quota left. Nothing was appended, reads continue, and a retry succeeds once there is space.
    #[error("no space left to write {}: free some, writes then resume automatically", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// An earlier sync or write failed: the data directory refuses writes until it is reopened and recovered.
    #[error(
        "writes are refused since {operation} {} failed ({reason}): repair or replace the disk, then restart the broker, which checks the log",
        path.display()
    )]
    Failed {
        /// The file or directory.
        path: PathBuf,
        /// The operation.
        operation: IoOp,
        /// The text of the first failure.
        reason: String,
    },
    /// [`crate::Log::create`] found a log already there.
    #[error("{} already holds a log", path.display())]
    Exists {
        /// The log's directory.
        path: PathBuf,
    },
    /// [`crate::Log::open`] found no segment.
    #[error("{} holds no log", path.display())]
    Absent {
        /// The log's directory.
        path: PathBuf,
    },
    /// A newer version of this software wrote the segment. Open it with that version.
    #[error("{} has format {found}, but this version reads formats up to {supported}", path.display())]
    NewerFormat {
        /// The segment.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest supported version.
        supported: u32,
    },
    /// A file of the write-ahead log, or its manifest, belongs to another data directory or is a copy. Nothing was touched.
    #[error(
        "{} does not belong beside {}: one of them is of another data directory or a copy; move the wrong one out of the way",
        path.display(), beside.display()
    )]
    Stray {
        /// The file.
        path: PathBuf,
        /// The file that it does not fit.
        beside: PathBuf,
    },
    /// A file of the write-ahead log was written by an older version of this software, and segments may not have its batches.
    #[error(
        "{} has format {found}, but this version reads format {supported}: start the version that wrote it and stop it cleanly",
        path.display()
    )]
    OlderFormat {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The one that is read here.
        supported: u32,
    },
    /// A newer version of this software wrote the batch, or it uses a feature that this one lacks. Nothing was truncated.
    #[error("{}: the batch at offset {offset} is not for this version: {source}", path.display())]
    NewerBatch {
        /// The segment.
        path: PathBuf,
        /// Its offset.
        offset: u64,
        /// What is not supported.
        source: DamageError,
    },
    /// The segment belongs to another partition, or to another incarnation of this one. Nothing was changed.
    #[error(
        "{} belongs to incarnation {found_incarnation} partition {found_partition}, \
         not to incarnation {incarnation} partition {partition}",
        path.display()
    )]
    Foreign {
        /// The segment.
        path: PathBuf,
        /// What was asked for.
        incarnation: u64,
        /// What was asked for.
        partition: u32,
        /// What the segment says.
        found_incarnation: u64,
        /// What the segment says.
        found_partition: u32,
    },
    /// The leader epoch of the append is over. Nothing was appended and the log stays usable.
    #[error("leader epoch {got} is older than {current}, the last one in {}", path.display())]
    StaleEpoch {
        /// The log's directory.
        path: PathBuf,
        /// Epoch of the append.
        got: u64,
        /// Last epoch in the log.
        current: u64,
    },
    /// The batches of another replica do not begin at the end of this log. Nothing was appended and the log stays usable.
    #[error("batches begin at offset {got}, but {} ends at {expected}", path.display())]
    NotNext {
        /// The log's directory.
        path: PathBuf,
        /// Where the next batch begins.
        expected: u64,
        /// Where the given one begins.
        got: u64,
    },
    /// The batches of another replica have another history before this offset. Nothing was appended and the log stays usable.
    #[error("the batch at offset {offset} does not follow what {} holds before it: the histories differ", path.display())]
    Diverged {
        /// The log's directory.
        path: PathBuf,
        /// Where the batch begins.
        offset: u64,
    },
    /// The batch could not be encrypted. Nothing was appended and the log stays usable.
    #[error("batch was not encrypted: {source}")]
    Encryption {
        /// Why not.
        source: SealError,
    },
    /// The offset to truncate at is not the beginning of a batch. Nothing was truncated.
    #[error(
        "offset {wanted} is not the beginning of a batch in {}; the last one before it is {last}",
        path.display()
    )]
    NotABoundary {
        /// The segment.
        path: PathBuf,
        /// The requested offset.
        wanted: u64,
        /// The last beginning of a batch before it.
        last: u64,
    },
    /// The offset to truncate at is below the high watermark: records there are committed. Nothing was truncated.
    #[error(
        "offset {wanted} of {} is below the high watermark {high_watermark}: committed records are truncated only where they are kept",
        path.display()
    )]
    BelowHighWatermark {
        /// The log's directory.
        path: PathBuf,
        /// The requested offset.
        wanted: u64,
        /// End of the committed records.
        high_watermark: u64,
    },
    /// The batch is invalid. Nothing was appended and the log stays usable.
    #[error("batch refused: {source}")]
    Batch {
        /// The fault.
        source: DamageError,
    },
}

impl Error {
    /// Returns whether the error goes away once the machine has space or descriptors again, and nothing was lost by it. A failed
    /// sync is never transient, whatever its reason: the page cache may have dropped what it should have written.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io {
                operation, source, ..
            } => *operation != IoOp::Sync && is_out_of_descriptors(source),
            _ => false,
        }
    }

    /// Returns whether data that should be on disk may be missing there: then nothing from the directory may be acknowledged.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::Io { operation, .. } => !self.is_transient() && !operation.only_reads(),
            _ => false,
        }
    }

    /// The operating system's error at an operation; [`Error::Full`] for a lack of space, except at a sync, which may have
    /// lost data by it.
    pub(crate) fn io(operation: IoOp, path: &Path, source: io::Error) -> Self {
        if operation != IoOp::Sync && is_full(&source) {
            return Self::Full {
                path: path.to_path_buf(),
            };
        }
        Self::Io {
            operation,
            path: path.to_path_buf(),
            source,
        }
    }
}

/// Returns whether the error means that no space or quota is left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Returns whether the error means that no file can be opened at the moment.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(operation: IoOp, source: impl Into<io::Error>) -> Error {
        Error::io(operation, Path::new("x"), source.into())
    }

    #[test]
    fn a_full_disk_is_transient_but_never_for_a_sync() {
        assert!(error(IoOp::Write, io::ErrorKind::StorageFull).is_transient());
        assert!(error(IoOp::Open, Errno::MFILE).is_transient());
        assert!(!error(IoOp::Write, Errno::IO).is_transient());
        for source in [Errno::NOSPC, Errno::MFILE] {
            let failed_sync = error(IoOp::Sync, source);
            assert!(!failed_sync.is_transient());
            assert!(failed_sync.is_fatal());
        }
    }

    #[test]
    fn an_error_is_fatal_unless_it_only_read() {
        for operation in [IoOp::Open, IoOp::Read, IoOp::List, IoOp::Stat] {
            assert!(!error(operation, Errno::IO).is_fatal(), "{operation}");
        }
        for operation in [IoOp::Write, IoOp::Rename, IoOp::Remove, IoOp::Create] {
            assert!(error(operation, Errno::IO).is_fatal(), "{operation}");
            assert!(!error(operation, Errno::NFILE).is_fatal(), "{operation}");
        }
    }
}
