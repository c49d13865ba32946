//! `PublishRequest`, `PublishToSubjectRequest` and enveloped `Message`, read in place and written.
//!
//! The views hold slices of the received bytes: reading copies nothing, and keeps the received buffer alive. Strings are
//! checked UTF-8; unknown fields are skipped; the last of a repeated field wins, as protobuf says.
use super::delivery::is_shown_header;
use super::headers::{self, HeaderPairs, Written};
use crate::envelope::{self, EnvelopedPublish, MessageType};
use crate::protobuf::{self, Fields, Malformed};
use bascule_record::{Batch, Producer};
use bytes::Bytes;

pub use super::headers::MAX_HEADERS;

/// `AckPolicy.NONE`.
const POLICY_NONE: i32 = 2;
/// Accepted whatever the next offset is (liftbridge §3.13).
const ANY_OFFSET: i64 = -1;

/// What the first record of an idempotent producer's batch carries: 20 bytes, little-endian, as field 100 of a
/// `PublishRequest`. Other brokers skip it.
///
/// | Offset | Type | Field |
/// |---|---|---|
/// | 0 | u64 | producer id; 0 = none, and nothing begins |
/// | 8 | u32 | epoch |
/// | 12 | u32 | sequence of the first record |
/// | 16 | u32 | number of records, 1 to [`ProducerBatch::MAX_RECORDS`] |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    /// Who sends it.
    pub producer: Producer,
    /// Records of the batch: this one and the next ones of the call.
    pub records: u32,
}

impl ProducerBatch {
    /// Most records of one batch.
    pub const MAX_RECORDS: u32 = 4096;
    /// Bytes of the encoding.
    pub const BYTES: usize = 20;

    /// The batch that begins, or that none does (id 0); `None` when the bytes say neither.
    #[allow(clippy::option_option)] // three answers: one, none, and no such thing
    fn read(bytes: &[u8]) -> Option<Option<Self>> {
        let batch = Self::decode(bytes)?;
        if batch.producer.id == 0 {
            return Some(None);
        }
        (1..=Self::MAX_RECORDS)
            .contains(&batch.records)
            .then_some(Some(batch))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let u32_at = |at: usize| {
            bytes
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok())
                .map(u32::from_le_bytes)
        };
        Some(Self {
            producer: Producer {
                id: u64::from_le_bytes(*bytes.first_chunk()?),
                epoch: u32_at(8)?,
                base_sequence: u32_at(12)?,
            },
            records: u32_at(16)?,
        })
    }

    /// The encoding.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let fields = self
            .producer
            .id
            .to_le_bytes()
            .into_iter()
            .chain(self.producer.epoch.to_le_bytes())
            .chain(self.producer.base_sequence.to_le_bytes())
            .chain(self.records.to_le_bytes());
        for (byte, value) in out.iter_mut().zip(fields) {
            *byte = value;
        }
        out
    }
}

/// Fields of ours.
const NULL_VALUE: [u8; 2] = protobuf::wide_key(101, 0);
const HEADER_LIST: [u8; 2] = protobuf::wide_key(102, 2);
const SUBJECT: [u8; 2] = protobuf::wide_key(103, 2);
const ORIGIN_TIME: [u8; 2] = protobuf::wide_key(104, 0);
/// The same of an enveloped `Message`.
const MESSAGE_NULL_VALUE: [u8; 2] = protobuf::wide_key(100, 0);
const MESSAGE_HEADER_LIST: [u8; 2] = protobuf::wide_key(101, 2);

/// Where the bytes of a [`ProducerBatch`] lie in a frame that [`put_request_frame`] wrote with one: they may be
/// overwritten until the frame is sent.
pub const PRODUCER_BATCH_AT: usize = 5 + PRODUCER_BATCH_KEY.len();
/// Key of field 100, length-delimited, and the length.
const PRODUCER_BATCH_KEY: [u8; 3] = [0xA2, 0x06, ProducerBatch::BYTES as u8];

/// A `PublishRequest` (liftbridge §2.2) as slices of the received bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishView {
    /// Key; empty = none.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// Stream name, UTF-8.
    pub stream: Bytes,
    /// Partition number, as sent: may be negative.
    pub partition: i32,
    /// In wire order; duplicates: the last wins. Names are UTF-8.
    pub headers: HeaderPairs,
    /// NATS subject, UTF-8; empty = none.
    pub ack_inbox: Bytes,
    /// Echoed in the ack, UTF-8.
    pub correlation_id: Bytes,
    /// 0 LEADER, 1 ALL, 2 NONE; others as sent.
    pub ack_policy: i32,
    /// −1 = any.
    pub expected_offset: i64,
    /// A [`ProducerBatch`] as sent, see [`Self::begun_batch`]; empty = none.
    pub producer_batch: Bytes,
    /// Whether an empty value is null.
    pub null_value: bool,
    /// All headers in order, names any bytes; empty = `headers` are all.
    pub header_list: HeaderPairs,
    /// NATS subject that the record is stored with, UTF-8; empty = the partition's own.
    pub subject: Bytes,
    /// Time at the origin, ns since 1970.
    pub origin_time: Option<i64>,
}

