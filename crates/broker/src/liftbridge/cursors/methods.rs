//! The two methods: checks in the order of liftbridge §3.11, then the log.
use crate::access::Action;
use crate::cursor_index::{self, Position};
use crate::events::Level;
use crate::grpc_status::Coded;
use crate::liftbridge::call::{Call, decoded};
use crate::liftbridge::context::LiftbridgeContext;
use crate::liftbridge::generation::{self, Purpose};
use crate::liftbridge::refusal::Refusal;
use crate::liftbridge::reply::{self, Reply};
use crate::liftbridge::resume::resume;
use crate::liftbridge::subscribe::{no_lease, not_assigned};
use crate::liftbridge::subscription::deleted;
use crate::names;
use crate::names::{CURSORS as STREAM, DEFAULT_NAMESPACE};
use crate::partition::Partition;
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::cursors::{Cursor, key, partition_of, raw_key};
use bascule_wire::liftbridge::messages::{
    Consumer, FetchCursorRequest, FetchCursorResponse, SetCursorRequest, SetCursorResponse,
};
use prost::Message;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

/// How ids of the positions of groups begin.
pub(super) const GROUP: &str = "__group:";
/// How long a call may take whose caller set no deadline.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Names are part of keys, which are kept for ever.
const MAX_NAME_BYTES: usize = 1024;

/// Stores a position; returns when it is committed.
///
/// # Errors
/// The statuses of liftbridge §3.11; `FAILED_PRECONDITION` for a member whose group has given the partition to another
/// since; `RESOURCE_EXHAUSTED` when `limits.cursors` are stored; `DEADLINE_EXCEEDED`, after which it may or may not be
/// stored.
pub(in crate::liftbridge) async fn set_cursor(
    context: &LiftbridgeContext,
    call: &Call,
    body: Body,
) -> Result<Reply, Status> {
    let request: SetCursorRequest = decoded(call, body, context.limits.message_bytes).await?;
    let call = limited(call);
    check(&request.stream, &request.cursor_id)?;
    authorize(context, &call, Action::SetCursor, &request.stream)?;
    let member = member(context, &call, &request)?;
    if let Some(member) = member {
        generation::settled(&context.view, &call, member, Purpose::Store).await?;
    }
    let cursor = CursorKey::of(&request.cursor_id, &request.stream, request.partition);
    let partition = call.within(led(context, &call, &cursor)).await??;
    // The check of the current position and the store are one critical section.
    let lock = if is_of_a_group(&request.cursor_id) {
        Some(call.within(context.cursors.lock(&cursor.key)).await?)
    } else {
        None
    };
    let found = call.within(find(context, &partition, &cursor)).await??;
    if found.is_none() {
        begin(context, &request.cursor_id)?;
    }
    let present = incarnation(context, &request.stream, request.partition);
    if request.incarnation != 0 && request.incarnation != present {
        return Err(deleted());
    }
    let stored = found.filter(|position| position.incarnation == present);
    let generation = generation(context, &request.cursor_id, member, stored)?;
    let value = Cursor {
        incarnation: present,
        generation,
        stream: request.stream,
        partition: request.partition,
        cursor_id: request.cursor_id,
        offset: request.offset,
    };
    call.within(append(&partition, cursor.key, &value, lock))
        .await??;
    Ok(reply::message(
        &SetCursorResponse::default().encode_to_vec(),
    ))
}

/// The position stored last, −1 when there is none in the present history of the partition.
///
/// # Errors
/// The statuses of liftbridge §3.11; `DEADLINE_EXCEEDED`.
pub(in crate::liftbridge) async fn fetch_cursor(
    context: &LiftbridgeContext,
    call: &Call,
    body: Body,
) -> Result<Reply, Status> {
    let request: FetchCursorRequest = decoded(call, body, context.limits.message_bytes).await?;
    let call = limited(call);
    check(&request.stream, &request.cursor_id)?;
    authorize(context, &call, Action::FetchCursor, &request.stream)?;
    let cursor = CursorKey::of(&request.cursor_id, &request.stream, request.partition);
    let partition = call.within(led(context, &call, &cursor)).await??;
    let found = call.within(find(context, &partition, &cursor)).await??;
    let present = incarnation(context, &request.stream, request.partition);
    let offset = found
        .filter(|position| position.incarnation == present)
        .map_or(-1, |position| position.offset);
    Ok(reply::message(
        &FetchCursorResponse {
            offset,
            incarnation: present,
        }
        .encode_to_vec(),
    ))
}

