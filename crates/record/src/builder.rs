//! Gathers records into columns and closes the batch where its limits say.
use crate::gather::RecordColumns;
use crate::header::{MAX_RAW_BYTES, MAX_RECORDS};
use crate::layout::{HEADER_ENTRY_BYTES, MAX_DELTA_NS};
use crate::seal;
use crate::subjects::{Found, MAX_SUBJECTS};
use crate::{BuildError, Codec, Columns, HeaderEntry, Producer, SealedBatch};

/// Kept free in the largest batch: padding, the arrays of a single record, and the offset deltas that compaction adds.
const RESERVE_BYTES: usize = (1 << 20) + 4 * MAX_RECORDS as usize;

/// Where a batch is closed. A batch also closes when timestamps would span more than 4 s, and at 65,535 distinct subjects.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most records; 1 to 2^24 (values outside are taken as the nearest inside).
    pub records: usize,
    /// Most raw payload bytes, at most 191 MiB; a single record may exceed it up to `record_bytes`.
    pub bytes: usize,
    /// Largest single record (key, value, headers with 8 bytes each, subject, reply together), bytes; at most 191 MiB.
    pub record_bytes: usize,
}
impl Default for BatchLimits {
    /// 1,024 records, 1 MiB, single records up to 64 MiB.
    fn default() -> Self {
        Self {
            records: 1024,
            bytes: 1 << 20,
            record_bytes: 64 << 20,
        }
    }
}
impl BatchLimits {
    /// The same limits, none beyond what the layout can hold.
    fn possible(self) -> Self {
        let most = MAX_RAW_BYTES as usize - RESERVE_BYTES;
        Self {
            records: self.records.clamp(1, MAX_RECORDS as usize),
            bytes: self.bytes.min(most),
            record_bytes: self.record_bytes.min(most),
        }
    }
}

/// One record to be pushed; everything is borrowed and copied once, into the columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordRef<'a> {
    /// Receipt time, ns since 1970. Smaller than the batch's latest: raised to it (timestamps never decrease).
    pub timestamp: i64,
    /// Time at the origin, ns since 1970. `i64::MIN` counts as none.
    pub origin_time: Option<i64>,
    /// Message id, 0 = not given.
    pub id: u128,
    /// Key; empty counts as none.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a null value (a tombstone for compaction).
    pub value: Option<&'a [u8]>,
    /// Headers in order.
    pub headers: &'a [HeaderEntry<'a>],
    /// NATS subject; `None` or empty = the partition's own subject.
    pub subject: Option<&'a str>,
    /// NATS reply subject; empty = none.
    pub reply: &'a str,
}

impl RecordRef<'_> {
    /// Checks the record against the bound of a stream; returns its bytes as bounds count them (key, value, headers with
    /// 8 bytes each, subject, reply together).
    ///
    /// # Errors
    /// [`BuildError::TooLarge`] above `record_bytes`, [`BuildError::HeaderKeyTooLarge`].
    #[inline]
    pub fn check(&self, record_bytes: usize) -> Result<usize, BuildError> {
        let subject = self.subject.map_or(0, str::len);
        let bytes = self.content_bytes()?.saturating_add(subject);
        if bytes > record_bytes {
            let limit = record_bytes;
            return Err(BuildError::TooLarge { bytes, limit });
        }
        Ok(bytes)
    }

    /// Bytes of the blobs without the subject, which is stored once per batch.
    #[inline]
    fn content_bytes(&self) -> Result<usize, BuildError> {
        let mut bytes =
            self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + self.reply.len();
        for header in self.headers {
            if header.key.len() > usize::from(u16::MAX) {
                return Err(BuildError::HeaderKeyTooLarge {
                    bytes: header.key.len(),
                });
            }
            bytes =
                bytes.saturating_add(HEADER_ENTRY_BYTES + header.key.len() + header.value.len());
        }
        Ok(bytes)
    }

    /// Columns that this record needs. `delta`: ns after the base timestamp.
    #[inline]
    fn columns(&self, delta: u64) -> u16 {
        let bit = |column, is_needed| if is_needed { column } else { 0 };
        bit(Columns::TIMESTAMP, delta != 0)
            | bit(
                Columns::VALUE,
                self.value.is_some_and(|value| !value.is_empty()),
            )
            | bit(Columns::NULL, self.value.is_none())
            | bit(Columns::KEY, self.key.is_some_and(|key| !key.is_empty()))
            | bit(Columns::HEADER, !self.headers.is_empty())
            | bit(Columns::REPLY, !self.reply.is_empty())
            | bit(Columns::ID, self.id != 0)
            | bit(Columns::ORIGIN, self.origin_time.is_some())
    }
}

