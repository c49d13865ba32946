//! Where consumers stand: kept in `__cursors`, beside the cursors of Liftbridge, under ids that no cursor can have.
//!
//! A position belongs to one incarnation of a partition: after a purge, and in a new topic of the same number, it is none.
//! It names its topic by numbers, which a rename leaves.
use super::context::IggyContext;
use super::groups;
use super::refused::Refused;
use super::resolve::Opened;
use crate::cursor_index;
use crate::events::Level;
use crate::names::{CURSORS, DEFAULT_NAMESPACE};
use crate::partition::{AppendError, Committed, Partition};
use crate::resume::{RESUMES, resume};
use bascule_wire::iggy::Status;
use bascule_wire::iggy::v1::{Consumer, ConsumerKind};
use bascule_wire::liftbridge::cursors::{Cursor, key, partition_of, raw_key};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Of an append, when it is committed.
type Outcome = oneshot::Receiver<Result<Committed, AppendError>>;

/// Ids of cursors have no control characters.
const CONSUMER: &str = "\0iggy:consumer:";
/// Groups are distinguished by the entry that created them: numbers may be given again.
const GROUP: &str = "\0iggy:group:";
/// The offset of a position that was deleted.
const DELETED: i64 = -1;

/// A consumer at one partition.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    id: String,
    /// `#<number of the namespace>/<number of the stream>`.
    stream: String,
    partition: i32,
    incarnation: u64,
}

impl Owner {
    /// A single consumer, or a group of the topic.
    ///
    /// # Errors
    /// 5000, 5003.
    pub(super) fn of(opened: &Opened, consumer: &Consumer<'_>) -> Result<Self, Status> {
        let id = match consumer.kind {
            ConsumerKind::One => format!("{CONSUMER}{}", consumer.number()),
            ConsumerKind::Group => {
                let group = groups::find(&opened.topic, consumer.id)?;
                format!("{GROUP}{}", group.created)
            }
        };
        let identity = opened.partition.identity();
        Ok(Self {
            id,
            stream: format!("#{}/{}", opened.namespace, opened.topic.id),
            partition: i32::try_from(identity.number).unwrap_or(i32::MAX),
            incarnation: identity.incarnation,
        })
    }

    fn key(&self) -> String {
        key(&self.id, &self.stream, self.partition)
    }

    /// As long as a position is not committed it belongs to this incarnation alone.
    fn pending_key(&self) -> String {
        format!("{}@{}", self.key(), self.incarnation)
    }
}

/// The stored offset.
///
/// # Errors
/// 1 when positions cannot be read.
pub(super) async fn find(context: &IggyContext, owner: &Owner) -> Result<Option<u64>, Refused> {
    if let Some(offset) = context.pending.get(&owner.pending_key()) {
        return Ok(Some(offset));
    }
    let cursors = led(context, owner).await?;
    find_in(context, &cursors, owner)
        .await
        .map(|(offset, _)| offset)
}

/// Stores an offset; returns when that is committed.
///
/// # Errors
/// 1 when `limits.cursors` positions are stored, or this one could not be.
pub(super) async fn store(
    context: &IggyContext,
    owner: &Owner,
    offset: u64,
) -> Result<(), Refused> {
    let cursors = room(context, owner).await?;
    context.pending.forget(&owner.pending_key());
    committed(append(&cursors, owner, stored(offset)).await).await
}

/// Stores an offset; returns when it counts here, before it is committed.
///
/// # Errors
/// 1 when `limits.cursors` positions are stored.
pub(super) async fn store_soon(
    context: &Arc<IggyContext>,
    owner: &Owner,
    offset: u64,
) -> Result<(), Refused> {
    let cursors = room(context, owner).await?;
    let key = owner.pending_key();
    let turn = context.pending.put(key.clone(), offset);
    let outcome = append(&cursors, owner, stored(offset)).await;
    let context = context.clone();
    tokio::spawn(async move {
        if committed(outcome).await.is_err() {
            let text =
                "an automatic offset of a poll could not be stored: its messages may be read again";
            context.report(None, text.to_owned());
        }
        context.pending.settle(&key, turn);
    });
    Ok(())
}

