//! `Message` frames for Subscribe, straight from batch columns, and the same read in place by the SDK.
use super::headers;
use crate::protobuf::{self, Fields, Malformed};
use bascule_record::{Batch, HeaderEntry};
use bytes::Bytes;
use std::ops::Range;

/// Kind of a header key that is text.
const TEXT_KEY: u8 = 2;
const SUBJECT_HEADER: &[u8] = b"subject";
const REPLY_HEADER: &[u8] = b"reply";
/// Fields of ours.
const NULL_VALUE: [u8; 2] = protobuf::wide_key(100, 0);
const HEADER_LIST: [u8; 2] = protobuf::wide_key(101, 2);
const ORIGIN_TIME: [u8; 2] = protobuf::wide_key(102, 0);

/// Writes deliveries of one partition. The constant parts (stream, partition, subject, the `subject` and `reply` headers)
/// are prepared once, and again when the subject changes.
#[derive(Debug)]
pub struct DeliveryEncoder {
    /// Fields 5 and 6: stream and partition.
    origin: Vec<u8>,
    own_subject: String,
    subject: String,
    /// Fields 5 to 7, then the header `subject`, then the header `reply` with an empty value.
    constant: Vec<u8>,
    /// Where the headers begin in `constant`.
    headers_at: usize,
    /// Where the header `reply` begins in `constant`.
    reply_at: usize,
    /// Encoded user headers of the record at hand, and our fields behind everything else.
    headers: Vec<u8>,
    own: Vec<u8>,
}

impl DeliveryEncoder {
    /// `subject`: what records without a subject of their own are shown with.
    pub fn new(stream: &str, partition: i32, subject: &str) -> Self {
        let mut origin = Vec::with_capacity(stream.len() + 16);
        protobuf::put_bytes_field(&mut origin, 5, stream.as_bytes());
        protobuf::put_varint_field(&mut origin, 6, i64::from(partition) as u64);
        let mut encoder = Self {
            origin,
            own_subject: subject.to_owned(),
            subject: subject.to_owned(),
            constant: Vec::new(),
            headers_at: 0,
            reply_at: 0,
            headers: Vec::new(),
            own: Vec::new(),
        };
        encoder.prepare();
        encoder
    }

    /// Appends one gRPC frame (5-byte prefix included) for record `i`: offset, key, value, timestamp, stream, partition,
    /// subject, replySubject, headers (text-keyed ones, then `subject` and `reply`, which overwrite user headers of those
    /// names), and of our fields those that say something: a null value, the list of all headers where the map cannot show
    /// them, a time at the origin. Panics only when `i` is not a record of the batch.
    pub fn put_frame(&mut self, out: &mut Vec<u8>, batch: &Batch, i: usize) {
        self.turn_to(batch.subject(i));
        let reply = batch.reply(i).unwrap_or_default();
        let is_plain =
            !batch.has_headers() && batch.value_nulls().is_none() && batch.origin_times().is_none();
        if reply.is_empty() && is_plain {
            self.put_plain(out, batch, i);
        } else {
            self.put_rich(out, batch, i, reply.as_bytes());
        }
    }

    /// Frames for records `[from, to)` until `out` has at least `limit` bytes; returns the first record not written.
    pub fn put_frames(
        &mut self,
        out: &mut Vec<u8>,
        batch: &Batch,
        from: usize,
        to: usize,
        limit: usize,
    ) -> usize {
        for i in from..to {
            if out.len() >= limit {
                return i;
            }
            self.put_frame(out, batch, i);
        }
        to.max(from)
    }

    /// A record without reply and headers: everything behind its own fields is one copy.
    fn put_plain(&self, out: &mut Vec<u8>, batch: &Batch, i: usize) {
        let own = OwnFields::of(batch, i);
        let body = own.bytes() + self.constant.len();
        out.reserve(5 + body);
        protobuf::put_frame_prefix(out, body);
        own.put(out);
        out.extend_from_slice(&self.constant);
    }

    fn put_rich(&mut self, out: &mut Vec<u8>, batch: &Batch, i: usize, reply: &[u8]) {
        self.headers.clear();
        for header in batch.headers(i).filter(is_shown_header) {
            protobuf::put_header_field(&mut self.headers, 9, header.key, header.value);
        }
        self.own.clear();
        put_own(&mut self.own, batch, i);
        let own = OwnFields::of(batch, i);
        let (before, headers) = self.constant.split_at(self.headers_at);
        let subject_header = headers
            .get(..self.reply_at - self.headers_at)
            .unwrap_or_default();
        let body = own.bytes()
            + before.len()
            + protobuf::bytes_field_bytes(reply)
            + self.headers.len()
            + subject_header.len()
            + protobuf::header_field_bytes(REPLY_HEADER, reply)
            + self.own.len();
        out.reserve(5 + body);
        protobuf::put_frame_prefix(out, body);
        own.put(out);
        out.extend_from_slice(before);
        protobuf::put_bytes_field(out, 8, reply);
        out.extend_from_slice(&self.headers);
        out.extend_from_slice(subject_header);
        protobuf::put_header_field(out, 9, REPLY_HEADER, reply);
        out.extend_from_slice(&self.own);
    }

