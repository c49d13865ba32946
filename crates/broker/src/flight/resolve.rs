//! From names in a request to an open partition.
use super::context::FlightContext;
use super::refusal::{denied, ended, invalid, refuse};
use crate::access::{Action, Authorization, stream_resource};
use crate::partition::{EndReason, Partition};
use crate::tls::Peer;
use crate::view::{PartitionView, StreamView, View};
use bascule_wire::ErrorCode;
use serde_json::json;
use std::sync::Arc;
use tonic::{Code, Status};

/// Refuses calls while the broker starts or drains.
///
/// # Errors
/// UNAVAILABLE.
pub fn check_serving(context: &FlightContext) -> Result<(), Status> {
    if context.run_state.is_serving() {
        return Ok(());
    }
    Err(refuse(
        Code::Unavailable,
        ErrorCode::Unavailable,
        "the broker is starting or draining".to_owned(),
        json!({}),
    ))
}

/// Whom a call is from.
pub fn peer(extensions: &http::Extensions) -> Peer {
    extensions.get::<Peer>().cloned().unwrap_or_default()
}

/// The right to do something to a stream, checked before anything about it is returned.
///
/// # Errors
/// `PERMISSION_DENIED`, UNAUTHENTICATED.
pub fn authorize(
    context: &FlightContext,
    peer: &Peer,
    action: Action,
    (namespace, stream): (&str, &str),
) -> Result<Authorization, Status> {
    let resource = stream_resource(namespace, stream);
    let authorization = context.access.authorize(peer, &[(action, &*resource)]);
    authorization.map_err(|refusal| denied(&refusal))
}

/// A stream by name.
///
/// # Errors
/// `NOT_FOUND`.
pub fn stream(view: &View, namespace: &str, name: &str) -> Result<Arc<StreamView>, Status> {
    view.stream(namespace, name).map(Arc::clone).ok_or_else(|| {
        let message = format!("stream {namespace}/{name} does not exist");
        refuse(
            Code::NotFound,
            ErrorCode::StreamNotFound,
            message,
            json!({"namespace": namespace, "stream": name}),
        )
    })
}

/// The chosen partitions of a stream, in the order asked for; all of them when `numbers` is `None`.
///
/// # Errors
/// `NOT_FOUND` naming the first number that does not exist; `INVALID_ARGUMENT` when there are more numbers than partitions.
pub fn partitions<'a>(
    stream: &'a StreamView,
    numbers: Option<&[u32]>,
) -> Result<Vec<&'a PartitionView>, Status> {
    match numbers {
        None => Ok(stream.partitions.iter().collect()),
        Some(numbers) => {
            let most = stream.partitions.len();
            let checked = numbers.iter().take(most + 1);
            let found = checked
                .map(|number| partition(stream, *number))
                .collect::<Result<Vec<_>, _>>()?;
            if found.len() > most {
                let (namespace, name) = (&stream.namespace, &stream.name);
                return Err(invalid(format!(
                    "{} partitions are named, stream {namespace}/{name} has {most}: name each once",
                    numbers.len()
                )));
            }
            Ok(found)
        }
    }
}

/// A partition by number.
///
/// # Errors
/// `NOT_FOUND`.
pub fn partition(stream: &StreamView, number: u32) -> Result<&PartitionView, Status> {
    usize::try_from(number)
        .ok()
        .and_then(|n| stream.partitions.get(n))
        .ok_or_else(|| {
            let count = stream.partitions.len();
            let message = format!(
                "{} does not exist: the stream has {count} partitions",
                label(stream, number)
            );
            refuse(
                Code::NotFound,
                ErrorCode::PartitionNotFound,
                message,
                json!({"partition": number, "partitions": count}),
            )
        })
}

/// The open partition behind a view of it, with the incarnation the caller expects.
///
/// # Errors
/// `FAILED_PRECONDITION` when the incarnation is another or the partition is paused; UNAVAILABLE when it is not open here.
pub fn handle(
    context: &FlightContext,
    stream: &StreamView,
    partition: &PartitionView,
    incarnation: Option<u64>,
) -> Result<Partition, Status> {
    let what = label(stream, partition.number);
    check_incarnation(partition, &what, incarnation)?;
    if let Some(handle) = &partition.handle {
        return Ok(handle.clone());
    }
    if partition.paused {
        return Err(ended(&what, EndReason::Paused));
    }
    let message = if partition.leader.is_empty() {
        format!("{what} has no leader")
    } else if partition.leader == context.broker_id {
        format!("{what} is not open yet")
    } else {
        format!(
            "{what} is led by broker {}, not by this one",
            partition.leader
        )
    };
    Err(refuse(
        Code::Unavailable,
        ErrorCode::Unavailable,
        message,
        json!({"leader": partition.leader}),
    ))
}

/// Compares a partition with the incarnation that the caller expects.
///
/// # Errors
/// `FAILED_PRECONDITION` when it is another.
pub fn check_incarnation(
    partition: &PartitionView,
    what: &str,
    incarnation: Option<u64>,
) -> Result<(), Status> {
    let actual = partition.incarnation;
    let Some(expected) = incarnation.filter(|expected| *expected != actual) else {
        return Ok(());
    };
    let message = format!(
        "{what} has incarnation {actual}, not {expected}: the stream was deleted and created again"
    );
    Err(refuse(
        Code::FailedPrecondition,
        ErrorCode::IncarnationChanged,
        message,
        json!({"expected": expected, "actual": actual}),
    ))
}

/// As [`handle`], of a partition that clients may read here.
///
/// # Errors
/// As there; UNAVAILABLE too while this broker cannot say what is committed.
pub fn readable(
    context: &FlightContext,
    stream: &StreamView,
    partition: &PartitionView,
    incarnation: Option<u64>,
) -> Result<Partition, Status> {
    let found = handle(context, stream, partition, incarnation)?;
    if found.may_read() {
        return Ok(found);
    }
    let message = format!(
        "broker {} cannot say now what of {} is committed: it has no lease, has just begun to lead it, or follows broker {:?} \
         and is not in sync; ask again, or ask the leader",
        context.broker_id,
        label(stream, partition.number),
        partition.leader
    );
    Err(refuse(
        Code::Unavailable,
        ErrorCode::Unavailable,
        message,
        json!({"leader": partition.leader}),
    ))
}

/// How a partition is called in sentences.
pub fn label(stream: &StreamView, number: u32) -> String {
    format!("{}/{}/{number}", stream.namespace, stream.name)
}
