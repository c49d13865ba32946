//! The state of a log: the end offsets and segments that readers see, and the small files that store the rest.
pub(crate) mod checkpoint;
pub(crate) mod compaction;
pub(crate) mod index_snapshot;
pub(crate) mod producers;
pub(crate) mod quarantine;
pub(crate) mod removed;
pub(crate) mod shared;
pub(crate) mod start;
pub(crate) mod watermark;