/// Deletes a stored offset; returns whether there was one, when that is committed.
///
/// # Errors
/// 1 when positions cannot be read, or this could not be stored.
pub(super) async fn delete(context: &IggyContext, owner: &Owner) -> Result<bool, Refused> {
    let cursors = led(context, owner).await?;
    let pending = context.pending.get(&owner.pending_key());
    if pending.is_none() && find_in(context, &cursors, owner).await?.0.is_none() {
        return Ok(false);
    }
    context.pending.forget(&owner.pending_key());
    committed(append(&cursors, owner, DELETED).await).await?;
    Ok(true)
}

fn stored(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// The partition that keeps the position, if there is room for it.
async fn room(context: &IggyContext, owner: &Owner) -> Result<Partition, Refused> {
    let cursors = led(context, owner).await?;
    let (_, is_known) = find_in(context, &cursors, owner).await?;
    let most = context.limits.cursors;
    if !is_known && context.cursors.known() >= most {
        let text = format!(
            "a consumer's offset is not stored: limits.cursors ({most}) positions are stored; use consumers that are there, or raise it"
        );
        context.report(None, text);
        return Err(Status::Error.into());
    }
    Ok(cursors)
}

/// The stored offset of this incarnation, and whether anything is stored under the key.
async fn find_in(
    context: &IggyContext,
    cursors: &Partition,
    owner: &Owner,
) -> Result<(Option<u64>, bool), Refused> {
    let found = context.cursors.find(cursors, &owner.key()).await;
    let found = found.map_err(|text| {
        let fields = serde_json::json!({"partition": cursors.identity().number});
        let text = format!("stored offsets cannot be read: {text}");
        context
            .listener
            .events
            .log(Level::Error, "iggy", text, fields);
        Status::Error
    })?;
    if found.strange > 0 {
        let text = format!(
            "{} records of {CURSORS} are not valid positions and were ignored",
            found.strange
        );
        let fields = serde_json::json!({"partition": cursors.identity().number});
        context
            .listener
            .events
            .log(Level::Warning, "iggy", text, fields);
    }
    let present = found
        .position
        .filter(|position| position.incarnation == owner.incarnation)
        .and_then(|position| u64::try_from(position.offset).ok());
    Ok((present, found.position.is_some()))
}

/// The open partition of `__cursors` that keeps the position; resumed when it is paused.
async fn led(context: &IggyContext, owner: &Owner) -> Result<Partition, Refused> {
    let place = raw_key(&owner.id, &owner.stream, owner.partition);
    for _ in 0..RESUMES {
        let number = {
            let view = context.view.load();
            let stream = view.stream(DEFAULT_NAMESPACE, CURSORS);
            // A broker without `cursors.partitions` stores no offsets.
            let stream = stream.ok_or(Status::FeatureUnavailable)?;
            let count = u32::try_from(stream.partitions.len()).unwrap_or(u32::MAX);
            let number = partition_of(place.as_bytes(), count) as i32;
            let partition = stream.partition(number).ok_or(Status::Error)?;
            if !partition.paused {
                if partition.leader != context.broker_id {
                    return Err(Status::FeatureUnavailable.into());
                }
                return Ok(partition.handle.clone().ok_or(Status::Error)?);
            }
            number
        };
        let events = &context.listener.events;
        resume(events, (DEFAULT_NAMESPACE, CURSORS), number, None).await?;
    }
    Err(Status::Error.into())
}

async fn append(cursors: &Partition, owner: &Owner, offset: i64) -> Outcome {
    let value = Cursor {
        stream: owner.stream.clone(),
        partition: owner.partition,
        cursor_id: owner.id.clone(),
        offset,
        incarnation: owner.incarnation,
        generation: 0,
    };
    cursor_index::append(cursors, owner.key(), &value, None).await
}

async fn committed(outcome: Outcome) -> Result<(), Refused> {
    let committed = outcome.await.map_err(|_| Status::Error)??;
    match committed.rejected.first() {
        Some(_) => Err(Status::Error.into()),
        None => Ok(()),
    }
}
