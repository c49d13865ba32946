//! Dispatch of `/proto.API/*`.
use super::call::Call;
use super::reply::{self, Reply};
use super::{cursors, forward, publish, publish_async, subscribe, to_subject};
use crate::context::SharedRef;
use http::{HeaderName, HeaderValue};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// Response header: batches of idempotent producers (`producerBatch`) are stored once.
const PRODUCERS: HeaderName = HeaderName::from_static("bascule-producers");
const ONE: HeaderValue = HeaderValue::from_static("1");

/// The service, for tonic's router. Cheap to clone; one for the broker.
#[derive(Clone, Debug)]
pub struct LiftbridgeService {
    shared: SharedRef,
}

/// The Liftbridge API over `shared`. Must be polled inside the broker's runtime.
pub fn service(shared: &SharedRef) -> LiftbridgeService {
    LiftbridgeService {
        shared: shared.clone(),
    }
}

impl tonic::server::NamedService for LiftbridgeService {
    const NAME: &'static str = "proto.API";
}

impl tower::Service<http::Request<Body>> for LiftbridgeService {
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = self.shared.clone();
        // Counted from here, not from the first poll, so that our deadline is never later than the transport's own.
        let call = Call::new(&request);
        Box::pin(async move {
            let mut reply = reply::result(answer(shared, call, request).await);
            reply.headers_mut().insert(PRODUCERS, ONE);
            Ok(reply)
        })
    }
}

async fn answer(
    shared: SharedRef,
    call: Call,
    request: http::Request<Body>,
) -> Result<Reply, Status> {
    if !shared.serving.load(Ordering::Relaxed) {
        return Err(Status::unavailable(
            "broker is not serving: it is starting or shutting down",
        ));
    }
    let (head, body) = request.into_parts();
    match head.uri.path().rsplit('/').next().unwrap_or_default() {
        "Publish" => publish::publish(&shared, &call, body).await,
        "PublishAsync" => Ok(publish_async::publish_async(&shared, &call, body)),
        "PublishToSubject" => to_subject::publish_to_subject(&shared, &call, body).await,
        "Subscribe" => subscribe::subscribe(&shared, &call, body).await,
        "SetCursor" => cursors::set_cursor(&shared, &call, body).await,
        "FetchCursor" => cursors::fetch_cursor(&shared, &call, body).await,
        method => forward::forward(&shared, &call, method, body).await,
    }
}
