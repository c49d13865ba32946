//! A call: its deadline, its peer, and the message of a unary request.
use super::context::LiftbridgeContext;
use super::frames::FrameReader;
use crate::grpc_status::Coded;
use crate::grpc_timeout::parse_timeout;
use crate::tls::Peer;
use bascule_wire::ErrorCode;
use bytes::Bytes;
use http_body_util::BodyExt;
use prost::Message;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};

/// Longest deadline; longer ones count as none, which keeps instants from overflowing.
const LONGEST: Duration = Duration::from_hours(400 * 24);

/// Characters of a refused subject that the refusal shows.
pub(super) const SHOWN: usize = 200;

/// The parts of a request that the handlers look at besides its body.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// When the caller gives up; `None` = never.
    pub(super) deadline: Option<Instant>,
    /// Whom the connection is with.
    pub(super) peer: Peer,
}
impl Call {
    /// Reads `grpc-timeout` (counted from now) and the address of the connection.
    pub(super) fn new(request: &http::Request<Body>) -> Self {
        let timeout = request
            .headers()
            .get("grpc-timeout")
            .and_then(|value| parse_timeout(value.as_bytes()));
        let peer = request.extensions().get::<Peer>();
        Self {
            deadline: timeout.map(|timeout| Instant::now() + timeout.min(LONGEST)),
            peer: peer.cloned().unwrap_or_default(),
        }
    }

    /// Time until the deadline; zero when it has passed.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits for `future`, at most until the deadline.
    ///
    /// # Errors
    /// `DEADLINE_EXCEEDED` `context deadline exceeded`.
    pub(super) async fn within<T>(&self, future: impl Future<Output = T>) -> Result<T, Status> {
        match self.deadline {
            None => Ok(future.await),
            Some(deadline) => tokio::time::timeout_at(deadline, future)
                .await
                .map_err(|_| Status::deadline_exceeded("context deadline exceeded")),
        }
    }
}

/// What a unary request of one message says, as [`unary_message`] reads it, at most until the deadline.
///
/// # Errors
/// As [`unary_message`]; `DEADLINE_EXCEEDED`; INTERNAL for a malformed message.
pub(super) async fn decoded<M: Message + Default>(
    call: &Call,
    body: Body,
    max: usize,
) -> Result<M, Status> {
    let message = call.within(unary_message(body, max)).await??;
    M::decode(message).map_err(|error| unmarshalling(&error))
}

/// The status for bytes that are not the message that a method takes.
fn unmarshalling(error: &dyn Display) -> Status {
    Status::internal(format!("grpc: error unmarshalling request: {error}"))
}

/// The status for bytes that are not a `PublishRequest`.
pub(super) fn malformed_publish() -> Status {
    unmarshalling(&"malformed PublishRequest")
}

/// The one message of a unary request, at most `max` bytes.
///
/// # Errors
/// The status of the frame error; INTERNAL when there is not exactly one message; `RESOURCE_EXHAUSTED` and
/// `DEADLINE_EXCEEDED` of what bounds the body; CANCELLED when it broke off.
pub(super) async fn unary_message(mut body: Body, max: usize) -> Result<Bytes, Status> {
    let mut frames = FrameReader::new(max);
    let mut message = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(broken_off)?;
        let Ok(mut chunk) = frame.into_data() else {
            break;
        };
        while let Some(next) = frames.next(&mut chunk)? {
            if message.replace(next).is_some() {
                return Err(Status::internal(
                    "grpc: a unary call carries exactly one message, got more",
                ));
            }
        }
    }
    frames.end()?;
    message
        .ok_or_else(|| Status::internal("grpc: a unary call carries exactly one message, got none"))
}

/// Why a body is not whole: a bound of ours keeps its status, everything else is the caller going away.
fn broken_off(status: Status) -> Status {
    match status.code() {
        Code::ResourceExhausted | Code::DeadlineExceeded => status,
        _ => Status::cancelled(status.message()),
    }
}

/// How often idle streams look whether the broker still serves and whether the view changed their partition.
pub(super) const PULSE: Duration = Duration::from_millis(500);

/// The status of calls that are open when the broker stops.
pub(super) fn shutting_down() -> Status {
    Status::unavailable("broker is shutting down")
}

/// The status of calls of which a record has an unknown outcome.
pub(super) fn outcome_unknown() -> Status {
    let text =
        "the leader did not answer, and the outcome of a record is unknown: begin another call";
    Status::unavailable(text).coded(ErrorCode::OutcomeUnknown)
}

/// Refuses an ack inbox outside of `nats.ack_inbox_prefixes`.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn check_ack_inbox(context: &LiftbridgeContext, inbox: &str) -> Result<(), Status> {
    if context.nats.is_ack_inbox(&context.namespace, inbox) {
        return Ok(());
    }
    let shown: String = inbox.chars().take(SHOWN).collect();
    Err(Status::invalid_argument(format!(
        "ackInbox {shown:?} begins with none of nats.ack_inbox_prefixes: acks do not go there"
    )))
}

/// A fresh ack inbox, `<namespace>.ack.<random>`.
pub(super) fn new_inbox(namespace: &str) -> String {
    // The standard library's hasher keys are the one source of randomness at hand; uniqueness is all that is asked of it.
    let random = || RandomState::new().build_hasher().finish();
    format!("{namespace}.ack.{:016x}{:016x}", random(), random())
}
