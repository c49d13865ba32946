//! Errors of the SDK's calls.
use bascule_wire::ErrorCode;
use std::num::NonZeroU32;
use tonic::{Code, Status};

/// A failure with a code of `specs/errors.toml`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The code.
    pub code: ErrorCode,
    /// One sentence in lower case.
    pub message: String,
    /// Further fields.
    pub details: Details,
}

/// Fields beside the message; absent when unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Details {
    /// Index of the record in its batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Length of its message, of code `too_large`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<NonZeroU32>,
    /// How many records of the batch are known to be stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<usize>,
    /// `true`: nothing is stored twice when the same call is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend: Option<bool>,
    /// The status as the broker sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<i32>,
    /// First damaged offset, of code `damaged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// First offset after the damage; reading can continue there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
}

/// Whether the call has a side effect, for failures that leave its outcome open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No side effect: a retry is safe.
    Read,
    /// The side effect may have happened.
    Write,
}

impl Error {
    /// A failure without a gRPC status.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Details::default(),
        }
    }

    /// The details as JSON.
    pub fn details_json(&self) -> String {
        serde_json::to_string(&self.details).unwrap_or_else(|_| "{}".into())
    }

    /// The deadline passed.
    pub(crate) fn deadline(effect: Effect) -> Self {
        match effect {
            Effect::Read => Self::new(
                ErrorCode::DeadlineExceeded,
                "the deadline passed before the broker answered",
            ),
            Effect::Write => Self::new(
                ErrorCode::OutcomeUnknown,
                "the deadline passed before the broker answered; it may have been done",
            ),
        }
    }

    /// A status that the broker sent.
    pub(crate) fn from_status(status: &Status, effect: Effect) -> Self {
        let mut error = Self::new(code_of(status, effect), status.message());
        if error.message.is_empty() {
            error.message = status.code().description().to_lowercase();
        }
        error.details.grpc_status = Some(status.code() as i32);
        let number = |name: &str| status.metadata().get(name)?.to_str().ok()?.parse().ok();
        error.details.start = number("bascule-damaged-start");
        error.details.end = number("bascule-damaged-end");
        error
    }

    /// A broken connection. A write has certainly not happened only when it was never sent.
    pub(crate) fn from_transport(
        address: &str,
        error: &(dyn std::error::Error + 'static),
        effect: Effect,
    ) -> Self {
        let mut text = format!("broker at {address}: {error}");
        let (mut sent, mut cause) = (true, error.source());
        while let Some(source) = cause {
            sent &= !source.is::<tonic::ConnectError>();
            text = format!("{text}: {source}");
            cause = source.source();
        }
        if crate::tls::is_refused(&text) {
            return Self::new(ErrorCode::TlsFailed, text);
        }
        match effect {
            Effect::Write if sent => Self::new(ErrorCode::OutcomeUnknown, text),
            _ => Self::new(ErrorCode::Unavailable, text),
        }
    }
}

/// Prefix of the rejection when the partition is not open: nothing was stored, and the broker keeps trying to open it.
const NOT_OPEN: &str = "failed to resume stream";

/// Prefix of the rejection of a new encrypted stream.
const NO_MASTER_KEY: &str = "Failed on preconditions for stream's encryption handler";
/// Rejection of a record whose stream's data key is missing.
const NOT_ENCRYPTED: &str = "encryption failed on partition";

/// Maps a status to a code; where one status has several meanings, the protocol's fixed text distinguishes them.
fn code_of(status: &Status, effect: Effect) -> ErrorCode {
    let text = status.message();
    match status.code() {
        Code::Unavailable => ErrorCode::Unavailable,
        Code::DeadlineExceeded if effect == Effect::Write => ErrorCode::OutcomeUnknown,
        Code::DeadlineExceeded => ErrorCode::DeadlineExceeded,
        Code::NotFound => not_found(text),
        Code::AlreadyExists => ErrorCode::StreamExists,
        Code::FailedPrecondition if text.starts_with("readonly partition") => ErrorCode::Readonly,
        Code::FailedPrecondition if text.starts_with(NO_MASTER_KEY) => {
            ErrorCode::EncryptionUnavailable
        }
        Code::FailedPrecondition if text.contains("cannot be decrypted") => {
            ErrorCode::EncryptionKeyMissing
        }
        Code::FailedPrecondition | Code::Internal if let Some(code) = append_code(text) => code,
        Code::FailedPrecondition if text.to_lowercase().contains("leader") => ErrorCode::NotLeader,
        Code::FailedPrecondition | Code::Aborted => ErrorCode::FailedPrecondition,
        Code::InvalidArgument if text.starts_with("message exceeds") => ErrorCode::TooLarge,
        Code::InvalidArgument => ErrorCode::InvalidArgument,
        Code::OutOfRange => ErrorCode::OffsetOutOfRange,
        Code::ResourceExhausted => exhausted(text),
        Code::PermissionDenied => ErrorCode::PermissionDenied,
        Code::Unauthenticated => ErrorCode::Unauthenticated,
        Code::Unimplemented => ErrorCode::Unimplemented,
        Code::DataLoss => ErrorCode::Damaged,
        Code::Cancelled => ErrorCode::Closed,
        Code::Unknown if text == "incorrect expected offset" => ErrorCode::IncorrectOffset,
        Code::Unknown if text.starts_with("failed to publish to NATS") => {
            ErrorCode::NatsUnavailable
        }
        Code::Internal if text == "no known metadata leader" => ErrorCode::Unavailable,
        Code::Internal if text.starts_with(NOT_OPEN) => ErrorCode::Unavailable,
        Code::Internal if text == NOT_ENCRYPTED => ErrorCode::EncryptionKeyMissing,
        _ => ErrorCode::Internal,
    }
}

