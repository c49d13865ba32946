//! Checking a batch at a position of a segment file, and reading that file through a window.
use crate::LogId;
use crate::io::disk::read_up_to;
use crate::io::storage::StorageFile;
use crate::segment::damage::Fault;
use crate::segment::preamble::PREAMBLE_BYTES;
use bascule_record::planted_bug::{self, PlantedBug};
use bascule_record::{DamageError, HEADER_BYTES, Header};
use rustix::io::Errno;
use std::io;

/// Bytes read at a time; the first reads are smaller, for callers that need few batches.
pub(crate) const WINDOW: usize = 256 << 10;
const FIRST_WINDOW: usize = 64 << 10;

/// A position between two batches, and what the next batch must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// Position in the file.
    pub position: u64,
    /// Base offset of the next batch.
    pub offset: u64,
    /// Chain value of the next batch; `None` when unknown.
    pub chain: Option<u32>,
    /// Lowest leader epoch that the next batch may have.
    pub epoch: u64,
    /// Position of the batch whose header leads here; `None` when something else does.
    pub previous_batch: Option<u64>,
}

impl LogPosition {
    /// The position of the first batch of a segment.
    pub fn first(base_offset: u64) -> Self {
        Self::at(PREAMBLE_BYTES, base_offset)
    }

    /// The beginning of a batch of any chain value and epoch.
    pub fn at(position: u64, offset: u64) -> Self {
        Self {
            position,
            offset,
            chain: None,
            epoch: 0,
            previous_batch: None,
        }
    }

    /// Whether the batch belongs here.
    pub fn fits(&self, header: &Header, identity: LogId) -> bool {
        header.incarnation == identity.incarnation
            && header.partition == identity.partition
            && header.base_offset == self.offset
            && header.span > 0
            && header.leader_epoch >= self.epoch
            && (self.chain.is_none_or(|chain| chain == header.chain)
                || planted_bug::is_active(PlantedBug::ChainNotChecked))
    }

    /// The position after the batch.
    pub fn after(&self, header: &Header) -> Self {
        Self {
            position: self.position + header.batch_bytes() as u64,
            offset: header.next_offset(),
            chain: Some(header.link()),
            epoch: header.leader_epoch,
            previous_batch: Some(self.position),
        }
    }
}

/// The bytes at a position.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// The batch that belongs here.
    Batch(Header),
    /// Zeros, or the end of the file.
    End,
    /// A valid batch that needs a newer version. It is left as it is.
    Unsupported(DamageError),
    /// The batch that belongs here by its header, with a damaged payload.
    Payload(Header, Fault),
    /// No batch that belongs here.
    Damage(Fault),
}

/// Reads a file through a window.
pub(crate) struct Scanner<'a> {
    file: &'a dyn StorageFile,
    pub(crate) len: u64,
    pub(crate) identity: LogId,
    buffer: Vec<u8>,
    /// Bytes to read the next time.
    window: usize,
    /// Bytes of the buffer that are filled, and where the first one lies in the file.
    filled: usize,
    filled_at: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// The last media error.
    pub unreadable: Option<io::Error>,
}

impl<'a> Scanner<'a> {
    /// A scanner of the first `len` bytes.
    pub fn new(file: &'a dyn StorageFile, len: u64, identity: LogId) -> Self {
        Self {
            file,
            len,
            identity,
            buffer: Vec::new(),
            window: FIRST_WINDOW,
            filled: 0,
            filled_at: 0,
            bytes_read: 0,
            unreadable: None,
        }
    }

    /// Drops what is cached of the file from `position` on, here and in the page cache: later reads see the disk.
    pub fn forget(&mut self, position: u64) -> io::Result<()> {
        self.filled = 0;
        self.file.forget_cached(position)
    }

