//! `Subscribe` (liftbridge §3.5): the checks and the handshake.
use super::call::{Call, decoded};
use super::context::LiftbridgeContext;
use super::frames::frame;
use super::generation::{self, Purpose};
use super::position::{needs_committed, resolve, resolve_reverse};
use super::reply::{self, Reply};
use super::resume::resume;
use super::reverse::ReverseSubscription;
use super::subscription::Subscription;
use super::subscription::{deleted, paused};
use super::wanted::Wanted;
use crate::access::Action;
use crate::groups::Membership;
use crate::grpc_status::Coded;
use crate::grpc_status::trailers;
use crate::names;
use crate::names::DEFAULT_NAMESPACE;
use crate::partition::Partition;
use crate::view::{PartitionView, StreamView};
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::messages::{Consumer, SubscribeRequest};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use std::sync::Arc;
use tonic::Status;
use tonic::body::Body;

/// Response header: the partition's incarnation, which the offsets belong to.
const INCARNATION: HeaderName = HeaderName::from_static("bascule-incarnation");
/// Response header: the resolved start offset, for a start outside the log, a keyword or a time.
const START: HeaderName = HeaderName::from_static("bascule-start");
/// Longest id of a group or a member, bytes.
const MAX_ID_BYTES: usize = 255;

/// Opens a subscription: the steps in their order, then one empty message, then records until the stream ends.
///
/// # Errors
/// The statuses of liftbridge §3.5; `RESOURCE_EXHAUSTED` when `limits.subscriptions` are open.
pub(super) async fn subscribe(
    context: &Arc<LiftbridgeContext>,
    call: &Call,
    body: Body,
) -> Result<Reply, Status> {
    let request: SubscribeRequest = decoded(call, body, context.limits.message_bytes).await?;
    // Before any effect, and before anything about the stream is returned.
    let authorization = context.access.authorize(&call.peer, &needed(&request));
    let authorization = authorization.map_err(|denied| denied.status())?;
    // Errors of the request are reported first; a call above a limit resumes no partition.
    find(context, &request)?;
    let wanted = Wanted::parse(&request.subject)?;
    let slot = (context.subscriptions.take()).map_err(no_place)?;
    let partition = open_partition(context, call, &request).await?;
    let incarnation = partition.identity().incarnation;
    if request.incarnation != 0 && request.incarnation != incarnation {
        return Err(deleted());
    }
    let group = group(&request);
    if let Some(member) = group {
        let generation = generation::settled(&context.view, call, member, Purpose::Read).await?;
        let id = &member.group_id;
        if !context.members.admits(incarnation, id, generation) {
            return Err(not_assigned());
        }
    }
    let wanted = wanted.of_partition(&partition.identity().subject);
    // Records that were published before, acknowledged or not, count for the start and the end of reading.
    let committed = needs_committed(&request);
    call.within(partition.flush(committed)).await?;
    let reader = partition.reader();
    let (source, start) = if request.reverse {
        let range = call.within(resolve_reverse(&request, &reader)).await??;
        join(context, group, incarnation)?;
        let place = (slot, authorization);
        let subscription = ReverseSubscription::new(context, place, &partition, range, wanted);
        (Source::Down(subscription), range.start)
    } else {
        let readonly = partition.is_readonly();
        let range = call.within(resolve(&request, &reader, readonly)).await??;
        let membership = join(context, group, incarnation)?;
        let place = (slot, authorization);
        let subscription = Subscription::new(context, place, &partition, range, call.deadline);
        let subscription = subscription.with_membership(membership).with_wanted(wanted);
        (Source::Up(subscription), range.start)
    };
    let mut reply = reply::with_body(StreamBody::new(frames(source)));
    let headers = reply.headers_mut();
    headers.insert(INCARNATION, HeaderValue::from(incarnation));
    headers.insert(START, HeaderValue::from(start));
    Ok(reply)
}

/// The rights that a subscription needs. One for a group ends the subscription of the previous member, so it also needs the
/// right by which members fetch their assignments.
fn needed(request: &SubscribeRequest) -> Vec<(Action, &str)> {
    let mut needed = vec![(Action::Subscribe, request.stream.as_str())];
    if let Some(member) = group(request) {
        needed.push((Action::FetchConsumerGroupAssignments, &member.group_id));
    }
    needed
}

/// The member of a group that subscribes, if it does so for one.
fn group(request: &SubscribeRequest) -> Option<&Consumer> {
    let consumer = request.consumer.as_ref();
    consumer.filter(|consumer| !consumer.group_id.is_empty())
}

/// Step 9: ends the subscription of the group's member before. Reading in reverse ends by itself, and only takes the place.
fn join(
    context: &LiftbridgeContext,
    group: Option<&Consumer>,
    incarnation: u64,
) -> Result<Option<Membership>, Status> {
    let Some(member) = group else {
        return Ok(None);
    };
    let claimed = || generation::present(&context.view, member, Purpose::Read);
    let membership = (context.members).join(incarnation, &member.group_id, claimed()?);
    let membership = membership.ok_or_else(not_assigned)?;
    // A group that changed meanwhile ends what is out of date before this or finds it afterwards.
    claimed()?;
    Ok(Some(membership))
}

