//! `POLL_MESSAGES`: committed messages from a position on, at once.
use super::caller::Caller;
use super::context::IggyContext;
use super::groups::{self, Memberships};
use super::positions::{self, Owner};
use super::refused::Refused;
use super::resolve::{self, Path};
use crate::admission::Identity;
use crate::partition::decode_batch;
use crate::user_rights::UserAction;
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::Batches;
use bascule_wire::iggy::v1::{ConsumerKind, Poll, PolledReply, Strategy};
use bascule_wire::iggy::{Generation, Status};
use bytes::Bytes;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Largest reply, unless its first message is larger.
const REPLY_BYTES: usize = 8 << 20;
/// Bytes asked of the log at once.
const READ_BYTES: usize = 512 << 10;

/// What a poll reads: offsets `[start, end)`, at most `count` messages.
#[derive(Clone, Copy, Debug)]
struct Range {
    partition: u32,
    start: u64,
    end: u64,
    count: u32,
    generation: Generation,
}

/// Answers a poll from the committed records of one partition.
///
/// # Errors
/// 3; 4009 for a count of 0; those of [`resolve::open`]; 5000, 5003 and 5006 for a group; 1 when the log cannot be read, or the
/// reply finds no room among `limits.answer_bytes`.
pub(super) async fn poll(
    context: &Arc<IggyContext>,
    caller: Caller<'_>,
    own: &mut Memberships,
    identity: &Identity,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let poll = Poll::read(payload, generation)?;
    if poll.count == 0 {
        return Err(Status::InvalidMessagesCount.into());
    }
    let path = Path {
        stream: poll.stream,
        topic: poll.topic,
        caller,
        action: UserAction::Poll,
    };
    let Some(number) = partition(context, path, own, &poll, generation)? else {
        return Ok(PolledReply::new(0, 0, REPLY_BYTES, generation).finish());
    };
    let opened = resolve::open(context, path, |_| Ok(number)).await?;
    let owner = Owner::of(&opened, &poll.consumer)?;
    let reader = opened.partition.reader();
    let (log_start, end) = (reader.log_start(), reader.high_watermark());
    let start = match poll.strategy {
        Strategy::Offset(offset) => offset,
        Strategy::First => log_start,
        Strategy::Last => end.saturating_sub(poll.count.into()),
        Strategy::Timestamp(micros) => at_time(&reader, micros).await?.unwrap_or(end),
        Strategy::Next => {
            let stored = positions::find(context, &owner).await?;
            stored.map_or(log_start, |offset| offset.saturating_add(1))
        }
    };
    let range = Range {
        partition: number,
        start: start.max(log_start),
        end,
        count: poll.count,
        generation,
    };
    let (reply, last) = read(reader, range).await?;
    // Before the offset is stored: a reply that is refused passes nothing over.
    let answers = &context.listener.admission.answers;
    let charge = answers.charge(identity, reply.len());
    let charge = charge.map_err(|_| {
        context.statistics.calls_refused.add(1);
        Status::Error
    })?;
    if poll.auto_commit
        && let Some(last) = last
    {
        positions::store_soon(context, &owner, last).await?;
    }
    Ok(charge.hold(reply))
}

/// The partition that a poll reads, from 1: the named one, which a member has to own in v2, a member's next one, or the first
/// of a single consumer. `None`: the member has none.
fn partition(
    context: &IggyContext,
    path: Path<'_>,
    own: &mut Memberships,
    poll: &Poll<'_>,
    generation: Generation,
) -> Result<Option<u32>, Status> {
    let is_group = poll.consumer.kind == ConsumerKind::Group;
    let named = poll.partition.map(NonZeroU32::get);
    if !is_group || (named.is_some() && generation != Generation::V2) {
        return Ok(Some(named.unwrap_or(1)));
    }
    let topic = resolve::topic(&context.view.load(), path)?;
    let group = groups::find(&topic, poll.consumer.id)?;
    match named {
        Some(number) => own.check_owns(&topic, group, number).map(|()| named),
        None => own.next(&topic, group),
    }
}

/// Offset of the first record of this time or later, µs since 1970, among the committed ones.
async fn at_time(reader: &LogReader, micros: u64) -> Result<Option<u64>, Refused> {
    let nanos = i64::try_from(micros.saturating_mul(1000)).unwrap_or(i64::MAX);
    let reader = reader.clone();
    let found = tokio::task::spawn_blocking(move || reader.offset_at_or_after(nanos));
    Ok(found.await.map_err(|_| Status::Error)??)
}

/// The reply, and the offset of its last message. Waits for the disk only off the runtime's threads.
async fn read(reader: LogReader, range: Range) -> Result<(Bytes, Option<u64>), Refused> {
    match fill(&reader, range, ReadMode::NoWait) {
        Err(ReadError::WouldBlock) => {}
        outcome => return Ok(outcome?),
    }
    let waited = tokio::task::spawn_blocking(move || fill(&reader, range, ReadMode::Blocking));
    Ok(waited.await.map_err(|_| Status::Error)??)
}

fn fill(
    reader: &LogReader,
    range: Range,
    mode: ReadMode,
) -> Result<(Bytes, Option<u64>), ReadError> {
    let newest = range.end.saturating_sub(1);
    let mut reply = PolledReply::new(range.partition, newest, REPLY_BYTES, range.generation);
    let (mut next, mut last) = (range.start, None);
    let mut cursor = reader.cursor(range.start);
    while next < range.end {
        let Some(bytes) = cursor.next(range.end, READ_BYTES, mode)? else {
            break;
        };
        for bytes in Batches::new(bytes) {
            let batch = decode_batch(reader, bytes)?;
            for i in batch.seek(next)..batch.seek(range.end) {
                if reply.count() == range.count || !reply.push(&batch, i) {
                    return Ok((reply.finish(), last));
                }
                last = Some(batch.offset(i));
            }
            next = next.max(batch.header().next_offset());
        }
    }
    Ok((reply.finish(), last))
}
