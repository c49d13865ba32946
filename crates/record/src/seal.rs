//! Sealed batches: a finished payload, and a header that is stamped with its place later.
use crate::crypt::{SealError, Sealer};
use crate::gather::RecordColumns;
use crate::header::associated_data;
use crate::{Codec, Columns, Flags, HEADER_BYTES, Header, Producer};
use bytes::Bytes;

/// The place a sealed batch gets in a partition.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Incarnation of the partition.
    pub incarnation: u64,
    /// Partition number.
    pub partition: u32,
    /// Leader epoch.
    pub leader_epoch: u64,
    /// Offset of the first record.
    pub base_offset: u64,
    /// Link of the previous batch, 0 for the first.
    pub chain: u32,
    /// Timestamps are shifted up so that the first is not below this (the partition's latest), ns since 1970.
    pub not_before: i64,
}

/// A finished payload with a header without its place. One idempotent send is one sealed batch.
#[derive(Clone, Debug)]
pub struct SealedBatch {
    pub(crate) header: Header,
    /// 128 bytes reserved for the header, then the stored payload.
    pub(crate) bytes: Vec<u8>,
}
impl SealedBatch {
    /// Records inside.
    pub fn count(&self) -> u32 {
        self.header.count
    }

    /// Header and payload, bytes.
    pub fn batch_bytes(&self) -> usize {
        self.header.batch_bytes()
    }

    /// The producer given at seal.
    pub fn producer(&self) -> Option<Producer> {
        self.header.producer
    }

    /// Base and maximum timestamps as gathered, ns.
    pub fn timestamps(&self) -> (i64, i64) {
        (self.header.base_timestamp, self.header.max_timestamp)
    }

    /// Writes offset, epoch, chain and times into the header and its checksum. Hashes 124 bytes, never the payload.
    /// Returns the bytes to append; their header is `Header::read` of the first 128.
    pub fn stamp(mut self, stamp: &Stamp) -> Bytes {
        self.set_position(stamp);
        self.finish()
    }

    /// The same, with the payload encrypted under a nonce of `sealer`: the place is part of what is authenticated.
    ///
    /// # Errors
    /// [`SealError`]; the batch is gone then.
    pub fn stamp_encrypted(
        mut self,
        stamp: &Stamp,
        sealer: &mut Sealer,
    ) -> Result<Bytes, SealError> {
        self.set_position(stamp);
        self.finish_encrypted(sealer)
    }

    fn set_position(&mut self, stamp: &Stamp) {
        let header = &mut self.header;
        header.incarnation = stamp.incarnation;
        header.partition = stamp.partition;
        header.leader_epoch = stamp.leader_epoch;
        header.base_offset = stamp.base_offset;
        header.chain = stamp.chain;
        if header.base_timestamp < stamp.not_before {
            // The distance of the two stays as it is, also at the end of time.
            let distance = header.max_timestamp.wrapping_sub(header.base_timestamp);
            header.base_timestamp = stamp.not_before.min(i64::MAX - distance);
            header.max_timestamp = header.base_timestamp + distance;
        }
    }

    /// Encrypts the payload and writes the header.
    pub(crate) fn finish_encrypted(mut self, sealer: &mut Sealer) -> Result<Bytes, SealError> {
        let header = &mut self.header;
        header.flags.0 |= Flags::ENCRYPTED;
        header.key_id = sealer.key_id();
        header.nonce = sealer.next_nonce()?;
        if let Some((room, payload)) = self.bytes.split_first_chunk_mut::<HEADER_BYTES>() {
            header.write(room);
            let tag = sealer.seal(header.nonce, &associated_data(room, header.key_id), payload)?;
            self.bytes.extend_from_slice(&tag);
        }
        let stored = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        self.header.stored_bytes = stored.len() as u32;
        self.header.payload_crc = crc32c::crc32c(stored);
        Ok(self.finish())
    }

    /// Writes the header as it is.
    pub(crate) fn finish(mut self) -> Bytes {
        if let Some(room) = self.bytes.first_chunk_mut::<HEADER_BYTES>() {
            self.header.write(room);
        }
        Bytes::from(self.bytes)
    }
}

/// A header without place, payload, times or producer.
pub(crate) fn blank_header(count: u32, span: u32) -> Header {
    Header {
        codec: Codec::None,
        flags: Flags::default(),
        incarnation: 0,
        partition: 0,
        columns: Columns::default(),
        leader_epoch: 0,
        base_offset: 0,
        span,
        count,
        base_timestamp: 0,
        max_timestamp: 0,
        producer: None,
        stored_bytes: 0,
        raw_bytes: 0,
        key_id: 0,
        nonce: [0; 12],
        payload_crc: 0,
        chain: 0,
        kept_link: 0,
        header_crc: 0,
    }
}

/// Concatenates `gathered` behind room for a header, compresses when that helps, and completes `header` with what
/// follows from the payload. `offsets` makes it SPARSE. `expected_bytes`: raw length, about.
pub(crate) fn seal(
    gathered: &mut RecordColumns,
    offsets: Option<&[u32]>,
    own_subject: Option<&str>,
    codec: Codec,
    mut header: Header,
    expected_bytes: usize,
) -> SealedBatch {
    // One padding of at most 7 bytes per array, the extra element of each array of ends, and the tag of encryption.
    let mut bytes = Vec::with_capacity(HEADER_BYTES + expected_bytes + 256);
    bytes.resize(HEADER_BYTES, 0);
    header.columns = gathered.write(offsets, own_subject, &mut bytes);
    header.raw_bytes = (bytes.len() - HEADER_BYTES) as u32;
    header.codec = Codec::None;
    if let Some(compressed) = codec.compress(&bytes[HEADER_BYTES..], HEADER_BYTES) {
        bytes = compressed;
        header.codec = codec;
    }
    header.stored_bytes = (bytes.len() - HEADER_BYTES) as u32;
    header.payload_crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    if offsets.is_some() {
        header.flags.0 |= Flags::SPARSE;
    }
    if header.producer.is_some() {
        header.flags.0 |= Flags::PRODUCER;
    }
    SealedBatch { header, bytes }
}
