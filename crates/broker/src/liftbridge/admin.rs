//! Our own service, `bascule.admin.v1.Admin` (`specs/proto/bascule_admin_v1.proto`): the control plane answers every method.
use super::call::Call;
use super::context::LiftbridgeContext;
use super::forward::forward;
use super::reply::{self, Reply};
use super::service::check_serving;
use bascule_wire::methods::ADMIN;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;

/// The service, for tonic's router. Cheap to clone; one for the broker.
#[derive(Clone, Debug)]
pub(crate) struct AdminService {
    context: Arc<LiftbridgeContext>,
}

impl AdminService {
    /// Must be polled inside the broker's runtime.
    pub(crate) fn new(context: Arc<LiftbridgeContext>) -> Self {
        Self { context }
    }
}

impl tonic::server::NamedService for AdminService {
    const NAME: &'static str = ADMIN;
}

impl tower::Service<http::Request<Body>> for AdminService {
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let context = self.context.clone();
        let call = Call::new(&request);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let answer = match check_serving(&context) {
                Ok(()) => forward(&context, &call, head.uri.path(), body).await,
                Err(refused) => Err(refused),
            };
            Ok(reply::result(answer))
        })
    }
}