/// The code of a rejected append that concerns its producer, its replicas or its key.
fn append_code(text: &str) -> Option<ErrorCode> {
    let reason = text.strip_prefix("failed to append: ")?;
    if reason.starts_with("not enough in-sync replicas") {
        Some(ErrorCode::NotEnoughReplicas)
    } else if reason.starts_with("batch was not encrypted") {
        Some(ErrorCode::EncryptionKeyMissing)
    } else if reason.starts_with("sequence ") {
        Some(ErrorCode::SequenceGap)
    } else if reason.starts_with("producer epoch ") {
        Some(ErrorCode::ProducerFenced)
    } else if reason.contains("another one is refused for now") {
        Some(ErrorCode::TooManyProducers)
    } else {
        None
    }
}

fn not_found(text: &str) -> ErrorCode {
    const STREAM: [&str; 4] = [
        "no such stream",
        "stream not found",
        "stream does not exist",
        "commit log was deleted",
    ];
    if STREAM.iter().any(|start| text.starts_with(start)) {
        ErrorCode::StreamNotFound
    } else if text.to_lowercase().contains("partition") {
        ErrorCode::PartitionNotFound
    } else {
        ErrorCode::NotFound
    }
}

fn exhausted(text: &str) -> ErrorCode {
    match text {
        "Stop offset reached" | "End of readonly partition" | "Stream is empty" | "EOF" => {
            ErrorCode::EndOfStream
        }
        _ if text.contains("no space left") => ErrorCode::DiskFull,
        _ if text.contains("larger than max") => ErrorCode::TooLarge,
        _ => ErrorCode::Busy,
    }
}

