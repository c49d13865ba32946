//! What comes into a partition and what comes back.
use crate::access::Denied;
use bascule_log::SequenceError;
use bascule_record::{Producer, SealedBatch};
use bascule_wire::ErrorCode;
use bascule_wire::jetstream::Refusal;
use bytes::Bytes;

/// One record on its way in. Slices of received buffers; copied once, into the batch.
#[derive(Clone, Debug, Default)]
pub struct IncomingRecord {
    /// Key; empty = none.
    pub key: Bytes,
    /// Value; `None` = null.
    pub value: Option<Bytes>,
    /// Headers in order, names and values as they came; names may repeat and need not be UTF-8, and have at most 65,535
    /// bytes.
    pub headers: Vec<(Bytes, Bytes)>,
    /// NATS subject (UTF-8 checked); empty = the partition's own.
    pub subject: Bytes,
    /// NATS reply subject (UTF-8 checked); empty = none.
    pub reply: Bytes,
    /// Message id, 0 = none.
    pub id: u128,
    /// It came as a plain NATS message: where its stream acknowledges JetStream publishers, its control headers count.
    pub is_plain_nats: bool,
    /// Time at the origin, ns since 1970.
    pub origin_time: Option<i64>,
    /// Offset the record must get when the stream checks offsets; −1 = any.
    pub expected_offset: i64,
    /// Length of the message as received (envelope and NATS headers included), for the size limit.
    pub received_bytes: u32,
}

/// What to append.
#[derive(Debug)]
pub enum Payload {
    /// Records; the partition coalesces them with others into batches.
    Records(Vec<IncomingRecord>),
    /// A prebuilt batch: stays one batch. The records' receipt time is the builder's, moved up if needed.
    Sealed(SealedBatch),
}

/// One append: all or nothing, except for records that are rejected one by one.
pub struct Append {
    /// Records or a batch.
    pub payload: Payload,
    /// Idempotent producer. With `Records`: they become one batch of their own, stored whole, once, or not at all. With
    /// `Sealed` it must equal what the batch was sealed with.
    pub producer: Option<Producer>,
    /// Whether a copy goes out on NATS after commit (direct publishes, not NATS ingest); never from a partition whose subject
    /// has wildcards.
    pub republish: bool,
    /// When it is acknowledged.
    pub ack: AckLevel,
    /// Called exactly once. On the committer's thread or a runtime thread: must be quick and must not block.
    pub done: Done,
}
impl std::fmt::Debug for Append {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Append")
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// When an append to a partition with several replicas is acknowledged. With one replica both are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckLevel {
    /// When the leader has it, durably unless the stream is configured otherwise.
    Leader,
    /// When every replica in sync has it.
    #[default]
    All,
}

/// Receives the outcome.
pub type Done = Box<dyn FnOnce(Result<Committed, AppendError>) + Send>;

/// A committed append.
#[derive(Debug)]
pub struct Committed {
    /// Offset of the first record that was not rejected; the others follow without gaps, in order.
    pub base_offset: u64,
    /// Stored timestamp of every record of a `Records` append, ns; of the first record of a `Sealed` one.
    pub timestamp: i64,
    /// When it was committed, ns since 1970.
    pub commit_timestamp: i64,
    /// Number of records appended.
    pub count: u32,
    /// Records that were not appended, ascending by index into those of the append; usually empty.
    pub rejected: Vec<Rejected>,
    /// The batch had been appended before: the offsets are the first time's.
    pub duplicate: bool,
}

/// A record that was refused while its neighbours were taken.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Index into the records of the append.
    pub index: u32,
    /// Why.
    pub reason: RejectReason,
}

/// Why a single record was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// Larger than `max_record_bytes`.
    TooLarge,
    /// The expected offset was not the one it would get.
    IncorrectOffset,
    /// The stream is encrypted and its data key is not there.
    Encryption,
    /// Another record of its producer's batch was refused.
    Batch,
    /// A message with its id is stored at this offset.
    Duplicate(u64),
    /// A condition of a JetStream publisher does not hold.
    Refused(Refusal),
}

