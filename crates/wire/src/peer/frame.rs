//! One frame: length, Liftbridge envelope with checksum, head, body.
//!
//! | Offset | Type | Field |
//! |---|---|---|
//! | 0 | u32, big-endian | length of what follows |
//! | 4 | 12 bytes | envelope ([`crate::envelope`]): magic, version 0, header length 12, flags 1, type, CRC-32C of the rest |
//! | 16 | u32, big-endian | length of the head |
//! | 20 | … | head (protobuf), then the body: raw bytes |
use crate::envelope::{CHECKED_HEADER_BYTES, MAGIC};
use bytes::{Buf, Bytes};
use thiserror::Error;

/// Most that a frame's length may be before both sides have said who they are, bytes.
pub const GREETING_BYTES: usize = 64 << 10;
/// Most that a frame's length may be on the control connection after that, bytes.
pub const CONTROL_BYTES: usize = 4 << 20;
/// Most batches that are asked for at once, bytes.
pub const FETCH_BYTES: usize = 8 << 20;
/// Most that the length of an answer to a fetch may be: what was asked for, one batch, and the head, bytes.
pub const DATA_BYTES: usize = FETCH_BYTES + (256 << 20) + CONTROL_BYTES;
/// Most that the length of a forwarded publish may be: the largest sealed batch, and the rest.
pub const FORWARD_BYTES: usize = (64 << 20) + CONTROL_BYTES;

const LENGTH_BYTES: usize = 4;
const VERSION: u8 = 0;
const CHECKSUM_FLAG: u8 = 1;

/// What a frame is. The answer to a request has the number after it. Other numbers of replication §1 are not spoken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// Asks a leader for records, and reports what the follower has.
    Fetch = 2,
    /// The answer.
    FetchAnswer = 3,
    /// Asks a broker for the cluster that it is of, before the one that asks is of any.
    Join = 4,
    /// The answer; the connection ends with it.
    JoinAnswer = 5,
    /// Asks a member where its log ends, before a new leader begins.
    Position = 6,
    /// The answer.
    PositionAnswer = 7,
    /// A request to the controller.
    Propagate = 8,
    /// The answer.
    PropagateAnswer = 9,
    /// Who dials, and whom it means.
    Hello = 10,
    /// Who was dialled, or why it refuses.
    HelloAnswer = 11,
    /// Entries of the metadata group, or a heartbeat of its leader.
    Append = 15,
    /// The answer.
    AppendAnswer = 16,
    /// Asks for a vote.
    Vote = 17,
    /// The answer.
    VoteAnswer = 18,
    /// Asks whether it would vote.
    PreVote = 19,
    /// The answer.
    PreVoteAnswer = 20,
    /// A chunk of a snapshot of the metadata.
    Snapshot = 21,
    /// The answer.
    SnapshotAnswer = 22,
    /// A broker's heartbeat to the controller.
    Heartbeat = 23,
    /// The answer.
    HeartbeatAnswer = 24,
    /// What a client published, for the leader.
    Forward = 25,
    /// The answer.
    ForwardAnswer = 26,
    /// Asks a member for the batches that a new leader lacks.
    Range = 27,
    /// The answer.
    RangeAnswer = 28,
    /// A client's read, or a position that it stores, for the leader.
    ClientRequest = 29,
    /// The answer.
    ClientAnswer = 30,
}

impl FrameType {
    /// All of them, by number.
    pub const ALL: [Self; 26] = [
        Self::Fetch,
        Self::FetchAnswer,
        Self::Join,
        Self::JoinAnswer,
        Self::Position,
        Self::PositionAnswer,
        Self::Propagate,
        Self::PropagateAnswer,
        Self::Hello,
        Self::HelloAnswer,
        Self::Append,
        Self::AppendAnswer,
        Self::Vote,
        Self::VoteAnswer,
        Self::PreVote,
        Self::PreVoteAnswer,
        Self::Snapshot,
        Self::SnapshotAnswer,
        Self::Heartbeat,
        Self::HeartbeatAnswer,
        Self::Forward,
        Self::ForwardAnswer,
        Self::Range,
        Self::RangeAnswer,
        Self::ClientRequest,
        Self::ClientAnswer,
    ];

    /// The type with this number, if it is spoken.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The type of the answer to this request; `None` for an answer.
    pub fn answer(self) -> Option<Self> {
        match self {
            Self::Fetch => Some(Self::FetchAnswer),
            Self::Join => Some(Self::JoinAnswer),
            Self::Position => Some(Self::PositionAnswer),
            Self::Propagate => Some(Self::PropagateAnswer),
            Self::Hello => Some(Self::HelloAnswer),
            Self::Append => Some(Self::AppendAnswer),
            Self::Vote => Some(Self::VoteAnswer),
            Self::PreVote => Some(Self::PreVoteAnswer),
            Self::Snapshot => Some(Self::SnapshotAnswer),
            Self::Heartbeat => Some(Self::HeartbeatAnswer),
            Self::Forward => Some(Self::ForwardAnswer),
            Self::Range => Some(Self::RangeAnswer),
            Self::ClientRequest => Some(Self::ClientAnswer),
            Self::FetchAnswer
            | Self::JoinAnswer
            | Self::PositionAnswer
            | Self::PropagateAnswer
            | Self::HelloAnswer
            | Self::AppendAnswer
            | Self::VoteAnswer
            | Self::PreVoteAnswer
            | Self::SnapshotAnswer
            | Self::HeartbeatAnswer
            | Self::ForwardAnswer
            | Self::RangeAnswer
            | Self::ClientAnswer => None,
        }
    }
}

