//! Dispatch of `/proto.API/*`.
use super::call::Call;
use super::context::LiftbridgeContext;
use super::reply::{self, Reply};
use super::{cursors, forward, publish, publish_async, subscribe, to_subject};
use bascule_wire::methods::{self, API};
use http::{HeaderName, HeaderValue};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// Response header: batches of idempotent producers (`producerBatch`) are stored once.
const PRODUCERS: HeaderName = HeaderName::from_static("bascule-producers");
const ONE: HeaderValue = HeaderValue::from_static("1");

/// The service, for tonic's router. Cheap to clone; one for the broker.
#[derive(Clone, Debug)]
pub(crate) struct LiftbridgeService {
    context: Arc<LiftbridgeContext>,
}

impl LiftbridgeService {
    /// Must be polled inside the broker's runtime.
    pub(crate) fn new(context: Arc<LiftbridgeContext>) -> Self {
        Self { context }
    }
}

impl tonic::server::NamedService for LiftbridgeService {
    const NAME: &'static str = API;
}

impl tower::Service<http::Request<Body>> for LiftbridgeService {
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let context = self.context.clone();
        // Counted from here, not from the first poll, so that our deadline is never later than the transport's own.
        let call = Call::new(&request);
        Box::pin(async move {
            let mut reply = reply::result(answer(context, call, request).await);
            reply.headers_mut().insert(PRODUCERS, ONE);
            Ok(reply)
        })
    }
}

async fn answer(
    context: Arc<LiftbridgeContext>,
    call: Call,
    request: http::Request<Body>,
) -> Result<Reply, Status> {
    check_serving(&context)?;
    let (head, body) = request.into_parts();
    match head.uri.path() {
        methods::PUBLISH => publish::publish(&context, &call, body).await,
        methods::PUBLISH_ASYNC => Ok(publish_async::publish_async(&context, &call, body)),
        methods::PUBLISH_TO_SUBJECT => to_subject::publish_to_subject(&context, &call, body).await,
        methods::SUBSCRIBE => subscribe::subscribe(&context, &call, body).await,
        methods::SET_CURSOR => cursors::set_cursor(&context, &call, body).await,
        methods::FETCH_CURSOR => cursors::fetch_cursor(&context, &call, body).await,
        path => forward::forward(&context, &call, path, body).await,
    }
}

/// Refuses calls while the broker starts or stops.
///
/// # Errors
/// UNAVAILABLE.
pub(super) fn check_serving(context: &LiftbridgeContext) -> Result<(), Status> {
    if context.condition.is_serving() {
        return Ok(());
    }
    Err(Status::unavailable(
        "broker is not serving: it is starting or shutting down",
    ))
}