/// Why nothing of an append was taken, or why its outcome is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// This broker does not lead the partition.
    #[error("partition is not led here")]
    NotLeader,
    /// The partition is closed or was deleted.
    #[error("partition is closed")]
    Closed,
    /// The broker's memory budget for appends is used up: try again.
    #[error("append queue is full")]
    Busy,
    /// Publishes are refused until the partition is made writable.
    #[error("partition is read-only")]
    Readonly,
    /// Fewer replicas are in sync than the stream wants before anything is committed.
    #[error("not enough in-sync replicas: there are {in_sync}, min ISR is {required}")]
    TooFewReplicas {
        /// How many are in sync.
        in_sync: u32,
        /// How many must be.
        required: u32,
    },
    /// Another broker began to lead the partition: the outcome of this append is unknown.
    #[error("another broker leads the partition now: the outcome is unknown")]
    LeaderChanged,
    /// No space left: try again when there is.
    #[error("no space left on the data directory")]
    Full,
    /// The process has no descriptor left to open the partition's file: nothing was stored, try again.
    #[error(
        "no descriptor is left to open the partition's file: close connections or raise the broker's limit of open files"
    )]
    NoDescriptor,
    /// The disk failed: the outcome of this append is unknown.
    #[error("storage failed: {0}")]
    Storage(String),
    /// The stream is encrypted and its data key is not there; nothing was stored.
    #[error("{0}")]
    Encryption(String),
    /// The leader's policy does not allow it; nothing was stored.
    #[error(transparent)]
    Denied(Denied),
    /// The leader cannot store it as it is; nothing was stored.
    #[error("{0}")]
    Invalid(String),
    /// No leader took it in time; nothing was stored.
    #[error("{0}")]
    Unreachable(String),
    /// The leader did not answer: the outcome of this append is unknown.
    #[error("{0}: the outcome is unknown")]
    Unknown(String),
    /// The producer's batch is neither the next nor a known duplicate, or the producer may not append.
    #[error("{0}")]
    Sequence(SequenceError),
}

impl RejectReason {
    /// The code that it is reported with; `None` for a record that had been stored before.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::TooLarge => Some(ErrorCode::TooLarge),
            Self::IncorrectOffset => Some(ErrorCode::IncorrectOffset),
            Self::Encryption => Some(ErrorCode::EncryptionKeyMissing),
            Self::Batch | Self::Refused(_) => Some(ErrorCode::FailedPrecondition),
            Self::Duplicate(_) => None,
        }
    }
}

impl AppendError {
    /// Whether its records may be stored all the same.
    pub(crate) fn may_be_stored(&self) -> bool {
        matches!(
            self,
            Self::LeaderChanged | Self::Storage(_) | Self::Unknown(_)
        )
    }

    /// The code that it is reported with.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::NotLeader => ErrorCode::NotLeader,
            Self::Closed | Self::Unreachable(_) => ErrorCode::Unavailable,
            Self::Busy | Self::NoDescriptor => ErrorCode::Busy,
            Self::Full => ErrorCode::DiskFull,
            Self::Storage(_) | Self::LeaderChanged | Self::Unknown(_) => ErrorCode::OutcomeUnknown,
            Self::Denied(Denied::Nameless) => ErrorCode::Unauthenticated,
            Self::Denied(Denied::NotAllowed { .. }) => ErrorCode::PermissionDenied,
            Self::Invalid(_) => ErrorCode::InvalidArgument,
            Self::Readonly => ErrorCode::Readonly,
            Self::TooFewReplicas { .. } => ErrorCode::NotEnoughReplicas,
            Self::Encryption(_) => ErrorCode::EncryptionKeyMissing,
            Self::Sequence(SequenceError::Fenced { .. }) => ErrorCode::ProducerFenced,
            Self::Sequence(SequenceError::TooMany { .. }) => ErrorCode::TooManyProducers,
            Self::Sequence(_) => ErrorCode::SequenceGap,
        }
    }
}
