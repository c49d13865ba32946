//! The layer over all services of the port: counts calls, and bounds the bytes of their unfinished messages.
use super::body::BoundedBody;
use crate::shared::SharedRef;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

/// Asked by monitors, also when every place is taken.
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CallLayer {
    shared: SharedRef,
}

impl CallLayer {
    /// The layer of a broker.
    pub(crate) fn new(shared: &SharedRef) -> Self {
        Self {
            shared: shared.clone(),
        }
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = Calls<S>;
    fn layer(&self, inner: S) -> Calls<S> {
        Calls {
            shared: self.shared.clone(),
            inner,
        }
    }
}

/// A service with the layer over it.
#[derive(Clone, Debug)]
pub(crate) struct Calls<S> {
    shared: SharedRef,
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
        let is_health = request.uri().path() == HEALTH;
        let shared = self.shared.clone();
        let request = request.map(|body| Body::new(BoundedBody::new(shared, body)));
        if is_health {
            return Box::pin(self.inner.call(request));
        }
        let admission = &self.shared.admission;
        let Ok(place) = Arc::clone(&admission.calls).try_acquire_owned() else {
            self.shared.statistics.calls_refused.add(1);
            let most = admission.limits.calls;
            let text = format!(
                "limits.calls ({most}) calls are open: end some, try again later, or raise it"
            );
            return Box::pin(async move { Ok(Status::resource_exhausted(text).into_http()) });
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let held = |body| {
                Body::new(Held {
                    body,
                    _place: place,
                })
            };
            Ok(answer.await?.map(held))
        })
    }
}

/// A response body that holds the place of its call.
struct Held {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
