//! Methods that the control plane answers: raw message bytes there and back.
use super::call::{Call, unary_message};
use super::context::LiftbridgeContext;
use super::reply::{self, Reply};
use crate::admission::Identity;
use bascule_wire::methods::Method;
use tonic::body::Body;
use tonic::{Code, Status};

/// Long polls: the answer waits for a new version of the group.
const WAITING: &str = "liftbridge/FetchConsumerGroupAssignments";

/// Hands the request of a call of `path` to the control plane and frames its answer.
///
/// # Errors
/// UNIMPLEMENTED for methods that the control plane does not answer; `RESOURCE_EXHAUSTED` for a client that has its share of
/// requests; what the control plane answered; `DEADLINE_EXCEEDED`.
pub(super) async fn forward(
    context: &LiftbridgeContext,
    call: &Call,
    path: &str,
    body: Body,
) -> Result<Reply, Status> {
    let handler = Method::of(path).and_then(|method| method.handler);
    let handler = handler.ok_or_else(|| unknown(path))?;
    let request = unary_message(body, context.limits.message_bytes);
    let request = call.within(request).await??;
    if handler == WAITING {
        call.within(context.groups.wait(&request)).await?;
    }
    let identity = Identity::of(&call.peer);
    let Some(_piece) = context.admission.admin_requests.take(identity.clone()) else {
        context.statistics.calls_refused.add(1);
        let most = context.limits.admin_requests_per_identity;
        return Err(Status::resource_exhausted(format!(
            "limits.admin_requests_per_identity ({most}) admin requests of {identity} wait for an answer: send fewer at once, try again later, or raise it"
        )));
    };
    let answer = context
        .events
        .request(handler, request, call.peer.to_caller(), call.remaining());
    let answer = call.within(answer).await?;
    answer
        .map(|message| reply::message(&message))
        .map_err(|refusal| {
            let code = Code::from(refusal.status);
            if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
                context.access.count_denied();
            }
            refusal.into_status()
        })
}

fn unknown(path: &str) -> Status {
    let path = path.trim_start_matches('/');
    let (service, method) = path.split_once('/').unwrap_or((path, ""));
    Status::unimplemented(format!("unknown method {method} for service {service}"))
}
