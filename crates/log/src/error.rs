//! What can go wrong with a log on disk. Every error names the path or the offsets it is about.
use crate::integrity::Damage;
use crate::io::disk::is_full;
use bascule_record::DamageError;
use bascule_record::crypt::SealError;
use std::path::{Path, PathBuf};

/// A failed open, append, commit or maintenance step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{operation} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// No space or quota left; nothing was appended, reads go on, a later try succeeds once there is space again.
    #[error("no space left to write {}: free some, work then goes on by itself", path.display())]
    Full {
        /// What could not be written.
        path: PathBuf,
    },
    /// An earlier sync or write failed: this log (or its whole directory) refuses writes until it was reopened and re-verified.
    #[error(
        "writes are refused since {operation} {} failed ({reason}): mend the disk and restart the broker, which checks the log",
        path.display()
    )]
    Failed {
        /// What it failed on.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
        /// The first failure.
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
    /// The segment was written by a newer version of this software. Open it with that version.
    #[error("{} has format {found}, but this version reads formats up to {supported}", path.display())]
    NewerFormat {
        /// The segment.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest one known here.
        supported: u32,
    },
    /// A batch was written by a newer version of this software, or with a feature this one lacks. Nothing was cut.
    #[error("{}: the batch at offset {offset} is not for this version: {source}", path.display())]
    NewerBatch {
        /// The segment.
        path: PathBuf,
        /// Where in the log.
        offset: u64,
        /// What is not supported.
        source: DamageError,
    },
    /// The segment belongs to another partition or another creation of this one. Nothing was touched.
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
    /// The append came under a leader epoch that is over; nothing was appended and the log stays usable.
    #[error("leader epoch {got} is older than {current}, the last one in {}", path.display())]
    StaleEpoch {
        /// The log's directory.
        path: PathBuf,
        /// Epoch of the append.
        got: u64,
        /// Last epoch in the log.
        current: u64,
    },
    /// The batch could not be encrypted; nothing was appended and the log stays usable.
    #[error("batch was not encrypted: {source}")]
    Encryption {
        /// Why not.
        source: SealError,
    },
    /// A cut was asked for in the middle of a batch, or where no batch is; nothing was cut.
    #[error(
        "offset {wanted} is not the beginning of a batch in {}; the last one before it is {last}",
        path.display()
    )]
    NotABoundary {
        /// The segment.
        path: PathBuf,
        /// Where to cut.
        wanted: u64,
        /// The last beginning of a batch before it.
        last: u64,
    },
    /// The batch handed in is not a valid one; nothing was appended and the log stays usable.
    #[error("batch refused: {source}")]
    Batch {
        /// What is wrong with it.
        source: DamageError,
    },
}

impl Error {
    /// Whether it passes by itself once the machine has space or descriptors again, and nothing was lost by it.
    pub fn is_passing(&self) -> bool {
        crate::io::disk::is_passing(self)
    }

    /// The operating system's error at a step; [`Error::Full`] when all it means is that space is missing, which a failed
    /// sync never is.
    pub(crate) fn io(operation: &'static str, path: &Path, source: std::io::Error) -> Self {
        if operation != "sync" && is_full(&source) {
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

/// A failed read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The offset was removed by retention, or lies beyond the end.
    #[error("offset {offset} is outside [{start}, {end})")]
    OutOfRange {
        /// Wanted.
        offset: u64,
        /// Log start offset.
        start: u64,
        /// Readable end, exclusive.
        end: u64,
    },
    /// With [`crate::ReadMode::NoWait`]: the bytes are not in the page cache. Try again with `Blocking` on a thread that may wait.
    #[error("the read would wait for the disk")]
    WouldBlock,
    /// The stored bytes of this range are as they were written, but the keys at hand do not open them.
    #[error("offsets [{start}, {end}) are locked: {source}")]
    Locked {
        /// First locked offset.
        start: u64,
        /// First offset after them.
        end: u64,
        /// Which key, and why not.
        source: DamageError,
    },
    /// The stored bytes of this range are damaged and are not served; offsets outside it are. Reading can go on at
    /// [`Damage::end`].
    #[error("{0}; reading can go on at offset {end}", end = .0.end)]
    Damaged(Box<Damage>),
    /// The operating system refused.
    #[error("read {path}: {source}", path = path.display())]
    Io {
        /// The segment.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The log was closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl ReadError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}
