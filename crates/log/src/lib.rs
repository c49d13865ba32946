//! One partition on disk: segments, sparse index, group commit, recovery, retention. Knows no network, no protocol, no
//! async runtime.
//!
//! * [`GroupCommitter`]: one per data directory; runs one sync at a time, requests that arrive meanwhile join the next.
//! * [`Log`]: the one writer of a partition. Append writes to the page cache; [`Log::commit`] requests durability.
//! * [`LogReader`] and [`Cursor`]: any number of readers, which never take the locks of the writer.
//!
//! Rules: `specs/formats/segment.md`; recovery order: reliability §3.1.
mod commit;
mod error;
#[doc(hidden)]
pub mod failpoint;
#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod format_tests;
#[doc(hidden)]
pub mod fuzz;
pub mod integrity;
mod io;
mod log;
mod maintain;
mod options;
mod read;
mod recovery;
mod replicas;
mod segment;
mod state;
mod wal;

pub use commit::group_committer::{GroupCommitter, SyncStatistics};
pub use commit::histogram::{BOUNDS, Durations, Histogram, bounds};
pub use error::{Error, IoOp};
pub use io::clock::ClockGuard;
pub use io::storage::{FileWrapper, OpenMode, OsStorage, Storage, StorageFile, StorageWrapper};
pub use log::{Committed, Log};
pub use maintain::compact::{Compacted, Compaction, CompactionKeyFn, CompactionReport};
pub use maintain::retention::DeletedLogs;
pub use options::{ArchiveWait, Durability, LogId, LogOptions, ReaderHold, Retention};
pub use read::cursor::Cursor;
pub use read::error::ReadError;
pub use read::lookup::Predecessor;
pub use read::produced::{Produced, ProducedScan};
pub use read::reader::{LogReader, ReadMode};
pub use read::replica_cursor::ReplicaCursor;
pub use recovery::scan_segments::Recovery;
pub use state::producers::{Appended, SequenceError};
pub use state::removed::Removed;
pub use state::start::Start;
pub use state::watermark::HighWatermarkUpdater;
pub use wal::{WalDamage, WalFault, WalOptions};
