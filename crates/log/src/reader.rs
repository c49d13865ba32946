//! The reading half: lock-free, any number, on any thread.
use crate::ReadError;
use bytes::Bytes;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Only what is in the page cache (`preadv2` with `RWF_NOWAIT`; falls back to blocking where unsupported).
    NoWait,
    /// Wait for the disk.
    Blocking,
}

/// A cheap, cloneable view of a log. Offsets are u64; ends are exclusive.
#[derive(Clone, Debug)]
pub struct LogReader {
    _private: (),
}
impl LogReader {
    /// First readable offset.
    pub fn log_start(&self) -> u64 {
        todo!()
    }
    /// Next offset to be written.
    pub fn log_end(&self) -> u64 {
        todo!()
    }
    /// End up to which everything is synced.
    pub fn durable_end(&self) -> u64 {
        todo!()
    }
    /// End of committed records. What readers may be shown.
    pub fn high_watermark(&self) -> u64 {
        todo!()
    }
    /// Timestamp of the last appended record, ns; `None` when nothing was ever appended.
    pub fn last_timestamp(&self) -> Option<i64> {
        todo!()
    }
    /// Bytes on disk (batches, all segments).
    pub fn bytes(&self) -> u64 {
        todo!()
    }
    /// Whether the log was closed or deleted.
    pub fn is_closed(&self) -> bool {
        todo!()
    }
    /// First offset below the high watermark whose timestamp is ≥ `timestamp`; `None` when there is none. May wait for the disk.
    pub fn offset_at_or_after(&self, _timestamp: i64) -> Result<Option<u64>, ReadError> {
        todo!()
    }
    /// Last offset below the high watermark whose timestamp is ≤ `timestamp`; `None` when there is none. May wait for the disk.
    pub fn offset_at_or_before(&self, _timestamp: i64) -> Result<Option<u64>, ReadError> {
        todo!()
    }
    /// A position for sequential reading that starts at `offset` (or the next existing one).
    /// `offset` below the log start starts at the log start; beyond the high watermark is allowed (waits for it).
    pub fn cursor(&self, _offset: u64) -> Cursor {
        todo!()
    }
}

/// A reading position. Remembers segment and file position, so sequential reads need no look-up.
#[derive(Debug)]
pub struct Cursor {
    _private: (),
}
impl Cursor {
    /// Next offset this cursor will return.
    pub fn offset(&self) -> u64 {
        todo!()
    }
    /// Moves on to `offset`, forward only, without reading.
    pub fn skip_to(&mut self, _offset: u64) {
        todo!()
    }
    /// The next whole batches whose base is below `until` (exclusive; capped at the high watermark), about `max_bytes`
    /// but at least one batch; `None` when there is nothing yet. The first batch may begin before [`Cursor::offset`]
    /// of before the call: callers skip with `Batch::seek`. When retention removed the position, goes on at the log start.
    ///
    /// # Errors
    /// See [`ReadError`]; after `WouldBlock` the cursor has not moved.
    pub fn next(&mut self, _until: u64, _max_bytes: usize, _mode: ReadMode) -> Result<Option<Bytes>, ReadError> {
        todo!()
    }
}
