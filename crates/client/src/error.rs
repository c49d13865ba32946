//! Errors of the SDK's calls.
use std::num::NonZeroU32;
use tonic::{Code, Status};

/// A failure with a code of `specs/errors.toml`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The code.
    pub code: &'static str,
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
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
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
                "deadline_exceeded",
                "the deadline passed before the broker answered",
            ),
            Effect::Write => Self::new(
                "outcome_unknown",
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
            return Self::new("tls_failed", text);
        }
        match effect {
            Effect::Write if sent => Self::new("outcome_unknown", text),
            _ => Self::new("unavailable", text),
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
fn code_of(status: &Status, effect: Effect) -> &'static str {
    let text = status.message();
    match status.code() {
        Code::Unavailable => "unavailable",
        Code::DeadlineExceeded if effect == Effect::Write => "outcome_unknown",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => not_found(text),
        Code::AlreadyExists => "stream_exists",
        Code::FailedPrecondition if text.starts_with("readonly partition") => "readonly",
        Code::FailedPrecondition if text.starts_with(NO_MASTER_KEY) => "encryption_unavailable",
        Code::FailedPrecondition if text.contains("cannot be decrypted") => {
            "encryption_key_missing"
        }
        Code::FailedPrecondition | Code::Internal if let Some(code) = append_code(text) => code,
        Code::FailedPrecondition if text.to_lowercase().contains("leader") => "not_leader",
        Code::FailedPrecondition | Code::Aborted => "failed_precondition",
        Code::InvalidArgument if text.starts_with("message exceeds") => "too_large",
        Code::InvalidArgument => "invalid_argument",
        Code::OutOfRange => "offset_out_of_range",
        Code::ResourceExhausted => exhausted(text),
        Code::PermissionDenied => "permission_denied",
        Code::Unauthenticated => "unauthenticated",
        Code::Unimplemented => "unimplemented",
        Code::DataLoss => "damaged",
        Code::Cancelled => "closed",
        Code::Unknown if text == "incorrect expected offset" => "incorrect_offset",
        Code::Unknown if text.starts_with("failed to publish to NATS") => "nats_unavailable",
        Code::Internal if text == "no known metadata leader" => "unavailable",
        Code::Internal if text.starts_with(NOT_OPEN) => "unavailable",
        Code::Internal if text == NOT_ENCRYPTED => "encryption_key_missing",
        _ => "internal",
    }
}

/// The code of a rejected append that concerns its producer, its replicas or its key.
fn append_code(text: &str) -> Option<&'static str> {
    let reason = text.strip_prefix("failed to append: ")?;
    if reason.starts_with("not enough in-sync replicas") {
        Some("not_enough_replicas")
    } else if reason.starts_with("batch was not encrypted") {
        Some("encryption_key_missing")
    } else if reason.starts_with("sequence ") {
        Some("sequence_gap")
    } else if reason.starts_with("producer epoch ") {
        Some("producer_fenced")
    } else if reason.contains("another one is refused for now") {
        Some("too_many_producers")
    } else {
        None
    }
}

fn not_found(text: &str) -> &'static str {
    const STREAM: [&str; 4] = [
        "no such stream",
        "stream not found",
        "stream does not exist",
        "commit log was deleted",
    ];
    if STREAM.iter().any(|start| text.starts_with(start)) {
        "stream_not_found"
    } else if text.to_lowercase().contains("partition") {
        "partition_not_found"
    } else {
        "not_found"
    }
}

fn exhausted(text: &str) -> &'static str {
    match text {
        "Stop offset reached" | "End of readonly partition" | "Stream is empty" | "EOF" => {
            "end_of_stream"
        }
        _ if text.contains("no space left") => "disk_full",
        _ if text.contains("larger than max") => "too_large",
        _ => "busy",
    }
}

