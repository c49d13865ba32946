//! The HTTP interface for Iggy's clients, on a port of its own: JSON over HTTP/1.1, with TLS when the broker has a certificate.
//!
//! * `connection`: one client from its first byte to its last, with its bounds; `patient`: closes one that does not read.
//! * `client`: a request from its head to its answer; `tokens`: who has sent it.
//! * `routes`: requests about messages, offsets, groups and connections, which are answered here: `payload` and `sending` make
//!   the payload of the command that the binary protocol has for them, `showing` and `polled` make JSON of its reply.
//! * `forward`: every other request is decided by the control plane.
//! * `problem`: statuses of Iggy as statuses of HTTP; `cors`: pages of other origins.
//!
//! A request has no session: no connection of HTTP is a member of a group, and none is listed among the clients.
mod client;
mod connection;
mod cors;
mod forward;
mod patient;
mod payload;
mod polled;
mod problem;
mod routes;
mod sending;
mod showing;
#[cfg(test)]
mod tests;
mod tokens;

pub(super) use connection::serve;

use super::context::IggyContext;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokens::Tokens;

/// `Engine.serve_iggy_http`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IggyHttpSettings {
    /// Largest body of a request, bytes.
    pub max_request_bytes: usize,
    /// Origins whose pages may call, `*` = all; none = pages of other origins may not.
    pub cors_origins: Vec<String>,
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Site {
    context: Arc<IggyContext>,
    settings: IggyHttpSettings,
    tokens: Tokens,
    /// Requests so far.
    requests: AtomicU64,
}

impl Site {
    pub(super) fn new(context: Arc<IggyContext>, settings: IggyHttpSettings) -> Self {
        Self {
            context,
            settings,
            tokens: Tokens::default(),
            requests: AtomicU64::new(0),
        }
    }
}
