//! Creating a log, and opening one that is there: what is found, scanned, truncated and replayed.
mod adjacent;
pub(crate) mod discover;
mod open;
pub(crate) mod replay;
pub(crate) mod scan_segments;
mod truncate;
mod trusted_index;
