//! Requests that the control plane decides, and what it says about tokens.
use super::problem::{JSON, Problem, Reply, TEXT, empty, reply};
use super::tokens::Bearer;
use crate::events::Rejection;
use crate::http::OPEN_METRICS;
use crate::iggy::refused::Refused;
use bascule_wire::iggy::{Generation, Status};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{ALLOW, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// What the control plane is asked by.
pub(super) const REQUEST: &str = "iggyhttp/REQUEST";
/// What it is asked by about a token.
pub(super) const AUTHENTICATE: &str = "iggyhttp/AUTHENTICATE";
const LENGTH_BYTES: usize = 4;

/// The head of a request to the control plane; its body follows.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a [&'a str],
    pub(super) query: &'a str,
    /// Empty before a login.
    pub(super) generation: &'a str,
    /// The token, empty before a login.
    pub(super) token: &'a str,
    /// Connections of the binary protocol.
    pub(super) clients: u32,
    /// Requests so far.
    pub(super) requests: u64,
}

/// The head of the control plane's answer; the body of the reply follows.
#[derive(Deserialize)]
struct Answer {
    status: u16,
    /// `json`, `text`, or what else the body is; empty = there is none.
    kind: String,
    /// The methods of a path, when that of the request is not one of them.
    #[serde(default)]
    allow: String,
    /// Tokens that are not valid any more, each with the seconds for which it would have been.
    #[serde(default)]
    revoked: HashMap<String, u64>,
}

/// What the control plane says about a token.
#[derive(Deserialize)]
pub(super) struct Authenticated {
    user: u64,
    generation: String,
    /// How long this may be kept, ms.
    pub(super) keep_ms: u64,
}

impl Authenticated {
    pub(super) fn read(answer: &[u8]) -> Result<(Bearer, Duration), Problem> {
        let read: Self = serde_json::from_slice(answer).map_err(|_| Status::Error)?;
        let generation = generation(&read.generation).ok_or(Status::Error)?;
        let bearer = Bearer {
            user: read.user,
            generation,
        };
        Ok((bearer, Duration::from_millis(read.keep_ms)))
    }
}

/// The name of a generation, as the control plane knows it.
pub(super) fn generation_name(generation: Generation) -> &'static str {
    match generation {
        Generation::V1 => "v1",
        Generation::Sdk7 => "sdk7",
        Generation::Sdk8 => "sdk8",
        Generation::Sdk9 => "sdk9",
        Generation::V2 => "v2",
    }
}

fn generation(name: &str) -> Option<Generation> {
    let mut all = Generation::ALL.into_iter();
    all.find(|generation| generation_name(*generation) == name)
}

/// What is sent to the control plane: the length of the head, head, and body.
pub(super) fn payload(head: &Head<'_>, body: &[u8]) -> Result<Bytes, Problem> {
    let head = serde_json::to_vec(head).map_err(|_| Status::Error)?;
    let mut out = BytesMut::with_capacity(LENGTH_BYTES + head.len() + body.len());
    out.put_u32_le(u32::try_from(head.len()).map_err(|_| Status::Error)?);
    out.put_slice(&head);
    out.put_slice(body);
    Ok(out.freeze())
}

/// The reply out of the control plane's answer, and the tokens that it has revoked, each with the seconds for which it would
/// have been valid.
pub(super) fn answered(answer: &Bytes) -> Result<(Reply, HashMap<String, u64>), Problem> {
    let (length, rest) = answer
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or(Status::Error)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, _) = rest.split_at_checked(length).ok_or(Status::Error)?;
    let head: Answer = serde_json::from_slice(head).map_err(|_| Status::Error)?;
    let status = StatusCode::from_u16(head.status).map_err(|_| Status::Error)?;
    let body = answer.slice(LENGTH_BYTES + length..);
    let mut made = match head.kind.as_str() {
        "" => empty(status),
        "json" => reply(status, JSON, body),
        "metrics" => reply(status, OPEN_METRICS, body),
        _ => reply(status, TEXT, body),
    };
    allow(made.headers_mut(), &head.allow);
    Ok((made, head.revoked))
}

fn allow(headers: &mut HeaderMap, methods: &str) {
    if !methods.is_empty()
        && let Ok(value) = HeaderValue::from_str(methods)
    {
        headers.insert(ALLOW, value);
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let has_status = rejection.iggy_status.is_some();
        let reason = has_status.then(|| rejection.message.clone());
        let Refused(id) = rejection.into();
        if has_status || id != Status::Error.code() {
            return Self::of_iggy(id, reason);
        }
        Self::of_http(
            StatusCode::SERVICE_UNAVAILABLE,
            "the broker could not answer in time, or is busy: send the request again",
        )
    }
}
