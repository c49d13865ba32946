//! Reduces the head of a request to the path and the few fields that are read, copied into memory of their own.
//!
//! A header block has up to 16 KiB, and each value in use keeps its whole block in memory. So a thousand long-running calls of
//! a connection would hold 16 MiB.
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use tonic::Status;

/// Longest path of a call, bytes: `/package.Service/Method`.
const PATH_BYTES: usize = 256;
/// Longest name of a non-standard HTTP method, bytes.
const METHOD_BYTES: usize = 15;

/// Fields that services read, and how long a value may be; longer ones mean nothing.
const KEPT: [(HeaderName, usize); 5] = [
    (header::CONTENT_TYPE, 64),
    (header::TE, 16),
    (HeaderName::from_static("grpc-timeout"), 16),
    (HeaderName::from_static("grpc-encoding"), 32),
    (HeaderName::from_static("grpc-accept-encoding"), 128),
];

/// The same request without what nobody reads, and the bytes that it keeps of its head.
///
/// # Errors
/// UNIMPLEMENTED: a path, or a method of HTTP, that is longer than any.
pub(super) fn slim<B>(request: http::Request<B>) -> Result<(http::Request<B>, usize), Status> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if path.len() > PATH_BYTES || head.method.as_str().len() > METHOD_BYTES {
        let text = format!(
            "the path of {} bytes names no method: at most {PATH_BYTES} bytes, /package.Service/Method",
            path.len()
        );
        return Err(Status::unimplemented(text));
    }
    let mut kept = path.len();
    let mut headers = HeaderMap::new();
    for (name, most) in KEPT {
        let value = head.headers.get(&name).map(HeaderValue::as_bytes);
        // From a slice of their own: a clone would share the block.
        let copied = value.filter(|value| value.len() <= most);
        if let Some(Ok(value)) = copied.map(HeaderValue::from_bytes) {
            kept += name.as_str().len() + value.len();
            headers.insert(name, value);
        }
    }
    let uri: Uri = String::from(path)
        .try_into()
        .map_err(|_| Status::unimplemented("the path names no method"))?;
    let mut slim = http::Request::new(body);
    *slim.method_mut() = head.method;
    *slim.version_mut() = head.version;
    *slim.uri_mut() = uri;
    *slim.headers_mut() = headers;
    *slim.extensions_mut() = head.extensions;
    Ok((slim, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_stays_and_everything_else_goes() {
        let request = http::Request::post("http://authority.example/a.B/C?q=1")
            .header("grpc-timeout", "1S")
            .header("te", "trailers")
            .header("grpc-encoding", "z".repeat(33))
            .header("x-large", "v".repeat(15_000))
            .body(())
            .unwrap();
        let (slim, kept) = slim(request).unwrap();
        assert_eq!(slim.uri(), "/a.B/C");
        let names: Vec<_> = slim.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["te", "grpc-timeout"]);
        assert_eq!(
            kept,
            "/a.B/C".len() + "tetrailers".len() + "grpc-timeout1S".len()
        );
    }

    #[test]
    fn a_path_that_is_not_a_method_is_rejected() {
        let path = format!("/{}", "p".repeat(PATH_BYTES));
        let request = http::Request::post(path).body(()).unwrap();
        let refused = slim(request).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
        assert!(refused.message().contains("257 bytes"));
    }
}
