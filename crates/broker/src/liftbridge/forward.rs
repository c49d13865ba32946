//! Methods that the control plane answers: raw message bytes there and back.
use super::call::{Call, unary_message};
use super::reply::{self, Reply};
use crate::admission::Identity;
use crate::context::SharedRef;
use tonic::body::Body;
use tonic::{Code, Status};

/// The methods that are forwarded.
const METHODS: [&str; 18] = [
    "CreateStream",
    "DeleteStream",
    "PauseStream",
    "SetStreamReadonly",
    "TrimPartition",
    "PurgeStream",
    "EditStream",
    "ResumeStream",
    "CheckCreateStream",
    "FetchStreamDetails",
    "FetchGroupDetails",
    "FetchBrokerDetails",
    "FetchMetadata",
    "FetchPartitionMetadata",
    "JoinConsumerGroup",
    "LeaveConsumerGroup",
    "FetchConsumerGroupAssignments",
    "ReportConsumerGroupCoordinator",
];

/// Hands the request to the control plane and frames its answer.
///
/// # Errors
/// UNIMPLEMENTED for unknown methods; `RESOURCE_EXHAUSTED` for a client that has its share of requests; what the control
/// plane answered; `DEADLINE_EXCEEDED`.
pub(super) async fn forward(
    shared: &SharedRef,
    call: &Call,
    method: &str,
    body: Body,
) -> Result<Reply, Status> {
    if !METHODS.contains(&method) {
        return Err(Status::unimplemented(format!(
            "unknown method {method} for service proto.API"
        )));
    }
    let request = unary_message(body, shared.limits.message_bytes);
    let request = call.within(request).await??;
    if method == "FetchConsumerGroupAssignments" {
        call.within(shared.groups.wait(&request)).await?;
    }
    let identity = Identity::of(&call.peer);
    let Some(_piece) = shared.admission.admin_requests.take(identity.clone()) else {
        shared.statistics.calls_refused.add(1);
        let most = shared.limits.admin_requests_per_identity;
        return Err(Status::resource_exhausted(format!(
            "limits.admin_requests_per_identity ({most}) admin requests of {identity} wait for an answer: send fewer at once, try again later, or raise it"
        )));
    };
    let name = format!("liftbridge/{method}");
    let answer = shared
        .events
        .request(&name, request, call.peer.to_caller(), call.remaining());
    let answer = call.within(answer).await?;
    answer
        .map(|message| reply::message(&message))
        .map_err(|refusal| {
            let code = Code::from(refusal.status);
            if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
                shared.access.count_denied();
            }
            refusal.into_status()
        })
}
