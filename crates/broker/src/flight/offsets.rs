//! The `offsets` action: where partitions begin and end, times looked up, with a long poll.
//!
//! A Spark micro-batch reader asks once per trigger: "tell me the high watermarks, and wait until one of them is beyond
//! what I have".
use super::context::FlightContext;
use super::refusal::{internal, invalid, read_failed};
use super::request::{OffsetsRequest, PartitionOffset, TimeLookup, parse};
use super::{resolve, threads};
use crate::access::Action;
use crate::partition::Partition;
use crate::tls::Peer;
use crate::view::{PartitionView, StreamView};
use bascule_log::{LogReader, ReadError};
use futures_util::future::select_all;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// Longest wait that may be asked for, ms.
pub const MAX_WAIT_MS: u64 = 60_000;

/// Answers the action: one document for one request, a list for a list. Cancel-safe.
///
/// # Errors
/// `PERMISSION_DENIED`, `INVALID_ARGUMENT`, `NOT_FOUND`, `UNAVAILABLE`; `DATA_LOSS` when a requested time lies in a damaged range;
/// INTERNAL.
pub async fn answer(
    context: &Arc<FlightContext>,
    peer: &Peer,
    body: &[u8],
) -> Result<Vec<u8>, Status> {
    let is_list = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let requests: Vec<OffsetsRequest> = if is_list {
        parse("list of offsets requests", body)?
    } else {
        vec![parse("offsets request", body)?]
    };
    for request in &requests {
        check_wait(request.wait_ms)?;
    }
    let wait_ms = requests.iter().map(|request| request.wait_ms).max();
    if let Some(wait_ms) = wait_ms.filter(|wait_ms| *wait_ms > 0) {
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        wait(context, peer, &requests, deadline).await?;
    }
    // Streams are looked up again: the wait may have ended with one that was deleted, or that grew.
    let mut found = Vec::with_capacity(requests.len());
    for request in requests {
        let stream = load(context, peer, &request)?;
        let times = look_up(context, &stream, &request.times).await?;
        let before = identify(context, &stream, &request.before).await?;
        found.push((stream, request, times, before));
    }
    let context = context.clone();
    let work = move || {
        let documents = found.iter().map(|(stream, request, times, before)| {
            document(&context, stream, request, times, before)
        });
        let mut documents = documents.collect::<Result<Vec<_>, _>>()?;
        let answer = match documents.pop() {
            Some(document) if !is_list => document,
            last => documents.into_iter().chain(last).collect(),
        };
        Ok(answer.to_string().into_bytes())
    };
    threads::answer(work)
        .await
        .map_err(|error| internal(format!("the answer could not be made: {error}")))?
}

/// Refuses waits that are too long.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn check_wait(wait_ms: u64) -> Result<(), Status> {
    if wait_ms > MAX_WAIT_MS {
        return Err(invalid(format!("wait_ms {wait_ms} is above {MAX_WAIT_MS}")));
    }
    Ok(())
}

fn load(
    context: &FlightContext,
    peer: &Peer,
    request: &OffsetsRequest,
) -> Result<Arc<StreamView>, Status> {
    let names = (request.namespace.as_str(), request.stream.as_str());
    resolve::authorize(context, peer, Action::Subscribe, names)?;
    resolve::stream(&context.view.load(), &request.namespace, &request.stream)
}

/// Waits until a high watermark is beyond what the caller has, a partition closes, or the deadline passes.
async fn wait(
    context: &FlightContext,
    peer: &Peer,
    requests: &[OffsetsRequest],
    deadline: Instant,
) -> Result<(), Status> {
    let mut watches = Vec::new();
    for request in requests {
        let stream = load(context, peer, request)?;
        for partition in resolve::partitions(&stream, request.partitions.as_deref())? {
            let handle = resolve::readable(context, &stream, partition, None)?;
            let Some(known) = request.beyond.get(&partition.number).copied() else {
                return Ok(());
            };
            watches.push((handle.watch(), known));
        }
    }
    if watches.is_empty() {
        return Ok(());
    }
    let moved = select_all(watches.iter_mut().map(|(watch, known)| {
        let known = *known;
        Box::pin(async move {
            // An error says that the partition was closed, which the answer will show.
            let _ = watch
                .wait_for(|high_watermark| *high_watermark > known)
                .await;
        })
    }));
    // The deadline is the ordinary end of a wait.
    let _ = timeout_at(deadline, moved).await;
    Ok(())
}

