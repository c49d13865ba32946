//! Pages of other origins: which of them may call.
use super::problem::Reply;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Response, StatusCode};
use http_body_util::Full;

const METHODS: &str = "GET, POST, PUT, DELETE";
const HEADERS: &str = "content-type, authorization";
/// How long a browser keeps the answer, s.
const MAX_AGE: &str = "600";

/// Whether a browser asks what its page may do.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to such a request.
pub(super) fn preflight(origins: &[String]) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::new()));
    *reply.status_mut() = StatusCode::NO_CONTENT;
    if !origins.is_empty() {
        let headers = reply.headers_mut();
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
            (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    reply
}

/// Lets pages of `origin` read an answer, where `origins` has it.
pub(super) fn allow(reply: &mut Reply, origins: &[String], origin: &HeaderValue) {
    let headers = reply.headers_mut();
    if origins.iter().any(|each| each == "*") {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        return;
    }
    if origins
        .iter()
        .any(|each| each.as_bytes() == origin.as_bytes())
    {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    if !origins.is_empty() {
        headers.insert(VARY, HeaderValue::from_static("origin"));
    }
}
