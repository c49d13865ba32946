//! A batch that is to be stored in another place: one that was stored before, or one that was sealed on another broker.
use crate::batch::decrypt;
use crate::crypt::{KeyRing, TAG_BYTES};
use crate::layout::HEADER_ENTRY_BYTES;
use crate::seal::blank_header;
use crate::{Batch, Columns, DamageError, Flags, HEADER_BYTES, Header, Producer, SealedBatch};
use bytes::Bytes;

/// Why a stored batch cannot be stored again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It is damaged, or its key is missing ([`DamageError::is_locked`]).
    #[error(transparent)]
    Damage(#[from] DamageError),
    /// Its records have times or offsets of their own, or it has a producer already.
    #[error(
        "a batch with the flags {flags:#06x} and the columns {columns:#06x} cannot be stored again: it has a producer, holes, or \
         a time for each record"
    )]
    Kind {
        /// Flag bits.
        flags: u16,
        /// Column bits.
        columns: u16,
    },
    /// A record is larger than its stream allows.
    #[error(
        "a record has {bytes} bytes, and the stream allows {limit}: send smaller ones, or raise max_record_bytes"
    )]
    TooLarge {
        /// Of the record, bytes.
        bytes: usize,
        /// The most, bytes.
        limit: usize,
    },
}

impl SealedBatch {
    /// The batch `stored` (header and payload), without its place: its records, with `timestamp` (ns since 1970) as the time of
    /// all of them, as a batch of `producer`, whose id is not 0. The payload stays as it is: it is neither decompressed nor
    /// compressed. An encrypted one is decrypted, and [`SealedBatch::stamp_encrypted`] encrypts it again. Payload checksum and
    /// authentication tag are checked; the columns are not, for [`crate::Batch::open`] checks them wherever they are read.
    ///
    /// # Errors
    /// [`RestoreError`]; `is_locked` of the damage says that only a key is missing.
    pub fn restore(
        stored: &[u8],
        keys: &KeyRing,
        timestamp: i64,
        producer: Producer,
    ) -> Result<Self, RestoreError> {
        let old = Header::read(stored)?;
        if old.flags.0 & !Flags::ENCRYPTED != 0 || old.columns.has(Columns::TIMESTAMP) {
            return Err(RestoreError::Kind {
                flags: old.flags.0,
                columns: old.columns.0,
            });
        }
        let payload = checked_payload(&old, stored)?;
        let mut bytes = Vec::with_capacity(stored.len() + TAG_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        let mut header = blank_header(old.count, old.span);
        if old.flags.has(Flags::ENCRYPTED) {
            bytes.extend_from_slice(&decrypt(&old, stored, keys)?);
            header.payload_crc = crc32c::crc32c(bytes.get(HEADER_BYTES..).unwrap_or_default());
        } else {
            bytes.extend_from_slice(payload);
            header.payload_crc = old.payload_crc;
        }
        header.codec = old.codec;
        header.columns = old.columns;
        header.flags = Flags(Flags::PRODUCER);
        header.base_timestamp = timestamp;
        header.max_timestamp = timestamp;
        header.producer = Some(producer);
        header.stored_bytes = (bytes.len() - HEADER_BYTES) as u32;
        header.raw_bytes = old.raw_bytes;
        Ok(Self { header, bytes })
    }

    /// The bytes of a batch without its place, for [`SealedBatch::read_unplaced`] on the broker that stores it.
    pub fn to_unplaced(self) -> Bytes {
        self.finish()
    }

    /// A batch that was sealed elsewhere and has no place yet. Everything is checked: header, checksums, columns, and that each record
    /// has at most `record_bytes` bytes.
    ///
    /// # Errors
    /// [`RestoreError`]: `Kind` for a batch that was stored before.
    pub fn read_unplaced(bytes: &Bytes, record_bytes: usize) -> Result<Self, RestoreError> {
        let batch = Batch::read(bytes)?;
        let header = batch.header();
        if header.flags.0 & !Flags::PRODUCER != 0 || header.incarnation != 0 {
            return Err(RestoreError::Kind {
                flags: header.flags.0,
                columns: header.columns.0,
            });
        }
        for index in 0..batch.len() {
            let found = content_bytes(&batch, index);
            if found > record_bytes {
                return Err(RestoreError::TooLarge {
                    bytes: found,
                    limit: record_bytes,
                });
            }
        }
        Ok(Self {
            header: *header,
            bytes: bytes.to_vec(),
        })
    }
}

/// Bytes of a record as [`crate::RecordRef::check`] counts them.
fn content_bytes(batch: &Batch, index: usize) -> usize {
    let headers = batch
        .headers(index)
        .map(|header| HEADER_ENTRY_BYTES + header.key.len() + header.value.len());
    let texts = [batch.subject(index), batch.reply(index)];
    batch.key(index).map_or(0, <[u8]>::len)
        + batch.value(index).map_or(0, <[u8]>::len)
        + texts.into_iter().flatten().map(str::len).sum::<usize>()
        + headers.sum::<usize>()
}

/// The stored payload, which has the length and the checksum of the header.
fn checked_payload<'a>(header: &Header, stored: &'a [u8]) -> Result<&'a [u8], DamageError> {
    let (need, have) = (header.batch_bytes(), stored.len());
    if have > need {
        return Err(DamageError::Long { need, have });
    }
    let payload = stored
        .get(HEADER_BYTES..need)
        .ok_or(DamageError::Short { need, have })?;
    let computed = crc32c::crc32c(payload);
    if computed != header.payload_crc {
        return Err(DamageError::PayloadChecksum {
            stored: header.payload_crc,
            computed,
        });
    }
    Ok(payload)
}