fn limited(call: &Call) -> Call {
    Call {
        deadline: Some(call.deadline.unwrap_or_else(|| Instant::now() + TIMEOUT)),
        ..call.clone()
    }
}

fn check(stream: &str, cursor_id: &str) -> Result<(), Status> {
    if stream.is_empty() {
        return Err(Status::invalid_argument("No stream provided"));
    }
    if cursor_id.is_empty() {
        return Err(Status::invalid_argument("No cursorId provided"));
    }
    for (field, name) in [("stream", stream), ("cursorId", cursor_id)] {
        if name.len() > MAX_NAME_BYTES {
            return Err(Status::invalid_argument(format!(
                "{field} is {} bytes long, more than {MAX_NAME_BYTES}",
                name.len()
            )));
        }
    }
    Ok(())
}

fn authorize(
    context: &LiftbridgeContext,
    call: &Call,
    action: Action,
    stream: &str,
) -> Result<(), Status> {
    let allowed = context.access.check(&call.peer, action, stream);
    allowed.map_err(|denied| denied.status())
}

/// The key under which a position is stored.
struct CursorKey {
    key: String,
    /// Determines the partition that stores it.
    raw_key: String,
}

impl CursorKey {
    fn of(cursor_id: &str, stream: &str, partition: i32) -> Self {
        Self {
            key: key(cursor_id, stream, partition),
            raw_key: raw_key(cursor_id, stream, partition),
        }
    }
}

fn is_of_a_group(cursor_id: &str) -> bool {
    cursor_id.starts_with(GROUP)
}

/// The member of a group that stores the position; `None` = somebody else does.
fn member<'a>(
    context: &LiftbridgeContext,
    call: &Call,
    request: &'a SetCursorRequest,
) -> Result<Option<&'a Consumer>, Status> {
    let Some(member) = &request.consumer else {
        return Ok(None);
    };
    let (group, cursor) = (&member.group_id, &request.cursor_id);
    if cursor.strip_prefix(GROUP) != Some(group) {
        return Err(Status::invalid_argument(format!(
            "cursorId {cursor:?} is not that of group {group:?}, {:?}: leave out the consumer, or name its group",
            format!("{GROUP}{group}")
        )));
    }
    // As in Subscribe: a generation shuts out those before it, so it takes the right that every member has.
    authorize(context, call, Action::FetchConsumerGroupAssignments, group)?;
    Ok(Some(member))
}

/// The generation to store with a position: that of the member. A caller that is not a member keeps the stored generation, so
/// fenced members stay fenced. A stored generation of an earlier group of this id fences nobody and is dropped.
fn generation(
    context: &LiftbridgeContext,
    cursor_id: &str,
    member: Option<&Consumer>,
    stored: Option<Position>,
) -> Result<u64, Status> {
    let Some(group) = cursor_id.strip_prefix(GROUP) else {
        return Ok(0);
    };
    let stored = stored.map_or(0, |position| position.generation);
    let stored = generation::of_present_group(&context.view.load(), group, stored);
    match member {
        None => Ok(stored),
        Some(member) => match generation::present(&context.view, member, Purpose::Store)? {
            claimed if claimed < stored => Err(not_assigned()),
            claimed => Ok(claimed),
        },
    }
}