    fn turn_to(&mut self, subject: Option<&str>) {
        let subject = subject.unwrap_or(&self.own_subject);
        if subject != self.subject {
            self.subject.clear();
            self.subject.push_str(subject);
            self.prepare();
        }
    }

    fn prepare(&mut self) {
        self.constant.clear();
        self.constant.extend_from_slice(&self.origin);
        protobuf::put_bytes_field(&mut self.constant, 7, self.subject.as_bytes());
        self.headers_at = self.constant.len();
        protobuf::put_header_field(
            &mut self.constant,
            9,
            SUBJECT_HEADER,
            self.subject.as_bytes(),
        );
        self.reply_at = self.constant.len();
        protobuf::put_header_field(&mut self.constant, 9, REPLY_HEADER, b"");
    }
}

/// Appends our fields of record `i`.
fn put_own(out: &mut Vec<u8>, batch: &Batch, i: usize) {
    if batch.value(i).is_none() {
        out.extend_from_slice(&NULL_VALUE);
        out.push(1);
    }
    if needs_list(batch, i) {
        for header in batch.headers(i) {
            headers::put_list_field(out, HEADER_LIST, header.key, header.value);
        }
    }
    if let Some(time) = batch.origin_time(i) {
        out.extend_from_slice(&ORIGIN_TIME);
        protobuf::put_varint(out, time as u64);
    }
}

/// Whether the map leaves out a header of record `i`: one that is not shown, or of two with one name the first.
fn needs_list(batch: &Batch, i: usize) -> bool {
    let mut all = batch.headers(i);
    all.any(|header| !is_shown_header(&header))
        || headers::repeats(&batch.headers(i).map(|header| header.key))
}

/// Whether a Liftbridge client is shown this header: text keys only, and not the two that the broker sets itself.
pub(crate) fn is_shown_header(header: &HeaderEntry<'_>) -> bool {
    header.key_kind == TEXT_KEY
        && header.key != SUBJECT_HEADER
        && header.key != REPLY_HEADER
        && std::str::from_utf8(header.key).is_ok()
}

/// Fields 1 to 4 of a `Message`.
struct OwnFields<'a> {
    offset: u64,
    key: &'a [u8],
    value: &'a [u8],
    timestamp: u64,
}

impl<'a> OwnFields<'a> {
    #[inline]
    fn of(batch: &'a Batch, i: usize) -> Self {
        Self {
            offset: batch.offset(i),
            key: batch.key(i).unwrap_or_default(),
            value: batch.value(i).unwrap_or_default(),
            timestamp: batch.timestamp(i) as u64,
        }
    }

    #[inline]
    fn bytes(&self) -> usize {
        protobuf::varint_field_bytes(self.offset)
            + protobuf::bytes_field_bytes(self.key)
            + protobuf::bytes_field_bytes(self.value)
            + protobuf::varint_field_bytes(self.timestamp)
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        protobuf::put_varint_field(out, 1, self.offset);
        protobuf::put_bytes_field(out, 2, self.key);
        protobuf::put_bytes_field(out, 3, self.value);
        protobuf::put_varint_field(out, 4, self.timestamp);
    }
}

/// A delivered `Message`, checked once and read in place; nothing is copied or allocated.
/// The ack fields, which a delivery never has, are checked and ignored.
#[derive(Clone, Debug, Default)]
pub struct MessageView {
    message: Bytes,
    offset: i64,
    timestamp: i64,
    partition: i32,
    key: Range<usize>,
    value: Range<usize>,
    stream: Range<usize>,
    subject: Range<usize>,
    reply: Range<usize>,
    /// From the first header entry to the end of the last; other fields may lie between.
    headers: Range<usize>,
    /// The same of the header list.
    header_list: Range<usize>,
    /// Whether the header entries name more than subject and reply.
    has_own_headers: bool,
    null_value: bool,
    origin_time: Option<i64>,
}

impl MessageView {
    /// `None` when the bytes are not a valid protobuf of this message. Never panics. Zero bytes are the handshake of Subscribe
    /// (liftbridge §3.5): see [`Self::is_handshake`].
    pub fn read(message: Bytes) -> Option<Self> {
        let mut view = Self::default();
        view.scan(&message).ok()?;
        view.message = message;
        Some(view)
    }