/// The fixed begin of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// What the frame is.
    pub kind: FrameType,
    /// Bytes that follow the preamble; within the bound it was read with. At least 4.
    pub payload_bytes: usize,
    checksum: u32,
}

/// A frame, its checksum verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: FrameType,
    /// The head: protobuf.
    pub head: Bytes,
    /// What follows the head.
    pub body: Bytes,
}

/// Why a frame cannot be read. What follows on the connection cannot be read either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// More than may be sent now, or less than a frame takes.
    #[error("a frame of {bytes} bytes; between {least} and {most} are accepted now")]
    Length {
        /// As announced, bytes.
        bytes: u32,
        /// The least, bytes, inclusive.
        least: usize,
        /// The most, bytes, inclusive.
        most: usize,
    },
    /// The envelope does not begin as every frame between brokers does.
    #[error("not a frame of a broker: its envelope begins with {0:02x?}")]
    Envelope([u8; 7]),
    /// A number that is not spoken.
    #[error("a frame of the unknown type {0}")]
    Type(u8),
    /// The payload was changed on its way.
    #[error("the frame's checksum is {stored:08x}, its payload has {computed:08x}")]
    Checksum {
        /// As sent.
        stored: u32,
        /// Of the payload received.
        computed: u32,
    },
    /// The head ends behind the frame.
    #[error("a head of {head} bytes in a frame with {bytes} bytes for head and body")]
    Head {
        /// As announced, bytes.
        head: u32,
        /// What there is, bytes.
        bytes: usize,
    },
    /// The head is not the message of the frame's type, or a field of it is outside of its bounds.
    #[error("the head of a frame of type {kind} is not valid: {what}")]
    Field {
        /// The type's number.
        kind: u8,
        /// The field, and its bound.
        what: &'static str,
    },
}

impl Preamble {
    /// Its size, bytes.
    pub const BYTES: usize = LENGTH_BYTES + CHECKED_HEADER_BYTES;
    const LEAST: usize = CHECKED_HEADER_BYTES + LENGTH_BYTES;

    /// Reads the begin of a frame; nothing is allocated. `most`: what its length may be, bytes, inclusive.
    ///
    /// # Errors
    /// [`FrameError::Length`], [`FrameError::Envelope`], [`FrameError::Type`].
    pub fn read(bytes: [u8; Self::BYTES], most: usize) -> Result<Self, FrameError> {
        let mut rest = &bytes[..];
        let length = rest.get_u32();
        let mut envelope = [0; 7];
        rest.copy_to_slice(&mut envelope);
        if envelope != ENVELOPE {
            return Err(FrameError::Envelope(envelope));
        }
        if !(Self::LEAST..=most).contains(&(length as usize)) {
            return Err(FrameError::Length {
                bytes: length,
                least: Self::LEAST,
                most,
            });
        }
        let number = rest.get_u8();
        Ok(Self {
            kind: FrameType::from_number(number).ok_or(FrameError::Type(number))?,
            payload_bytes: length as usize - CHECKED_HEADER_BYTES,
            checksum: rest.get_u32(),
        })
    }

    /// The frame, of the [`Preamble::payload_bytes`] that followed. Parts are slices of `payload`.
    ///
    /// # Errors
    /// [`FrameError::Checksum`], [`FrameError::Head`].
    pub fn with_payload(self, mut payload: Bytes) -> Result<Frame, FrameError> {
        let (stored, computed) = (self.checksum, crc32c::crc32c(&payload));
        if stored != computed {
            return Err(FrameError::Checksum { stored, computed });
        }
        let head = payload.try_get_u32().unwrap_or(u32::MAX);
        if head as usize > payload.len() {
            let bytes = payload.len();
            return Err(FrameError::Head { head, bytes });
        }
        Ok(Frame {
            kind: self.kind,
            head: payload.split_to(head as usize),
            body: payload,
        })
    }
}

/// Magic, version, header length, flags.
const ENVELOPE: [u8; 7] = [
    MAGIC[0],
    MAGIC[1],
    MAGIC[2],
    MAGIC[3],
    VERSION,
    CHECKED_HEADER_BYTES as u8,
    CHECKSUM_FLAG,
];

impl Frame {
    /// The bytes of a frame. Head and body together are to be within the bound of the connection, which is far below 4 GiB.
    pub fn write(kind: FrameType, head: &impl prost::Message, body: &[u8]) -> Vec<u8> {
        let head = head.encode_to_vec();
        let payload = LENGTH_BYTES + head.len() + body.len();
        let mut out = Vec::with_capacity(Preamble::BYTES + payload);
        out.extend_from_slice(&((CHECKED_HEADER_BYTES + payload) as u32).to_be_bytes());
        out.extend_from_slice(&ENVELOPE);
        out.push(kind as u8);
        let length = (head.len() as u32).to_be_bytes();
        let checksum = [&length, &head[..], body]
            .into_iter()
            .fold(0, crc32c::crc32c_append);
        out.extend_from_slice(&checksum.to_be_bytes());
        out.extend_from_slice(&length);
        out.extend_from_slice(&head);
        out.extend_from_slice(body);
        out
    }
}
