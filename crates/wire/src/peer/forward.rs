//! Heads and records of the frames with which a broker hands a client's publish to the leader.
use super::frame::{Frame, FrameError, FrameType};
use super::heads::{decode, field};
use crate::liftbridge::publish::MAX_HEADERS;
use bytes::{Buf, Bytes};
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message};

/// Most records of one frame.
pub const FORWARD_RECORDS: usize = 1 << 17;
/// Longest time that a publish may wait, milliseconds.
pub const DEADLINE_MS: u32 = 60_000;

/// Longest name of a namespace, a stream or a client, bytes.
const NAME_BYTES: usize = 4 << 10;
const TEXT_BYTES: usize = 1024;
/// Of the headers of a record.
const HEADERS_TAG: u32 = 3;

/// Type 25: what a client published, for the leader. The body has the records ([`ForwardedRecord`], each behind its length), or one
/// sealed batch.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Forward {
    /// Its answer has the same, > 0.
    #[prost(uint64, tag = "100")]
    pub request: u64,
    /// How long it may still wait, at most a minute, milliseconds.
    #[prost(uint32, tag = "101")]
    pub deadline_ms: u32,
    /// Of the partition, > 0.
    #[prost(uint64, tag = "102")]
    pub incarnation: u64,
    /// Its number.
    #[prost(uint32, tag = "103")]
    pub partition: u32,
    /// Under which it is to be appended, > 0.
    #[prost(uint64, tag = "104")]
    pub leader_epoch: u64,
    /// Namespace of the stream.
    #[prost(string, tag = "105")]
    pub namespace: String,
    /// Its name, not empty.
    #[prost(string, tag = "106")]
    pub stream: String,
    /// Name of the client; absent = it showed none.
    #[prost(string, optional, tag = "107")]
    pub principal: Option<String>,
    /// Its address, `host:port`; empty = unknown.
    #[prost(string, tag = "108")]
    pub address: String,
    /// It is acknowledged when every replica in sync has it; otherwise when the leader has it.
    #[prost(bool, tag = "109")]
    pub to_all: bool,
    /// It is republished on NATS.
    #[prost(bool, tag = "110")]
    pub republish: bool,
    /// Whose batch it is.
    #[prost(message, optional, tag = "111")]
    pub producer: Option<ForwardProducer>,
    /// Records in the body, at most [`FORWARD_RECORDS`]; 0 = the body is a sealed batch.
    #[prost(uint32, tag = "112")]
    pub records: u32,
    /// Id of the user whose rights allow it; absent = the policy allows it by the name.
    #[prost(uint64, optional, tag = "113")]
    pub user: Option<u64>,
}

/// An idempotent producer.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ForwardProducer {
    /// Its id, > 0.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// Its generation.
    #[prost(uint32, tag = "2")]
    pub epoch: u32,
    /// Sequence of the first record.
    #[prost(uint32, tag = "3")]
    pub base_sequence: u32,
}

/// One record.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ForwardedRecord {
    /// Key; empty = none.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Value; absent = null.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
    /// Headers in order.
    #[prost(message, repeated, tag = "3")]
    pub headers: Vec<ForwardedHeader>,
    /// Subject; empty = the partition's own.
    #[prost(bytes = "bytes", tag = "4")]
    pub subject: Bytes,
    /// Reply subject; empty = none.
    #[prost(bytes = "bytes", tag = "5")]
    pub reply: Bytes,
    /// Lower half of the message id.
    #[prost(fixed64, tag = "6")]
    pub id_low: u64,
    /// Upper half.
    #[prost(fixed64, tag = "7")]
    pub id_high: u64,
    /// Time at the origin, ns since 1970.
    #[prost(sfixed64, optional, tag = "8")]
    pub origin_time: Option<i64>,
    /// Offset that it must get; −1 = any.
    #[prost(sint64, tag = "9")]
    pub expected_offset: i64,
    /// Length of the client's message, bytes.
    #[prost(uint32, tag = "10")]
    pub received_bytes: u32,
}

