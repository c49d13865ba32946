//! One partition on disk: segments, sparse index, group commit, recovery, retention. Knows no network, no protocol, no
//! async runtime.
//!
//! * [`Coordinator`]: one per data directory; runs one sync at a time, whatever arrives during it joins the next.
//! * [`Log`]: the one writer of a partition. Append is a write to the page cache; [`Log::commit`] asks for durability.
//! * [`LogReader`] and [`Cursor`]: any number of readers, which never take the writer's locks.
//!
//! Rules: `specs/formats/segment.md`; recovery order: reliability specification §3.1.
mod coordinator;
mod error;
mod log;
mod options;
mod reader;

pub use coordinator::{Coordinator, SyncStatistics};
pub use error::{Error, ReadError};
pub use log::{Appended, Committed, Log, Recovery, SequenceError};
pub use options::{Durability, Identity, LogOptions, Retention};
pub use reader::{Cursor, LogReader, ReadMode};
