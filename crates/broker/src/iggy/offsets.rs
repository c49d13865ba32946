//! `GET_CONSUMER_OFFSET`, `STORE_CONSUMER_OFFSET`, `DELETE_CONSUMER_OFFSET`.
use super::caller::Caller;
use super::connection::done;
use super::context::IggyContext;
use super::groups::{self, Memberships};
use super::positions::{self, Owner};
use super::refused::Refused;
use super::resolve::{self, Opened, Path};
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
    fn of(place: &GetOffset<'a>, caller: Caller<'a>) -> Self {
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

    /// The partition, and the consumer at it.
    async fn open(
        &self,
        context: &IggyContext,
        own: &Memberships,
    ) -> Result<(Opened, Owner), Refused> {
        let number = match (self.number, self.consumer.kind) {
            (Some(number), _) => number,
            (None, ConsumerKind::One) => 1,
            (None, ConsumerKind::Group) => {
                let topic = resolve::topic(&context.view.load(), self.path)?;
                own.last(groups::find(&topic, self.consumer.id)?)?
            }
        };
        let opened = resolve::open(context, self.path, |_| Ok(number)).await?;
        let owner = Owner::of(&opened, &self.consumer)?;
        Ok((opened, owner))
    }
}

/// The newest and the stored offset; empty when nothing is stored, or no such place exists.
///
/// # Errors
/// 3; 1 when positions cannot be read.
pub(super) async fn get(
    context: &IggyContext,
    caller: Caller<'_>,
    own: &Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let get = GetOffset::read(payload, generation)?;
    let asked = Asked::of(&get, caller);
    let (opened, owner) = match asked.open(context, own).await {
        Ok(opened) => opened,
        Err(refused) if is_absent(refused) => return Ok(done()),
        Err(refused) => return Err(refused),
    };
    let Some(stored) = positions::find(context, &owner).await? else {
        return Ok(done());
    };
    let newest = newest(&opened);
    Ok(Bytes::copy_from_slice(&offset_reply(
        opened.partition.identity().number + 1,
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
    caller: Caller<'_>,
    own: &Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let store = StoreOffset::read(payload, generation)?;
    let (opened, owner) = Asked::of(&store.position, caller)
        .open(context, own)
        .await?;
    if store.offset > newest(&opened) {
        return Err(Status::InvalidOffset.into());
    }
    if store.waits {
        positions::store(context, &owner, store.offset).await?;
    } else {
        positions::store_soon(context, &owner, store.offset).await?;
    }
    Ok(done())
}

/// Deletes a stored offset; answers when that is committed, also to a client that does not wait.
///
/// # Errors
/// 3; those of [`resolve::open`]; 3021 when nothing is stored; 1.
pub(super) async fn delete(
    context: &IggyContext,
    caller: Caller<'_>,
    own: &Memberships,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    let delete = DeleteOffset::read(payload, generation)?;
    let (_, owner) = Asked::of(&delete.position, caller)
        .open(context, own)
        .await?;
    if positions::delete(context, &owner).await? {
        return Ok(done());
    }
    Err(Status::ConsumerOffsetNotFound.into())
}

/// Offset of the newest committed record, 0 when there is none.
fn newest(opened: &Opened) -> u64 {
    opened.partition.reader().high_watermark().saturating_sub(1)
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
