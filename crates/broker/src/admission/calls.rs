//! The layer over all services of the port: acquires a permit for each call, and bounds the bytes of its unfinished messages.
//!
//! Monitors must get answers also at the limit of calls, so health checks and health watches have limits of their own.
use super::Admission;
use super::answers::{Charge, SMALL};
use super::body::{BoundedBody, PATIENCE, charge};
use super::call_limiter::{CallLimiter, CallPermit};
use super::caller::Caller;
use super::ending::Ending;
use super::heads::slim;
use super::request::Request;
use crate::grpc_status::bounded;
use crate::tls::Peer;
use bascule_wire::methods::Method;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Resources that a call holds until it ends.
type Kept = (CallPermit, OwnedSemaphorePermit);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CallLayer {
    admission: Arc<Admission>,
}

impl CallLayer {
    /// The layer of a broker.
    pub(crate) fn new(admission: &Arc<Admission>) -> Self {
        Self {
            admission: admission.clone(),
        }
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = Calls<S>;
    fn layer(&self, inner: S) -> Calls<S> {
        Calls {
            admission: self.admission.clone(),
            inner,
        }
    }
}

/// A service with the layer over it.
#[derive(Clone, Debug)]
pub(crate) struct Calls<S> {
    admission: Arc<Admission>,
    inner: S,
}

impl<S> Service<http::Request<Body>> for Calls<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut ending = Ending::new(&self.admission, request.uri().path(), request.headers());
        let admission = self.admission.clone();
        let (request, caller, kept) = match admit(&self.admission, request) {
            Ok(admitted) => admitted,
            Err(refused) => {
                ending.end(refused.code());
                return Box::pin(async move { Ok(bounded(refused).into_http()) });
            }
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            ending.look(answer.headers());
            let charge = match charge_answer(&admission, &caller, answer.body()) {
                Ok(charge) => charge,
                Err(refused) => {
                    ending.end(refused.code());
                    return Ok(bounded(refused).into_http());
                }
            };
            Ok(answer.map(|body| {
                Body::new(Held {
                    body,
                    ending,
                    charge,
                    _kept: kept,
                })
            }))
        })
    }
}

/// Charges the bytes of an answer whose size is known.
fn charge_answer(
    admission: &Admission,
    caller: &Caller,
    answer: &Body,
) -> Result<Option<Charge>, Status> {
    let bytes = answer.size_hint().upper().unwrap_or_default();
    if bytes < SMALL {
        return Ok(None);
    }
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let charge = admission.answers.charge(&caller.identity, bytes);
    let charge = charge.inspect_err(|_| admission.statistics.calls_refused.add(1))?;
    Ok(Some(charge.with_deadline(caller.closer.clone(), PATIENCE)))
}

/// Returns the request for the services, its caller, and the resources that the call holds.
fn admit(
    admission: &Arc<Admission>,
    request: http::Request<Body>,
) -> Result<(http::Request<Body>, Caller, Kept), Status> {
    let (mut request, kept) = slim(request)?;
    let caller = request.extensions_mut().remove::<Caller>();
    let caller = caller.unwrap_or_else(|| Caller::of(&Peer::default()));
    request.extensions_mut().insert(caller.peer.clone());
    let identity = &caller.identity;
    let path = request.uri().path();
    // A method that takes several messages has no time limit for the first one.
    let is_single = Method::of(path).is_none_or(|method| !method.streams_requests);
    let (permit, pending) = limiter_for(admission, path)
        .acquire(identity)
        .map_err(|full| {
            admission.statistics.calls_refused.add(1);
            Status::resource_exhausted(full.to_string())
        })?;
    let head = charge(admission, kept)?;
    let longest = Duration::from_millis(admission.limits.first_message_ms);
    let arriving = Request::new(pending, is_single, longest);
    let admission = admission.clone();
    let request =
        request.map(|body| Body::new(BoundedBody::new(admission, body).with_request(arriving)));
    Ok((request, caller, (permit, head)))
}

fn limiter_for<'a>(admission: &'a Admission, path: &str) -> &'a Arc<CallLimiter> {
    match path {
        CHECK => &admission.health_checks,
        WATCH => &admission.health_watches,
        _ => &admission.calls,
    }
}

/// A response body that holds the resources of its call, and reports how the call ends.
struct Held {
    body: Body,
    ending: Ending,
    /// Of an answer that was charged, until its bytes hold it.
    charge: Option<Charge>,
    _kept: Kept,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(whole))) = &mut frame
            && whole.is_data()
            && let Some(charge) = self.charge.take()
        {
            *whole = std::mem::replace(whole, Frame::data(Bytes::new()))
                .map_data(|bytes| charge.hold(bytes));
        }
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.ending.look(trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => self.ending.end(status.code()),
            Poll::Ready(None) | Poll::Pending => {}
        }
        frame
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