/// The code of an asynchronous error of PublishAsync, by its number.
pub(crate) fn async_code(number: i32, text: &str) -> &'static str {
    use bascule_wire::liftbridge::messages::PublishAsyncErrorCode as Number;
    match Number::try_from(number) {
        Ok(Number::BadRequest) if text.starts_with("message exceeds") => "too_large",
        Ok(Number::BadRequest) => "invalid_argument",
        Ok(Number::NotFound) => not_found(text),
        Ok(Number::Readonly) => "readonly",
        Ok(Number::IncorrectOffset) => "incorrect_offset",
        Ok(Number::PermissionDenied) => "permission_denied",
        Ok(Number::EncryptionFailed) => "encryption_key_missing",
        Ok(Number::Internal) if text.starts_with(NOT_OPEN) => "unavailable",
        Ok(Number::Internal) if text.contains("no space left") => "disk_full",
        Ok(Number::Internal) if text.contains("queue is full") => "busy",
        Ok(Number::Internal) if text.contains("not led here") => "not_leader",
        Ok(Number::Internal) if text.contains("partition is closed") => "unavailable",
        Ok(Number::Internal) if let Some(code) = append_code(text) => code,
        Ok(Number::Internal) if text.contains("storage failed") => "storage_failed",
        _ => "internal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_codes() {
        let cases = [
            (Status::unavailable("x"), "unavailable"),
            (Status::not_found("no such stream: x"), "stream_not_found"),
            (
                Status::not_found("commit log was deleted"),
                "stream_not_found",
            ),
            (
                Status::not_found("No such partition"),
                "partition_not_found",
            ),
            (Status::already_exists("x"), "stream_exists"),
            (
                Status::failed_precondition("readonly partition: 0"),
                "readonly",
            ),
            (
                Status::failed_precondition("Server not partition leader"),
                "not_leader",
            ),
            (
                Status::failed_precondition("commit log was closed"),
                "failed_precondition",
            ),
            (
                Status::invalid_argument("message exceeds max replication size"),
                "too_large",
            ),
            (
                Status::resource_exhausted("Stop offset reached"),
                "end_of_stream",
            ),
            (
                Status::resource_exhausted("Stream is empty"),
                "end_of_stream",
            ),
            (Status::resource_exhausted("EOF"), "end_of_stream"),
            (
                Status::resource_exhausted("limits.subscriptions (1) subscriptions are open"),
                "busy",
            ),
            (
                Status::resource_exhausted("failed to append: no space left on the data directory"),
                "disk_full",
            ),
            (
                Status::unknown("incorrect expected offset"),
                "incorrect_offset",
            ),
            (
                Status::unknown("failed to publish to NATS: nats: no connection"),
                "nats_unavailable",
            ),
            (Status::internal("no known metadata leader"), "unavailable"),
            (Status::permission_denied("x"), "permission_denied"),
            (
                Status::failed_precondition(
                    "failed to append: sequence 3 does not follow: 2 is next",
                ),
                "sequence_gap",
            ),
            (
                Status::failed_precondition("failed to append: producer epoch 1 is fenced by 2"),
                "producer_fenced",
            ),
            (
                Status::failed_precondition(
                    "failed to append: 10000 producers appended within 15 minutes; another one is refused for now",
                ),
                "too_many_producers",
            ),
            (Status::data_loss("x"), "damaged"),
            (Status::unknown("x"), "internal"),
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
                "not_enough_replicas",
            ),
            (
                Status::failed_precondition(
                    "Failed on preconditions for stream's encryption handler: invalid AES key size 0",
                ),
                "encryption_unavailable",
            ),
            (
                Status::failed_precondition(
                    "batch at or after offset 0 cannot be decrypted: its master key \"one\" is not configured",
                ),
                "encryption_key_missing",
            ),
            (
                Status::internal("encryption failed on partition"),
                "encryption_key_missing",
            ),
            (
                Status::internal("failed to append: batch was not encrypted: x"),
                "encryption_key_missing",
            ),
        ]);
    }

    fn assert_codes(cases: &[(Status, &str)]) {
        for (status, code) in cases {
            let error = Error::from_status(status, Effect::Read);
            assert_eq!(error.code, *code, "{status}");
        }
    }

    #[test]
    fn asynchronous_errors_become_the_same_codes() {
        let cases = [
            (1, "message exceeds max replication size", "too_large"),
            (
                6,
                "encryption failed on partition",
                "encryption_key_missing",
            ),
            (
                3,
                "failed to append: not enough in-sync replicas: there are 1, min ISR is 2",
                "not_enough_replicas",
            ),
            (
                3,
                "failed to append: sequence 3 does not follow",
                "sequence_gap",
            ),
            (3, "x", "internal"),
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
            "deadline_exceeded"
        );
        assert_eq!(
            Error::from_status(&status, Effect::Write).code,
            "outcome_unknown"
        );
    }
}
