//! `Ack` and `PublishResponse`, written by the broker and read by the SDK.
use crate::envelope::{self, MessageType};
use crate::protobuf::{self, Fields, Malformed};
use bytes::Bytes;
use std::ops::Range;

/// The parts of an ack that do not change for a partition: stream, base subject, message subject. Prepared once.
#[derive(Clone, Debug)]
pub struct AckTemplate {
    bytes: Vec<u8>,
}

/// What differs from ack to ack.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckFields<'a> {
    /// Assigned offset; 0 in error acks.
    pub offset: i64,
    /// Echo, UTF-8.
    pub ack_inbox: &'a [u8],
    /// Echo, UTF-8.
    pub correlation_id: &'a [u8],
    /// Echo.
    pub ack_policy: i32,
    /// The stored timestamp of the message, ns since 1970.
    pub reception_timestamp: i64,
    /// When the ack was sent, ns since 1970; 0 in `TOO_LARGE` acks.
    pub commit_timestamp: i64,
    /// 0 OK, 1 UNKNOWN, 2 `INCORRECT_OFFSET`, 3 `TOO_LARGE`, 4 ENCRYPTION.
    pub ack_error: i32,
}

impl AckTemplate {
    /// `partition_subject` is the stream's base subject, without the partition suffix; `message_subject` the one the
    /// message arrived on.
    pub fn new(stream: &str, partition_subject: &str, message_subject: &str) -> Self {
        let mut bytes =
            Vec::with_capacity(stream.len() + partition_subject.len() + message_subject.len() + 12);
        protobuf::put_bytes_field(&mut bytes, 1, stream.as_bytes());
        protobuf::put_bytes_field(&mut bytes, 2, partition_subject.as_bytes());
        protobuf::put_bytes_field(&mut bytes, 3, message_subject.as_bytes());
        Self { bytes }
    }

    /// Appends a bare `Ack` message.
    pub fn put_ack(&self, out: &mut Vec<u8>, fields: &AckFields<'_>) {
        out.reserve(self.ack_bytes(fields));
        self.put_ack_fields(out, fields);
    }

    /// Appends an Ack envelope (type 1, no checksum), as it is published on the ack inbox.
    pub fn put_envelope(&self, out: &mut Vec<u8>, fields: &AckFields<'_>) {
        out.reserve(envelope::HEADER_BYTES + self.ack_bytes(fields));
        envelope::put_plain_header(out, MessageType::Ack);
        self.put_ack_fields(out, fields);
    }

    /// Appends one gRPC frame (5-byte prefix included) with a `PublishResponse` that has `ack`, and `correlationId` when
    /// `with_correlation` (`PublishAsync` sets it, unary `Publish` does not: liftbridge §3.7).
    pub fn put_response_frame(
        &self,
        out: &mut Vec<u8>,
        fields: &AckFields<'_>,
        with_correlation: bool,
    ) {
        let ack = self.ack_bytes(fields);
        let correlation_id = if with_correlation {
            fields.correlation_id
        } else {
            &[]
        };
        let body = protobuf::length_field_bytes(ack) + protobuf::bytes_field_bytes(correlation_id);
        out.reserve(5 + body);
        protobuf::put_frame_prefix(out, body);
        protobuf::put_length(out, 1, ack);
        self.put_ack_fields(out, fields);
        protobuf::put_bytes_field(out, 3, correlation_id);
    }

    fn ack_bytes(&self, fields: &AckFields<'_>) -> usize {
        self.bytes.len()
            + protobuf::varint_field_bytes(fields.offset as u64)
            + protobuf::bytes_field_bytes(fields.ack_inbox)
            + protobuf::bytes_field_bytes(fields.correlation_id)
            + protobuf::varint_field_bytes(i64::from(fields.ack_policy) as u64)
            + protobuf::varint_field_bytes(fields.reception_timestamp as u64)
            + protobuf::varint_field_bytes(fields.commit_timestamp as u64)
            + protobuf::varint_field_bytes(i64::from(fields.ack_error) as u64)
    }

    fn put_ack_fields(&self, out: &mut Vec<u8>, fields: &AckFields<'_>) {
        out.extend_from_slice(&self.bytes);
        protobuf::put_varint_field(out, 4, fields.offset as u64);
        protobuf::put_bytes_field(out, 5, fields.ack_inbox);
        protobuf::put_bytes_field(out, 6, fields.correlation_id);
        protobuf::put_varint_field(out, 7, i64::from(fields.ack_policy) as u64);
        protobuf::put_varint_field(out, 8, fields.reception_timestamp as u64);
        protobuf::put_varint_field(out, 9, fields.commit_timestamp as u64);
        protobuf::put_varint_field(out, 10, i64::from(fields.ack_error) as u64);
    }
}

