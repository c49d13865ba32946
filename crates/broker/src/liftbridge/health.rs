//! `grpc.health.v1.Health` by hand: Check and Watch for the whole broker (`""`), for `proto.API` (liftbridge §9.5),
//! Flight, and the control plane (`bascule.admin`, or the name of our service).
use super::call::{Call, unary_message};
use super::frames::frame;
use super::reply::{self, Reply};
use crate::context::SharedRef;
use bascule_wire::methods::{ADMIN, API};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;

/// Bytes of a request: the name of a service.
const MOST_BYTES: usize = 1024;

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

/// The service, for tonic's router. Answers also while the broker does not serve.
#[derive(Clone, Debug)]
pub struct HealthService {
    shared: SharedRef,
}

/// Health of the broker behind `shared`.
pub fn health(shared: &SharedRef) -> HealthService {
    HealthService {
        shared: shared.clone(),
    }
}

impl tonic::server::NamedService for HealthService {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl tower::Service<http::Request<Body>> for HealthService {
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = self.shared.clone();
        let call = Call::new(&request);
        Box::pin(async move { Ok(reply::result(answer(shared, call, request).await)) })
    }
}

async fn answer(
    shared: SharedRef,
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
    let message = call.within(unary_message(body, MOST_BYTES)).await??;
    let request = HealthCheckRequest::decode(message)
        .map_err(|error| Status::internal(format!("grpc: error unmarshalling request: {error}")))?;
    match (status_of(&shared, &request.service), method) {
        (ServingStatus::ServiceUnknown, "Check") => Err(Status::not_found("unknown service")),
        (status, "Check") => Ok(reply::message(&encode(status))),
        _ => Ok(reply::with_body(StreamBody::new(watch(
            shared,
            request.service,
        )))),
    }
}

fn status_of(shared: &SharedRef, service: &str) -> ServingStatus {
    match service {
        "" | API | "arrow.flight.protocol.FlightService" => serving(shared, true),
        CONTROL_PLANE | ADMIN => serving(shared, !shared.event_loop.is_blocked()),
        _ => ServingStatus::ServiceUnknown,
    }
}

fn serving(shared: &SharedRef, able: bool) -> ServingStatus {
    if able && shared.serving.load(Ordering::Relaxed) {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
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
    shared: SharedRef,
    service: String,
) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Status>> {
    stream::unfold(
        (shared, service, None),
        |(shared, service, sent)| async move {
            loop {
                let status = status_of(&shared, &service);
                if sent != Some(status) {
                    return Some((
                        Ok(Frame::data(frame(&encode(status)))),
                        (shared, service, Some(status)),
                    ));
                }
                tokio::time::sleep(LOOK).await;
            }
        },
    )
}
