//! The metadata log of one voter, in our own engine.
//!
//! Everything outside reaches it by four things only: propose with a deadline, read barrier, committed entries in order of
//! index, snapshot out and in. A replicated log can stand behind the same four.
//!
//! Entry i is the record at offset i − 1 of a log in `<data>/metadata/log`. Snapshots are beside it; the newest and the one
//! before it are kept, and the log from the older one on.
mod log;
mod missing;
mod snapshot;

pub use log::{MetadataError, MetadataLog, Proposal};
pub(crate) use missing::{behind_partitions, damaged_snapshots, newest_known};
pub(crate) use snapshot::{newest_state as newest_snapshot, read as read_snapshot};

#[cfg(test)]
mod tests;
