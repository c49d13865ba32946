//! One segment: its file, its sparse index, a scan of its batches, and the table of leader epochs.
pub(crate) mod epochs;
pub(crate) mod index;
pub(crate) mod preamble;
pub(crate) mod scan;
#[allow(clippy::module_inception)] // the main type of the room, in a file of its name
mod segment;

pub(crate) use segment::{NO_TIME, Segment, base_offset_of, segment_name};