impl PublishView {
    /// `None` when the bytes are not a valid protobuf of this message, or it has more than 1,024 headers. Never panics.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the view keeps the buffer alive; the signature says so"
    )]
    pub fn read(message: Bytes) -> Option<Self> {
        Self::try_read(&message).ok()
    }

    /// What is left of a message that [`PublishView::read`] refused for nothing but its number of headers: the same without
    /// headers. `None` when there is more that is wrong. Never panics.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the view keeps the buffer alive; the signature says so"
    )]
    pub fn without_headers(message: Bytes) -> Option<Self> {
        Self::try_read_with(&message, |message, value, is_list| {
            let entry = if is_list {
                protobuf::list_entry(message, value)
            } else {
                protobuf::header_entry(message, value)
            };
            entry.map(drop)
        })
        .ok()
    }

    /// The value to be stored; `None` = null. Beside a value `null_value` says nothing.
    pub fn record_value(&self) -> Option<Bytes> {
        (!self.null_value || !self.value.is_empty()).then(|| self.value.clone())
    }

    /// Takes the headers to be stored.
    pub fn take_record_headers(&mut self) -> HeaderPairs {
        chosen(&mut self.headers, &mut self.header_list)
    }

    /// The stream's name as text.
    pub fn stream_name(&self) -> &str {
        text(&self.stream)
    }

    /// The producer's batch that begins with this record, if one does; `None` when the field is none.
    #[allow(clippy::option_option)] // three answers: one, none, and no such thing
    pub fn begun_batch(&self) -> Option<Option<ProducerBatch>> {
        if self.producer_batch.is_empty() {
            return Some(None);
        }
        ProducerBatch::read(&self.producer_batch)
    }

    fn try_read(message: &Bytes) -> Result<Self, Malformed> {
        let (mut map, mut list) = (Vec::new(), Vec::new());
        let mut view = Self::try_read_with(message, |message, value, is_list| {
            if is_list {
                headers::push_list(&mut list, message, value)
            } else {
                headers::push_map(&mut map, message, value)
            }
        })?;
        headers::settle(&mut map)?;
        (view.headers, view.header_list) = (map, list);
        Ok(view)
    }

    /// Reads everything but the headers, which are given to `on_header`, with whether they are of the list.
    fn try_read_with(
        message: &Bytes,
        mut on_header: impl FnMut(&Bytes, protobuf::Value, bool) -> Result<(), Malformed>,
    ) -> Result<Self, Malformed> {
        let mut view = Self::default();
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => view.key = protobuf::slice(message, value.range()?),
                2 => view.value = protobuf::slice(message, value.range()?),
                3 => view.stream = protobuf::slice(message, value.text(message)?),
                4 => view.partition = value.int32()?,
                5 => on_header(message, value, false)?,
                6 => view.ack_inbox = protobuf::slice(message, value.text(message)?),
                7 => view.correlation_id = protobuf::slice(message, value.text(message)?),
                8 => view.ack_policy = value.int32()?,
                9 => view.expected_offset = value.int64()?,
                100 => view.producer_batch = protobuf::slice(message, value.range()?),
                101 => view.null_value = value.varint()? != 0,
                102 => on_header(message, value, true)?,
                103 => view.subject = protobuf::slice(message, value.text(message)?),
                104 => view.origin_time = Some(value.int64()?),
                _ => {}
            }
        }
        Ok(view)
    }
}

/// A `PublishToSubjectRequest` (liftbridge §2.2) as slices of the received bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishToSubjectView {
    /// Key; empty = none.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// NATS subject to publish on, UTF-8.
    pub subject: Bytes,
    /// In wire order; duplicates: the last wins. Names are UTF-8.
    pub headers: HeaderPairs,
    /// NATS subject, UTF-8; empty = none.
    pub ack_inbox: Bytes,
    /// Echoed in the ack, UTF-8.
    pub correlation_id: Bytes,
    /// 0 LEADER, 1 ALL, 2 NONE; others as sent.
    pub ack_policy: i32,
    /// Whether an empty value is null.
    pub null_value: bool,
    /// All headers in order, names any bytes; empty = `headers` are all.
    pub header_list: HeaderPairs,
}

