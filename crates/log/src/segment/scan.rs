//! Checking the batch at a position of a segment file.
use crate::LogId;
use crate::io::storage::StorageFile;
use crate::io::window::{FileWindow, is_media_error};
use crate::segment::damage::Fault;
use crate::segment::preamble::PREAMBLE_BYTES;
use bascule_record::planted_bug::{self, PlantedBug};
use bascule_record::{DamageError, HEADER_BYTES, Header};
use std::io;

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

    /// Returns whether the batch belongs here.
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

/// Checks batches of a file.
pub(crate) struct Scanner<'a> {
    pub(crate) window: FileWindow<'a>,
    pub(crate) identity: LogId,
    /// The last media error.
    pub unreadable: Option<io::Error>,
}

impl<'a> Scanner<'a> {
    /// A scanner of the first `len` bytes.
    pub fn new(file: &'a dyn StorageFile, len: u64, identity: LogId) -> Self {
        Self {
            window: FileWindow::new(file, len),
            identity,
            unreadable: None,
        }
    }

    /// Checks the batch at `place`, with `whole` also its payload.
    ///
    /// # Errors
    /// Those of the storage, except media errors: these are [`Fault::Unreadable`].
    pub fn check(&mut self, place: &LogPosition, whole: bool) -> io::Result<Found> {
        let identity = self.identity;
        let head = match self.window.bytes(place.position, HEADER_BYTES) {
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
        if place.position + header.batch_bytes() as u64 > self.window.len {
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
        let batch = match self.window.bytes(position, header.batch_bytes()) {
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
}