    /// Whether this is the empty message that opens a subscription.
    pub fn is_handshake(&self) -> bool {
        self.message.is_empty()
    }

    /// Offset in the partition.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// When the broker received it, ns since 1970.
    pub fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// Partition number.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Key; empty = none.
    pub fn key(&self) -> &[u8] {
        self.part(&self.key)
    }

    /// Value; empty for a null.
    pub fn value(&self) -> &[u8] {
        self.part(&self.value)
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        self.null_value && self.value.is_empty()
    }

    /// Whether the broker says that an empty value is null.
    pub fn null_value(&self) -> bool {
        self.null_value
    }

    /// Time at the origin, ns since 1970.
    pub fn origin_time(&self) -> Option<i64> {
        self.origin_time
    }

    /// Key, sharing the received buffer.
    pub fn key_bytes(&self) -> Bytes {
        protobuf::slice(&self.message, self.key.clone())
    }

    /// Value, sharing the received buffer.
    pub fn value_bytes(&self) -> Bytes {
        protobuf::slice(&self.message, self.value.clone())
    }

    /// Stream name.
    pub fn stream(&self) -> &str {
        self.text(&self.stream)
    }

    /// NATS subject the message arrived on.
    pub fn subject(&self) -> &str {
        self.text(&self.subject)
    }

    /// NATS reply subject; empty = none.
    pub fn reply_subject(&self) -> &str {
        self.text(&self.reply)
    }

    /// Headers in wire order, `subject` and `reply` included. Of equal names the last counts.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut fields = Fields::within(&self.message, self.headers.clone())
            .unwrap_or_else(|_| Fields::new(&[]));
        std::iter::from_fn(move || {
            while let Some((number, value)) = fields.next_field().ok()? {
                if number == 9 {
                    let (name, value) = protobuf::header_entry(&self.message, value).ok()?;
                    return Some((self.text(&name), self.part(&value)));
                }
            }
            None
        })
    }

    /// The publisher's headers in order, with equal names and names that are not text where there are any.
    pub fn record_headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let in_map = self.has_own_headers && self.header_list.is_empty();
        let map = in_map.then(|| self.headers()).into_iter().flatten();
        let map = map
            .map(|(name, value)| (name.as_bytes(), value))
            .filter(|(name, _)| *name != SUBJECT_HEADER && *name != REPLY_HEADER);
        self.header_list().chain(map)
    }

    /// Entries of the header list.
    pub fn header_list(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut fields = Fields::within(&self.message, self.header_list.clone())
            .unwrap_or_else(|_| Fields::new(&[]));
        std::iter::from_fn(move || {
            while let Some((number, value)) = fields.next_field().ok()? {
                if number == 101 {
                    let (name, value) = protobuf::list_entry(&self.message, value).ok()?;
                    return Some((self.part(&name), self.part(&value)));
                }
            }
            None
        })
    }

    /// Value of the header `name`.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers()
            .filter(|(other, _)| *other == name)
            .last()
            .map(|(_, value)| value)
    }

    fn part(&self, range: &Range<usize>) -> &[u8] {
        self.message.get(range.clone()).unwrap_or_default()
    }

    fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(self.part(range)).unwrap_or_default()
    }

    fn scan(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields::new(message);
        let mut at = 0;
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => self.offset = value.int64()?,
                2 => self.key = value.range()?,
                3 => self.value = value.range()?,
                4 => self.timestamp = value.int64()?,
                5 => self.stream = value.text(message)?,
                6 => self.partition = value.int32()?,
                7 => self.subject = value.text(message)?,
                8 => self.reply = value.text(message)?,
                9 => {
                    let (name, _) = protobuf::header_entry(message, value)?;
                    let name = message.get(name).unwrap_or_default();
                    self.has_own_headers |= name != SUBJECT_HEADER && name != REPLY_HEADER;
                    extend(&mut self.headers, at..fields.position());
                }
                10 | 11 => value.any_text(message)?,
                12 => value.any_varint()?,
                100 => self.null_value = value.varint()? != 0,
                101 => {
                    protobuf::list_entry(message, value)?;
                    extend(&mut self.header_list, at..fields.position());
                }
                102 => self.origin_time = Some(value.int64()?),
                _ => {}
            }
            at = fields.position();
        }
        Ok(())
    }
}

/// Makes `range` reach to the end of `field`, from its own start if it has one.
fn extend(range: &mut Range<usize>, field: Range<usize>) {
    let is_first = range.start == range.end;
    let start = if is_first { field.start } else { range.start };
    *range = start..field.end;
}
