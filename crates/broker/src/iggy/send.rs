//! `SEND_MESSAGES` and `FLUSH_UNSAVED_BUFFER`.
use super::connection::done;
use super::context::IggyContext;
use super::refused::{Refused, repeatable};
use super::resolve::{self, Opened, Path};
use super::session::Session;
use crate::client_requests::{Answered, Question};
use crate::clock::now_ns;
use crate::forward::Lanes;
use crate::partition::{
    AckLevel, Append, AppendError, Committed, Partition, Payload, count_publish_errors,
};
use crate::tls::Peer;
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use crate::view::StreamView;
use bascule_record::{
    BatchBuilder, BatchLimits, Codec, HeaderEntry, Producer, RecordRef, SealedBatch,
};
use bascule_wire::iggy::v1::{Flush, Partitioning, Send};
use bascule_wire::iggy::{Generation, Status, v2};
use bytes::Bytes;
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::sync::oneshot;

/// All messages of a send are one batch: the layout's own bounds apply.
const WHOLE: BatchLimits = BatchLimits {
    records: usize::MAX,
    bytes: usize::MAX,
    record_bytes: usize::MAX,
};

/// Appends the messages of a send to one partition; answers when they are committed. `session`: of v2, which repeats sends,
/// with the number of the request.
///
/// # Errors
/// Those of [`Send::read`] and of [`resolve::open`]; 4022 for a message above the topic's bound; 4010 when nothing was
/// stored, or when it is not known; of v2 57 when it is not known, 58 when a repetition may succeed.
pub(super) async fn send(
    context: &Arc<IggyContext>,
    caller: UserCaller<'_>,
    generation: Generation,
    session: Option<(&mut Session, u64)>,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let send = Send::read(payload, generation).map_err(|error| error.status())?;
    let opened = find(context, caller, generation, &send).await?;
    let Some((session, request)) = session else {
        let committed = append_without_session(context, caller, &opened, &send).await?;
        return committed.map(|_| done()).map_err(Refused::from);
    };
    let place = (caller, &opened);
    let base_offset = append_once(context, place, &send, session, request).await?;
    let sent = Sent::of(&opened, base_offset);
    Ok(v2::confirmation_reply(
        sent.stream,
        sent.topic,
        sent.partition,
        sent.base_offset,
    ))
}

/// Where the messages of a send lie; numbers from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) stream: u32,
    pub(super) topic: u32,
    pub(super) partition: u32,
    /// Offset of the first.
    pub(super) base_offset: u64,
}

impl Sent {
    fn of(opened: &Opened, base_offset: u64) -> Self {
        let number = |id: u64| u32::try_from(id + 1).unwrap_or(u32::MAX);
        Self {
            stream: resolve::stream_number(opened.namespace),
            topic: number(opened.topic.id),
            partition: number(opened.number.into()),
            base_offset,
        }
    }
}

/// Appends the messages of a send without a session; returns where they lie when they are committed.
///
/// # Errors
/// As [`send`]; 57 and 58 as in v2, though a repetition is stored again.
pub(super) async fn store(
    context: &Arc<IggyContext>,
    caller: UserCaller<'_>,
    generation: Generation,
    payload: &[u8],
) -> Result<Sent, Refused> {
    let send = Send::read(payload, generation).map_err(|error| error.status())?;
    let opened = find(context, caller, generation, &send).await?;
    let committed = append_without_session(context, caller, &opened, &send).await?;
    let committed = committed.map_err(|error| Refused::from(repeatable(&error)))?;
    Ok(Sent::of(&opened, committed.base_offset))
}

/// The partition that a send goes to.
async fn find(
    context: &IggyContext,
    caller: UserCaller<'_>,
    generation: Generation,
    send: &Send<'_>,
) -> Result<Opened, Refused> {
    let path = Path {
        stream: send.stream,
        topic: send.topic,
        caller,
        action: UserAction::Send,
    };
    let turn = turn(context, path, send)?;
    resolve::open(context, path, |topic| choose(topic, send, turn, generation)).await
}

