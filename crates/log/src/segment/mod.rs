//! One segment: its file, its sparse index, a scan of its batches, and the table of leader epochs.
pub(crate) mod create;
pub(crate) mod damage;
pub(crate) mod epochs;
pub(crate) mod index;
pub(crate) mod preamble;
pub(crate) mod resync;
pub(crate) mod scan;
#[allow(clippy::module_inception)] // the main type of the room, in a file of its name
mod segment;
pub(crate) mod segment_file;
pub(crate) mod segment_scan;

pub(crate) use segment::{NO_TIME, Segment, SyncProgress};
