//! Statuses as HTTP headers and trailers carry them, with the code of `specs/errors.toml` beside the text.
//!
//! Clients of ours decide by the trailer [`ERROR_TRAILER`], a JSON object of `code` and the values that the sentence names;
//! other clients ignore it. It is not `grpc-status-details-bin`: Go clients reject what they cannot decode there.
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::ERROR_TRAILER;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// Bytes of a text that is sent: percent-encoded it has at most three times as many, and clients take 8 KiB of headers.
const MOST: usize = 2048;
/// Bytes of the JSON object in the trailer; larger details are left out.
const MAX_DETAILS: usize = 1024;

/// Adds the code and the values of the sentence to a status.
pub(crate) trait Coded: Sized {
    /// With `code`.
    fn coded(self, code: ErrorCode) -> Self {
        self.detailed(code, json!({}))
    }

    /// With `code` and `details`, a JSON object.
    fn detailed(self, code: ErrorCode, details: Value) -> Self;

    /// With `code` and the case of it that clients tell apart.
    fn because(self, code: ErrorCode, reason: &str) -> Self {
        self.detailed(code, json!({ "reason": reason }))
    }
}

impl Coded for Status {
    fn detailed(mut self, code: ErrorCode, details: Value) -> Self {
        let value = MetadataValue::from_bytes(document(code, details).as_bytes());
        self.metadata_mut().insert_bin(ERROR_TRAILER, value);
        self
    }
}

/// The JSON object of a code and `details`, an object.
pub(crate) fn document(code: ErrorCode, mut details: Value) -> String {
    if let Some(object) = details.as_object_mut() {
        object.insert("code".to_owned(), Value::from(code.as_str()));
    }
    let text = details.to_string();
    if text.len() > MAX_DETAILS {
        return document(code, json!({}));
    }
    text
}

/// The error code that a status without a code stands for.
pub(crate) fn usual_code(status: Code) -> ErrorCode {
    match status {
        Code::InvalidArgument => ErrorCode::InvalidArgument,
        Code::NotFound => ErrorCode::NotFound,
        Code::AlreadyExists => ErrorCode::StreamExists,
        Code::PermissionDenied => ErrorCode::PermissionDenied,
        Code::Unauthenticated => ErrorCode::Unauthenticated,
        Code::ResourceExhausted => ErrorCode::Busy,
        Code::FailedPrecondition | Code::Aborted => ErrorCode::FailedPrecondition,
        Code::OutOfRange => ErrorCode::OffsetOutOfRange,
        Code::Unimplemented => ErrorCode::Unimplemented,
        Code::Unavailable => ErrorCode::Unavailable,
        Code::DeadlineExceeded => ErrorCode::DeadlineExceeded,
        Code::DataLoss => ErrorCode::Damaged,
        Code::Cancelled => ErrorCode::Closed,
        Code::Ok | Code::Unknown | Code::Internal => ErrorCode::Internal,
    }
}

/// The same status as it is sent: a text that does not fit into headers is cut and ends in "…"; one that failed has a code.
/// Flight's statuses have details of their own.
pub(crate) fn bounded(mut status: Status) -> Status {
    let text = status.message();
    if text.len() > MOST {
        let end = text.floor_char_boundary(MOST);
        let cut = format!("{}…", &text[..end]);
        let details = status.details().to_vec().into();
        let metadata = std::mem::take(status.metadata_mut());
        status = Status::with_details_and_metadata(status.code(), cut, details, metadata);
    }
    let has_code = status.metadata().get_bin(ERROR_TRAILER).is_some();
    if has_code || status.code() == Code::Ok || !status.details().is_empty() {
        return status;
    }
    let code = usual_code(status.code());
    status.coded(code)
}

/// The trailers that end a stream; the message is percent-encoded.
pub(crate) fn trailers(status: Status) -> HeaderMap {
    let status = bounded(status);
    let mut headers = HeaderMap::with_capacity(3);
    if status.add_header(&mut headers).is_err() {
        // Only for texts that no header can hold, which percent-encoding rules out; the code alone always fits.
        headers.clear();
        headers.insert("grpc-status", HeaderValue::from(status.code() as i32));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn the_message_is_percent_encoded() {
        let headers = trailers(Status::not_found("no such stream: a%b\n\u{fc}"));
        assert_eq!(headers["grpc-status"], "5");
        let text = headers["grpc-message"].to_str().unwrap();
        assert!(
            text.contains("%25") && text.contains("%0A") && text.contains("%C3%BC"),
            "{text}"
        );
        assert_eq!(trailers(Status::new(Code::Ok, ""))["grpc-status"], "0");
    }

    fn sent(status: Status) -> Value {
        let status = Status::from_header_map(&trailers(status)).unwrap();
        let value = status.metadata().get_bin(ERROR_TRAILER).unwrap();
        serde_json::from_slice(&value.to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn every_failure_has_a_code_and_keeps_it_when_its_text_is_cut() {
        let usual = sent(Status::resource_exhausted("wait"));
        assert_eq!(usual, json!({"code": "busy"}));
        let long = Status::not_found("x".repeat(1 << 16));
        let long = long.detailed(ErrorCode::StreamNotFound, json!({"offset": 7}));
        assert_eq!(sent(long), json!({"code": "stream_not_found", "offset": 7}));
        let huge =
            Status::internal("x").detailed(ErrorCode::Damaged, json!({"path": "x".repeat(9999)}));
        assert_eq!(sent(huge), json!({"code": "damaged"}));
        assert!(!trailers(Status::new(Code::Ok, "")).contains_key(ERROR_TRAILER));
    }

    #[test]
    fn texts_of_any_length_fit_into_headers() {
        for (letter, fits) in [("a", 2048), ("\u{fc}", 1024)] {
            let whole = Status::not_found(letter.repeat(fits));
            assert_eq!(bounded(whole.clone()).message(), whole.message());
            let long = bounded(Status::not_found(format!("x{}", letter.repeat(1 << 20))));
            assert_eq!(long.code(), Code::NotFound);
            assert!(long.message().len() <= 2051 && long.message().ends_with('…'));
            let sent: usize = trailers(long).values().map(HeaderValue::len).sum();
            assert!(sent < 8 << 10, "{sent} bytes");
        }
    }
}
