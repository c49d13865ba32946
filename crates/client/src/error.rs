//! Errors of the SDK's calls.
use crate::foreign;
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::ERROR_TRAILER;
use bascule_wire::liftbridge::acks::AsyncErrorView;
use serde_json::{Map, Value};
use std::num::NonZeroU32;
use tonic::Status;

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
    /// Values that the broker sent beside the code (docs/reference/errors.md).
    #[serde(flatten)]
    pub reported: Map<String, Value>,
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
        let document = status.metadata().get_bin(ERROR_TRAILER);
        let document = document.and_then(|value| value.to_bytes().ok());
        let (code, reported) = document
            .and_then(|document| read_reported(&document))
            .unwrap_or_else(|| foreign::of_status(status));
        let code = match code {
            ErrorCode::DeadlineExceeded if effect == Effect::Write => ErrorCode::OutcomeUnknown,
            code => code,
        };
        let mut error = Self::new(code, status.message());
        if error.message.is_empty() {
            error.message = status.code().description().to_lowercase();
        }
        error.details.grpc_status = Some(status.code() as i32);
        error.details.reported = reported;
        error
    }

    /// An asynchronous error of PublishAsync.
    pub(crate) fn from_async(error: &AsyncErrorView) -> Self {
        let text = String::from_utf8_lossy(&error.message);
        let (code, reported) = read_reported(&error.error)
            .unwrap_or_else(|| (foreign::of_async(error.code, &text), Map::new()));
        let mut read = Self::new(code, text);
        read.details.reported = reported;
        read
    }

    /// The case of the code, when it has several that callers tell apart.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.details.reported.get("reason")?.as_str()
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

/// The code and the values that a broker of ours sends beside the text; `None` from other servers, and for a code that this
/// version does not know.
fn read_reported(document: &[u8]) -> Option<(ErrorCode, Map<String, Value>)> {
    let mut fields: Map<String, Value> = serde_json::from_slice(document).ok()?;
    let code = ErrorCode::parse(fields.remove("code")?.as_str()?)?;
    Some((code, fields))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tonic::metadata::MetadataValue;

    fn reported(mut status: Status, document: &str) -> Status {
        let value = MetadataValue::from_bytes(document.as_bytes());
        status.metadata_mut().insert_bin(ERROR_TRAILER, value);
        status
    }

    #[test]
    fn the_trailer_decides_and_not_the_text() {
        let status = reported(
            Status::failed_precondition("readonly partition: 0"),
            r#"{"code": "not_enough_replicas", "in_sync": 1, "min_isr": 2}"#,
        );
        let error = Error::from_status(&status, Effect::Write);
        assert_eq!(error.code, ErrorCode::NotEnoughReplicas);
        let details: Value = serde_json::from_str(&error.details_json()).unwrap();
        assert_eq!(
            details,
            json!({"grpc_status": 9, "in_sync": 1, "min_isr": 2})
        );
        let paused = r#"{"code": "failed_precondition", "reason": "paused"}"#;
        let error = Error::from_status(&reported(Status::internal(""), paused), Effect::Read);
        assert_eq!(error.reason(), Some("paused"));
    }

    #[test]
    fn a_trailer_that_is_not_readable_leaves_the_decision_to_status_and_text() {
        for document in ["", "[]", "{}", r#"{"code": 7}"#, r#"{"code": "later"}"#] {
            let status = reported(Status::not_found("no such stream: x"), document);
            let error = Error::from_status(&status, Effect::Read);
            assert_eq!(error.code, ErrorCode::StreamNotFound, "{document}");
        }
    }

    #[test]
    fn an_asynchronous_error_says_its_code_itself() {
        let view = |error: &'static str| AsyncErrorView {
            code: 3,
            message: "x".into(),
            error: error.into(),
        };
        let error = Error::from_async(&view(r#"{"code": "sequence_gap"}"#));
        assert_eq!(
            (error.code, error.message.as_str()),
            (ErrorCode::SequenceGap, "x")
        );
        assert_eq!(Error::from_async(&view("")).code, ErrorCode::Internal);
    }

    #[test]
    fn a_deadline_is_only_unknown_for_what_changes_something() {
        let foreign = Status::deadline_exceeded("context deadline exceeded");
        let ours = reported(foreign.clone(), r#"{"code": "deadline_exceeded"}"#);
        for status in [foreign, ours] {
            let read = Error::from_status(&status, Effect::Read);
            assert_eq!(read.code, ErrorCode::DeadlineExceeded);
            let write = Error::from_status(&status, Effect::Write);
            assert_eq!(write.code, ErrorCode::OutcomeUnknown);
        }
    }
}
