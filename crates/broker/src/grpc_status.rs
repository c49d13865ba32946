//! Statuses as HTTP headers and trailers carry them, whatever their texts show.
use http::{HeaderMap, HeaderValue};
use tonic::Status;

/// Bytes of a text that is sent: percent-encoded it has at most three times as many, and clients take 8 KiB of headers.
const MOST: usize = 2048;

/// The same status with a text that fits into headers: what is longer is cut, and ends in "…".
pub(crate) fn bounded(status: Status) -> Status {
    let text = status.message();
    if text.len() <= MOST {
        return status;
    }
    let end = text.floor_char_boundary(MOST);
    let cut = format!("{}…", &text[..end]);
    Status::with_details(status.code(), cut, status.details().to_vec().into())
}

/// The trailers that end a stream; the message is percent-encoded.
pub(crate) fn trailers(status: Status) -> HeaderMap {
    let status = bounded(status);
    let mut headers = HeaderMap::with_capacity(2);
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
