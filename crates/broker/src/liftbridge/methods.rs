//! Dispatch of `/proto.API/*`.
use super::call::Call;
use super::context::LiftbridgeContext;
use super::raw_service::CallHandler;
use super::reply::{self, Reply};
use super::{cursors, forward, publish, publish_async, subscribe, to_subject};
use bascule_wire::methods::{
    API, FETCH_CURSOR, PUBLISH, PUBLISH_ASYNC, PUBLISH_TO_SUBJECT, SET_CURSOR, SUBSCRIBE,
};
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use tonic::Status;
use tonic::body::Body;

/// Response header: batches of idempotent producers (`producerBatch`) are stored once.
const PRODUCERS: HeaderName = HeaderName::from_static("bascule-producers");
const ONE: HeaderValue = HeaderValue::from_static("1");

/// Dispatches calls by their method.
#[derive(Clone, Debug)]
pub(crate) struct LiftbridgeMethods(pub Arc<LiftbridgeContext>);

impl CallHandler for LiftbridgeMethods {
    const NAME: &'static str = API;

    async fn answer(self, call: Call, request: http::Request<Body>) -> Reply {
        let mut reply = reply::result(dispatch(self.0, call, request).await);
        reply.headers_mut().insert(PRODUCERS, ONE);
        reply
    }
}

async fn dispatch(
    context: Arc<LiftbridgeContext>,
    call: Call,
    request: http::Request<Body>,
) -> Result<Reply, Status> {
    check_serving(&context)?;
    let (head, body) = request.into_parts();
    match head.uri.path() {
        PUBLISH => publish::publish(&context, &call, body).await,
        PUBLISH_ASYNC => Ok(publish_async::publish_async(&context, &call, body)),
        PUBLISH_TO_SUBJECT => to_subject::publish_to_subject(&context, &call, body).await,
        SUBSCRIBE => subscribe::subscribe(&context, &call, body).await,
        SET_CURSOR => cursors::set_cursor(&context, &call, body).await,
        FETCH_CURSOR => cursors::fetch_cursor(&context, &call, body).await,
        path => forward::forward(&context, &call, path, body).await,
    }
}

/// Refuses calls while the broker starts or stops.
///
/// # Errors
/// UNAVAILABLE.
pub(super) fn check_serving(context: &LiftbridgeContext) -> Result<(), Status> {
    if context.run_state.is_serving() {
        return Ok(());
    }
    Err(Status::unavailable(
        "broker is not serving: it is starting or shutting down",
    ))
}
