//! Walking the batches of a segment that nobody writes to, for recovery and for finding the way after damage.
use crate::Identity;
use crate::disk::read_up_to;
use crate::storage::StorageFile;
use bascule_record::{DamageError, HEADER_BYTES, Header, MAGIC};
use std::io;

/// Bytes read at a time.
const WINDOW: usize = 256 << 10;

/// A place between two batches, and what the next one must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Position in the file.
    pub position: u64,
    /// Base offset of the next batch.
    pub offset: u64,
    /// Its chain value; `None` when unknown.
    pub chain: Option<u32>,
    /// The least leader epoch it may have.
    pub epoch: u64,
}

impl Place {
    /// Whether the batch belongs here.
    pub fn fits(&self, header: &Header, identity: Identity) -> bool {
        header.incarnation == identity.incarnation
            && header.partition == identity.partition
            && header.base_offset == self.offset
            && header.span > 0
            && header.leader_epoch >= self.epoch
            && self.chain.is_none_or(|chain| chain == header.chain)
    }

    /// The place after the batch.
    pub fn after(&self, header: &Header) -> Self {
        Self {
            position: self.position + header.batch_bytes() as u64,
            offset: header.next_offset(),
            chain: Some(header.link()),
            epoch: header.leader_epoch,
        }
    }
}

/// What lies at a place.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// The right batch.
    Batch(Header),
    /// Zeros, or the end of the file.
    End,
    /// A sound batch that only a newer version understands: to be left alone.
    Unsupported(DamageError),
    /// Anything else.
    Damage,
}

/// Reads a file through a window.
pub(crate) struct Scanner<'a> {
    file: &'a dyn StorageFile,
    len: u64,
    identity: Identity,
    window: Vec<u8>,
    window_at: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
}

impl<'a> Scanner<'a> {
    /// A scanner of the first `len` bytes.
    pub fn new(file: &'a dyn StorageFile, len: u64, identity: Identity) -> Self {
        Self {
            file,
            len,
            identity,
            window: Vec::new(),
            window_at: 0,
            bytes_read: 0,
        }
    }

    /// What lies at `place`. With `whole` the payload's checksum is checked too.
    pub fn look(&mut self, place: &Place, whole: bool) -> io::Result<Found> {
        let head = self.bytes(place.position, HEADER_BYTES)?;
        if head.iter().all(|byte| *byte == 0) {
            return Ok(Found::End);
        }
        let header = match Header::read(head) {
            Ok(header) => header,
            Err(error) if error.is_unsupported() => return Ok(Found::Unsupported(error)),
            Err(_) => return Ok(Found::Damage),
        };
        if !place.fits(&header, self.identity)
            || place.position + header.batch_bytes() as u64 > self.len
        {
            return Ok(Found::Damage);
        }
        if whole {
            let batch = self.bytes(place.position, header.batch_bytes())?;
            let payload = batch.get(HEADER_BYTES..).unwrap_or_default();
            if payload.len() != header.stored_bytes as usize
                || crc32c::crc32c(payload) != header.payload_crc
            {
                return Ok(Found::Damage);
            }
        }
        Ok(Found::Batch(header))
    }

    /// The first place behind damage at `lost` from which batches can be served again: one that looks like a batch of
    /// this log, later than what was lost and below `limit`, and is followed by its own successor or by the end.
    ///
    /// The successor must carry the candidate's link. A batch that somebody stored inside a record cannot foresee that.
    pub fn resume_after(&mut self, lost: &Place, limit: u64) -> io::Result<Option<Place>> {
        let mut position = lost.position + 1;
        while position + HEADER_BYTES as u64 <= self.len {
            let window = self.bytes(position, WINDOW)?;
            let found = window.windows(MAGIC.len()).position(|bytes| bytes == MAGIC);
            let step = window.len().saturating_sub(MAGIC.len() - 1).max(1) as u64;
            let Some(at) = found else {
                position += step;
                continue;
            };
            position += at as u64;
            if let Some(place) = self.candidate(position, lost, limit)? {
                return Ok(Some(place));
            }
            position += 1;
        }
        Ok(None)
    }

    fn candidate(&mut self, position: u64, lost: &Place, limit: u64) -> io::Result<Option<Place>> {
        let head = self.bytes(position, HEADER_BYTES)?;
        let Ok(header) = Header::read(head) else {
            return Ok(None);
        };
        let place = Place {
            position,
            offset: header.base_offset,
            chain: None,
            epoch: lost.epoch,
        };
        if header.base_offset < lost.offset || header.next_offset() > limit {
            return Ok(None);
        }
        let Found::Batch(header) = self.look(&place, true)? else {
            return Ok(None);
        };
        let next = place.after(&header);
        let follows = next.offset == limit
            || next.position >= self.len
            || !matches!(self.look(&next, false)?, Found::Damage);
        Ok(follows.then_some(place))
    }

    /// Up to `wanted` bytes at `position`; fewer at the end of the file.
    fn bytes(&mut self, position: u64, wanted: usize) -> io::Result<&[u8]> {
        let available = usize::try_from(self.len.saturating_sub(position)).unwrap_or(usize::MAX);
        let wanted = wanted.min(available);
        let have = self.window_at + self.window.len() as u64;
        if position < self.window_at || position + wanted as u64 > have {
            self.window.clear();
            self.window.resize(wanted.max(WINDOW).min(available), 0);
            let read = read_up_to(self.file, &mut self.window, position)?;
            self.window.truncate(read);
            self.window_at = position;
            self.bytes_read += read as u64;
        }
        let from = (position - self.window_at) as usize;
        let window = self.window.get(from..).unwrap_or_default();
        Ok(window.get(..wanted).unwrap_or(window))
    }
}
