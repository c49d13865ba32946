//! The envelope on NATS (liftbridge §1, `specs/formats/envelope.md`).
//!
//! | Byte | Size | Field | Value |
//! |---|---|---|---|
//! | 0–3 | 4 | magic | `B9 0E 43 B4` |
//! | 4 | 1 | version | 0 |
//! | 5 | 1 | header length | where the payload begins: 8, or 12 with checksum |
//! | 6 | 1 | flags | bit 0: checksum present; the others are written 0 and ignored |
//! | 7 | 1 | message type | [`MessageType`] |
//! | 8–11 | 4 | checksum | with flag bit 0 only: CRC-32C of the payload, big-endian |
//! | … | rest | payload | protobuf, except for [`MessageType::ReplicationResponse`] |
//!
//! On a stream's subject nothing is ever refused: what is not a perfect Publish envelope is the value of a plain message.
use crate::liftbridge::publish;
use bytes::Bytes;

/// First four bytes of an envelope.
pub const MAGIC: [u8; 4] = [0xB9, 0x0E, 0x43, 0xB4];
/// Bytes of a header without checksum.
pub const HEADER_BYTES: usize = 8;
/// Bytes of a header with checksum.
pub const CHECKED_HEADER_BYTES: usize = 12;

const VERSION: u8 = 0;
const CHECKSUM_FLAG: u8 = 1;

/// Message types 0–14 (liftbridge §1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// `proto.Message`, from any publisher to a partition leader.
    Publish = 0,
    /// `proto.Ack`, from the partition leader to an ack inbox.
    Ack = 1,
    /// From a follower to the leader.
    ReplicationRequest = 2,
    /// Raw bytes, from the leader to a follower.
    ReplicationResponse = 3,
    /// From a new broker to the metadata leader.
    RaftJoinRequest = 4,
    /// The reply to it.
    RaftJoinResponse = 5,
    /// From a follower to the leader.
    LeaderEpochOffsetRequest = 6,
    /// The reply to it.
    LeaderEpochOffsetResponse = 7,
    /// A metadata operation, from any broker to the metadata leader.
    PropagatedRequest = 8,
    /// The reply to it.
    PropagatedResponse = 9,
    /// A survey, from any broker to all brokers.
    ServerInfoRequest = 10,
    /// The reply to it.
    ServerInfoResponse = 11,
    /// From the metadata leader to a partition leader.
    PartitionStatusRequest = 12,
    /// The reply to it.
    PartitionStatusResponse = 13,
    /// New data, from the leader to an idle follower.
    PartitionNotification = 14,
}

impl MessageType {
    /// All types, by number.
    pub const ALL: [Self; 15] = [
        Self::Publish,
        Self::Ack,
        Self::ReplicationRequest,
        Self::ReplicationResponse,
        Self::RaftJoinRequest,
        Self::RaftJoinResponse,
        Self::LeaderEpochOffsetRequest,
        Self::LeaderEpochOffsetResponse,
        Self::PropagatedRequest,
        Self::PropagatedResponse,
        Self::ServerInfoRequest,
        Self::ServerInfoResponse,
        Self::PartitionStatusRequest,
        Self::PartitionStatusResponse,
        Self::PartitionNotification,
    ];

    /// The type with this number; `None` above 14.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What a NATS payload on a stream subject turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// Stored as it is (the whole payload, header included).
    Plain,
    /// A Publish envelope.
    Publish(EnvelopedPublish),
}

/// The fields of an enveloped publish that count (liftbridge §1.4); slices of the payload, not copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvelopedPublish {
    /// Key; empty = none.
    pub key: Bytes,
    /// Value; `None` = null.
    pub value: Option<Bytes>,
    /// In order. Of a map the last of equal names counts; a header list keeps them, and its names are any bytes.
    pub headers: Vec<(Bytes, Bytes)>,
    /// NATS subject to send the ack to, UTF-8; empty = none.
    pub ack_inbox: Bytes,
    /// Echoed in the ack, UTF-8.
    pub correlation_id: Bytes,
    /// 0 LEADER, 1 ALL, 2 NONE; others as sent.
    pub ack_policy: i32,
    /// The `offset` field of the message, which a publisher uses for the offset it expects.
    pub expected_offset: i64,
}

/// The tests of liftbridge §1.4 in their order; the first failure makes it plain. Never panics, never fails.
pub fn recognise(payload: &Bytes) -> Recognised {
    let Ok(header) = check(payload, MessageType::Publish) else {
        return Recognised::Plain;
    };
    match publish::read_enveloped(&payload.slice(header..)) {
        Some(fields) => Recognised::Publish(fields),
        None => Recognised::Plain,
    }
}

