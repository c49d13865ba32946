//! The envelope on NATS (Liftbridge specification §1).
use bytes::Bytes;

/// First four bytes of an envelope.
pub const MAGIC: [u8; 4] = [0xB9, 0x0E, 0x43, 0xB4];

/// Message types 0–14 (§1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum MessageType {
    Publish = 0,
    Ack = 1,
    ReplicationRequest = 2,
    ReplicationResponse = 3,
    RaftJoinRequest = 4,
    RaftJoinResponse = 5,
    LeaderEpochOffsetRequest = 6,
    LeaderEpochOffsetResponse = 7,
    PropagatedRequest = 8,
    PropagatedResponse = 9,
    ServerInfoRequest = 10,
    ServerInfoResponse = 11,
    PartitionStatusRequest = 12,
    PartitionStatusResponse = 13,
    PartitionNotification = 14,
}

/// What a NATS payload on a stream subject turned out to be.
#[derive(Clone, Debug)]
pub enum Recognised {
    /// Stored as it is (the whole payload, header included).
    Plain,
    /// A Publish envelope.
    Publish(EnvelopedPublish),
}

/// The fields of an enveloped publish that count (§1.4); slices of the payload, not copies.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct EnvelopedPublish {
    pub key: Bytes,
    pub value: Bytes,
    /// In wire order; duplicate names: the last wins, as a protobuf map does.
    pub headers: Vec<(Bytes, Bytes)>,
    pub ack_inbox: Bytes,
    pub correlation_id: Bytes,
    pub ack_policy: i32,
    pub expected_offset: i64,
}

/// The tests of §1.4 in their order; the first failure makes it plain. Never panics, never fails.
pub fn recognise(_payload: &Bytes) -> Recognised {
    todo!()
}

/// Checks an envelope of an expected type (§1.5): magic, version, header length, type, checksum. Returns its payload.
///
/// # Errors
/// The first test that failed.
pub fn open(_bytes: &Bytes, _expected: MessageType) -> Result<Bytes, EnvelopeError> {
    todo!()
}

/// Appends an envelope header (8 bytes, or 12 with checksum) and `payload` to `out`.
pub fn put(_out: &mut Vec<u8>, _kind: MessageType, _payload: &[u8], _with_checksum: bool) {
    todo!()
}

/// Why an internal envelope was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Shorter than 8 bytes or than its header says.
    #[error("envelope of {0} bytes is cut short")]
    Short(usize),
    // … one variant per test
}