/// One header of a record.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ForwardedHeader {
    /// Name, at most 65,535 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// Value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// Type 26: what became of it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ForwardAnswer {
    /// Of the request; 0 = of none: the leader is there, and has not finished.
    #[prost(uint64, tag = "100")]
    pub request: u64,
    /// What the leader did.
    #[prost(enumeration = "ForwardOutcome", tag = "101")]
    pub outcome: i32,
    /// A sentence, at most 1,024 bytes; of `Storage`, `Encryption` and `Denied`.
    #[prost(string, tag = "102")]
    pub text: String,
    /// Offset of the first record that was not rejected.
    #[prost(uint64, tag = "103")]
    pub base_offset: u64,
    /// Stored time, ns since 1970.
    #[prost(sfixed64, tag = "104")]
    pub timestamp: i64,
    /// When it was committed, ns since 1970.
    #[prost(sfixed64, tag = "105")]
    pub commit_timestamp: i64,
    /// Records that were appended.
    #[prost(uint32, tag = "106")]
    pub count: u32,
    /// It had been appended before.
    #[prost(bool, tag = "107")]
    pub duplicate: bool,
    /// Records that were rejected, ascending by index.
    #[prost(message, repeated, tag = "108")]
    pub rejected: Vec<ForwardRejected>,
    /// Of `TooFewReplicas`: in sync; of `Gap`: the expected sequence; of `Fenced`: the newest epoch; of `TooMany`: the bound.
    #[prost(uint64, tag = "109")]
    pub expected: u64,
    /// Of `TooFewReplicas`: how many must be; of `Gap` and `Fenced`: what came.
    #[prost(uint64, tag = "110")]
    pub found: u64,
}

/// A record that was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ForwardRejected {
    /// Its index among the records of the request.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Why.
    #[prost(enumeration = "RejectedFor", tag = "2")]
    pub reason: i32,
    /// Of `Duplicate`: where it is stored.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
}

/// What the leader did with a forwarded publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ForwardOutcome {
    /// Not an outcome.
    None = 0,
    /// Appended and committed, but for the records that were rejected.
    Committed = 1,
    /// Nothing was appended: another broker, or another epoch, is the leader.
    NotLeader = 2,
    /// Nothing was appended: the partition is closed.
    Closed = 3,
    /// Nothing was appended: too much waits.
    Busy = 4,
    /// Nothing was appended: the partition is read-only.
    Readonly = 5,
    /// Nothing was appended: too few replicas are in sync.
    TooFewReplicas = 6,
    /// Perhaps appended: another broker began to lead.
    LeaderChanged = 7,
    /// Nothing was appended: no space left.
    Full = 8,
    /// Nothing was appended: no descriptor left.
    NoDescriptor = 9,
    /// Perhaps appended: the disk failed.
    Storage = 10,
    /// Nothing was appended: the data key is missing.
    Encryption = 11,
    /// Nothing was appended: the sequence does not follow.
    Gap = 12,
    /// Nothing was appended: a newer generation of the producer exists.
    Fenced = 13,
    /// Nothing was appended: too many producers.
    TooMany = 14,
    /// Nothing was appended: the leader's policy does not allow it.
    Denied = 15,
    /// Nothing was appended: the leader's policy needs a name, and the client has none.
    Nameless = 16,
    /// Nothing was appended: the request cannot be stored as it is.
    Invalid = 17,
}

/// Why a record was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum RejectedFor {
    /// Not a reason.
    None = 0,
    /// Larger than the stream allows.
    TooLarge = 1,
    /// The expected offset was another.
    IncorrectOffset = 2,
    /// The data key is missing.
    Encryption = 3,
    /// Another record of its batch was rejected.
    Batch = 4,
    /// A message with its id is stored.
    Duplicate = 5,
    /// A condition of its headers does not hold.
    Condition = 6,
}