/// Checks an envelope of an expected type (liftbridge §1.5): magic, version, header length, type, checksum. Returns its
/// payload, a slice of `bytes`.
///
/// # Errors
/// The first test that failed.
pub fn open(bytes: &Bytes, expected: MessageType) -> Result<Bytes, EnvelopeError> {
    check(bytes, expected).map(|header| bytes.slice(header..))
}

/// Appends an envelope header (8 bytes, or 12 with checksum) and `payload` to `out`.
pub fn put(out: &mut Vec<u8>, kind: MessageType, payload: &[u8], with_checksum: bool) {
    out.reserve(CHECKED_HEADER_BYTES + payload.len());
    if with_checksum {
        put_header(out, kind, CHECKED_HEADER_BYTES as u8, CHECKSUM_FLAG);
        out.extend_from_slice(&crc32c::crc32c(payload).to_be_bytes());
    } else {
        put_header(out, kind, HEADER_BYTES as u8, 0);
    }
    out.extend_from_slice(payload);
}

/// Appends a header without checksum; the payload is written behind it by the caller.
pub(crate) fn put_plain_header(out: &mut Vec<u8>, kind: MessageType) {
    put_header(out, kind, HEADER_BYTES as u8, 0);
}

fn put_header(out: &mut Vec<u8>, kind: MessageType, length: u8, flags: u8) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, length, flags, kind as u8]);
}

/// Tests 1–7 of liftbridge §1.4; returns where the payload begins.
fn check(bytes: &[u8], expected: MessageType) -> Result<usize, EnvelopeError> {
    let Some(([m0, m1, m2, m3, version, length, flags, kind], _)) = bytes.split_first_chunk()
    else {
        return Err(EnvelopeError::Short(bytes.len()));
    };
    if [*m0, *m1, *m2, *m3] != MAGIC {
        return Err(EnvelopeError::Magic);
    }
    if *version != VERSION {
        return Err(EnvelopeError::Version(*version));
    }
    let header = usize::from(*length);
    if header < HEADER_BYTES || header > bytes.len() {
        return Err(EnvelopeError::HeaderLength {
            header: *length,
            bytes: bytes.len(),
        });
    }
    if *kind != expected as u8 {
        return Err(EnvelopeError::Type {
            found: *kind,
            expected: expected as u8,
        });
    }
    if flags & CHECKSUM_FLAG != 0 {
        check_sum(bytes, header)?;
    }
    Ok(header)
}

fn check_sum(bytes: &[u8], header: usize) -> Result<(), EnvelopeError> {
    let payload = bytes.get(CHECKED_HEADER_BYTES..).unwrap_or_default();
    let stored = bytes
        .get(HEADER_BYTES..)
        .and_then(|rest| rest.first_chunk());
    let (CHECKED_HEADER_BYTES, Some(stored)) = (header, stored) else {
        return Err(EnvelopeError::HeaderLength {
            header: header as u8,
            bytes: bytes.len(),
        });
    };
    let (stored, computed) = (u32::from_be_bytes(*stored), crc32c::crc32c(payload));
    if stored == computed {
        Ok(())
    } else {
        Err(EnvelopeError::Checksum { stored, computed })
    }
}

/// Why an internal envelope was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Shorter than the 8 bytes of a header.
    #[error("envelope of {0} bytes is cut short")]
    Short(usize),
    /// The first four bytes are not [`MAGIC`].
    #[error("envelope does not begin with b90e43b4")]
    Magic,
    /// A version this crate does not know.
    #[error("envelope has version {0}, known is 0")]
    Version(u8),
    /// Below 8, beyond the end, or not 12 although there is a checksum.
    #[error("envelope of {bytes} bytes has a header length of {header}")]
    HeaderLength {
        /// Header length as sent.
        header: u8,
        /// Length of the whole envelope.
        bytes: usize,
    },
    /// Not the type expected on this subject.
    #[error("envelope has message type {found}, expected {expected}")]
    Type {
        /// Type as sent.
        found: u8,
        /// Type that was asked for.
        expected: u8,
    },
    /// The payload was changed on its way.
    #[error("envelope checksum is {stored:08x}, its payload has {computed:08x}")]
    Checksum {
        /// Checksum as sent.
        stored: u32,
        /// Checksum of the payload received.
        computed: u32,
    },
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
