//! The batches of a sealed segment, front to back, as they lie in its file.
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

/// What comes next.
pub(super) enum Next {
    /// The batch that belongs here.
    Batch(Header, Bytes),
    /// The segment's end.
    End,
    /// Something else: the segment is damaged, or of a newer version.
    Strange,
}

/// Reads one file through a window.
pub(super) struct CompactionInput {
    file: Arc<SyncFile>,
    end: u64,
    identity: LogId,
    place: LogPosition,
    /// What was read from the place on.
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

    /// The place behind the last batch returned.
    pub fn place(&self) -> LogPosition {
        self.place
    }

    /// The file.
    pub fn file(&self) -> &SyncFile {
        &self.file
    }

    /// The next batch, its payload unchecked.
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

    /// Makes the window hold so many bytes; `false` when the segment has no more.
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
