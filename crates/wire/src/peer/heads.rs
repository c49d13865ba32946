//! Heads of frames: the `protocol` messages of liftbridge §6.3, with fields of ours from 100 on.
use super::frame::{Frame, FrameError, FrameType};
use bytes::Bytes;
use prost::Message;

/// Bytes of a cluster's id.
pub const CLUSTER_ID_BYTES: usize = 16;
/// Longest name of a broker, bytes.
pub const NAME_BYTES: usize = 255;
/// Longest sentence of a refusal, bytes.
pub const TEXT_BYTES: usize = 1024;

/// Bytes of the digest of `cluster.peers`.
pub const DIGEST_BYTES: usize = 32;
/// Longest id of a directory, bytes.
pub const DIRECTORY_BYTES: usize = 64;

/// Type 4, `RaftJoinRequest`: a broker without a cluster asks one of `cluster.peers`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Join {
    /// Name of the broker that asks, 1 to 255 bytes.
    #[prost(string, tag = "1")]
    pub broker: String,
    /// Name of the broker that it means to reach.
    #[prost(string, tag = "100")]
    pub receiver: String,
    /// Name of the cluster, 1 to 255 bytes.
    #[prost(string, tag = "101")]
    pub cluster: String,
    /// Of its directory, 1 to 64 bytes.
    #[prost(string, tag = "102")]
    pub directory_id: String,
    /// SHA-256 of its `cluster.peers`.
    #[prost(bytes = "bytes", tag = "103")]
    pub peers: Bytes,
    /// The oldest version of this protocol that it speaks.
    #[prost(uint32, tag = "104")]
    pub oldest_version: u32,
    /// The newest one, inclusive.
    #[prost(uint32, tag = "105")]
    pub newest_version: u32,
}

/// Type 5, `RaftJoinResponse`. The body is the founding of the cluster (JSON, as in the file `metadata/founding`); empty = none yet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct JoinAnswer {
    /// Name of the broker that answers.
    #[prost(string, tag = "1")]
    pub broker: String,
    /// 0 = answered; else a [`RefusalCode`].
    #[prost(uint32, tag = "101")]
    pub code: u32,
    /// Of a refusal: one sentence, at most 1,024 bytes.
    #[prost(string, tag = "102")]
    pub text: String,
    /// Of its directory.
    #[prost(string, tag = "103")]
    pub directory_id: String,
}

/// Type 10, `ServerInfoRequest`: who dials, and whom it means.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    /// Name of the broker that dials, 1 to 255 bytes.
    #[prost(string, tag = "1")]
    pub broker: String,
    /// Of the cluster: 16 bytes, not all 0.
    #[prost(bytes = "bytes", tag = "101")]
    pub cluster_id: Bytes,
    /// How many rescues the cluster has gone through, as this broker knows.
    #[prost(uint64, tag = "102")]
    pub rescues: u64,
    /// Level of the features that the cluster's entries are written at.
    #[prost(uint32, tag = "103")]
    pub level: u32,
    /// The oldest version of this protocol that it speaks.
    #[prost(uint32, tag = "104")]
    pub oldest_version: u32,
    /// The newest one, inclusive.
    #[prost(uint32, tag = "105")]
    pub newest_version: u32,
    /// Its number in the group of voters, > 0.
    #[prost(uint64, tag = "106")]
    pub raft_id: u64,
    /// Of its run: random.
    #[prost(fixed64, tag = "107")]
    pub nonce: u64,
    /// Of its last registration; 0 = it has not registered.
    #[prost(uint64, tag = "108")]
    pub boot_epoch: u64,
    /// Name of the broker that it means to reach.
    #[prost(string, tag = "109")]
    pub receiver: String,
    /// The boot epoch of that one, as it knows; 0 = it knows none.
    #[prost(uint64, tag = "110")]
    pub receiver_boot_epoch: u64,
    /// The nonce under which that was registered.
    #[prost(fixed64, tag = "111")]
    pub receiver_nonce: u64,
    /// Its time of day, ns since 1970.
    #[prost(sint64, tag = "112")]
    pub time_ns: i64,
    /// What the connection is for.
    #[prost(enumeration = "Purpose", tag = "113")]
    pub purpose: i32,
}

/// What a connection is for. Of each purpose the newest connection of a broker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Purpose {
    /// Requests of the metadata group, to the controller, and between replicas.
    Control = 0,
    /// Fetches of a follower.
    Records = 1,
    /// Publishes of clients, for the leader.
    Publishes = 2,
    /// Reads of clients and their positions, for the leader.
    Reads = 3,
}

/// Type 11, `ServerInfoResponse`: who was dialled, or why it refuses. The connection ends after a refusal.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HelloAnswer {
    /// Name of the broker that was dialled.
    #[prost(string, tag = "1")]
    pub broker: String,
    /// 0 = accepted; else a [`RefusalCode`].
    #[prost(uint32, tag = "101")]
    pub code: u32,
    /// Of a refusal: one sentence, at most 1,024 bytes.
    #[prost(string, tag = "102")]
    pub text: String,
    /// The version that is spoken from here on.
    #[prost(uint32, tag = "103")]
    pub version: u32,
    /// Its number in the group of voters.
    #[prost(uint64, tag = "104")]
    pub raft_id: u64,
    /// Of its run.
    #[prost(fixed64, tag = "105")]
    pub nonce: u64,
    /// Of its last registration; 0 = it has not registered.
    #[prost(uint64, tag = "106")]
    pub boot_epoch: u64,
    /// Its time of day, ns since 1970.
    #[prost(sint64, tag = "107")]
    pub time_ns: i64,
}

