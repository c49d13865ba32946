//! Readers: cursors over committed batches and look-ups by time, without the writer's locks.
pub(crate) mod cursor;
pub(crate) mod error;
pub(crate) mod lookup;
pub(crate) mod produced;
pub(crate) mod reader;
pub(crate) mod replica_cursor;
