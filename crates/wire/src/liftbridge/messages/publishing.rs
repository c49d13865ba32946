//! Publishing and acks.
use bytes::Bytes;
use std::collections::BTreeMap;

/// When a message is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AckPolicy {
    /// As soon as the leader has it.
    Leader = 0,
    /// As soon as it is committed.
    All = 1,
    /// `NONE`.
    None = 2,
}

/// One message to be published.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishRequest {
    /// Key; empty = none.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// Stream name.
    #[prost(string, tag = "3")]
    pub stream: String,
    /// Partition number.
    #[prost(int32, tag = "4")]
    pub partition: i32,
    /// Names and values.
    #[prost(btree_map = "string, bytes", tag = "5")]
    pub headers: BTreeMap<String, Vec<u8>>,
    /// Ignored by `PublishAsync`.
    #[prost(string, tag = "6")]
    pub ack_inbox: String,
    /// Echoed, so that the publisher finds what is answered.
    #[prost(string, tag = "7")]
    pub correlation_id: String,
    /// An [`AckPolicy`].
    #[prost(enumeration = "AckPolicy", tag = "8")]
    pub ack_policy: i32,
    /// -1 = any; used only where concurrency control is on.
    #[prost(int64, tag = "9")]
    pub expected_offset: i64,
    /// Ours, see [`crate::liftbridge::publish::ProducerBatch`]; empty = none begins here.
    #[prost(bytes = "bytes", tag = "100")]
    pub producer_batch: Bytes,
    /// Ours: whether an empty value is null, a tombstone.
    #[prost(bool, tag = "101")]
    pub null_value: bool,
    /// Ours: all headers in order; empty = `headers` are all.
    #[prost(message, repeated, tag = "102")]
    pub header_list: Vec<Header>,
    /// Ours: the NATS subject that the record is stored with; empty = the partition's own.
    #[prost(string, tag = "103")]
    pub subject: String,
    /// Ours: time at the origin.
    #[prost(int64, optional, tag = "104")]
    pub origin_time: Option<i64>,
}

/// Ours: a header whose name may repeat, and may be any bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    /// Name.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// Value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// Why a message published asynchronously was not stored.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishAsyncError {
    /// A [`PublishAsyncErrorCode`].
    #[prost(enumeration = "PublishAsyncErrorCode", tag = "1")]
    pub code: i32,
    /// Text for a person.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Ours: the document of [`ERROR_TRAILER`](crate::liftbridge::ERROR_TRAILER).
    #[prost(string, tag = "100")]
    pub error: String,
}

/// `PublishAsyncError.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum PublishAsyncErrorCode {
    /// `UNKNOWN`.
    Unknown = 0,
    /// `BAD_REQUEST`.
    BadRequest = 1,
    /// `NOT_FOUND`.
    NotFound = 2,
    /// `INTERNAL`.
    Internal = 3,
    /// `READONLY`.
    Readonly = 4,
    /// `INCORRECT_OFFSET`.
    IncorrectOffset = 5,
    /// `ENCRYPTION_FAILED`.
    EncryptionFailed = 6,
    /// `PERMISSION_DENIED`.
    PermissionDenied = 7,
}

/// The answer to a publish.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishResponse {
    /// Present, though empty, beside an `asyncError`.
    #[prost(message, optional, tag = "1")]
    pub ack: Option<Ack>,
    /// Why the message was not stored.
    #[prost(message, optional, tag = "2")]
    pub async_error: Option<PublishAsyncError>,
    /// Set by `PublishAsync`.
    #[prost(string, tag = "3")]
    pub correlation_id: String,
}

/// One message for a NATS subject.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishToSubjectRequest {
    /// Key; empty = none.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// NATS subject.
    #[prost(string, tag = "3")]
    pub subject: String,
    /// Names and values.
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub headers: BTreeMap<String, Vec<u8>>,
    /// NATS subject that acks are sent to; empty = none.
    #[prost(string, tag = "5")]
    pub ack_inbox: String,
    /// Echoed, so that the publisher finds what is answered.
    #[prost(string, tag = "6")]
    pub correlation_id: String,
    /// An [`AckPolicy`].
    #[prost(enumeration = "AckPolicy", tag = "7")]
    pub ack_policy: i32,
    /// Ours: whether an empty value is null, a tombstone.
    #[prost(bool, tag = "100")]
    pub null_value: bool,
    /// Ours: all headers in order; empty = `headers` are all.
    #[prost(message, repeated, tag = "101")]
    pub header_list: Vec<Header>,
}

/// The first ack, if one was waited for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishToSubjectResponse {
    /// The ack.
    #[prost(message, optional, tag = "1")]
    pub ack: Option<Ack>,
}

/// Also the payload of an Ack envelope on NATS.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// The stream's subject, without the suffix of the partition.
    #[prost(string, tag = "2")]
    pub partition_subject: String,
    /// The subject the message arrived on.
    #[prost(string, tag = "3")]
    pub msg_subject: String,
    /// 0 beside an error.
    #[prost(int64, tag = "4")]
    pub offset: i64,
    /// NATS subject that acks are sent to; empty = none.
    #[prost(string, tag = "5")]
    pub ack_inbox: String,
    /// Echoed, so that the publisher finds what is answered.
    #[prost(string, tag = "6")]
    pub correlation_id: String,
    /// An [`AckPolicy`].
    #[prost(enumeration = "AckPolicy", tag = "7")]
    pub ack_policy: i32,
    /// The timestamp stored with the message.
    #[prost(int64, tag = "8")]
    pub reception_timestamp: i64,
    /// When the ack was sent; 0 beside `TOO_LARGE`.
    #[prost(int64, tag = "9")]
    pub commit_timestamp: i64,
    /// An [`AckError`].
    #[prost(enumeration = "AckError", tag = "10")]
    pub ack_error: i32,
}

/// `Ack.Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AckError {
    /// `OK`.
    Ok = 0,
    /// `UNKNOWN`.
    Unknown = 1,
    /// `INCORRECT_OFFSET`.
    IncorrectOffset = 2,
    /// `TOO_LARGE`.
    TooLarge = 3,
    /// `ENCRYPTION`.
    Encryption = 4,
}