impl PublishToSubjectView {
    /// `None` when the bytes are not a valid protobuf of this message, or it has more than 1,024 headers. Never panics.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the view keeps the buffer alive; the signature says so"
    )]
    pub fn read(message: Bytes) -> Option<Self> {
        Self::try_read(&message).ok()
    }

    /// The subject as text.
    pub fn subject_name(&self) -> &str {
        text(&self.subject)
    }

    fn try_read(message: &Bytes) -> Result<Self, Malformed> {
        let mut view = Self::default();
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => view.key = protobuf::slice(message, value.range()?),
                2 => view.value = protobuf::slice(message, value.range()?),
                3 => view.subject = protobuf::slice(message, value.text(message)?),
                4 => headers::push_map(&mut view.headers, message, value)?,
                5 => view.ack_inbox = protobuf::slice(message, value.text(message)?),
                6 => view.correlation_id = protobuf::slice(message, value.text(message)?),
                7 => view.ack_policy = value.int32()?,
                100 => view.null_value = value.varint()? != 0,
                101 => headers::push_list(&mut view.header_list, message, value)?,
                _ => {}
            }
        }
        headers::settle(&mut view.headers)?;
        Ok(view)
    }
}

/// The payload of a Publish envelope: a `Message` of which only some fields count (liftbridge §1.4), though all must be
/// valid.
pub(crate) fn read_enveloped(message: &Bytes) -> Option<EnvelopedPublish> {
    try_read_enveloped(message).ok()
}

fn try_read_enveloped(message: &Bytes) -> Result<EnvelopedPublish, Malformed> {
    let mut publish = EnvelopedPublish::default();
    let (mut value_bytes, mut null_value, mut list) = (Bytes::new(), false, Vec::new());
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => publish.expected_offset = value.int64()?,
            2 => publish.key = protobuf::slice(message, value.range()?),
            3 => value_bytes = protobuf::slice(message, value.range()?),
            // timestamp, partition, originTime (of deliveries): the broker's to say
            4 | 6 | 102 => value.any_varint()?,
            // stream, subject, replySubject: likewise
            5 | 7 | 8 => value.any_text(message)?,
            9 => headers::push_map(&mut publish.headers, message, value)?,
            10 => publish.ack_inbox = protobuf::slice(message, value.text(message)?),
            11 => publish.correlation_id = protobuf::slice(message, value.text(message)?),
            12 => publish.ack_policy = value.int32()?,
            100 => null_value = value.varint()? != 0,
            101 => headers::push_list(&mut list, message, value)?,
            _ => {}
        }
    }
    headers::settle(&mut publish.headers)?;
    publish.headers = chosen(&mut publish.headers, &mut list);
    publish.value = (!null_value || !value_bytes.is_empty()).then_some(value_bytes);
    Ok(publish)
}

/// The list where there is one, otherwise the map.
fn chosen(map: &mut HeaderPairs, list: &mut HeaderPairs) -> HeaderPairs {
    std::mem::take(if list.is_empty() { map } else { list })
}

/// What a publisher says, for [`put_request_frame`] and [`put_envelope_publish`]. Everything is borrowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct PublishFields<'a> {
    /// Key; empty = none.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// Whether the value is null; only with an empty one.
    pub is_null: bool,
    /// Stream name.
    pub stream: &'a str,
    /// Partition number.
    pub partition: i32,
    /// Names and values in order; names may repeat, and are any bytes.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// NATS subject; empty = none.
    pub ack_inbox: &'a str,
    /// Echoed in the ack.
    pub correlation_id: &'a str,
    /// 0 LEADER, 1 ALL, 2 NONE.
    pub ack_policy: i32,
    /// −1 = any. Note that the default, 0, asks for an empty log where concurrency control is on.
    pub expected_offset: i64,
    /// The batch of an idempotent producer that begins with this record.
    pub producer_batch: Option<ProducerBatch>,
    /// NATS subject that the record is stored with; empty = the partition's own. Only in requests.
    pub subject: &'a str,
    /// Time at the origin, ns since 1970. Only in requests.
    pub origin_time: Option<i64>,
}