/// Bits that a record takes in the fixed arrays of `columns`.
fn array_bits(columns: u16) -> usize {
    [
        (Columns::TIMESTAMP, 32),
        (Columns::VALUE, 32),
        (Columns::NULL, 1),
        (Columns::KEY, 32),
        (Columns::HEADER, 32),
        (Columns::SUBJECT, 16),
        (Columns::REPLY, 32),
        (Columns::ID, 128),
        (Columns::ORIGIN, 64),
    ]
    .iter()
    .filter(|(column, _)| columns & column != 0)
    .map(|(_, bits)| bits)
    .sum()
}

/// Columns being gathered. Reusable: [`BatchBuilder::seal`] leaves it empty with its memory kept.
#[derive(Debug)]
pub struct BatchBuilder {
    limits: BatchLimits,
    gathered: RecordColumns,
    /// Columns needed so far and the bits a record takes in their arrays.
    columns: u16,
    array_bits: usize,
    /// Bytes gathered in all blobs, and 4 for each named subject of the dictionary.
    content_bytes: usize,
    base_timestamp: i64,
    latest_timestamp: i64,
}
impl BatchBuilder {
    /// An empty builder.
    pub fn new(limits: BatchLimits) -> Self {
        Self {
            limits: limits.possible(),
            gathered: RecordColumns::default(),
            columns: 0,
            array_bits: 0,
            content_bytes: 0,
            base_timestamp: 0,
            latest_timestamp: 0,
        }
    }

    /// Adds one record, copying its bytes once.
    ///
    /// # Errors
    /// [`BuildError::Full`] when the record does not fit this batch (nothing was added; it fits an empty one);
    /// [`BuildError::TooLarge`] or [`BuildError::HeaderKeyTooLarge`] when it fits none.
    pub fn push(&mut self, record: &RecordRef<'_>) -> Result<(), BuildError> {
        let subject = record.subject.unwrap_or_default();
        let content = record.check(self.limits.record_bytes)? - subject.len();
        let is_first = self.gathered.len() == 0;
        let (base, now) = if is_first {
            (record.timestamp, record.timestamp)
        } else {
            (
                self.base_timestamp,
                record.timestamp.max(self.latest_timestamp),
            )
        };
        // now ≥ base, so the difference fits an u64 whatever the two are.
        let delta = now.wrapping_sub(base) as u64;

        let found = self.gathered.subjects.find(subject);
        let mut columns = self.columns | record.columns(delta);
        let mut content_bytes = self.content_bytes + content;
        if matches!(found, Found::New(_)) {
            content_bytes += if subject.is_empty() {
                0
            } else {
                subject.len() + 4
            };
            columns |= if is_first { 0 } else { Columns::SUBJECT };
        }
        let array_bits = if columns == self.columns {
            self.array_bits
        } else {
            array_bits(columns)
        };
        if !is_first {
            let is_new_entry_too_many =
                matches!(found, Found::New(_)) && self.gathered.subjects.len() == MAX_SUBJECTS;
            let bytes = content_bytes + (self.len() + 1) * array_bits / 8;
            if self.len() >= self.limits.records
                || bytes > self.limits.bytes
                || delta > MAX_DELTA_NS
                || is_new_entry_too_many
            {
                return Err(BuildError::Full);
            }
        }

        self.gathered.push(record, delta as u32, found);
        self.columns = columns;
        self.array_bits = array_bits;
        self.content_bytes = content_bytes;
        self.base_timestamp = base;
        self.latest_timestamp = now;
        Ok(())
    }

    /// Records gathered so far.
    pub fn len(&self) -> usize {
        self.gathered.len()
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Raw payload bytes gathered so far, about (without padding).
    pub fn bytes(&self) -> usize {
        self.content_bytes + self.len() * self.array_bits / 8
    }

    /// Closes the batch: columns concatenated, compressed (kept uncompressed when that is not larger), checksummed.
    /// `None` when empty. `subject` is the partition's own subject: records that have it are stored as having none, and
    /// when every record has it (or none), the column is left out. A `producer` with id 0 counts as none.
    pub fn seal(
        &mut self,
        codec: Codec,
        producer: Option<Producer>,
        subject: Option<&str>,
    ) -> Option<SealedBatch> {
        if self.is_empty() {
            return None;
        }
        let (count, expected_bytes) = (self.len() as u32, self.bytes());
        let mut header = seal::blank_header(count, count);
        header.base_timestamp = self.base_timestamp;
        header.max_timestamp = self.latest_timestamp;
        header.producer = producer.filter(|producer| producer.id != 0);
        let sealed = seal::seal(
            &mut self.gathered,
            None,
            subject,
            codec,
            header,
            expected_bytes,
        );
        self.clear();
        Some(sealed)
    }

    /// Drops everything gathered, keeps memory.
    pub fn clear(&mut self) {
        self.gathered.clear();
        self.columns = 0;
        self.array_bits = 0;
        self.content_bytes = 0;
    }
}
