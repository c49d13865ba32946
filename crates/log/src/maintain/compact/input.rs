//! The batches of a sealed segment, in order.
use crate::LogId;
use crate::io::disk::{SyncFile, read_up_to};
use crate::segment::Segment;
use crate::segment::scan::LogPosition;
use bascule_record::{HEADER_BYTES, Header};
use bytes::{Bytes, BytesMut};
use std::io;
use std::sync::Arc;

/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// The next item of a segment.
pub(super) enum Next {
    /// The next batch.
    Batch(Header, Bytes),
    /// The segment's end.
    End,
    /// Anything else: the segment is damaged, or of a newer version.
    Strange,
}

/// Reads one file through a window.
pub(super) struct CompactionInput {
    file: Arc<SyncFile>,
    end: u64,
    identity: LogId,
    place: LogPosition,
    /// Bytes read from the position on.
    window: Bytes,
}

impl CompactionInput {
    /// The whole of a sealed segment.
    pub fn new(segment: &Arc<Segment>, identity: LogId) -> io::Result<Self> {
        Ok(Self {
            file: segment.file()?,
            end: segment.end(),
            identity,
            place: LogPosition::first(segment.base_offset),
            window: Bytes::new(),
        })
    }

    /// The position after the last returned batch.
    pub fn place(&self) -> LogPosition {
        self.place
    }

    /// The file.
    pub fn file(&self) -> &SyncFile {
        &self.file
    }

    /// The next batch, without a check of its payload.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn next(&mut self) -> io::Result<Next> {
        if self.place.position >= self.end {
            return Ok(Next::End);
        }
        if !self.has(HEADER_BYTES)? {
            return Ok(Next::Strange);
        }
        let header = match Header::read(&self.window) {
            Ok(header) if self.place.fits(&header, self.identity) => header,
            _ => return Ok(Next::Strange),
        };
        if !self.has(header.batch_bytes())? {
            return Ok(Next::Strange);
        }
        self.place = self.place.after(&header);
        Ok(Next::Batch(
            header,
            self.window.split_to(header.batch_bytes()),
        ))
    }

    /// Fills the window with `wanted` bytes; `false` when the segment has fewer.
    fn has(&mut self, wanted: usize) -> io::Result<bool> {
        let left = usize::try_from(self.end - self.place.position).unwrap_or(usize::MAX);
        if wanted > left {
            return Ok(false);
        }
        if self.window.len() < wanted {
            let mut buffer = BytesMut::zeroed(wanted.max(STEP).min(left));
            let read = read_up_to(&*self.file.file, &mut buffer, self.place.position)?;
            buffer.truncate(read);
            self.window = buffer.freeze();
        }
        Ok(self.window.len() >= wanted)
    }
}
