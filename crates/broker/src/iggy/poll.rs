//! `POLL_MESSAGES`: committed messages from a position on, at once.
use super::context::IggyContext;
use super::groups::{self, Memberships};
use super::positions::Position;
use super::refused::Refused;
use super::resolve::{self, Opened, Path};
use crate::admission::Identity;
use crate::client_requests::{Answered, Question, Start, first_offset};
use crate::partition::decode_batch;
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches, DamageError};
use bascule_wire::iggy::v1::{ConsumerKind, Poll, PolledReply, Strategy};
use bascule_wire::iggy::{Generation, Status};
use bytes::Bytes;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Largest reply, unless its first message is larger.
const REPLY_BYTES: usize = 8 << 20;
/// Bytes asked of the log at once.
const READ_BYTES: usize = 512 << 10;

/// What a poll reads: at most `count` messages of a partition, from 1.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    partition: u32,
    start: Start,
    count: u32,
    generation: Generation,
}

/// A reply that is being filled with offsets `[next, end)`.
struct Page {
    reply: PolledReply,
    next: u64,
    end: u64,
    count: u32,
    /// Offset of its last message.
    last: Option<u64>,
}

impl Page {
    fn new(wanted: Wanted, start: u64, end: u64) -> Self {
        let newest = end.saturating_sub(1);
        let reply = PolledReply::new(wanted.partition, newest, REPLY_BYTES, wanted.generation);
        Self {
            reply,
            next: start,
            end,
            count: wanted.count,
            last: None,
        }
    }

    /// Takes the messages of a batch; returns whether there is room for more.
    fn take(&mut self, batch: &Batch) -> bool {
        for i in batch.seek(self.next)..batch.seek(self.end) {
            if self.reply.count() == self.count || !self.reply.push(batch, i) {
                return false;
            }
            self.last = Some(batch.offset(i));
        }
        self.next = self.next.max(batch.header().next_offset());
        true
    }

    fn finish(self) -> (Bytes, Option<u64>) {
        (self.reply.finish(), self.last)
    }
}

/// Answers a poll from the committed records of one partition.
///
/// # Errors
/// 3; 4009 for a count of 0; those of [`resolve::open`]; 5000, 5003 and 5006 for a group; 1 when the log cannot be read, or the
/// reply finds no room among `limits.answer_bytes`.
pub(super) async fn poll(
    context: &Arc<IggyContext>,
    caller: UserCaller<'_>,
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
    let Some(number) = partition(path, own, &poll, generation).await? else {
        return Ok(PolledReply::new(0, 0, REPLY_BYTES, generation).finish());
    };
    let opened = resolve::open(context, path, |_| Ok(number)).await?;
    let position = Position {
        opened: &opened,
        caller,
        consumer: poll.consumer,
    };
    position.check()?;
    let wanted = Wanted {
        partition: number,
        start: start(context, position, poll.strategy).await?,
        count: poll.count,
        generation,
    };
    let (reply, last) = match read_here(&opened, wanted).await {
        Some(read) => read?,
        None => read_from_leader(context, caller, &opened, wanted).await?,
    };
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
        position.store(context, last, false).await?;
    }
    Ok(charge.hold(reply))
}

/// The partition that a poll reads, from 1: the named one, which a member has to own in v2, a member's next one, or the first
/// of a single consumer. `None`: the member has none.
async fn partition(
    path: Path<'_>,
    own: &mut Memberships,
    poll: &Poll<'_>,
    generation: Generation,
) -> Result<Option<u32>, Refused> {
    let is_group = poll.consumer.kind == ConsumerKind::Group;
    let named = poll.partition.map(NonZeroU32::get);
    if !is_group || (named.is_some() && generation != Generation::V2) {
        return Ok(Some(named.unwrap_or(1)));
    }
    let topic = own.topic(path, poll.consumer.id).await?;
    let group = groups::find(&topic, poll.consumer.id)?;
    Ok(match named {
        Some(number) => own.check_owns(&topic, group, number).map(|()| named)?,
        None => own.next(&topic, group)?,
    })
}

/// Where a poll begins.
async fn start(
    context: &IggyContext,
    position: Position<'_>,
    strategy: Strategy,
) -> Result<Start, Refused> {
    Ok(match strategy {
        Strategy::Offset(offset) => Start::Offset(offset),
        Strategy::First => Start::First,
        Strategy::Last => Start::Last,
        Strategy::Timestamp(micros) => {
            Start::Time(i64::try_from(micros.saturating_mul(1000)).unwrap_or(i64::MAX))
        }
        Strategy::Next => {
            let stored = position.find(context).await?;
            stored.map_or(Start::First, |offset| {
                Start::Offset(offset.saturating_add(1))
            })
        }
    })
}

/// The reply out of this broker's log; `None`: it does not lead the partition, or did not any more when that was read.
async fn read_here(
    opened: &Opened,
    wanted: Wanted,
) -> Option<Result<(Bytes, Option<u64>), Refused>> {
    let read = read(opened.readable()?.reader(), wanted).await;
    opened.readable().map(|_| read)
}

/// The reply, and the offset of its last message. Waits for the disk only off the runtime's threads.
async fn read(reader: LogReader, wanted: Wanted) -> Result<(Bytes, Option<u64>), Refused> {
    if !matches!(wanted.start, Start::Time(_)) {
        match fill(&reader, wanted, ReadMode::NoWait) {
            Err(ReadError::WouldBlock) => {}
            outcome => return Ok(outcome?),
        }
    }
    let waited = tokio::task::spawn_blocking(move || fill(&reader, wanted, ReadMode::Blocking));
    Ok(waited.await.map_err(|_| Status::Error)??)
}

fn fill(
    reader: &LogReader,
    wanted: Wanted,
    mode: ReadMode,
) -> Result<(Bytes, Option<u64>), ReadError> {
    let start = first_offset(reader, wanted.start, wanted.count)?;
    let mut page = Page::new(wanted, start, reader.high_watermark());
    let mut cursor = reader.cursor(start);
    while page.next < page.end {
        let Some(bytes) = cursor.next(page.end, READ_BYTES, mode)? else {
            break;
        };
        for bytes in Batches::new(bytes) {
            if !page.take(&decode_batch(reader, bytes)?) {
                return Ok(page.finish());
            }
        }
    }
    Ok(page.finish())
}

/// The same from whoever leads the partition.
async fn read_from_leader(
    context: &IggyContext,
    caller: UserCaller<'_>,
    opened: &Opened,
    wanted: Wanted,
) -> Result<(Bytes, Option<u64>), Refused> {
    let question = Question::Read {
        start: wanted.start,
        count: wanted.count,
        bytes: REPLY_BYTES as u32,
    };
    let asked = opened.asked(caller, question);
    let answered = resolve::ask(context, &opened.destination, asked).await?;
    let Answered::Read {
        start,
        end,
        batches,
    } = answered
    else {
        return Err(Status::Error.into());
    };
    let filled = tokio::task::spawn_blocking(move || {
        let mut page = Page::new(wanted, start, end);
        for bytes in Batches::new(batches) {
            if !page.take(&Batch::read(&bytes?)?) {
                break;
            }
        }
        Ok::<_, DamageError>(page.finish())
    });
    Ok(filled
        .await
        .map_err(|_| Status::Error)?
        .map_err(|_| Status::Error)?)
}
