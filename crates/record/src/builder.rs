//! Gathers records into columns and seals them into a batch.
use crate::{BuildError, Codec, HeaderEntry, Producer};
use bytes::Bytes;

/// Where a batch is closed. A batch also closes when timestamps would span 4 s.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most records; at most 2^24.
    pub records: usize,
    /// Most raw payload bytes; a single record may exceed it up to `record_bytes`.
    pub bytes: usize,
    /// Largest single record (key, value, headers, subject, reply together), bytes.
    pub record_bytes: usize,
}
impl Default for BatchLimits {
    /// 1,024 records, 1 MiB, single records up to 64 MiB.
    fn default() -> Self {
        Self { records: 1024, bytes: 1 << 20, record_bytes: 64 << 20 }
    }
}

/// One record to be pushed; everything is borrowed and copied once, into the columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordRef<'a> {
    /// Receipt time, ns since 1970. Smaller than the batch's latest: raised to it (timestamps never decrease).
    pub timestamp: i64,
    /// Time at the origin, ns since 1970.
    pub origin_time: Option<i64>,
    /// Message id, 0 = not given.
    pub id: u128,
    /// Key; empty counts as none.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a null value (a tombstone for compaction).
    pub value: Option<&'a [u8]>,
    /// Headers in order.
    pub headers: &'a [HeaderEntry<'a>],
    /// NATS subject; `None` = the partition's own subject.
    pub subject: Option<&'a str>,
    /// NATS reply subject; empty = none.
    pub reply: &'a str,
}

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

/// Columns being gathered. Reusable: [`BatchBuilder::seal`] leaves it empty with its memory kept.
#[derive(Debug)]
pub struct BatchBuilder {
    _limits: BatchLimits,
}
impl BatchBuilder {
    /// An empty builder.
    pub fn new(limits: BatchLimits) -> Self {
        Self { _limits: limits }
    }

    /// Adds one record.
    ///
    /// # Errors
    /// [`BuildError::Full`] when the record does not fit this batch (nothing was added; it fits an empty one);
    /// [`BuildError::TooLarge`] when it fits none.
    pub fn push(&mut self, _record: &RecordRef<'_>) -> Result<(), BuildError> {
        todo!()
    }

    /// Records gathered so far.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Raw payload bytes gathered so far, about.
    pub fn bytes(&self) -> usize {
        todo!()
    }

    /// Closes the batch: columns concatenated, compressed (kept uncompressed when that is smaller), checksummed.
    /// `None` when empty. `subject` is the partition's own subject: when every record has it (or none), the column is left out.
    pub fn seal(&mut self, _codec: Codec, _producer: Option<Producer>, _subject: Option<&str>) -> Option<SealedBatch> {
        todo!()
    }
}

/// A finished payload with a header that lacks its place. One idempotent send is one of these.
#[derive(Clone, Debug)]
pub struct SealedBatch {
    _bytes: Vec<u8>,
}
impl SealedBatch {
    /// Records inside.
    pub fn count(&self) -> u32 {
        todo!()
    }

    /// Header and payload, bytes.
    pub fn batch_bytes(&self) -> usize {
        todo!()
    }

    /// The producer given at seal.
    pub fn producer(&self) -> Option<Producer> {
        todo!()
    }

    /// Base and maximum timestamps as gathered, ns.
    pub fn timestamps(&self) -> (i64, i64) {
        todo!()
    }

    /// Writes offset, epoch, chain and times into the header and its checksum. Hashes 124 bytes, never the payload.
    /// Returns the bytes to append; their header is `Header::read` of the first 128.
    pub fn stamp(self, _stamp: &Stamp) -> Bytes {
        todo!()
    }
}
