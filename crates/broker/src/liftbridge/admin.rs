//! Our own service, `bascule.admin.v1.Admin` (`specs/proto/bascule_admin_v1.proto`): the control plane answers every method.
use super::call::Call;
use super::context::LiftbridgeContext;
use super::forward::forward;
use super::methods::check_serving;
use super::raw_service::CallHandler;
use super::reply::{self, Reply};
use bascule_wire::methods::ADMIN;
use std::sync::Arc;
use tonic::body::Body;

/// Forwards all calls.
#[derive(Clone, Debug)]
pub(crate) struct AdminMethods(pub Arc<LiftbridgeContext>);

impl CallHandler for AdminMethods {
    const NAME: &'static str = ADMIN;

    async fn answer(self, call: Call, request: http::Request<Body>) -> Reply {
        let (head, body) = request.into_parts();
        let answer = match check_serving(&self.0) {
            Ok(()) => forward(&self.0, &call, head.uri.path(), body).await,
            Err(refused) => Err(refused),
        };
        reply::result(answer)
    }
}
