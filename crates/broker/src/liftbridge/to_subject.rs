//! `PublishToSubject` (liftbridge §3.9): an envelope to exactly one NATS subject; nothing else is checked.
use super::call::{Call, SHOWN, check_ack_inbox, decoded, new_inbox};
use super::context::LiftbridgeContext;
use super::refusal::Refusal;
use super::reply::{self, Reply};
use crate::access::Action;
use crate::grpc_status::Coded;
use bascule_wire::ErrorCode;
use bascule_wire::envelope::{self, MessageType};
use bascule_wire::liftbridge::messages::{
    Ack, AckPolicy, Message, PublishToSubjectRequest, PublishToSubjectResponse,
};
use bascule_wire::subject::{MAX_SUBJECT_BYTES, is_publish_subject};
use bytes::Bytes;
use prost::Message as _;
use tonic::Status;
use tonic::body::Body;

/// Publishes, and waits for the first ack when the policy is not NONE and the call has a deadline.
///
/// # Errors
/// INTERNAL for malformed requests and acks; what the client may not; `INVALID_ARGUMENT` for subjects that nothing can be published on; UNKNOWN when
/// NATS refuses; `DEADLINE_EXCEEDED`.
pub(super) async fn publish_to_subject(
    context: &LiftbridgeContext,
    call: &Call,
    body: Body,
) -> Result<Reply, Status> {
    let mut request: PublishToSubjectRequest =
        decoded(call, body, context.limits.message_bytes).await?;
    check_subject("subject", &request.subject)?;
    if AckPolicy::try_from(request.ack_policy).is_err() {
        return Err(Refusal::PolicyUnknown(request.ack_policy).status());
    }
    if request.ack_inbox.is_empty() {
        request.ack_inbox = new_inbox(&context.namespace);
    } else {
        check_subject("ackInbox", &request.ack_inbox)?;
    }
    context
        .access
        .check(&call.peer, Action::PublishToSubject, &request.subject)
        .and_then(|()| {
            let inbox = &request.ack_inbox;
            (context.access).check_inbox(&call.peer, &context.namespace, inbox)
        })
        .map_err(|denied| denied.status())?;
    check_ack_inbox(context, &request.ack_inbox)?;
    let (subject, inbox, policy) = (
        request.subject.clone(),
        request.ack_inbox.clone(),
        request.ack_policy,
    );
    let payload = enveloped(request);
    if policy == AckPolicy::None as i32 || call.deadline.is_none() {
        let sent = call
            .within(context.nats.publish(&subject, None, payload))
            .await?;
        sent.map_err(|reason| not_sent(&reason))?;
        return Ok(reply::message(&[]));
    }
    let ack = call
        .within(context.nats.publish_and_wait(&subject, payload, &inbox))
        .await?;
    let ack = read_ack(&ack.map_err(|reason| not_sent(&reason))?)?;
    Ok(reply::message(
        &PublishToSubjectResponse { ack: Some(ack) }.encode_to_vec(),
    ))
}

/// A retry cannot help here, and the broker's connection must not carry what nats-server would drop it for.
pub(super) fn check_subject(field: &str, subject: &str) -> Result<(), Status> {
    if is_publish_subject(subject) {
        return Ok(());
    }
    let shown: String = subject.chars().take(SHOWN).collect();
    Err(Status::invalid_argument(format!(
        "{field} {shown:?} is not a valid subject to publish on: tokens joined by dots, without white space and wildcards, at \
         most {MAX_SUBJECT_BYTES} bytes"
    )))
}

fn not_sent(reason: &str) -> Status {
    Status::unknown(format!("failed to publish to NATS: {reason}"))
        .coded(ErrorCode::NatsUnavailable)
}

/// The Publish envelope of a request. Its expected offset is 0.
fn enveloped(request: PublishToSubjectRequest) -> Bytes {
    let message = Message {
        key: request.key,
        value: request.value,
        subject: request.subject,
        headers: request.headers,
        ack_inbox: request.ack_inbox,
        correlation_id: request.correlation_id,
        ack_policy: request.ack_policy,
        null_value: request.null_value,
        header_list: request.header_list,
        ..Message::default()
    };
    let mut out = Vec::new();
    envelope::put(
        &mut out,
        MessageType::Publish,
        &message.encode_to_vec(),
        false,
    );
    out.into()
}

fn read_ack(envelope: &Bytes) -> Result<Ack, Status> {
    let payload = envelope::open(envelope, MessageType::Ack)
        .map_err(|error| Status::internal(format!("invalid ack on the inbox: {error}")))?;
    Ack::decode(payload)
        .map_err(|error| Status::internal(format!("invalid ack on the inbox: {error}")))
}
