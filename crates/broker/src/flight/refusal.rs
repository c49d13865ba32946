//! Errors for clients: gRPC statuses with one sentence each, and the values in JSON details.
//!
//! Details travel as `grpc-status-details-bin`: an object with `code` (stable) and the values that matter, so that a
//! client need not read sentences. Several Arrow clients keep details to themselves: the sentence ends with the code too.
use crate::access::Denied;
use crate::partition::{AppendError, EndReason, damage_sentence};
use crate::stage::StageError;
use bascule_log::integrity::Damage;
use bascule_log::{ReadError, SequenceError};
use bascule_record::DamageError;
use bascule_wire::ErrorCode;
use bytes::Bytes;
use serde_json::{Value, json};
use tonic::{Code, Status};

/// A status with details: `details` is a JSON object without `code`.
#[allow(clippy::needless_pass_by_value)] // callers format a sentence for this
pub fn refuse(grpc: Code, code: ErrorCode, message: String, mut details: Value) -> Status {
    if let Some(object) = details.as_object_mut() {
        object.insert("code".to_owned(), Value::from(code.as_str()));
    }
    let message = format!("{message} [{code}]");
    Status::with_details(grpc, message, Bytes::from(details.to_string()))
}

/// The document or a value in it is wrong: the caller must change the call.
pub fn invalid(message: String) -> Status {
    refuse(
        Code::InvalidArgument,
        ErrorCode::InvalidArgument,
        message,
        json!({}),
    )
}

/// A method that is not offered.
pub fn unimplemented(message: &str) -> Status {
    refuse(
        Code::Unimplemented,
        ErrorCode::Unimplemented,
        message.to_owned(),
        json!({}),
    )
}

/// Our bug.
pub fn internal(message: String) -> Status {
    refuse(Code::Internal, ErrorCode::Internal, message, json!({}))
}

/// The client may not.
pub fn denied(denied: &Denied) -> Status {
    let (grpc, code) = match denied {
        Denied::Nameless => (Code::Unauthenticated, ErrorCode::Unauthenticated),
        Denied::NotAllowed { .. } => (Code::PermissionDenied, ErrorCode::PermissionDenied),
    };
    refuse(grpc, code, denied.to_string(), json!({}))
}

/// Outside the readable offsets. `what` is `namespace/stream/partition`.
pub fn out_of_range(what: &str, offset: u64, log_start: u64, high_watermark: u64) -> Status {
    let message = if offset < log_start {
        format!("offset {offset} is below the log start offset {log_start} of {what}")
    } else {
        format!("offset {offset} is beyond the high watermark {high_watermark} of {what}")
    };
    let details =
        json!({"offset": offset, "log_start": log_start, "high_watermark": high_watermark});
    refuse(
        Code::OutOfRange,
        ErrorCode::OffsetOutOfRange,
        message,
        details,
    )
}

/// The record before `offset` is another one than the caller has read.
pub fn history_changed(what: &str, offset: u64, expected: u32, actual: u32) -> Status {
    refuse(
        Code::FailedPrecondition,
        ErrorCode::HistoryChanged,
        format!(
            "the log of {what} was replaced: the batch before offset {offset} has link {actual}, the reader expects {expected}"
        ),
        json!({"offset": offset, "expected": expected, "actual": actual}),
    )
}

/// Stored bytes of `what` fail their checksum.
fn damaged(what: &str, damage: &Damage) -> Status {
    let details = json!({
        "start": damage.start,
        "end": damage.end,
        "fault": damage.fault.name(),
        "file": damage.path.file_name().map(|name| name.to_string_lossy()),
        "position": damage.position,
    });
    refuse(
        Code::DataLoss,
        ErrorCode::Damaged,
        damage_sentence(what, damage),
        details,
    )
}

/// Stored bytes of `what` need a key that is not there.
pub fn key_unavailable(what: &str, start: u64, end: u64, error: &DamageError) -> Status {
    refuse(
        Code::FailedPrecondition,
        ErrorCode::EncryptionKeyMissing,
        format!("offsets [{start}, {end}) of {what} cannot be decrypted: {error}"),
        json!({"start": start, "end": end}),
    )
}

/// A failed read of `what`. [`ReadError::WouldBlock`] never gets here.
pub fn read_failed(what: &str, error: &ReadError) -> Status {
    match error {
        ReadError::OutOfRange { offset, start, end } => out_of_range(what, *offset, *start, *end),
        ReadError::Damaged(damage) => damaged(what, damage),
        ReadError::Locked { start, end, source } => key_unavailable(what, *start, *end, source),
        ReadError::Closed => ended(what, EndReason::Closed),
        error => refuse(
            Code::Internal,
            ErrorCode::StorageFailed,
            format!("reading {what} failed: {error}"),
            json!({}),
        ),
    }
}

/// The partition `what` is no longer served.
pub fn ended(what: &str, reason: EndReason) -> Status {
    match reason {
        EndReason::Deleted => refuse(
            Code::NotFound,
            ErrorCode::StreamNotFound,
            format!("{what} was deleted"),
            json!({}),
        ),
        EndReason::Paused => refuse(
            Code::FailedPrecondition,
            ErrorCode::FailedPrecondition,
            format!("{what} is paused: publish to it, or resume it with `bascule stream resume`"),
            json!({}),
        ),
        EndReason::Open | EndReason::Closed => refuse(
            Code::Unavailable,
            ErrorCode::Unavailable,
            format!("{what} was closed by the broker"),
            json!({}),
        ),
    }
}

/// Rows that were not staged.
pub fn staging_failed(error: &StageError) -> Status {
    let code = error.code();
    let grpc = match code {
        ErrorCode::InvalidArgument => Code::InvalidArgument,
        ErrorCode::SinkNotFound | ErrorCode::StreamNotFound => Code::NotFound,
        ErrorCode::SinkNotOwned => Code::PermissionDenied,
        ErrorCode::SinkQuota | ErrorCode::DiskFull | ErrorCode::Busy => Code::ResourceExhausted,
        ErrorCode::Unavailable | ErrorCode::StageFailed => Code::Unavailable,
        _ => Code::FailedPrecondition,
    };
    refuse(grpc, code, error.to_string(), error.details())
}

/// A failed append to `what`.
pub fn append_failed(what: &str, error: &AppendError) -> Status {
    let grpc = match error {
        AppendError::Closed | AppendError::Unreachable(_) => Code::Unavailable,
        AppendError::Denied(Denied::Nameless) => Code::Unauthenticated,
        AppendError::Denied(_) => Code::PermissionDenied,
        AppendError::Invalid(_) => Code::InvalidArgument,
        AppendError::Busy
        | AppendError::NoDescriptor
        | AppendError::Full
        | AppendError::Sequence(SequenceError::TooMany { .. }) => Code::ResourceExhausted,
        AppendError::Storage(_) | AppendError::LeaderChanged | AppendError::Unknown(_) => {
            Code::DeadlineExceeded
        }
        AppendError::NotLeader
        | AppendError::Readonly
        | AppendError::TooFewReplicas { .. }
        | AppendError::Encryption(_)
        | AppendError::Sequence(_) => Code::FailedPrecondition,
    };
    let details = match error {
        AppendError::Sequence(SequenceError::Gap { expected, got }) => {
            json!({"expected": expected, "got": got})
        }
        _ => json!({}),
    };
    refuse(
        grpc,
        error.code(),
        format!("append to {what} failed: {error}"),
        details,
    )
}
