//! `grpc.health.v1.Health` by hand: Check and Watch for the whole broker (`""`), for `proto.API` (liftbridge §9.5),
//! Flight, and the control plane (`bascule.admin`, or the name of our service).
use super::call::{Call, decoded};
use super::frames::frame;
use super::raw_service::CallHandler;
use super::reply::{self, Reply};
use crate::run_state::RunState;
use crate::watchdog::EventLoop;
use bascule_wire::methods::{ADMIN, API};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;

/// Bytes of a request: the name of a service.
const MAX_BYTES: usize = 1024;

/// The control plane; data is served without it.
const CONTROL_PLANE: &str = "bascule.admin";

/// How often a Watch looks.
const LOOK: Duration = Duration::from_millis(250);

/// `ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// `HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

/// Answers also while the broker does not serve.
#[derive(Clone, Debug)]
pub(crate) struct HealthMethods {
    run_state: Arc<RunState>,
    event_loop: Arc<EventLoop>,
}

impl HealthMethods {
    /// Health of the broker in this state of its run; that of the control plane is its event loop's.
    pub(crate) fn new(run_state: Arc<RunState>, event_loop: Arc<EventLoop>) -> Self {
        Self {
            run_state,
            event_loop,
        }
    }

    fn status_of(&self, service: &str) -> ServingStatus {
        match service {
            "" | API | "arrow.flight.protocol.FlightService" => self.serving(true),
            CONTROL_PLANE | ADMIN => self.serving(!self.event_loop.is_blocked()),
            _ => ServingStatus::ServiceUnknown,
        }
    }

    fn serving(&self, able: bool) -> ServingStatus {
        if able && self.run_state.is_serving() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        }
    }
}

impl CallHandler for HealthMethods {
    const NAME: &'static str = "grpc.health.v1.Health";

    async fn answer(self, call: Call, request: http::Request<Body>) -> Reply {
        reply::result(answer(self, call, request).await)
    }
}

async fn answer(
    health: HealthMethods,
    call: Call,
    request: http::Request<Body>,
) -> Result<Reply, Status> {
    let (head, body) = request.into_parts();
    let method = head.uri.path().rsplit('/').next().unwrap_or_default();
    if !matches!(method, "Check" | "Watch") {
        return Err(Status::unimplemented(format!(
            "unknown method {method} for service grpc.health.v1.Health"
        )));
    }
    let request: HealthCheckRequest = decoded(&call, body, MAX_BYTES).await?;
    match (health.status_of(&request.service), method) {
        (ServingStatus::ServiceUnknown, "Check") => Err(Status::not_found("unknown service")),
        (status, "Check") => Ok(reply::message(&encode(status))),
        _ => Ok(reply::with_body(StreamBody::new(watch(
            health,
            request.service,
        )))),
    }
}

fn encode(status: ServingStatus) -> Vec<u8> {
    HealthCheckResponse {
        status: status as i32,
    }
    .encode_to_vec()
}

/// The status now, then each change, until the caller goes away.
fn watch(
    health: HealthMethods,
    service: String,
) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Status>> {
    stream::unfold(
        (health, service, None),
        |(health, service, sent)| async move {
            loop {
                let status = health.status_of(&service);
                if sent != Some(status) {
                    return Some((
                        Ok(Frame::data(frame(&encode(status)))),
                        (health, service, Some(status)),
                    ));
                }
                tokio::time::sleep(LOOK).await;
            }
        },
    )
}
