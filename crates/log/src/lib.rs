//! One partition on disk: segments, sparse index, group commit, recovery, retention. Knows no network, no protocol, no
//! async runtime.
//!
//! * [`Coordinator`]: one per data directory; runs one sync at a time, whatever arrives during it joins the next.
//! * [`Log`]: the one writer of a partition. Append is a write to the page cache; [`Log::commit`] asks for durability.
//! * [`LogReader`] and [`Cursor`]: any number of readers, which never take the writer's locks.
//!
//! Rules: `specs/formats/segment.md`; recovery order: reliability §3.1.
mod ahead;
mod checkpoint;
mod clock;
mod compact;
mod coordinator;
mod cursor;
mod disk;
mod encryption;
mod epochs;
mod error;
#[cfg(not(feature = "failpoints"))]
mod failpoint;
#[cfg(feature = "failpoints")]
pub mod failpoint;
mod failure;
#[cfg(test)]
mod failure_tests;
mod fields;
mod files;
#[cfg(test)]
mod format_tests;
#[doc(hidden)]
pub mod fuzz;
mod histogram;
mod index;
pub mod integrity;
mod landmark;
mod log;
mod lookup;
mod maintain;
mod open;
mod options;
mod preamble;
mod producers;
mod reader;
mod recover;
mod retention;
mod rounds;
mod scan;
mod segment;
mod shared;
mod slots;
mod sources;
mod storage;
mod trim;
mod wal;
mod watermark;
mod worker;

pub use clock::ClockGuard;
pub use compact::{Compacted, Compaction, CompactionReport, Subject};
pub use coordinator::{Coordinator, SyncStatistics};
pub use cursor::Cursor;
pub use error::{Error, ReadError};
pub use histogram::{BOUNDS, Durations, Histogram, bounds};
pub use log::{Appended, Committed, Log, SequenceError};
pub use lookup::Predecessor;
pub use options::{Durability, Identity, LogOptions, Retention};
pub use reader::{LogReader, ReadMode};
pub use recover::Recovery;
pub use retention::{DeletedLogs, Removed};
pub use storage::{FileOver, OpenMode, OsStorage, Storage, StorageFile, StorageOver};
pub use wal::{JournalDamage, JournalOptions, JournalPlace};
pub use watermark::HighWatermark;
