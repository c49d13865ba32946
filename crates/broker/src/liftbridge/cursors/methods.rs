//! The two methods: checks in the order of the specification, then the log.
use crate::access::Action;
use crate::liftbridge::call::{Call, unary_message};
use crate::liftbridge::refusal::Refusal;
use crate::liftbridge::reply::{self, Reply};
use crate::liftbridge::resume::resume;
use crate::names;
use crate::partition::{Append, IncomingRecord, Partition, Payload};
use crate::shared::{Shared, SharedRef};
use crate::view::DEFAULT_NAMESPACE;
use bascule_wire::liftbridge::cursors::{Cursor, key, partition_of};
use bascule_wire::liftbridge::messages::{
    FetchCursorRequest, FetchCursorResponse, SetCursorRequest, SetCursorResponse,
};
use prost::Message;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

const STREAM: &str = "__cursors";
/// How long a call may take whose caller set no deadline.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The position belongs to records that a purge, or the end of the stream, took away.
const ANOTHER_HISTORY: &str = "commit log was deleted";
/// Names are part of keys, which are kept for ever.
const MAX_NAME_BYTES: usize = 1024;

/// Stores a position; returns when it is committed.
///
/// # Errors
/// The statuses of §3.11; `DEADLINE_EXCEEDED`, after which it may or may not be stored.
pub(in crate::liftbridge) async fn set_cursor(
    shared: &SharedRef,
    call: &Call,
    body: Body,
) -> Result<Reply, Status> {
    let request: SetCursorRequest = decoded(shared, call, body).await?;
    let call = limited(call);
    check(&request.stream, &request.cursor_id)?;
    permit(shared, &call, Action::SetCursor, &request.stream)?;
    permit(shared, &call, Action::Publish, STREAM)?;
    let key = key(&request.cursor_id, &request.stream, request.partition);
    let partition = call.within(led(shared, &call, &key)).await??;
    if let Err(flaw) = names::check_id(&request.cursor_id) {
        let found = call.within(shared.cursors.find(&partition, &key)).await?;
        // One that is there stays within reach.
        if found.map_err(Status::internal)?.is_none() {
            return Err(Status::invalid_argument(format!("cursorId {flaw}")));
        }
    }
    let present = incarnation(shared, &request.stream, request.partition);
    if request.incarnation != 0 && request.incarnation != present {
        return Err(Status::not_found(ANOTHER_HISTORY));
    }
    let value = Cursor {
        incarnation: present,
        generation: 0,
        stream: request.stream,
        partition: request.partition,
        cursor_id: request.cursor_id,
        offset: request.offset,
    };
    call.within(append(&partition, key, &value)).await??;
    Ok(reply::message(
        &SetCursorResponse::default().encode_to_vec(),
    ))
}

/// The position stored last, −1 when there is none in the present history of the partition.
///
/// # Errors
/// The statuses of §3.11; `DEADLINE_EXCEEDED`.
pub(in crate::liftbridge) async fn fetch_cursor(
    shared: &SharedRef,
    call: &Call,
    body: Body,
) -> Result<Reply, Status> {
    let request: FetchCursorRequest = decoded(shared, call, body).await?;
    let call = limited(call);
    check(&request.stream, &request.cursor_id)?;
    permit(shared, &call, Action::FetchCursor, &request.stream)?;
    let key = key(&request.cursor_id, &request.stream, request.partition);
    let partition = call.within(led(shared, &call, &key)).await??;
    let found = call
        .within(shared.cursors.find(&partition, &key))
        .await?
        .map_err(Status::internal)?;
    let present = incarnation(shared, &request.stream, request.partition);
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

async fn decoded<M: Message + Default>(
    shared: &Shared,
    call: &Call,
    body: Body,
) -> Result<M, Status> {
    let message = call
        .within(unary_message(body, shared.limits.message_bytes))
        .await??;
    M::decode(message)
        .map_err(|error| Status::internal(format!("grpc: error unmarshalling request: {error}")))
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

fn permit(shared: &Shared, call: &Call, action: Action, stream: &str) -> Result<(), Status> {
    let allowed = shared.access.check(&call.peer, action, stream);
    allowed.map_err(|denied| denied.status())
}

/// The open partition of `__cursors` that a key lies on, led here; resumed when it is paused.
async fn led(shared: &SharedRef, call: &Call, key: &str) -> Result<Partition, Status> {
    let mut resumed = false;
    loop {
        let number = {
            let view = shared.view.load();
            let stream = view
                .stream(DEFAULT_NAMESPACE, STREAM)
                .filter(|stream| !stream.partitions.is_empty())
                .ok_or_else(|| Status::internal("Cursors stream does not exist"))?;
            let count = u32::try_from(stream.partitions.len()).unwrap_or(u32::MAX);
            let number = partition_of(key.as_bytes(), count) as i32;
            let partition = stream.partition(number).ok_or_else(|| {
                Status::internal(format!("Cursors partition {number} does not exist"))
            })?;
            if partition.leader != shared.broker_id {
                return Err(Status::failed_precondition(format!(
                    "Server not leader for cursors partition {number}"
                )));
            }
            match &partition.handle {
                Some(handle) if !partition.paused => return Ok(handle.clone()),
                _ if !partition.paused || resumed => {
                    return Err(Status::internal(Refusal::NotOpen(number).to_string()));
                }
                _ => number,
            }
        };
        resumed = true;
        resume(shared, STREAM.as_bytes(), number, call.remaining())
            .await
            .map_err(|failure| failure.subscription())?;
    }
}

/// Which creation of the partition a position belongs to; 0 = there is none now.
fn incarnation(shared: &Shared, stream: &str, number: i32) -> u64 {
    let view = shared.view.load();
    view.stream(DEFAULT_NAMESPACE, stream)
        .and_then(|stream| stream.partition(number))
        .map_or(0, |partition| partition.incarnation)
}

async fn append(partition: &Partition, key: String, value: &Cursor) -> Result<(), Status> {
    let value = value.encode_to_vec();
    let record = IncomingRecord {
        received_bytes: u32::try_from(key.len() + value.len()).unwrap_or(u32::MAX),
        key: key.into(),
        value: Some(value.into()),
        expected_offset: -1,
        ..IncomingRecord::default()
    };
    let number = partition.identity().number as i32;
    let (done, outcome) = oneshot::channel();
    let append = Append {
        payload: Payload::Records(vec![record]),
        producer: None,
        copy_to_nats: false,
        done: Box::new(move |result| {
            // Nobody listens when the call gave up: it is stored all the same.
            let _ = done.send(result);
        }),
    };
    partition.append(append).await;
    let outcome = outcome
        .await
        .map_err(|_| Status::internal("the append was dropped, its outcome is unknown"))?;
    let internal = |refusal: Refusal| Status::internal(refusal.to_string());
    let committed = outcome.map_err(|error| internal(Refusal::of(error, number)))?;
    match committed.rejected.first() {
        Some(rejected) => Err(internal(Refusal::Rejected(rejected.reason.clone()))),
        None => Ok(()),
    }
}
