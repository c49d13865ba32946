//! `Ack` and `PublishResponse` written by hand.

/// The parts of an ack that do not change for a partition: stream, base subject, message subject. Prepared once.
#[derive(Clone, Debug)]
pub struct AckTemplate {
    _bytes: Vec<u8>,
}
/// What differs from ack to ack.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct AckFields<'a> {
    pub offset: i64,
    pub ack_inbox: &'a [u8],
    pub correlation_id: &'a [u8],
    pub ack_policy: i32,
    pub reception_timestamp: i64,
    pub commit_timestamp: i64,
    /// 0 OK, 1 UNKNOWN, 2 INCORRECT_OFFSET, 3 TOO_LARGE, 4 ENCRYPTION.
    pub ack_error: i32,
}
impl AckTemplate {
    /// `partition_subject` is the stream's base subject, without the partition suffix.
    pub fn new(_stream: &str, _partition_subject: &str, _message_subject: &str) -> Self {
        todo!()
    }
    /// Appends a bare `Ack` message.
    pub fn put_ack(&self, _out: &mut Vec<u8>, _fields: &AckFields<'_>) {
        todo!()
    }
    /// Appends one gRPC frame (5-byte prefix included) with a `PublishResponse` that has `ack`, and `correlationId` when
    /// `with_correlation` (PublishAsync sets it, unary Publish does not, §3.7).
    pub fn put_response_frame(&self, _out: &mut Vec<u8>, _fields: &AckFields<'_>, _with_correlation: bool) {
        todo!()
    }
}
/// Appends one gRPC frame with an asynchronous error: `correlationId`, `asyncError`, and a non-null empty `ack` (§3.8).
pub fn put_async_error_frame(_out: &mut Vec<u8>, _correlation_id: &[u8], _code: i32, _message: &str) {
    todo!()
}
