//! Records to publish: framed once, as they are added, and kept until all are acknowledged, so that the others can be sent
//! again.
use crate::Error;
use crate::acks::Acks;
use crate::frames::lengths;
use bascule_record::Producer;
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::publish::{
    PRODUCER_BATCH_AT, ProducerBatch, PublishFields, put_request_frame,
};
use bytes::Bytes;
use std::num::NonZeroU32;

/// A chunk is closed at about this many bytes, and at so many records. As many as the broker remembers may be on their
/// way, so these bound what is published while a disk syncs once.
const CHUNK_BYTES: usize = 512 << 10;
const CHUNK_RECORDS: usize = ProducerBatch::MAX_RECORDS as usize;
/// Initial capacity of an open chunk, bytes, and the least when several are filled together.
const ROOM: usize = 144 << 10;
const MIN_ROOM: usize = 1 << 10;
/// `AckPolicy.NONE`.
const POLICY_NONE: i32 = 2;
/// Reserves the bytes of a producer's batch header.
const NOBODY: ProducerBatch = ProducerBatch {
    producer: Producer {
        id: 0,
        epoch: 0,
        base_sequence: 0,
    },
    records: 0,
};

/// Frames of consecutive records, sent as one piece; a batch of an idempotent producer.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) frames: Bytes,
    /// Index of the first record.
    pub(crate) first: usize,
    /// Records inside.
    pub(crate) records: usize,
}

/// A record to be published. Everything is borrowed.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Key; empty = none.
    pub key: &'a [u8],
    /// Value; `None` = null, a tombstone.
    pub value: Option<&'a [u8]>,
    /// Names and values in order; names may repeat, and are any bytes.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// Offset that it has to get; −1 = any.
    pub expected_offset: i64,
    /// NATS subject to be stored with it; empty = the partition's own.
    pub subject: &'a str,
    /// Time at the origin, ns since 1970.
    pub origin_time: Option<i64>,
}
impl Default for NewRecord<'_> {
    /// An empty value, nothing else, at any offset.
    fn default() -> Self {
        Self {
            key: b"",
            value: Some(b""),
            headers: &[],
            expected_offset: -1,
            subject: "",
            origin_time: None,
        }
    }
}

/// A batch of records for one partition. Correlation ids are the records' indexes, in decimal.
#[derive(Debug)]
pub struct PublishBatch {
    stream: String,
    partition: i32,
    ack_policy: i32,
    /// Most records in a chunk.
    chunk_records: usize,
    /// Bytes that an open chunk begins with.
    room: usize,
    chunks: Vec<Chunk>,
    open: Vec<u8>,
    open_records: usize,
    records: usize,
    bytes: usize,
    /// The producer that the chunks are marked with.
    stamped: Option<Producer>,
    /// Outcomes of the records.
    pub(crate) acks: Acks,
}
impl PublishBatch {
    /// An empty batch. `ack_policy`: 0 LEADER, 1 ALL, 2 NONE. `in_flight`: most records sent and not acknowledged.
    pub fn new(stream: &str, partition: i32, ack_policy: i32, in_flight: usize) -> Self {
        Self {
            stream: stream.into(),
            partition,
            ack_policy,
            chunk_records: (in_flight / 4).clamp(1, CHUNK_RECORDS),
            room: ROOM,
            chunks: Vec::new(),
            open: Vec::new(),
            open_records: 0,
            records: 0,
            bytes: 0,
            stamped: None,
            acks: Acks::default(),
        }
    }

    /// As [`Self::new`], for one of `parts` batches that are filled together: they share the initial memory of one.
    #[must_use]
    pub(crate) fn sharing(mut self, parts: usize) -> Self {
        self.room = (ROOM / parts.max(1)).max(MIN_ROOM);
        self
    }

