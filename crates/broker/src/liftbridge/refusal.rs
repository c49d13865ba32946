//! Why a publish was not stored, as unary calls and as asynchronous errors say it.
use crate::access::Denied;
use crate::grpc_status::{Coded, document};
use crate::partition::{AppendError, RejectReason};
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::messages::PublishAsyncErrorCode as AsyncCode;
use bascule_wire::liftbridge::publish::MAX_HEADERS;
use bascule_wire::subject::MAX_SUBJECT_BYTES;
use serde_json::{Value, json};
use tonic::{Code, Status};

/// A failed check or append of one publish. The text is the same in both forms.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// Unary only: the name is empty.
    #[error("no stream provided")]
    StreamMissing,
    /// The client may not.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// No stream of this name.
    #[error("no such stream: {0}")]
    NoSuchStream(String),
    /// One of the broker's own.
    #[error("Stream is reserved: the broker alone writes to it")]
    Internal,
    /// No partition of this number.
    #[error("no such partition: {0}")]
    NoSuchPartition(i32),
    /// More headers than a record may have.
    #[error("message has more than {} headers", MAX_HEADERS)]
    TooManyHeaders,
    /// A subject that nothing can be published on.
    #[error(
        "subject {0:?} is not valid: tokens joined by dots, without white space and wildcards, at most {max} bytes",
        max = MAX_SUBJECT_BYTES
    )]
    InvalidSubject(String),
    /// Publishes are refused.
    #[error("readonly partition: {0}")]
    Readonly(i32),
    /// Concurrency control needs an ack.
    #[error("stream with concurrency control must have AckPolicy set")]
    PolicyMissing,
    /// An ack policy of no meaning.
    #[error("Unknown AckPolicy {0}")]
    PolicyUnknown(i32),
    /// Paused: to be resumed before this is said to anybody.
    #[error("failed to resume stream: partition {0} is paused again and again")]
    Paused(i32),
    /// Paused, and not resumed for this reason.
    #[error("failed to resume stream: {0}")]
    NotResumed(String),
    /// Led by another broker.
    #[error("partition {number} is led by broker {leader:?} at {address}")]
    NotLeader {
        /// The partition.
        number: i32,
        /// Broker id.
        leader: String,
        /// `host:port` for clients; empty = unknown.
        address: String,
    },
    /// Led by nobody here.
    #[error("failed to resume stream: partition {0} is not open on this broker")]
    NotOpen(i32),
    /// The partition refused this one record.
    #[error("{}", reject_text(.0))]
    Rejected(RejectReason),
    /// Nothing of the append was taken, or its outcome is unknown.
    #[error("failed to append: {0}")]
    Append(AppendError),
}

fn reject_text(reason: &RejectReason) -> &'static str {
    match reason {
        RejectReason::TooLarge => "message exceeds max replication size",
        RejectReason::IncorrectOffset => "incorrect expected offset",
        RejectReason::Encryption => "encryption failed on partition",
        RejectReason::Batch => "another record of its batch was refused",
        RejectReason::Duplicate(_) => "a message with its id is stored",
        RejectReason::Refused(_) => "a condition of its headers does not hold",
    }
}

impl Refusal {
    /// An append to partition `number` that failed as a whole.
    pub(super) fn of(error: AppendError, number: i32) -> Self {
        match error {
            AppendError::Readonly => Self::Readonly(number),
            AppendError::Denied(denied) => Self::Denied(denied),
            error => Self::Append(error),
        }
    }

    /// As metrics count it.
    pub(super) fn metric(&self) -> ErrorCode {
        match self {
            Self::StreamMissing
            | Self::Internal
            | Self::PolicyMissing
            | Self::PolicyUnknown(_)
            | Self::TooManyHeaders
            | Self::InvalidSubject(_) => ErrorCode::InvalidArgument,
            Self::Denied(Denied::Nameless) => ErrorCode::Unauthenticated,
            Self::Denied(_) => ErrorCode::PermissionDenied,
            Self::NoSuchStream(_) => ErrorCode::StreamNotFound,
            Self::NoSuchPartition(_) => ErrorCode::PartitionNotFound,
            Self::Readonly(_) => ErrorCode::Readonly,
            Self::NotOpen(_) | Self::Paused(_) | Self::NotResumed(_) => ErrorCode::Unavailable,
            Self::NotLeader { .. } => ErrorCode::NotLeader,
            Self::Rejected(reason) => reason.code().unwrap_or(ErrorCode::FailedPrecondition),
            Self::Append(error) => error.code(),
        }
    }