pub(super) fn not_assigned() -> Status {
    Status::failed_precondition("Consumer is not currently assigned this partition")
        .because(ErrorCode::FailedPrecondition, "not_assigned")
}

/// As the calls about groups check them.
fn check_id(name: &str, id: &str) -> Result<(), Status> {
    if id.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    let text = format!(
        "{name} is {} bytes long, more than {MAX_ID_BYTES}",
        id.len()
    );
    Err(Status::invalid_argument(text))
}

fn no_place(limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "limits.subscriptions ({limit}) subscriptions are open: end some, try again later, or raise it"
    ))
}

/// Of a partition that may not be read here now.
pub(super) fn no_lease() -> Status {
    let text = "This broker cannot say yet what is committed: it has no lease, has just begun to lead, or has not caught up \
                with the leader. Ask again";
    Status::unavailable(text).coded(ErrorCode::Unavailable)
}

fn no_such_partition() -> Status {
    Status::not_found("No such partition").coded(ErrorCode::PartitionNotFound)
}

/// Steps 1 to 3: the request is valid, the partition exists, this broker leads it.
fn find(
    context: &LiftbridgeContext,
    request: &SubscribeRequest,
) -> Result<(Arc<StreamView>, i32), Status> {
    let group = group(request);
    if group.is_some_and(|consumer| consumer.consumer_id.is_empty()) {
        return Err(Status::invalid_argument(
            "Consumer id cannot be empty when group id is provided",
        ));
    }
    let view = context.view.load();
    if let Some(consumer) = group {
        check_id("groupId", &consumer.group_id)?;
        check_id("consumerId", &consumer.consumer_id)?;
        if !view.groups.contains_key(&consumer.group_id) {
            names::check_id(&consumer.group_id)
                .map_err(|flaw| Status::invalid_argument(format!("groupId {flaw}")))?;
        }
    }
    let stream = view
        .stream(DEFAULT_NAMESPACE, &request.stream)
        .ok_or_else(no_such_partition)?;
    let partition = stream
        .partition(request.partition)
        .ok_or_else(no_such_partition)?;
    if partition.leader != context.broker_id {
        if request.read_isr_replica && group.is_some() {
            return Err(Status::invalid_argument(
                "Consumer groups not compatible with ReadISRReplica",
            ));
        }
        if !request.read_isr_replica || !partition.isr.contains(&context.broker_id) {
            let leader = &partition.leader;
            let details = serde_json::json!({"leader": leader, "address": view.address(leader)});
            return Err(Status::failed_precondition("Server not partition leader")
                .detailed(ErrorCode::NotLeader, details));
        }
    }
    Ok((stream.clone(), request.partition))
}

/// Steps 1 to 4, and a uniform answer for paused partitions.
async fn open_partition(
    context: &LiftbridgeContext,
    call: &Call,
    request: &SubscribeRequest,
) -> Result<Partition, Status> {
    let (stream, number) = find(context, request)?;
    let partition = stream.partition(number).ok_or_else(no_such_partition)?;
    if let Some(handle) = readable(partition) {
        return if handle.may_read() {
            Ok(handle)
        } else {
            Err(no_lease())
        };
    }
    if !request.resume {
        return Err(paused());
    }
    resume(
        &context.events,
        request.stream.as_bytes(),
        number,
        call.remaining(),
    )
    .await
    .map_err(|failure| failure.subscription())?;
    let (stream, number) = find(context, request)?;
    let partition = stream.partition(number).ok_or_else(no_such_partition)?;
    readable(partition).ok_or_else(|| {
        Status::internal(format!(
            "Failed to resume stream: partition {number} is not open on this broker"
        ))
        .coded(ErrorCode::Unavailable)
    })
}

/// The partition when it is open.
fn readable(partition: &PartitionView) -> Option<Partition> {
    partition.handle.clone().filter(|_| !partition.paused)
}

/// Where records come from.
#[allow(clippy::large_enum_variant)] // one per subscription
enum Source {
    Up(Subscription),
    Down(ReverseSubscription),
}

impl Source {
    async fn next_chunk(&mut self) -> Result<Bytes, Status> {
        match self {
            Self::Up(subscription) => subscription.next_chunk().await,
            Self::Down(subscription) => subscription.next_chunk().await,
        }
    }
}

/// The next item of the response body.
enum Next {
    Handshake(Source),
    Records(Source),
    Nothing,
}

/// Handshake, chunks of frames, trailers. Pulled by HTTP/2 when there is room: at most one chunk waits.
fn frames(source: Source) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Status>> {
    stream::unfold(Next::Handshake(source), |next| async move {
        match next {
            Next::Handshake(source) => Some((Ok(Frame::data(frame(&[]))), Next::Records(source))),
            Next::Records(mut source) => Some(match source.next_chunk().await {
                Ok(chunk) => (Ok(Frame::data(chunk)), Next::Records(source)),
                Err(status) => (Ok(Frame::trailers(trailers(status))), Next::Nothing),
            }),
            Next::Nothing => None,
        }
    })
}
