//! What happens to an open log beside appends and reads: rolling, checkpoints, retention, trims, compaction, its end.
mod checkpoint;
mod close;
pub(crate) mod compact;
mod hold;
pub(crate) mod retention;
pub(crate) mod roll;
mod trim;
