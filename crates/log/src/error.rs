//! What can go wrong with a log on disk. Every error names the path or the offsets it is about.
use std::path::PathBuf;

/// A failed open, append, commit or maintenance step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// No space or quota left; nothing was appended, reads go on, a later append may succeed.
    #[error("no space left in {path}")]
    Full {
        /// The segment that could not grow.
        path: PathBuf,
    },
    /// An earlier sync or write failed: this log (or its whole directory) refuses writes until it was reopened and re-verified.
    #[error("writes to {path} are refused after a failed {operation}: {reason}")]
    Failed {
        /// The log's directory.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
        /// The first failure.
        reason: String,
    },
    // … damage below the durable point (quarantine), unknown newer format, foreign incarnation …
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
    /// The stored bytes of this range are damaged and are not served; offsets outside it are.
    #[error("offsets [{start}, {end}) are damaged on disk")]
    Damaged {
        /// First damaged offset.
        start: u64,
        /// First offset after it.
        end: u64,
    },
    /// The operating system refused.
    #[error("read {path}: {source}")]
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
