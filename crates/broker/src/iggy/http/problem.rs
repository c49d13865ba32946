//! Why a request is refused: statuses of Iggy's protocol, and of HTTP, as JSON.
pub(super) use crate::http::{Reply, TEXT, reply};
use crate::iggy::refused::Refused;
use bascule_wire::iggy::Status;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

pub(super) const JSON: &str = "application/json";

/// A request that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// Iggy's status, or that of HTTP where Iggy's protocol has none.
    pub(super) id: u32,
    code: &'static str,
    reason: String,
}

#[derive(Serialize)]
struct Body<'a> {
    id: u32,
    code: &'a str,
    reason: &'a str,
    field: Option<&'a str>,
}

impl Problem {
    /// Of HTTP alone.
    pub(super) fn of_http(status: StatusCode, reason: impl Into<String>) -> Self {
        let code = match status {
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
            StatusCode::REQUEST_TIMEOUT => "request_timeout",
            StatusCode::PAYLOAD_TOO_LARGE => "payload_too_large",
            StatusCode::UNPROCESSABLE_ENTITY => "unprocessable_entity",
            StatusCode::TOO_MANY_REQUESTS => "too_many_requests",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable",
            StatusCode::INTERNAL_SERVER_ERROR => "error",
            _ => "bad_request",
        };
        Self {
            status,
            id: status.as_u16().into(),
            code,
            reason: reason.into(),
        }
    }

    /// What a GET of something that is not there is answered with.
    pub(super) fn absent() -> Self {
        Self::of_http(StatusCode::NOT_FOUND, "Resource not found")
    }

    /// A body or query that is not what its route takes.
    pub(super) fn malformed(reason: impl Into<String>) -> Self {
        Self::of_http(StatusCode::BAD_REQUEST, reason)
    }

    /// A status of Iggy's protocol; `reason`: more than its name says.
    pub(super) fn of_iggy(id: u32, reason: Option<String>) -> Self {
        let code = name(id);
        Self {
            status: http_status(id),
            id,
            code,
            reason: reason.unwrap_or_else(|| code.replace('_', " ")),
        }
    }

    pub(super) fn into_reply(self) -> Reply {
        let body = Body {
            id: self.id,
            code: self.code,
            reason: &self.reason,
            field: field(self.id),
        };
        let mut reply = json(self.status, &body);
        if self.status == StatusCode::SERVICE_UNAVAILABLE
            || self.status == StatusCode::TOO_MANY_REQUESTS
        {
            let headers = reply.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::PAYLOAD_TOO_LARGE
            || self.status == StatusCode::REQUEST_TIMEOUT
        {
            // The rest of the body is not read.
            let headers = reply.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }
}

impl From<Refused> for Problem {
    fn from(Refused(id): Refused) -> Self {
        Self::of_iggy(id, None)
    }
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        Self::of_iggy(status.code(), None)
    }
}

impl From<serde_json::Error> for Problem {
    /// 400 for what is not JSON, 422 for JSON of another shape.
    fn from(error: serde_json::Error) -> Self {
        let status = if error.is_data() {
            StatusCode::UNPROCESSABLE_ENTITY
        } else {
            StatusCode::BAD_REQUEST
        };
        Self::of_http(
            status,
            format!("the body is not what this path takes: {error}"),
        )
    }
}

/// An answer with JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Reply {
    match serde_json::to_vec(body) {
        Ok(bytes) => reply(status, JSON, bytes),
        Err(_) => reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, Bytes::new()),
    }
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

fn http_status(id: u32) -> StatusCode {
    match id {
        20 | 100 | 1009 | 2010 | 3007 | 3021 | 4000 | 5000 | 5003 | 5006 => StatusCode::NOT_FOUND,
        40 | 53 | 77 | 78 => StatusCode::UNAUTHORIZED,
        41 => StatusCode::FORBIDDEN,
        57 | 58 => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The field of a request that a status is about.
fn field(id: u32) -> Option<&'static str> {
    Some(match id {
        46 => "username",
        51 | 1012 | 1013 | 2013 | 2014 | 5004 => "name",
        100 => "client_id",
        1009 | 1011 | 1014 => "stream_id",
        2010 | 2012 | 2016 => "topic_id",
        3007 => "partition_id",
        4000 => "segment_id",
        4100 => "offset",
        5001 | 5002 => "consumer_group_id",
        _ => return None,
    })
}

/// The protocol's name of a status.
fn name(id: u32) -> &'static str {
    match id {
        3 => "invalid_command",
        5 => "feature_unavailable",
        6 => "invalid_identifier",
        20 => "resource_not_found",
        40 => "unauthenticated",
        41 => "unauthorized",
        42 => "invalid_credentials",
        43 => "invalid_username",
        44 => "invalid_password",
        46 => "user_already_exists",
        47 => "user_inactive",
        48 => "cannot_delete_user",
        49 => "cannot_change_permissions",
        50 => "invalid_personal_access_token_name",
        51 => "personal_access_token_already_exists",
        52 => "personal_access_tokens_limit_reached",
        53 => "invalid_personal_access_token",
        54 => "personal_access_token_expired",
        55 => "users_limit_reached",
        57 => "transient_not_committed",
        58 => "transient_not_accepted",
        77 => "access_token_missing",
        78 => "invalid_access_token",
        100 => "client_not_found",
        101 => "invalid_client_id",
        1009 => "stream_id_not_found",
        1010 => "stream_name_not_found",
        1011 => "stream_id_already_exists",
        1012 => "stream_name_already_exists",
        1013 => "invalid_stream_name",
        1014 => "invalid_stream_id",
        2010 => "topic_id_not_found",
        2011 => "topic_name_not_found",
        2012 => "topic_id_already_exists",
        2013 => "topic_name_already_exists",
        2014 => "invalid_topic_name",
        2015 => "too_many_partitions",
        2016 => "invalid_topic_id",
        2018 => "invalid_replication_factor",
        3007 => "partition_not_found",
        3008 => "no_partitions",
        3021 => "consumer_offset_not_found",
        4009 => "invalid_messages_count",
        4010 => "cannot_append_message",
        4017 => "too_big_headers_payload",
        4018 => "invalid_header_key",
        4022 => "too_big_message_payload",
        4028 => "invalid_key_value_length",
        4041 => "unsupported_option_key",
        4042 => "invalid_option_value",
        4043 => "options_block_too_large",
        4100 => "invalid_offset",
        5000 => "consumer_group_id_not_found",
        5001 => "consumer_group_id_already_exists",
        5002 => "invalid_consumer_group_id",
        5003 => "consumer_group_name_not_found",
        5004 => "consumer_group_name_already_exists",
        5005 => "invalid_consumer_group_name",
        5006 => "consumer_group_member_not_found",
        5009 => "consumer_group_partition_not_owned",
        _ => "error",
    }
}