    /// Checks the batch at `place`, with `whole` also its payload.
    ///
    /// # Errors
    /// Those of the storage, except media errors: these are [`Fault::Unreadable`].
    pub fn check(&mut self, place: &LogPosition, whole: bool) -> io::Result<Found> {
        let identity = self.identity;
        let head = match self.bytes(place.position, HEADER_BYTES) {
            Ok(head) => head,
            Err(error) => return self.lost(error).map(Found::Damage),
        };
        if head.iter().all(|byte| *byte == 0) {
            return Ok(Found::End);
        }
        let header = match Header::read(head) {
            Ok(header) => header,
            Err(error) if error.is_unsupported() => return Ok(Found::Unsupported(error)),
            Err(DamageError::Short { .. }) => return Ok(Found::Damage(Fault::Short)),
            Err(_) => return Ok(Found::Damage(Fault::Header)),
        };
        if !place.fits(&header, identity) {
            return Ok(Found::Damage(Fault::Misplaced));
        }
        if place.position + header.batch_bytes() as u64 > self.len {
            return Ok(Found::Payload(header, Fault::Short));
        }
        let fault = if whole {
            self.payload_fault(place.position, &header)?
        } else {
            None
        };
        Ok(match fault {
            Some(fault) => Found::Payload(header, fault),
            None => Found::Batch(header),
        })
    }

    /// The fault of the payload of the batch at `position`.
    fn payload_fault(&mut self, position: u64, header: &Header) -> io::Result<Option<Fault>> {
        let batch = match self.bytes(position, header.batch_bytes()) {
            Ok(batch) => batch,
            Err(error) => return self.lost(error).map(Some),
        };
        let payload = batch.get(HEADER_BYTES..).unwrap_or_default();
        if payload.len() != header.stored_bytes as usize {
            return Ok(Some(Fault::Short));
        }
        let valid = crc32c::crc32c(payload) == header.payload_crc;
        Ok((!valid).then_some(Fault::Payload))
    }

    fn lost(&mut self, error: io::Error) -> io::Result<Fault> {
        if !is_media_error(&error) {
            return Err(error);
        }
        self.unreadable = Some(error);
        Ok(Fault::Unreadable)
    }

    /// Up to `wanted` bytes at `position`; fewer at the end of the file.
    pub(crate) fn bytes(&mut self, position: u64, wanted: usize) -> io::Result<&[u8]> {
        let available = usize::try_from(self.len.saturating_sub(position)).unwrap_or(usize::MAX);
        let wanted = wanted.min(available);
        let have = self.filled_at + self.filled as u64;
        if position < self.filled_at || position + wanted as u64 > have {
            let window = self.window;
            self.window = WINDOW.min(2 * window);
            match self.fill(position, wanted.max(window).min(available)) {
                // A bad page behind the wanted bytes must not fail the read.
                Err(error) if is_media_error(&error) => self.fill(position, wanted)?,
                other => other?,
            }
        }
        let from = (position - self.filled_at) as usize;
        let window = self.buffer.get(from..self.filled).unwrap_or_default();
        Ok(window.get(..wanted).unwrap_or(window))
    }

    /// Reads `len` bytes from `position` on, reusing what the buffer has of them.
    fn fill(&mut self, position: u64, len: usize) -> io::Result<()> {
        let have = self.filled_at + self.filled as u64;
        let keep = if position >= self.filled_at && position < have {
            let from = (position - self.filled_at) as usize;
            self.buffer.copy_within(from..self.filled, 0);
            self.filled - from
        } else {
            0
        };
        (self.filled, self.filled_at) = (keep, position);
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        let rest = self.buffer.get_mut(keep..len).unwrap_or_default();
        let read = read_up_to(self.file, rest, position + keep as u64)?;
        self.filled += read;
        self.bytes_read += read as u64;
        Ok(())
    }
}

/// Whether the disk lost the bytes; other errors say nothing about them.
pub(crate) fn is_media_error(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::BADMSG | Errno::UCLEAN | Errno::NODATA)
    )
}