/// Appends one gRPC frame (5-byte prefix included) with a `PublishRequest`.
pub fn put_request_frame(out: &mut Vec<u8>, fields: &PublishFields<'_>) {
    let headers = Written::new(fields.headers);
    let producer = fields
        .producer_batch
        .map_or(0, |_| PRODUCER_BATCH_KEY.len() + ProducerBatch::BYTES);
    let body = producer
        + protobuf::bytes_field_bytes(fields.key)
        + protobuf::bytes_field_bytes(fields.value)
        + protobuf::bytes_field_bytes(fields.stream.as_bytes())
        + protobuf::varint_field_bytes(unsigned(fields.partition))
        + headers.bytes()
        + protobuf::bytes_field_bytes(fields.ack_inbox.as_bytes())
        + protobuf::bytes_field_bytes(fields.correlation_id.as_bytes())
        + protobuf::varint_field_bytes(unsigned(fields.ack_policy))
        + protobuf::varint_field_bytes(fields.expected_offset as u64)
        + own_field_bytes(fields);
    out.reserve(5 + body);
    protobuf::put_frame_prefix(out, body);
    if let Some(batch) = fields.producer_batch {
        // First, so that its place is known.
        out.extend_from_slice(&PRODUCER_BATCH_KEY);
        out.extend_from_slice(&batch.to_bytes());
    }
    protobuf::put_bytes_field(out, 1, fields.key);
    protobuf::put_bytes_field(out, 2, fields.value);
    protobuf::put_bytes_field(out, 3, fields.stream.as_bytes());
    protobuf::put_varint_field(out, 4, unsigned(fields.partition));
    headers.put_map(out, 5);
    protobuf::put_bytes_field(out, 6, fields.ack_inbox.as_bytes());
    protobuf::put_bytes_field(out, 7, fields.correlation_id.as_bytes());
    protobuf::put_varint_field(out, 8, unsigned(fields.ack_policy));
    protobuf::put_varint_field(out, 9, fields.expected_offset as u64);
    if fields.is_null {
        put_true(out, NULL_VALUE);
    }
    headers.put_list(out, HEADER_LIST);
    if !fields.subject.is_empty() {
        out.extend_from_slice(&SUBJECT);
        protobuf::put_varint(out, fields.subject.len() as u64);
        out.extend_from_slice(fields.subject.as_bytes());
    }
    if let Some(time) = fields.origin_time {
        out.extend_from_slice(&ORIGIN_TIME);
        protobuf::put_varint(out, time as u64);
    }
}

/// Bytes of the fields of ours that are not headers: their keys are one byte longer than those of Liftbridge's.
fn own_field_bytes(fields: &PublishFields<'_>) -> usize {
    let null = if fields.is_null { 3 } else { 0 };
    let subject = match fields.subject.len() {
        0 => 0,
        length => 1 + protobuf::length_field_bytes(length),
    };
    let time = fields
        .origin_time
        .map_or(0, |time| 2 + protobuf::varint_bytes(time as u64));
    null + subject + time
}

/// Appends a `bool` that is true.
fn put_true(out: &mut Vec<u8>, key: [u8; 2]) {
    out.extend_from_slice(&key);
    out.push(1);
}

/// Appends a Publish envelope (type 0, no checksum) with a `Message` of `fields`; `subject` is the one it will be
/// published on. The partition is not sent: NATS subjects say it.
pub fn put_envelope_publish(out: &mut Vec<u8>, subject: &str, fields: &PublishFields<'_>) {
    let headers = Written::new(fields.headers);
    envelope::put_plain_header(out, MessageType::Publish);
    protobuf::put_varint_field(out, 1, fields.expected_offset as u64);
    put_message_content(out, (fields.key, fields.value), fields.stream, subject);
    headers.put_map(out, 9);
    protobuf::put_bytes_field(out, 10, fields.ack_inbox.as_bytes());
    protobuf::put_bytes_field(out, 11, fields.correlation_id.as_bytes());
    protobuf::put_varint_field(out, 12, unsigned(fields.ack_policy));
    if fields.is_null {
        put_true(out, MESSAGE_NULL_VALUE);
    }
    headers.put_list(out, MESSAGE_HEADER_LIST);
}

/// Appends a Publish envelope for the NATS copy of record `i` of `batch`: key, value, stream, subject, text headers;
/// policy NONE and any offset, so that whoever stores it neither answers nor refuses. Panics only when `i` is not a record.
pub fn put_record_copy(out: &mut Vec<u8>, batch: &Batch, i: usize, stream: &str, subject: &str) {
    let (key, value) = (
        batch.key(i).unwrap_or_default(),
        batch.value(i).unwrap_or_default(),
    );
    envelope::put_plain_header(out, MessageType::Publish);
    protobuf::put_varint_field(out, 1, ANY_OFFSET as u64);
    put_message_content(out, (key, value), stream, subject);
    for header in batch.headers(i).filter(is_shown_header) {
        protobuf::put_header_field(out, 9, header.key, header.value);
    }
    protobuf::put_varint_field(out, 12, unsigned(POLICY_NONE));
    if batch.value(i).is_none() {
        put_true(out, MESSAGE_NULL_VALUE);
    }
}

fn put_message_content(
    out: &mut Vec<u8>,
    (key, value): (&[u8], &[u8]),
    stream: &str,
    subject: &str,
) {
    protobuf::put_bytes_field(out, 2, key);
    protobuf::put_bytes_field(out, 3, value);
    protobuf::put_bytes_field(out, 5, stream.as_bytes());
    protobuf::put_bytes_field(out, 7, subject.as_bytes());
}

/// A negative `int32` travels as its 64-bit two's complement.
fn unsigned(value: i32) -> u64 {
    i64::from(value) as u64
}

/// Text of a field that was checked when it was read.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