/// The first offsets at or after the times asked for; `None` where there is no such record yet.
async fn look_up(
    context: &FlightContext,
    stream: &StreamView,
    times: &[TimeLookup],
) -> Result<Vec<Option<u64>>, Status> {
    let asked = times.iter().map(|time| (time.partition, time.time_ns));
    read_each(context, stream, asked, "looking up times", |reader, ns| {
        reader.offset_at_or_after(ns)
    })
    .await
}

/// What is known of the records before the offsets asked for.
async fn identify(
    context: &FlightContext,
    stream: &StreamView,
    places: &[PartitionOffset],
) -> Result<Vec<Value>, Status> {
    let asked = places.iter().map(|place| (place.partition, *place));
    read_each(
        context,
        stream,
        asked,
        "identifying records",
        |reader, place| {
            let found = reader.before(place.offset)?;
            Ok(json!({"partition": place.partition, "offset": place.offset,
            "link": found.map(|found| found.link),
            "timestamp_ns": found.and_then(|found| found.timestamp)}))
        },
    )
    .await
}

/// What `read` finds for each question to a partition, in their order, where waiting for the disk is allowed. `doing`: how
/// sentences call it.
async fn read_each<Q: Send + 'static, A: Send + 'static>(
    context: &FlightContext,
    stream: &StreamView,
    asked: impl ExactSizeIterator<Item = (u32, Q)>,
    doing: &str,
    read: impl Fn(&LogReader, Q) -> Result<A, ReadError> + Send + 'static,
) -> Result<Vec<A>, Status> {
    if asked.len() == 0 {
        return Ok(Vec::new());
    }
    let questions = asked.map(|(number, question)| {
        let partition = resolve::partition(stream, number)?;
        let reader = resolve::readable(context, stream, partition, None)?.reader();
        Ok((reader, question, resolve::label(stream, number)))
    });
    let questions = questions.collect::<Result<Vec<_>, Status>>()?;
    let work = move || {
        let answers = questions.into_iter().map(|(reader, question, what)| {
            read(&reader, question).map_err(|error| read_failed(&what, &error))
        });
        answers.collect()
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| internal(format!("{doing} failed: {error}")))?
}

fn document(
    context: &FlightContext,
    stream: &StreamView,
    request: &OffsetsRequest,
    times: &[Option<u64>],
    before: &[Value],
) -> Result<Value, Status> {
    let mut partitions = Vec::with_capacity(stream.partitions.len());
    for partition in resolve::partitions(stream, request.partitions.as_deref())? {
        partitions.push(status(
            partition,
            &resolve::readable(context, stream, partition, None)?,
        ));
    }
    let times: Vec<Value> = request
        .times
        .iter()
        .zip(times)
        .map(|(time, offset)| json!({"partition": time.partition, "time_ns": time.time_ns, "offset": offset}))
        .collect();
    Ok(
        json!({"namespace": stream.namespace, "stream": stream.name, "id": stream.id, "subject": stream.subject,
        "partitions": partitions, "times": times, "before": before}),
    )
}

fn status(partition: &PartitionView, handle: &Partition) -> Value {
    let reader = handle.reader();
    // The high watermark is read first: what retention removes meanwhile can only raise the log start.
    let high_watermark = reader.high_watermark();
    json!({"partition": partition.number, "incarnation": partition.incarnation, "log_start": reader.log_start().min(high_watermark),
        "high_watermark": high_watermark, "bytes": reader.bytes(), "last_timestamp_ns": reader.last_timestamp()})
}
