//! The files of the metadata, beside its log: snapshots, and whether they can be those of the data directory.
mod missing;
pub(crate) mod snapshot;

pub(crate) use missing::{behind_partitions, damaged_snapshots, newest_known};
pub(crate) use snapshot::{newest_state as newest_snapshot, read as read_snapshot};
