//! Where consumers stand: kept in `__cursors`, beside the cursors of Liftbridge, under ids that no cursor can have.
//!
//! A position belongs to one incarnation of a partition: after a purge, and in a new stream of the same number, it is none.
//! It names its stream by numbers, which a rename leaves.
use super::message::Answered;
use super::pending::PendingPositions;
use crate::cursor_index::{self, CursorIndexes};
use crate::events::{Events, Level, LogLimiter};
use crate::names::CURSORS;
use crate::partition::{AppendError, Committed, Partition};
use crate::view::StreamView;
use bascule_wire::liftbridge::cursors::{Cursor, key, partition_of, raw_key};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Of an append, when it is committed.
type Outcome = oneshot::Receiver<Result<Committed, AppendError>>;

/// The offset of a position that was deleted.
const DELETED: i64 = -1;

/// A consumer at one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Begins with a control character, which ids of cursors do not have.
    pub id: String,
    /// `#<number of the namespace>/<number of the stream>`.
    pub stream: String,
    pub partition: i32,
    pub incarnation: u64,
}

impl Owner {
    /// Number of the partition of `__cursors` that keeps the position.
    pub fn place(&self, cursors: &StreamView) -> u32 {
        let count = u32::try_from(cursors.partitions.len()).unwrap_or(u32::MAX);
        let place = raw_key(&self.id, &self.stream, self.partition);
        partition_of(place.as_bytes(), count)
    }

    fn key(&self) -> String {
        key(&self.id, &self.stream, self.partition)
    }

    /// As long as a position is not committed it belongs to this incarnation alone.
    fn pending_key(&self) -> String {
        format!("{}@{}", self.key(), self.incarnation)
    }
}

/// Positions in the partitions of `__cursors` that this broker leads.
#[derive(Debug)]
pub(crate) struct Positions {
    /// `limits.cursors`.
    most: usize,
    events: Arc<Events>,
    cursors: Arc<CursorIndexes>,
    pending: Arc<PendingPositions>,
    lines: Arc<LogLimiter>,
}

/// Why a position cannot be read or stored; it was logged.
struct Failed;

impl Positions {
    /// `most`: positions that may be stored.
    pub fn new(most: usize, events: Arc<Events>, cursors: Arc<CursorIndexes>) -> Self {
        Self {
            most,
            events,
            cursors,
            pending: Arc::default(),
            lines: Arc::default(),
        }
    }

    /// The stored offset.
    pub async fn find(&self, cursors: &Partition, owner: &Owner) -> Answered {
        if let Some(offset) = self.pending.get(&owner.pending_key()) {
            return Answered::Position(Some(offset));
        }
        match self.stored(cursors, owner).await {
            Ok((offset, _)) => Answered::Position(offset),
            Err(Failed) => Answered::Failed,
        }
    }

    /// Stores an offset; with `waits` it is answered when that is committed, else when it counts here.
    pub async fn store(
        &self,
        cursors: &Partition,
        owner: &Owner,
        offset: u64,
        waits: bool,
    ) -> Answered {
        if self.check_room(cursors, owner).await.is_err() {
            return Answered::Failed;
        }
        let key = owner.pending_key();
        let value = i64::try_from(offset).unwrap_or(i64::MAX);
        if waits {
            self.pending.forget(&key);
            return committed(append(cursors, owner, value).await, Answered::Stored).await;
        }
        let pending = Unsettled {
            pending: self.pending.clone(),
            turn: self.pending.put(key.clone(), offset),
            key,
        };
        let outcome = append(cursors, owner, value).await;
        let (events, lines) = (self.events.clone(), self.lines.clone());
        tokio::spawn(async move {
            if committed(outcome, Answered::Stored).await != Answered::Stored {
                let text = "an automatic offset of a poll could not be stored: its messages may be read again";
                report(&events, &lines, text.to_owned());
            }
            drop(pending);
        });
        Answered::Stored
    }