/// Appends one gRPC frame with an asynchronous error: `correlationId`, `asyncError`, and a non-null empty `ack`
/// (liftbridge §3.8). `code` is a `PublishAsyncError.Code`, `error` the document of [`ERROR_TRAILER`](super::ERROR_TRAILER).
pub fn put_async_error_frame(
    out: &mut Vec<u8>,
    correlation_id: &[u8],
    code: i32,
    message: &str,
    error: &str,
) {
    let code = i64::from(code) as u64;
    let length = protobuf::varint_field_bytes(code)
        + protobuf::bytes_field_bytes(message.as_bytes())
        + error_field_bytes(error);
    let body = protobuf::length_field_bytes(0)
        + protobuf::length_field_bytes(length)
        + protobuf::bytes_field_bytes(correlation_id);
    out.reserve(5 + body);
    protobuf::put_frame_prefix(out, body);
    protobuf::put_length(out, 1, 0);
    protobuf::put_length(out, 2, length);
    protobuf::put_varint_field(out, 1, code);
    protobuf::put_bytes_field(out, 2, message.as_bytes());
    if !error.is_empty() {
        out.extend_from_slice(&ERROR_KEY);
        protobuf::put_varint(out, error.len() as u64);
        out.extend_from_slice(error.as_bytes());
    }
    protobuf::put_bytes_field(out, 3, correlation_id);
}

/// Of field 100, whose bytes have a length.
const ERROR_KEY: [u8; 2] = protobuf::wide_key(100, 2);

fn error_field_bytes(error: &str) -> usize {
    if error.is_empty() {
        return 0;
    }
    ERROR_KEY.len() + protobuf::varint_bytes(error.len() as u64) + error.len()
}

/// An `Ack` as slices of the received bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckView {
    /// Stream name, UTF-8.
    pub stream: Bytes,
    /// The stream's base subject, UTF-8.
    pub partition_subject: Bytes,
    /// Subject the message arrived on, UTF-8.
    pub message_subject: Bytes,
    /// Assigned offset; 0 in error acks.
    pub offset: i64,
    /// Echo, UTF-8.
    pub ack_inbox: Bytes,
    /// Echo, UTF-8.
    pub correlation_id: Bytes,
    /// Echo.
    pub ack_policy: i32,
    /// The stored timestamp of the message, ns since 1970.
    pub reception_timestamp: i64,
    /// When the ack was sent, ns since 1970.
    pub commit_timestamp: i64,
    /// 0 OK, 1 UNKNOWN, 2 `INCORRECT_OFFSET`, 3 `TOO_LARGE`, 4 ENCRYPTION; others as sent.
    pub ack_error: i32,
}

impl AckView {
    /// A bare `Ack`, as it comes to an ack inbox inside its envelope. `None` when the bytes are not a valid one.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the view keeps the buffer alive; the signature says so"
    )]
    pub fn read(message: Bytes) -> Option<Self> {
        let mut view = Self::default();
        view.merge(&message, 0..message.len()).ok()?;
        Some(view)
    }

    fn merge(&mut self, message: &Bytes, range: Range<usize>) -> Result<(), Malformed> {
        let mut fields = Fields::within(message, range)?;
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => self.stream = protobuf::slice(message, value.text(message)?),
                2 => self.partition_subject = protobuf::slice(message, value.text(message)?),
                3 => self.message_subject = protobuf::slice(message, value.text(message)?),
                4 => self.offset = value.int64()?,
                5 => self.ack_inbox = protobuf::slice(message, value.text(message)?),
                6 => self.correlation_id = protobuf::slice(message, value.text(message)?),
                7 => self.ack_policy = value.int32()?,
                8 => self.reception_timestamp = value.int64()?,
                9 => self.commit_timestamp = value.int64()?,
                10 => self.ack_error = value.int32()?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// A `PublishAsyncError` as slices of the received bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsyncErrorView {
    /// A `PublishAsyncError.Code`; others as sent.
    pub code: i32,
    /// Text, UTF-8.
    pub message: Bytes,
    /// Ours: the document of [`ERROR_TRAILER`](super::ERROR_TRAILER); empty from other servers.
    pub error: Bytes,
}

/// A `PublishResponse` as slices of the received bytes; also reads a `PublishToSubjectResponse`, which has `ack` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseView {
    /// The ack; present but empty beside an asynchronous error.
    pub ack: Option<AckView>,
    /// Why the message was not stored.
    pub async_error: Option<AsyncErrorView>,
    /// The response's own correlation id, UTF-8; empty in unary responses.
    pub correlation_id: Bytes,
}

impl ResponseView {
    /// `None` when the bytes are not a valid protobuf of this message. Never panics.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the view keeps the buffer alive; the signature says so"
    )]
    pub fn read(message: Bytes) -> Option<Self> {
        Self::try_read(&message).ok()
    }

    /// Which request this answers (liftbridge §10.2): the response's correlation id beside an error or when it is set,
    /// otherwise the ack's. Empty when there is none.
    pub fn answered(&self) -> &Bytes {
        match &self.ack {
            Some(ack) if self.async_error.is_none() && self.correlation_id.is_empty() => {
                &ack.correlation_id
            }
            _ => &self.correlation_id,
        }
    }

    fn try_read(message: &Bytes) -> Result<Self, Malformed> {
        let mut view = Self::default();
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => view
                    .ack
                    .get_or_insert_default()
                    .merge(message, value.range()?)?,
                2 => view
                    .async_error
                    .get_or_insert_default()
                    .merge(message, value.range()?)?,
                3 => view.correlation_id = protobuf::slice(message, value.text(message)?),
                _ => {}
            }
        }
        Ok(view)
    }
}

impl AsyncErrorView {
    fn merge(&mut self, message: &Bytes, range: Range<usize>) -> Result<(), Malformed> {
        let mut fields = Fields::within(message, range)?;
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => self.code = value.int32()?,
                2 => self.message = protobuf::slice(message, value.text(message)?),
                100 => self.error = protobuf::slice(message, value.text(message)?),
                _ => {}
            }
        }
        Ok(())
    }
}
