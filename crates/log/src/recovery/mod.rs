//! Creating and opening a log: segments are discovered, scanned and truncated, then the WAL is replayed.
mod adjacent;
pub(crate) mod discover;
mod open;
pub(crate) mod replay;
mod reset;
pub(crate) mod scan_segments;
mod truncate;
mod trusted_index;
