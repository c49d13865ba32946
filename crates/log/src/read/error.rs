//! Errors of reads.
use crate::segment::damage::Damage;
use bascule_record::DamageError;
use std::io;
use std::path::{Path, PathBuf};

/// A failed read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The offset was removed by retention, or is beyond the end.
    #[error("offset {offset} is outside [{start}, {end})")]
    OutOfRange {
        /// Wanted.
        offset: u64,
        /// Log start offset.
        start: u64,
        /// Readable end, exclusive.
        end: u64,
    },
    /// With [`crate::ReadMode::NoWait`]: the bytes are not in the page cache. Retry with `Blocking` on a thread that may wait.
    #[error("the read would wait for the disk")]
    WouldBlock,
    /// The stored bytes of this range are intact, but none of the keys opens them.
    #[error("offsets [{start}, {end}) are locked: {source}")]
    Locked {
        /// First locked offset.
        start: u64,
        /// First offset after them.
        end: u64,
        /// Which key, and why not.
        source: DamageError,
    },
    /// The stored bytes of this range are damaged and not served; offsets outside it are. Reading can continue at
    /// [`Damage::end`].
    #[error("{0}; reading can continue at offset {end}", end = .0.end)]
    Damaged(Box<Damage>),
    /// The operating system refused.
    #[error("read {path}: {source}", path = path.display())]
    Io {
        /// The segment.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The log was closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl ReadError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}