/// The code of an asynchronous error of PublishAsync, by its number.
pub(crate) fn async_code(number: i32, text: &str) -> ErrorCode {
    use bascule_wire::liftbridge::messages::PublishAsyncErrorCode as Number;
    match Number::try_from(number) {
        Ok(Number::BadRequest) if text.starts_with("message exceeds") => ErrorCode::TooLarge,
        Ok(Number::BadRequest) => ErrorCode::InvalidArgument,
        Ok(Number::NotFound) => not_found(text),
        Ok(Number::Readonly) => ErrorCode::Readonly,
        Ok(Number::IncorrectOffset) => ErrorCode::IncorrectOffset,
        Ok(Number::PermissionDenied) => ErrorCode::PermissionDenied,
        Ok(Number::EncryptionFailed) => ErrorCode::EncryptionKeyMissing,
        Ok(Number::Internal) if text.starts_with(NOT_OPEN) => ErrorCode::Unavailable,
        Ok(Number::Internal) if text.contains("no space left") => ErrorCode::DiskFull,
        Ok(Number::Internal) if text.contains("queue is full") => ErrorCode::Busy,
        Ok(Number::Internal) if text.contains("not led here") => ErrorCode::NotLeader,
        Ok(Number::Internal) if text.contains("partition is closed") => ErrorCode::Unavailable,
        Ok(Number::Internal) if let Some(code) = append_code(text) => code,
        Ok(Number::Internal) if text.contains("storage failed") => ErrorCode::StorageFailed,
        _ => ErrorCode::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_codes() {
        let cases = [
            (Status::unavailable("x"), ErrorCode::Unavailable),
            (
                Status::not_found("no such stream: x"),
                ErrorCode::StreamNotFound,
            ),
            (
                Status::not_found("commit log was deleted"),
                ErrorCode::StreamNotFound,
            ),
            (
                Status::not_found("No such partition"),
                ErrorCode::PartitionNotFound,
            ),
            (Status::already_exists("x"), ErrorCode::StreamExists),
            (
                Status::failed_precondition("readonly partition: 0"),
                ErrorCode::Readonly,
            ),
            (
                Status::failed_precondition("Server not partition leader"),
                ErrorCode::NotLeader,
            ),
            (
                Status::failed_precondition("commit log was closed"),
                ErrorCode::FailedPrecondition,
            ),
            (
                Status::invalid_argument("message exceeds max replication size"),
                ErrorCode::TooLarge,
            ),
            (
                Status::resource_exhausted("Stop offset reached"),
                ErrorCode::EndOfStream,
            ),
            (
                Status::resource_exhausted("Stream is empty"),
                ErrorCode::EndOfStream,
            ),
            (Status::resource_exhausted("EOF"), ErrorCode::EndOfStream),
            (
                Status::resource_exhausted("limits.subscriptions (1) subscriptions are open"),
                ErrorCode::Busy,
            ),
            (
                Status::resource_exhausted("failed to append: no space left on the data directory"),
                ErrorCode::DiskFull,
            ),
            (
                Status::unknown("incorrect expected offset"),
                ErrorCode::IncorrectOffset,
            ),
            (
                Status::unknown("failed to publish to NATS: nats: no connection"),
                ErrorCode::NatsUnavailable,
            ),
            (
                Status::internal("no known metadata leader"),
                ErrorCode::Unavailable,
            ),
            (Status::permission_denied("x"), ErrorCode::PermissionDenied),
            (
                Status::failed_precondition(
                    "failed to append: sequence 3 does not follow: 2 is next",
                ),
                ErrorCode::SequenceGap,
            ),
            (
                Status::failed_precondition("failed to append: producer epoch 1 is fenced by 2"),
                ErrorCode::ProducerFenced,
            ),
            (
                Status::failed_precondition(
                    "failed to append: 10000 producers appended within 15 minutes; another one is refused for now",
                ),
                ErrorCode::TooManyProducers,
            ),
            (Status::data_loss("x"), ErrorCode::Damaged),
            (Status::unknown("x"), ErrorCode::Internal),
        ];
        assert_codes(&cases);
    }

    #[test]
    fn missing_streams_partitions_and_keys_have_distinct_codes() {
        assert_codes(&[
            (
                Status::failed_precondition(
                    "failed to append: not enough in-sync replicas: there are 1, min ISR is 2",
                ),
                ErrorCode::NotEnoughReplicas,
            ),
            (
                Status::failed_precondition(
                    "Failed on preconditions for stream's encryption handler: invalid AES key size 0",
                ),
                ErrorCode::EncryptionUnavailable,
            ),
            (
                Status::failed_precondition(
                    "batch at or after offset 0 cannot be decrypted: its master key \"one\" is not configured",
                ),
                ErrorCode::EncryptionKeyMissing,
            ),
            (
                Status::internal("encryption failed on partition"),
                ErrorCode::EncryptionKeyMissing,
            ),
            (
                Status::internal("failed to append: batch was not encrypted: x"),
                ErrorCode::EncryptionKeyMissing,
            ),
        ]);
    }

    fn assert_codes(cases: &[(Status, ErrorCode)]) {
        for (status, code) in cases {
            let error = Error::from_status(status, Effect::Read);
            assert_eq!(error.code, *code, "{status}");
        }
    }

    #[test]
    fn asynchronous_errors_become_the_same_codes() {
        let cases = [
            (
                1,
                "message exceeds max replication size",
                ErrorCode::TooLarge,
            ),
            (
                6,
                "encryption failed on partition",
                ErrorCode::EncryptionKeyMissing,
            ),
            (
                3,
                "failed to append: not enough in-sync replicas: there are 1, min ISR is 2",
                ErrorCode::NotEnoughReplicas,
            ),
            (
                3,
                "failed to append: sequence 3 does not follow",
                ErrorCode::SequenceGap,
            ),
            (3, "x", ErrorCode::Internal),
        ];
        for (number, text, code) in cases {
            assert_eq!(async_code(number, text), code, "{text}");
        }
    }

    #[test]
    fn a_deadline_leaves_only_writes_unknown() {
        let status = Status::deadline_exceeded("context deadline exceeded");
        assert_eq!(
            Error::from_status(&status, Effect::Read).code,
            ErrorCode::DeadlineExceeded
        );
        assert_eq!(
            Error::from_status(&status, Effect::Write).code,
            ErrorCode::OutcomeUnknown
        );
    }
}
