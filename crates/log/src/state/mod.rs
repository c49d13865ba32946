//! What a log knows of itself: the ends and segments that its readers see, and the small files that keep the rest.
pub(crate) mod checkpoint;
pub(crate) mod compaction;
pub(crate) mod index_snapshot;
pub(crate) mod producers;
pub(crate) mod quarantine;
pub(crate) mod removed;
pub(crate) mod shared;
pub(crate) mod watermark;
