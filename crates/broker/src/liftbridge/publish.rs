//! Unary `Publish` (liftbridge §3.7): one record, appended directly.
use super::acks::committed_fields;
use super::call::{Call, check_ack_inbox, malformed_publish, new_inbox, unary_message};
use super::context::LiftbridgeContext;
use super::refusal::Refusal;
use super::reply::{self, Reply};
use super::resume::{NotResumed, resume};
use super::route::{AckContext, Destination, Route, ack_level, split};
use super::to_subject::check_subject;
use crate::access::Action;
use crate::forward::Lanes;
use crate::partition::{
    Append, AppendError, Committed, Payload, RejectReason, count_publish_errors,
};
use crate::resume::RESUMES;
use bascule_record::Producer;
use bascule_wire::envelope::{self, MessageType};
use bascule_wire::liftbridge::acks::AckFields;
use bascule_wire::liftbridge::messages::{AckError, AckPolicy};
use bascule_wire::liftbridge::publish::PublishView;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::body::Body;

/// How long a call without a deadline waits for a leader elsewhere: longer than what is handed on does before it is sent.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the partition says about the one record.
type Outcome = Result<Committed, AppendError>;

/// Appends one record. Waits for the commit only when the policy is not NONE and the call has a deadline; otherwise answers
/// as soon as the append is queued.
///
/// # Errors
/// The statuses of liftbridge §3.7, in its order.
pub(super) async fn publish(
    context: &Arc<LiftbridgeContext>,
    call: &Call,
    body: Body,
) -> Result<Reply, Status> {
    let message = call
        .within(unary_message(body, context.limits.message_bytes))
        .await??;
    let received = message.len();
    let view = PublishView::read(message.clone()).ok_or_else(|| malformed(context, message))?;
    if view.stream.is_empty() {
        return Err(refused(context, &Refusal::StreamMissing));
    }
    let producer = match view.begun_batch() {
        Some(None) => None,
        Some(Some(batch)) if batch.records == 1 => Some(batch.producer),
        _ => {
            return Err(Status::invalid_argument(
                "producerBatch is not one of a single record, which is what a unary call carries",
            ));
        }
    };
    producer.map_or(Ok(()), check_producer)?;
    let destination = open_destination(context, call, &view).await?;

    let (inbox, number, counted) = (
        view.ack_inbox.clone(),
        view.partition,
        context.statistics.clone(),
    );
    let (record, ack) = split(view, received);
    let (done, mut outcome) = oneshot::channel();
    let append = Append {
        payload: Payload::Records(vec![record]),
        producer,
        republish: true,
        ack: ack_level([&ack]),
        done: Box::new(move |result| {
            count_publish_errors(&counted.publish_errors, &result, 1);
            // Nobody listens when the call did not wait or was cancelled: the record is stored all the same.
            let _ = done.send(result);
        }),
    };
    if !inbox.is_empty() {
        outcome = notify_inbox(context, &destination, inbox.clone(), ack.clone(), outcome);
    }
    if ack.policy == AckPolicy::None as i32 || call.deadline.is_none() {
        if append_once(context, call, &destination, append).await {
            return Ok(reply::message(&[]));
        }
        return forwarded(outcome, number).await;
    }
    let outcome = call.within(async {
        append_once(context, call, &destination, append).await;
        outcome.await
    });
    let outcome = outcome
        .await?
        .map_err(|_| Status::internal("the append was dropped, its outcome is unknown"))?;
    let committed = checked(outcome, number).map_err(|refusal| refusal.status())?;
    let inbox = if inbox.is_empty() {
        Bytes::from(new_inbox(&context.namespace))
    } else {
        inbox
    };
    let mut frame = Vec::with_capacity(256);
    let fields = committed_fields(&ack, &committed, committed.base_offset, &inbox);
    destination
        .template
        .put_response_frame(&mut frame, &fields, false);
    Ok(reply::framed(frame.into()))
}

/// Appends the record here, or hands it on; false: handed on.
async fn append_once(
    context: &LiftbridgeContext,
    call: &Call,
    destination: &Destination,
    append: Append,
) -> bool {
    let mut lanes = Lanes::new(&context.forwarder, &call.peer);
    let place = &destination.place;
    lanes.append(place, append, call.deadline).await
}

/// The answer to a call that would not wait if its record were appended here: it waits for the leader a while, since two such records
/// in a row would have no order otherwise.
///
/// # Errors
/// The record was not stored, or its outcome is unknown.
async fn forwarded(outcome: oneshot::Receiver<Outcome>, number: i32) -> Result<Reply, Status> {
    match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(Ok(Err(error))) => Err(Refusal::of(error, number).status()),
        // Stored, rejected as by a partition that is led here, or under way.
        Ok(_) | Err(_) => Ok(reply::message(&[])),
    }
}

/// Why a request could not be read.
fn malformed(context: &LiftbridgeContext, message: Bytes) -> Status {
    if PublishView::without_headers(message).is_some() {
        return refused(context, &Refusal::TooManyHeaders);
    }
    malformed_publish()
}

/// Counts a record that does not reach its partition.
fn refused(context: &LiftbridgeContext, refusal: &Refusal) -> Status {
    context.statistics.publish_errors.add(refusal.metric(), 1);
    refusal.status()
}