/// Appends a send of a session, once however often it is repeated; returns the offset of its first message.
async fn append_once(
    context: &Arc<IggyContext>,
    (caller, opened): (UserCaller<'_>, &Opened),
    send: &Send<'_>,
    session: &mut Session,
    request: u64,
) -> Result<u64, Refused> {
    let (producers, incarnation) = (&context.producers, opened.incarnation);
    let repeated = session.take_unknown(request);
    let repeated = repeated.filter(|lease| lease.is_of(incarnation));
    let is_repeated = repeated.is_some();
    let mut lease = repeated.unwrap_or_else(|| producers.take(incarnation));
    loop {
        let producer = lease.producer();
        let may_try_another = !is_repeated && !lease.is_new();
        // Until its outcome is known, also when the connection ends meanwhile.
        session.keep_unknown(request, lease);
        let outcome = append(context, caller, opened, send, Some(producer)).await;
        let Some(kept) = session.take_unknown(request) else {
            return Err(Status::Error.into());
        };
        match outcome {
            Ok(Ok(committed)) => {
                producers.give_back(kept, committed.count);
                return Ok(committed.base_offset);
            }
            // The log was cut where the producer wrote: a new one begins.
            Ok(Err(AppendError::Sequence(_))) if may_try_another => {
                lease = producers.create(incarnation);
            }
            Ok(Err(error)) => {
                let status = repeatable(&error);
                if status == Status::TransientNotCommitted || is_repeated {
                    session.keep_unknown(request, kept);
                } else if !matches!(error, AppendError::Sequence(_)) {
                    producers.give_back(kept, 0);
                }
                return Err(status.into());
            }
            Err(refused) => {
                producers.give_back(kept, 0);
                return Err(refused);
            }
        }
    }
}

/// Appends a send without a session. With other brokers it has a producer, so that this broker may hand it to the next leader although
/// one has not answered; a producer whose send has no known outcome is never used again.
async fn append_without_session(
    context: &Arc<IggyContext>,
    caller: UserCaller<'_>,
    opened: &Opened,
    send: &Send<'_>,
) -> Result<Result<Committed, AppendError>, Refused> {
    if !context.requests.forwarder().is_connected() {
        return append(context, caller, opened, send, None).await;
    }
    let producers = &context.producers;
    let mut lease = producers.take(opened.incarnation);
    loop {
        let producer = lease.producer();
        let outcome = append(context, caller, opened, send, Some(producer)).await?;
        match &outcome {
            Ok(committed) => producers.give_back(lease, committed.count),
            Err(AppendError::Sequence(_)) if !lease.is_new() => {
                lease = producers.create(opened.incarnation);
                continue;
            }
            Err(_) => {}
        }
        return Ok(outcome);
    }
}

/// Appends the messages as one batch, wherever the partition is led.
///
/// # Errors
/// The outer one: nothing was stored, and never will be.
async fn append(
    context: &Arc<IggyContext>,
    caller: UserCaller<'_>,
    opened: &Opened,
    send: &Send<'_>,
    producer: Option<Producer>,
) -> Result<Result<Committed, AppendError>, Refused> {
    let records = send.messages.count();
    let batch = seal(send, opened, producer)?;
    let (outcome, committed) = oneshot::channel();
    let counted = context.clone();
    let append = Append {
        payload: Payload::Sealed(batch),
        producer,
        republish: true,
        ack: AckLevel::All,
        done: Box::new(move |result| {
            count_publish_errors(&counted.statistics.publish_errors, &result, records);
            // Nobody listens when the client has gone: the records are stored all the same.
            let _ = outcome.send(result);
        }),
    };
    let forwarder = context.requests.forwarder();
    let peer = Peer {
        address: caller.peer.address,
        identity: Some(caller.rights.principal.clone()),
    };
    let mut lanes = Lanes::of_user(forwarder, &peer, caller.user);
    lanes.append(&opened.destination, append, None).await;
    let committed = committed.await.unwrap_or(Err(AppendError::Closed));
    if let Ok(committed) = &committed
        && let Some(rejected) = committed.rejected.first()
    {
        return Err((&rejected.reason).into());
    }
    Ok(committed)
}

/// Waits until everything that anybody appended to the partition before is committed.
///
/// # Errors
/// As [`resolve::open`] and [`resolve::ask`]; 3; 1 when the log has failed.
pub(super) async fn flush(
    context: &IggyContext,
    caller: UserCaller<'_>,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let flush = Flush::read(payload, generation)?;
    let path = Path {
        stream: flush.stream,
        topic: flush.topic,
        caller,
        action: UserAction::Send,
    };
    let number = flush.partition.map_or(1, NonZeroU32::get);
    let opened = resolve::open(context, path, |_| Ok(number)).await?;
    let asked = opened.asked(caller, Question::Flush);
    match resolve::ask(context, &opened.destination, asked).await? {
        Answered::Flushed => Ok(done()),
        _ => Err(Status::Error.into()),
    }
}

/// The turn of a balanced send; taken once, also when the partition has to be resumed first.
fn turn(context: &IggyContext, path: Path<'_>, send: &Send<'_>) -> Result<u32, Status> {
    if send.partitioning != Partitioning::Balanced {
        return Ok(0);
    }
    let topic = resolve::topic(&context.view.load(), path)?;
    Ok(context.turns.next(topic.id))
}

/// Number from 1 of the partition that a send goes to.
fn choose(
    topic: &StreamView,
    send: &Send<'_>,
    turn: u32,
    generation: Generation,
) -> Result<u32, Status> {
    let count = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
    let count = NonZeroU32::new(count).ok_or(Status::NoPartitions)?;
    Ok(match send.partitioning {
        Partitioning::Balanced => turn % count + 1,
        Partitioning::Partition(number) => number,
        Partitioning::Key(key) => Partitioning::of_key(key, count, generation),
    })
}

/// ns since 1970; `None` beyond what a record can hold.
fn nanos(micros: u64) -> Option<i64> {
    i64::try_from(micros).ok()?.checked_mul(1000)
}

fn seal(
    send: &Send<'_>,
    opened: &Opened,
    producer: Option<Producer>,
) -> Result<SealedBatch, Status> {
    let key = match send.partitioning {
        Partitioning::Key(key) => Some(key),
        Partitioning::Balanced | Partitioning::Partition(_) => None,
    };
    let mut builder = BatchBuilder::new(BatchLimits {
        // What is not open here is checked by its leader.
        record_bytes: opened
            .handle
            .as_ref()
            .map_or(usize::MAX, Partition::max_record_bytes),
        ..WHOLE
    });
    let timestamp = now_ns();
    let mut headers: Vec<HeaderEntry<'_>> = Vec::new();
    for message in send.messages.iter() {
        headers.clear();
        headers.extend(message.headers());
        let record = RecordRef {
            timestamp,
            origin_time: message.origin_us.and_then(nanos),
            id: message.id,
            key,
            value: Some(message.payload),
            headers: &headers,
            ..RecordRef::default()
        };
        builder
            .push(&record)
            .map_err(|_| Status::TooBigMessagePayload)?;
    }
    let subject = opened.topic.partition_subject(opened.number);
    builder
        .seal(Codec::None, producer, Some(&subject))
        .ok_or(Status::InvalidMessagesCount)
}
