//! `GET_CONSUMER_OFFSET`, `STORE_CONSUMER_OFFSET`, `DELETE_CONSUMER_OFFSET`.
use super::connection::done;
use super::context::IggyContext;
use super::groups::{self, Memberships};
use super::positions::Position;
use super::refused::Refused;
use super::resolve::{self, Opened, Path};
use crate::client_requests::{Answered, Question, Start};
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use bascule_wire::iggy::v1::{
    Consumer, ConsumerKind, DeleteOffset, GetOffset, StoreOffset, offset_reply,
};
use bascule_wire::iggy::{Generation, Status};
use bytes::Bytes;
use std::num::NonZeroU32;
use std::sync::Arc;

/// A consumer's offset at one partition.
struct Asked<'a> {
    path: Path<'a>,
    consumer: Consumer<'a>,
    /// From 1; none = the first, or the one that the member polled last.
    number: Option<u32>,
}

impl<'a> Asked<'a> {
    fn of(place: &GetOffset<'a>, caller: UserCaller<'a>) -> Self {
        Self {
            path: Path {
                stream: place.stream,
                topic: place.topic,
                caller,
                action: UserAction::Poll,
            },
            consumer: place.consumer,
            number: place.partition.map(NonZeroU32::get),
        }
    }

    /// The partition.
    async fn open(&self, context: &IggyContext, own: &Memberships) -> Result<Opened, Refused> {
        let number = match (self.number, self.consumer.kind) {
            (Some(number), _) => number,
            (None, ConsumerKind::One) => 1,
            (None, ConsumerKind::Group) => {
                let topic = resolve::topic(&context.view.load(), self.path)?;
                own.last(groups::find(&topic, self.consumer.id)?)?
            }
        };
        let opened = resolve::open(context, self.path, |_| Ok(number)).await?;
        self.at(&opened).check()?;
        Ok(opened)
    }

    /// The consumer at it.
    fn at<'b>(&'b self, opened: &'b Opened) -> Position<'b> {
        Position {
            opened,
            caller: self.path.caller,
            consumer: self.consumer,
        }
    }
}

/// The newest and the stored offset; empty when nothing is stored, or no such place exists.
///
/// # Errors
/// 3; 1 when positions cannot be read.
pub(super) async fn get(
    context: &IggyContext,
    caller: UserCaller<'_>,
    own: &Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let get = GetOffset::read(payload, generation)?;
    let asked = Asked::of(&get, caller);
    let opened = match asked.open(context, own).await {
        Ok(opened) => opened,
        Err(refused) if is_absent(refused) => return Ok(done()),
        Err(refused) => return Err(refused),
    };
    let Some(stored) = asked.at(&opened).find(context).await? else {
        return Ok(done());
    };
    let newest = newest(context, caller, &opened).await?;
    Ok(Bytes::copy_from_slice(&offset_reply(
        opened.number + 1,
        newest,
        stored,
        generation,
    )))
}

/// Stores an offset; answers when it is committed, or before if the client does not wait.
///
/// # Errors
/// 3; those of [`resolve::open`]; 4100 above the newest offset; 1.
pub(super) async fn store(
    context: &Arc<IggyContext>,
    caller: UserCaller<'_>,
    own: &Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let store = StoreOffset::read(payload, generation)?;
    let asked = Asked::of(&store.position, caller);
    let opened = asked.open(context, own).await?;
    if store.offset > newest(context, caller, &opened).await? {
        return Err(Status::InvalidOffset.into());
    }
    let position = asked.at(&opened);
    position.store(context, store.offset, store.waits).await?;
    Ok(done())
}

/// Deletes a stored offset; answers when that is committed, also to a client that does not wait.
///
/// # Errors
/// 3; those of [`resolve::open`]; 3021 when nothing is stored; 1.
pub(super) async fn delete(
    context: &IggyContext,
    caller: UserCaller<'_>,
    own: &Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let delete = DeleteOffset::read(payload, generation)?;
    let asked = Asked::of(&delete.position, caller);
    let opened = asked.open(context, own).await?;
    if asked.at(&opened).delete(context).await? {
        return Ok(done());
    }
    Err(Status::ConsumerOffsetNotFound.into())
}

/// Offset of the newest committed record, 0 when there is none.
async fn newest(
    context: &IggyContext,
    caller: UserCaller<'_>,
    opened: &Opened,
) -> Result<u64, Refused> {
    if let Some(here) = opened.readable() {
        let newest = here.reader().high_watermark().saturating_sub(1);
        if opened.readable().is_some() {
            return Ok(newest);
        }
    }
    let nothing = Question::Read {
        start: Start::First,
        count: 0,
        bytes: 0,
    };
    let asked = opened.asked(caller, nothing);
    match resolve::ask(context, &opened.destination, asked).await? {
        Answered::Read { end, .. } => Ok(end.saturating_sub(1)),
        _ => Err(Status::Error.into()),
    }
}

fn is_absent(refused: Refused) -> bool {
    [
        Status::StreamIdNotFound,
        Status::StreamNameNotFound,
        Status::TopicIdNotFound,
        Status::TopicNameNotFound,
        Status::PartitionNotFound,
        Status::ConsumerGroupIdNotFound,
        Status::ConsumerGroupNameNotFound,
    ]
    .into_iter()
    .any(|status| Refused::from(status) == refused)
}