    /// As a unary call answers it (liftbridge §3.7).
    pub(super) fn status(&self) -> Status {
        if let Self::Denied(denied) = self {
            return denied.status();
        }
        Status::new(self.code(), self.to_string()).detailed(self.error_code(), self.details())
    }

    /// As clients of ours read it, from the trailer or from an asynchronous error.
    pub(super) fn document(&self) -> String {
        document(self.error_code(), self.details())
    }

    pub(super) fn error_code(&self) -> ErrorCode {
        match self {
            Self::Append(AppendError::Storage(_)) => ErrorCode::StorageFailed,
            refusal => refusal.metric(),
        }
    }

    pub(super) fn details(&self) -> Value {
        match self {
            Self::Rejected(RejectReason::Batch) => json!({"reason": "batch_rejected"}),
            Self::Append(AppendError::TooFewReplicas { in_sync, required }) => {
                json!({"in_sync": in_sync, "min_isr": required})
            }
            Self::NotLeader {
                leader, address, ..
            } => json!({"leader": leader, "address": address}),
            _ => json!({}),
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::StreamMissing
            | Self::Internal
            | Self::PolicyMissing
            | Self::PolicyUnknown(_)
            | Self::TooManyHeaders
            | Self::InvalidSubject(_)
            | Self::Rejected(RejectReason::TooLarge) => Code::InvalidArgument,
            Self::Denied(_) => Code::PermissionDenied,
            Self::NoSuchStream(_) | Self::NoSuchPartition(_) => Code::NotFound,
            Self::Readonly(_)
            | Self::NotLeader { .. }
            | Self::Rejected(RejectReason::Refused(_)) => Code::FailedPrecondition,
            Self::NotOpen(_)
            | Self::Paused(_)
            | Self::NotResumed(_)
            | Self::Rejected(RejectReason::Encryption | RejectReason::Batch) => Code::Internal,
            Self::Rejected(RejectReason::Duplicate(_)) => Code::AlreadyExists,
            Self::Rejected(RejectReason::IncorrectOffset) => Code::Unknown,
            Self::Append(error) => append_code(error),
        }
    }

    /// As PublishAsync answers it (liftbridge §3.8): a code of the asynchronous error, whose text is `to_string`.
    pub(super) fn async_code(&self) -> i32 {
        let code = match self {
            Self::StreamMissing | Self::NoSuchStream(_) | Self::NoSuchPartition(_) => {
                AsyncCode::NotFound
            }
            Self::Denied(_) => AsyncCode::PermissionDenied,
            Self::Readonly(_) => AsyncCode::Readonly,
            Self::Internal
            | Self::PolicyMissing
            | Self::PolicyUnknown(_)
            | Self::TooManyHeaders
            | Self::InvalidSubject(_)
            | Self::Append(AppendError::Invalid(_))
            | Self::Rejected(RejectReason::TooLarge) => AsyncCode::BadRequest,
            Self::Rejected(RejectReason::IncorrectOffset) => AsyncCode::IncorrectOffset,
            Self::Rejected(RejectReason::Encryption) => AsyncCode::EncryptionFailed,
            Self::NotOpen(_)
            | Self::NotLeader { .. }
            | Self::Paused(_)
            | Self::NotResumed(_)
            | Self::Rejected(
                RejectReason::Batch | RejectReason::Duplicate(_) | RejectReason::Refused(_),
            )
            | Self::Append(_) => AsyncCode::Internal,
        };
        code as i32
    }
}

/// Retry here or elsewhere: UNAVAILABLE; make room first: `RESOURCE_EXHAUSTED`; otherwise the outcome or the cause is ours.
fn append_code(error: &AppendError) -> Code {
    match error {
        AppendError::NotLeader
        | AppendError::Closed
        | AppendError::Unreachable(_)
        | AppendError::Busy
        | AppendError::NoDescriptor => Code::Unavailable,
        AppendError::Full => Code::ResourceExhausted,
        AppendError::Invalid(_) => Code::InvalidArgument,
        AppendError::Sequence(_) | AppendError::Readonly | AppendError::TooFewReplicas { .. } => {
            Code::FailedPrecondition
        }
        _ => Code::Internal,
    }
}