impl Forward {
    /// Reads the head of a frame.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let forward: Self = decode(frame, FrameType::Forward)?;
        let invalid = |what| Err(field(FrameType::Forward, what));
        let ids = [forward.request, forward.incarnation, forward.leader_epoch];
        if ids.contains(&0) {
            return invalid("request, incarnation and leader epoch are greater than 0");
        }
        let principal = forward.principal.as_deref().unwrap_or_default();
        let names = [
            &forward.namespace[..],
            &forward.stream,
            principal,
            &forward.address,
        ];
        if forward.stream.is_empty() || names.iter().any(|name| name.len() > NAME_BYTES) {
            return invalid("a stream has a name, and a name has at most 4096 bytes");
        }
        if forward.deadline_ms > DEADLINE_MS {
            return invalid("a publish waits for a minute at most");
        }
        if forward.producer.is_some_and(|producer| producer.id == 0) {
            return invalid("a producer's id is greater than 0");
        }
        if forward.records as usize > FORWARD_RECORDS {
            return invalid("a frame has at most 131072 records");
        }
        Ok(forward)
    }

    /// The records of the body; empty for a sealed batch. They are slices of `body`. No more memory is taken for a record than
    /// follows from the bytes that are there.
    ///
    /// # Errors
    /// [`FrameError::Field`]: not as many records as the head says, or one that cannot be stored.
    pub fn read_records(&self, mut body: Bytes) -> Result<Vec<ForwardedRecord>, FrameError> {
        let invalid = |what| field(FrameType::Forward, what);
        let mut records = Vec::with_capacity((self.records as usize).min(body.len()));
        for _ in 0..self.records {
            let malformed = |_| invalid("a record is not the protobuf message of records");
            if !body.has_remaining() {
                return Err(invalid("the body has fewer records than the head says"));
            }
            let bytes = prost::decode_length_delimiter(&mut body).map_err(malformed)?;
            if bytes > body.len() {
                return Err(invalid("the last record of the body is not whole"));
            }
            let bytes = body.split_to(bytes);
            // An empty header takes two bytes here, and much more in memory.
            if count_headers(&bytes).map_err(malformed)? > MAX_HEADERS {
                return Err(invalid("a record has more headers than may be stored"));
            }
            let record = ForwardedRecord::decode(bytes).map_err(malformed)?;
            record.check().map_err(invalid)?;
            records.push(record);
        }
        if self.records > 0 && body.has_remaining() {
            return Err(invalid("the body has more than the records of the head"));
        }
        Ok(records)
    }
}

fn count_headers(mut record: &[u8]) -> Result<usize, DecodeError> {
    let mut headers = 0;
    while record.has_remaining() {
        let (tag, kind) = decode_key(&mut record)?;
        headers += usize::from(tag == HEADERS_TAG);
        skip_field(kind, tag, &mut record, DecodeContext::default())?;
    }
    Ok(headers)
}

impl ForwardedRecord {
    fn check(&self) -> Result<(), &'static str> {
        let is_text = |bytes: &Bytes| std::str::from_utf8(bytes).is_ok();
        if !is_text(&self.subject) || !is_text(&self.reply) {
            return Err("the subject or the reply subject of a record is not UTF-8");
        }
        let is_long = |header: &ForwardedHeader| header.name.len() > usize::from(u16::MAX);
        if self.headers.iter().any(is_long) {
            return Err("the name of a header has more than 65535 bytes");
        }
        Ok(())
    }
}

impl ForwardAnswer {
    /// Reads the head of a frame.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let answer: Self = decode(frame, FrameType::ForwardAnswer)?;
        let invalid = |what| Err(field(FrameType::ForwardAnswer, what));
        if answer.text.len() > TEXT_BYTES {
            return invalid("a text has at most 1024 bytes");
        }
        if answer.request > 0 && answer.outcome() == ForwardOutcome::None {
            return invalid("an answer has an outcome that is known");
        }
        let is_known = |one: &ForwardRejected| one.reason() != RejectedFor::None;
        let ascends = answer.rejected.windows(2).all(|two| match two {
            [one, next] => one.index < next.index,
            _ => true,
        });
        if !answer.rejected.iter().all(is_known) || !ascends {
            return invalid("rejected records ascend, and have reasons that are known");
        }
        Ok(answer)
    }
}
