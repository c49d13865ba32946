//! Reading for other replicas: up to the log end.
use crate::read::cursor::Cursor;
use crate::read::reader::LogReader;
use crate::{ReadError, ReadMode};
use bytes::Bytes;

/// A reading position that shows records above the high watermark too. They may be cut again: what is read with it is for
/// followers, take-over and repair, and never for consumers.
#[derive(Debug)]
pub struct ReplicaCursor(Cursor);

impl LogReader {
    /// A position for reading batches up to the log end, committed or not, from `offset` on (or the log start, if that is later).
    pub fn replica_cursor(&self, offset: u64) -> ReplicaCursor {
        ReplicaCursor(Cursor::to_log_end(self.shared().clone(), offset))
    }
}

impl ReplicaCursor {
    /// As [`Cursor::offset`].
    pub fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// As [`Cursor::skip_to`].
    pub fn skip_to(&mut self, offset: u64) {
        self.0.skip_to(offset);
    }

    /// As [`Cursor::next`], with the log end in place of the high watermark.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn next(
        &mut self,
        until: u64,
        max_bytes: usize,
        mode: ReadMode,
    ) -> Result<Option<Bytes>, ReadError> {
        self.0.next(until, max_bytes, mode)
    }
}