    /// Deletes a stored offset; answered when that is committed.
    pub async fn delete(&self, cursors: &Partition, owner: &Owner) -> Answered {
        let pending = self.pending.get(&owner.pending_key());
        if pending.is_none() {
            match self.stored(cursors, owner).await {
                Ok((Some(_), _)) => {}
                Ok((None, _)) => return Answered::Deleted(false),
                Err(Failed) => return Answered::Failed,
            }
        }
        self.pending.forget(&owner.pending_key());
        let outcome = append(cursors, owner, DELETED).await;
        committed(outcome, Answered::Deleted(true)).await
    }

    async fn check_room(&self, cursors: &Partition, owner: &Owner) -> Result<(), Failed> {
        let (_, is_known) = self.stored(cursors, owner).await?;
        let most = self.most;
        if is_known || self.cursors.known() < most {
            return Ok(());
        }
        let text = format!(
            "a consumer's offset is not stored: limits.cursors ({most}) positions are stored; use consumers that are there, or raise it"
        );
        report(&self.events, &self.lines, text);
        Err(Failed)
    }

    /// The stored offset of this incarnation, and whether anything is stored under the key.
    async fn stored(
        &self,
        cursors: &Partition,
        owner: &Owner,
    ) -> Result<(Option<u64>, bool), Failed> {
        let log = |level, text| {
            let fields = serde_json::json!({"partition": cursors.identity().number});
            self.events.log(level, "iggy", text, fields);
        };
        let found = self.cursors.find(cursors, &owner.key()).await;
        let found = found.map_err(|text| {
            log(
                Level::Error,
                format!("stored offsets cannot be read: {text}"),
            );
            Failed
        })?;
        if found.strange > 0 {
            let text = format!(
                "{} records of {CURSORS} are not valid positions and were ignored",
                found.strange
            );
            log(Level::Warning, text);
        }
        let present = found
            .position
            .filter(|position| position.incarnation == owner.incarnation)
            .and_then(|position| u64::try_from(position.offset).ok());
        Ok((present, found.position.is_some()))
    }
}

/// A position that is not committed; settled when this is dropped, also when the request is given up before its append was queued.
struct Unsettled {
    pending: Arc<PendingPositions>,
    key: String,
    turn: u64,
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.pending.settle(&self.key, self.turn);
    }
}

/// A line, unless there was one a moment ago.
fn report(events: &Events, lines: &LogLimiter, text: String) {
    if let Some(others) = lines.take() {
        let fields = serde_json::json!({"peer": "", "others": others});
        events.log(Level::Warning, "iggy", text, fields);
    }
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

/// `done` when it is committed.
async fn committed(outcome: Outcome, done: Answered) -> Answered {
    match outcome.await {
        Ok(Ok(committed)) if committed.rejected.is_empty() => done,
        Ok(Err(AppendError::NotLeader)) => Answered::Later,
        // Nothing is wrong with it, but the next leader may or may not have it.
        Ok(Err(AppendError::LeaderChanged | AppendError::Closed)) | Err(_) => Answered::Unknown,
        Ok(_) => Answered::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_append_that_may_be_in_the_log_has_an_unknown_outcome() {
        let answered = async |error| {
            let (done, outcome) = oneshot::channel();
            done.send(Err(error)).unwrap();
            committed(outcome, Answered::Deleted(true)).await
        };
        assert_eq!(answered(AppendError::NotLeader).await, Answered::Later);
        assert_eq!(
            answered(AppendError::LeaderChanged).await,
            Answered::Unknown
        );
        assert_eq!(answered(AppendError::Closed).await, Answered::Unknown);
        assert_eq!(answered(AppendError::Full).await, Answered::Failed);
        let (done, dropped) = oneshot::channel();
        drop(done);
        let dropped = committed(dropped, Answered::Deleted(true)).await;
        assert_eq!(dropped, Answered::Unknown);
    }
}