/// Types 8, 9 and 15 to 24. The body is `MessagePack`: for 15 to 20 the library's message.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RaftHead {
    /// Of the request, > 0; its answer has the same.
    #[prost(uint64, tag = "100")]
    pub request: u64,
    /// Of an answer: why there is none, at most 1,024 bytes; the body is empty then.
    #[prost(string, tag = "101")]
    pub error: String,
}

/// Why a broker refuses another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum RefusalCode {
    /// It is of another cluster.
    OtherCluster = 1,
    /// It meant to reach another broker.
    OtherReceiver = 2,
    /// It has the name of the broker that it dials: the address is its own, or two brokers have one name.
    SameBroker = 3,
    /// No broker of this name and number is known.
    UnknownBroker = 4,
    /// They speak no version in common.
    Version = 5,
    /// One of the two has not gone through the last rescue of the cluster.
    Rescued = 6,
    /// Its certificate is of another name.
    Certificate = 7,
    /// The broker that was dialled has been replaced by a later run, and answers nobody any more.
    Superseded = 8,
    /// The broker that was dialled is of no cluster yet.
    NotFounded = 9,
    /// The two name other brokers in `cluster.peers`.
    OtherPeers = 10,
    /// Another directory is the one of this broker.
    BrokerIdInUse = 11,
}

impl Join {
    /// Reads the head of a frame.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let join: Self = decode(frame, FrameType::Join)?;
        let invalid = |what| Err(field(FrameType::Join, what));
        let is_name = |name: &str| (1..=NAME_BYTES).contains(&name.len());
        if !is_name(&join.broker) || !is_name(&join.cluster) || join.receiver.len() > NAME_BYTES {
            return invalid("a name has 1 to 255 bytes");
        }
        if !(1..=DIRECTORY_BYTES).contains(&join.directory_id.len()) {
            return invalid("the id of a directory has 1 to 64 bytes");
        }
        if join.peers.len() != DIGEST_BYTES {
            return invalid("a digest has 32 bytes");
        }
        if join.oldest_version > join.newest_version {
            return invalid("the oldest version is newer than the newest");
        }
        Ok(join)
    }
}

impl JoinAnswer {
    /// Reads the head of a frame.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let answer: Self = decode(frame, FrameType::JoinAnswer)?;
        let is_short = answer.broker.len() <= NAME_BYTES
            && answer.text.len() <= TEXT_BYTES
            && answer.directory_id.len() <= DIRECTORY_BYTES;
        if !is_short {
            let what = "a name has at most 255 bytes, an id of a directory 64, a text 1024";
            return Err(field(FrameType::JoinAnswer, what));
        }
        Ok(answer)
    }
}

impl Hello {
    /// Reads the head of a frame.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let hello: Self = decode(frame, FrameType::Hello)?;
        let invalid = |what| Err(field(FrameType::Hello, what));
        let is_id = hello.cluster_id.len() == CLUSTER_ID_BYTES;
        if !is_id || hello.cluster_id.iter().all(|byte| *byte == 0) {
            return invalid("a cluster id has 16 bytes, not all 0");
        }
        if !(1..=NAME_BYTES).contains(&hello.broker.len()) || hello.receiver.len() > NAME_BYTES {
            return invalid("a broker's name has 1 to 255 bytes");
        }
        if hello.raft_id == 0 {
            return invalid("a voter's number is greater than 0");
        }
        if hello.oldest_version > hello.newest_version {
            return invalid("the oldest version is newer than the newest");
        }
        if Purpose::try_from(hello.purpose).is_err() {
            return invalid("a connection is for control, records, publishes or reads");
        }
        if (hello.receiver_boot_epoch == 0) != (hello.receiver_nonce == 0) {
            return invalid("a boot epoch comes with the nonce it was registered under");
        }
        Ok(hello)
    }
}

impl HelloAnswer {
    /// Reads the head of a frame.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let answer: Self = decode(frame, FrameType::HelloAnswer)?;
        if answer.broker.len() > NAME_BYTES || answer.text.len() > TEXT_BYTES {
            let what = "a name has at most 255 bytes, a text at most 1024";
            return Err(field(FrameType::HelloAnswer, what));
        }
        Ok(answer)
    }
}

impl RaftHead {
    /// Reads the head of a frame of types 6 to 9, 15 to 24, and 27 to 30.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let others = [
            FrameType::Fetch,
            FrameType::FetchAnswer,
            FrameType::Join,
            FrameType::JoinAnswer,
            FrameType::Hello,
            FrameType::HelloAnswer,
            FrameType::Forward,
            FrameType::ForwardAnswer,
        ];
        if others.contains(&frame.kind) {
            return Err(FrameError::Type(frame.kind as u8));
        }
        let head: Self = decode(frame, frame.kind)?;
        if head.request == 0 {
            return Err(field(frame.kind, "a request's number is greater than 0"));
        }
        if head.error.len() > TEXT_BYTES {
            return Err(field(frame.kind, "a text has at most 1024 bytes"));
        }
        Ok(head)
    }
}

pub(super) fn decode<T: Message + Default>(
    frame: &Frame,
    kind: FrameType,
) -> Result<T, FrameError> {
    if frame.kind != kind {
        return Err(FrameError::Type(frame.kind as u8));
    }
    T::decode(frame.head.clone()).map_err(|_| field(kind, "not the protobuf message of its type"))
}

pub(super) fn field(kind: FrameType, what: &'static str) -> FrameError {
    FrameError::Field {
        kind: kind as u8,
        what,
    }
}
