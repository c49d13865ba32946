//! A gRPC service over raw bodies, for tonic's router.
use super::call::Call;
use super::reply::Reply;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::NamedService;

/// The methods of one service. Cheap to clone.
pub(crate) trait CallHandler: Clone + Send + 'static {
    /// Full name of the service.
    const NAME: &'static str;

    /// Answers a call of any method.
    fn answer(self, call: Call, request: http::Request<Body>)
    -> impl Future<Output = Reply> + Send;
}

/// A service whose calls `H` answers. Must be polled inside the broker's runtime.
#[derive(Clone, Debug)]
pub(crate) struct RawService<H>(pub H);

impl<H: CallHandler> NamedService for RawService<H> {
    const NAME: &'static str = H::NAME;
}

impl<H: CallHandler> tower::Service<http::Request<Body>> for RawService<H> {
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let handler = self.0.clone();
        // Counted from here, not from the first poll, so that our deadline is never later than the transport's own.
        let call = Call::new(&request);
        Box::pin(async move { Ok(handler.answer(call, request).await) })
    }
}