/// Where the record goes, after all checks; a paused partition is resumed.
async fn open_destination(
    context: &LiftbridgeContext,
    call: &Call,
    view: &PublishView,
) -> Result<Arc<Destination>, Status> {
    let (stream, number) = (&view.stream, view.partition);
    for _ in 0..RESUMES {
        let route = Route::find(&context.view.load(), context, stream, number);
        // Also for a stream that does not exist: only its publishers may learn whether it does.
        let name = String::from_utf8_lossy(stream);
        let allowed = context.access.check(&call.peer, Action::Publish, &name);
        allowed.map_err(|denied| refused(context, &denied.into()))?;
        if !view.ack_inbox.is_empty() {
            let inbox = String::from_utf8_lossy(&view.ack_inbox);
            let allowed = (context.access).check_inbox(&call.peer, &context.namespace, &inbox);
            allowed.map_err(|denied| refused(context, &denied.into()))?;
            check_subject("ackInbox", &inbox)?;
            check_ack_inbox(context, &inbox)?;
        }
        match route.check(view.ack_policy, [&view.subject]) {
            Ok(destination) => return Ok(destination.clone()),
            Err(Refusal::Paused(_)) => {}
            Err(refusal) => return Err(refused(context, &refusal)),
        }
        let resumed = resume(&context.events, stream, number, call.remaining()).await;
        resumed.map_err(|failure| not_resumed(context, failure))?;
    }
    Err(refused(context, &Refusal::Paused(number)))
}

fn not_resumed(context: &LiftbridgeContext, failure: NotResumed) -> Status {
    refused(context, &failure.refusal());
    failure.status()
}

/// A single record is either committed or refused.
fn checked(outcome: Outcome, number: i32) -> Result<Committed, Refusal> {
    let committed = outcome.map_err(|error| Refusal::of(error, number))?;
    match committed.rejected.first() {
        Some(rejected) => Err(Refusal::Rejected(rejected.reason.clone())),
        None => Ok(committed),
    }
}

/// Passes the outcome on, and sends the ack to the NATS inbox that the request named: its owner may be listening there
/// instead of waiting for the call.
fn notify_inbox(
    context: &Arc<LiftbridgeContext>,
    destination: &Arc<Destination>,
    inbox: Bytes,
    ack: AckContext,
    outcome: oneshot::Receiver<Outcome>,
) -> oneshot::Receiver<Outcome> {
    let (pass_on, passed_on) = oneshot::channel();
    let (context, destination) = (context.clone(), destination.clone());
    tokio::spawn(async move {
        let Ok(outcome) = outcome.await else { return };
        let envelope = inbox_ack(&destination, &inbox, &ack, &outcome);
        let _ = pass_on.send(outcome);
        if let Some(envelope) = envelope {
            let subject = String::from_utf8_lossy(&inbox);
            if context.nats.publish(&subject, None, envelope).await.is_ok() {
                context.statistics.nats_acks_sent.add(1);
            }
        }
    });
    passed_on
}

/// The enveloped ack for an inbox; `None` when none is due (success under NONE, or an unknown outcome).
fn inbox_ack(
    destination: &Destination,
    inbox: &[u8],
    ack: &AckContext,
    outcome: &Outcome,
) -> Option<Bytes> {
    let committed = outcome.as_ref().ok()?;
    let fields = match committed.rejected.first() {
        None if ack.policy == AckPolicy::None as i32 => return None,
        None => committed_fields(ack, committed, committed.base_offset, inbox),
        Some(rejected) => rejected_fields(ack, committed, &rejected.reason, inbox),
    };
    let mut payload = Vec::with_capacity(192);
    destination.template.put_ack(&mut payload, &fields);
    let mut out = Vec::with_capacity(8 + payload.len());
    envelope::put(&mut out, MessageType::Ack, &payload, false);
    Some(out.into())
}

/// An error ack: offset 0, and no commit time when the message was too large (liftbridge §2.2).
fn rejected_fields<'a>(
    ack: &'a AckContext,
    committed: &Committed,
    reason: &RejectReason,
    ack_inbox: &'a [u8],
) -> AckFields<'a> {
    let (ack_error, commit_timestamp) = match reason {
        RejectReason::TooLarge => (AckError::TooLarge, 0),
        RejectReason::IncorrectOffset => (AckError::IncorrectOffset, committed.commit_timestamp),
        RejectReason::Encryption => (AckError::Encryption, 0),
        // A unary call's batch is its one record; the others come by NATS only.
        RejectReason::Batch | RejectReason::Duplicate(_) | RejectReason::Refused(_) => {
            (AckError::Unknown, 0)
        }
    };
    AckFields {
        offset: 0,
        commit_timestamp,
        ack_error: ack_error as i32,
        ..committed_fields(ack, committed, 0, ack_inbox)
    }
}

/// Ids from 2^63 on are those of sinks.
pub(super) fn check_producer(producer: Producer) -> Result<(), Status> {
    if producer.id < Producer::FIRST_SINK_ID {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "producer id {} is not below 2^63: higher ones are those of sinks",
        producer.id
    )))
}
