//! What statuses of other servers mean: they have no code of `specs/errors.toml`, so that the status and its text have to do.
//! Brokers of ours send the code ([`crate::Error`]); no text of theirs is listed here.
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::messages::PublishAsyncErrorCode as AsyncCode;
use serde_json::{Map, Value};
use tonic::{Code, Status};

/// How a refusal begins when the partition is not open: nothing was taken, and the server continues to try to open it.
const NOT_OPEN: &str = "failed to resume stream";
/// How a refusal to create an encrypted stream begins.
const NO_MASTER_KEY: &str = "Failed on preconditions for stream's encryption handler";
/// How a record of an encrypted stream is refused whose key is missing.
const NOT_ENCRYPTED: &str = "encryption failed on partition";
/// Beginnings of texts, and the reason that a broker of ours sends with the same text.
const REASONS: [(&str, &str); 10] = [
    ("Stop offset is before start offset", "empty_range"),
    ("Failed to lookup offset for timestamp", "empty_range"),
    (
        "Failed to create stream reader: segment not found",
        "empty_range",
    ),
    ("commit log was closed", "paused"),
    ("commit log was deleted", "deleted"),
    ("consumer is not a member", "not_a_member"),
    ("consumer is already a member", "already_member"),
    ("consumer group does not exist", "group_not_found"),
    (
        "broker is not the consumer group coordinator",
        "not_coordinator",
    ),
    ("Subject is invalid", "invalid_subject"),
];

/// The code of a status, and its reason in the details.
pub(crate) fn of_status(status: &Status) -> (ErrorCode, Map<String, Value>) {
    let text = status.message();
    let known = REASONS.iter().find(|(start, _)| text.starts_with(start));
    let reason = known.map(|(_, reason)| ("reason".to_owned(), Value::from(*reason)));
    let mut details: Map<String, Value> = reason.into_iter().collect();
    if let Some((size, most)) = sizes(text) {
        details.insert("message_bytes".to_owned(), Value::from(size));
        details.insert("limit".to_owned(), Value::from(most));
    }
    (code_of(status.code(), text), details)
}

/// The sizes in `grpc: received message larger than max (5 vs. 4)`.
fn sizes(text: &str) -> Option<(u64, u64)> {
    let (_, sizes) = text.split_once("larger than max (")?;
    let (size, most) = sizes.strip_suffix(')')?.split_once(" vs. ")?;
    Some((size.parse().ok()?, most.parse().ok()?))
}

fn code_of(code: Code, text: &str) -> ErrorCode {
    match code {
        Code::Unavailable => ErrorCode::Unavailable,
        Code::DeadlineExceeded => ErrorCode::DeadlineExceeded,
        Code::NotFound => not_found(text),
        Code::AlreadyExists => ErrorCode::StreamExists,
        Code::FailedPrecondition if text.starts_with("readonly partition") => ErrorCode::Readonly,
        Code::FailedPrecondition if text.starts_with(NO_MASTER_KEY) => {
            ErrorCode::EncryptionUnavailable
        }
        Code::FailedPrecondition if text.starts_with("stream does not exist") => {
            ErrorCode::StreamNotFound
        }
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
        "Stop offset reached" | "End of readonly partition" | "Stream is empty" => {
            ErrorCode::EndOfStream
        }
        _ if text.contains("larger than max") => ErrorCode::TooLarge,
        _ => ErrorCode::Busy,
    }
}

/// The code of an asynchronous error of PublishAsync, by its number.
pub(crate) fn of_async(number: i32, text: &str) -> ErrorCode {
    match AsyncCode::try_from(number) {
        Ok(AsyncCode::BadRequest) if text.starts_with("message exceeds") => ErrorCode::TooLarge,
        Ok(AsyncCode::BadRequest) => ErrorCode::InvalidArgument,
        Ok(AsyncCode::NotFound) => not_found(text),
        Ok(AsyncCode::Readonly) => ErrorCode::Readonly,
        Ok(AsyncCode::IncorrectOffset) => ErrorCode::IncorrectOffset,
        Ok(AsyncCode::PermissionDenied) => ErrorCode::PermissionDenied,
        Ok(AsyncCode::EncryptionFailed) => ErrorCode::EncryptionKeyMissing,
        Ok(AsyncCode::Internal) if text.starts_with(NOT_OPEN) => ErrorCode::Unavailable,
        _ => ErrorCode::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_other_servers_become_codes() {
        let cases = [
            (Code::Unavailable, "x", ErrorCode::Unavailable),
            (
                Code::NotFound,
                "no such stream: x",
                ErrorCode::StreamNotFound,
            ),
            (
                Code::NotFound,
                "commit log was deleted",
                ErrorCode::StreamNotFound,
            ),
            (
                Code::NotFound,
                "No such partition",
                ErrorCode::PartitionNotFound,
            ),
            (Code::AlreadyExists, "x", ErrorCode::StreamExists),
            (
                Code::FailedPrecondition,
                "readonly partition: 0",
                ErrorCode::Readonly,
            ),
            (
                Code::FailedPrecondition,
                "Server not partition leader",
                ErrorCode::NotLeader,
            ),
            (
                Code::FailedPrecondition,
                "commit log was closed",
                ErrorCode::FailedPrecondition,
            ),
            (
                Code::FailedPrecondition,
                "Failed on preconditions for stream's encryption handler: invalid AES key size 0",
                ErrorCode::EncryptionUnavailable,
            ),
            (
                Code::InvalidArgument,
                "message exceeds max replication size",
                ErrorCode::TooLarge,
            ),
            (
                Code::ResourceExhausted,
                "Stop offset reached",
                ErrorCode::EndOfStream,
            ),
            (
                Code::ResourceExhausted,
                "Stream is empty",
                ErrorCode::EndOfStream,
            ),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (5 vs. 4)",
                ErrorCode::TooLarge,
            ),
            (Code::ResourceExhausted, "x", ErrorCode::Busy),
            (
                Code::Unknown,
                "incorrect expected offset",
                ErrorCode::IncorrectOffset,
            ),
            (
                Code::Unknown,
                "failed to publish to NATS: nats: no connection",
                ErrorCode::NatsUnavailable,
            ),
            (
                Code::Internal,
                "no known metadata leader",
                ErrorCode::Unavailable,
            ),
            (
                Code::Internal,
                "encryption failed on partition",
                ErrorCode::EncryptionKeyMissing,
            ),
            (Code::PermissionDenied, "x", ErrorCode::PermissionDenied),
            (Code::DataLoss, "x", ErrorCode::Damaged),
            (Code::Unknown, "x", ErrorCode::Internal),
        ];
        for (status, text, code) in cases {
            assert_eq!(of_status(&Status::new(status, text)).0, code, "{text}");
        }
    }

    #[test]
    fn texts_that_callers_tell_apart_become_reasons() {
        let status = Status::failed_precondition("commit log was closed");
        assert_eq!(of_status(&status).1["reason"], "paused");
        assert!(of_status(&Status::internal("x")).1.is_empty());
        let large = Status::resource_exhausted("grpc: received message larger than max (5 vs. 4)");
        let details = of_status(&large).1;
        assert_eq!(
            (&details["message_bytes"], &details["limit"]),
            (&5.into(), &4.into())
        );
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
            (3, "x", ErrorCode::Internal),
        ];
        for (number, text, code) in cases {
            assert_eq!(of_async(number, text), code, "{text}");
        }
    }
}