    /// Partition that the records go to.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Adds a record; everything is copied. Not to be called once the batch was published.
    pub fn push(&mut self, record: &NewRecord<'_>) {
        if self.open.capacity() == 0 {
            self.open.reserve(self.room);
        }
        let begins = self.open_records == 0 && !self.is_unacknowledged();
        let (before, mut digits) = (self.open.len(), [0; 20]);
        put_request_frame(
            &mut self.open,
            &PublishFields {
                key: record.key,
                value: record.value.unwrap_or_default(),
                is_null: record.value.is_none(),
                stream: &self.stream,
                partition: self.partition,
                headers: record.headers,
                ack_inbox: "",
                correlation_id: decimal(self.records, &mut digits),
                ack_policy: self.ack_policy,
                expected_offset: record.expected_offset,
                producer_batch: begins.then_some(NOBODY),
                subject: record.subject,
                origin_time: record.origin_time,
            },
        );
        self.bytes += self.open.len() - before;
        self.records += 1;
        self.open_records += 1;
        if self.open.len() >= CHUNK_BYTES || self.open_records >= self.chunk_records {
            self.close_chunk();
        }
    }

    /// Records added.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Approximate bytes to send.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// (offset, timestamp ns) of each record, in order, once all were acknowledged; nothing for policy NONE.
    pub fn places(&self) -> &[(i64, i64)] {
        if self.is_unacknowledged() {
            &[]
        } else {
            self.acks.places()
        }
    }

    /// Whether acks are off.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.ack_policy == POLICY_NONE
    }

    /// Prepares all chunks for sending as batches of `producer`, whose next sequence is that of the first record; `None` = without
    /// a producer.
    pub(crate) fn stamp(&mut self, producer: Option<Producer>) {
        self.close_chunk();
        self.acks.begin(&self.chunks, self.records);
        if self.stamped == producer || self.is_unacknowledged() {
            return;
        }
        self.stamped = producer;
        for chunk in &mut self.chunks {
            let base = producer.unwrap_or(NOBODY.producer);
            let batch = ProducerBatch {
                producer: Producer {
                    base_sequence: base.base_sequence.wrapping_add(chunk.first as u32),
                    ..base
                },
                records: chunk.records as u32,
            };
            // Before the first attempt nobody else holds the bytes, and nothing is copied.
            let frames = std::mem::take(&mut chunk.frames).try_into_mut();
            let mut frames = frames.unwrap_or_else(|shared| shared.as_ref().into());
            if let Some(place) =
                frames.get_mut(PRODUCER_BATCH_AT..PRODUCER_BATCH_AT + ProducerBatch::BYTES)
            {
                place.copy_from_slice(&batch.to_bytes());
            }
            chunk.frames = frames.freeze();
        }
    }

    /// Whether some of it may have been sent as batches of a producer.
    pub(crate) fn is_stamped(&self) -> bool {
        self.stamped.is_some()
    }

    /// The chunks with unanswered records, in order, each with its number.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (usize, &Chunk)> {
        let chunks = self.chunks.iter().enumerate();
        chunks.filter(|(number, _)| self.acks.is_open(*number))
    }

    /// The failure that caused the others; for a record that is too large, with its size.
    pub(crate) fn failure(&self) -> Option<Error> {
        let mut error = self.acks.failure()?;
        if error.code == ErrorCode::TooLarge {
            error.details.bytes = error
                .details
                .index
                .and_then(|index| self.message_bytes(index));
        }
        Some(error)
    }

    /// Length of a record's message, which the broker compares with its limits.
    fn message_bytes(&self, index: usize) -> Option<NonZeroU32> {
        let next = self.chunks.partition_point(|chunk| chunk.first <= index);
        let chunk = self.chunks.get(next.checked_sub(1)?)?;
        let bytes = lengths(&chunk.frames).nth(index - chunk.first)?;
        NonZeroU32::new(u32::try_from(bytes).ok()?)
    }

    fn close_chunk(&mut self) {
        if self.open_records > 0 {
            let records = std::mem::take(&mut self.open_records);
            self.chunks.push(Chunk {
                frames: std::mem::take(&mut self.open).into(),
                first: self.records - records,
                records,
            });
        }
    }
}

/// A number in decimal, without an allocation.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &str {
    let mut from = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        from -= 1;
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[from..]).unwrap_or_default()
}