/// Whether a position may begin that is not stored yet.
fn begin(context: &LiftbridgeContext, cursor_id: &str) -> Result<(), Status> {
    names::check_id(cursor_id)
        .map_err(|flaw| Status::invalid_argument(format!("cursorId {flaw}")))?;
    let most = context.limits.cursors;
    if context.cursors.known() >= most {
        return Err(Status::resource_exhausted(format!(
            "limits.cursors ({most}) positions are stored: use the ids that are there, or raise it"
        )));
    }
    Ok(())
}

async fn find(
    context: &LiftbridgeContext,
    partition: &Partition,
    cursor: &CursorKey,
) -> Result<Option<Position>, Status> {
    let found = context.cursors.find(partition, &cursor.key).await;
    let found = found.map_err(Status::internal)?;
    // Compared after the look-up: what was found is the newest only if the lease has not ended since.
    if !partition.may_read() || !partition.is_leading() {
        return Err(no_lease());
    }
    if found.strange > 0 {
        let text = format!(
            "{} records of {STREAM} are not valid cursor positions and were ignored",
            found.strange
        );
        let fields = serde_json::json!({"partition": partition.identity().number});
        context.events.log(Level::Warning, "cursors", text, fields);
    }
    Ok(found.position)
}

/// The open partition of `__cursors` that stores a key, if it is led here; resumed when it is paused.
async fn led(
    context: &LiftbridgeContext,
    call: &Call,
    cursor: &CursorKey,
) -> Result<Partition, Status> {
    let mut resumed = false;
    loop {
        let number = {
            let view = context.view.load();
            let stream = view
                .stream(DEFAULT_NAMESPACE, STREAM)
                .filter(|stream| !stream.partitions.is_empty())
                .ok_or_else(|| Status::internal("Cursors stream does not exist"))?;
            let count = u32::try_from(stream.partitions.len()).unwrap_or(u32::MAX);
            let number = partition_of(cursor.raw_key.as_bytes(), count) as i32;
            let partition = stream.partition(number).ok_or_else(|| {
                Status::internal(format!("Cursors partition {number} does not exist"))
            })?;
            if partition.leader != context.broker_id {
                let leader = &partition.leader;
                let details =
                    serde_json::json!({"leader": leader, "address": view.address(leader)});
                return Err(Status::failed_precondition(format!(
                    "Server not leader for cursors partition {number}"
                ))
                .detailed(ErrorCode::NotLeader, details));
            }
            match &partition.handle {
                Some(handle) if !partition.paused => return Ok(handle.clone()),
                _ if !partition.paused || resumed => {
                    return Err(internal(&Refusal::NotOpen(number)));
                }
                _ => number,
            }
        };
        resumed = true;
        resume(&context.events, STREAM.as_bytes(), number, call.remaining())
            .await
            .map_err(|failure| failure.subscription())?;
    }
}

/// Which creation of the partition a position belongs to; 0 = there is none now.
fn incarnation(context: &LiftbridgeContext, stream: &str, number: i32) -> u64 {
    let view = context.view.load();
    view.stream(DEFAULT_NAMESPACE, stream)
        .and_then(|stream| stream.partition(number))
        .map_or(0, |partition| partition.incarnation)
}

/// Methods about positions answer every refused append with INTERNAL; the code says more.
fn internal(refusal: &Refusal) -> Status {
    Status::internal(refusal.to_string()).detailed(refusal.error_code(), refusal.details())
}

/// Stores a position. `lock` is held until it is stored, also when the call gives up.
async fn append(
    partition: &Partition,
    key: String,
    value: &Cursor,
    lock: Option<OwnedMutexGuard<()>>,
) -> Result<(), Status> {
    let number = partition.identity().number as i32;
    let outcome = cursor_index::append(partition, key, value, lock)
        .await
        .await
        .map_err(|_| Status::internal("the append was dropped, its outcome is unknown"))?;
    let committed = outcome.map_err(|error| internal(&Refusal::of(error, number)))?;
    match committed.rejected.first() {
        Some(rejected) => Err(internal(&Refusal::Rejected(rejected.reason.clone()))),
        None => Ok(()),
    }
}
