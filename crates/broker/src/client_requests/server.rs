//! The leader's end: carries out what other brokers ask for their clients.
use super::message::{ATTEMPT, Answered, Asked, MOST_BYTES, Question, READS};
use super::positions::{Owner, Positions};
use super::{acquire, hold, reading};
use crate::access::Access;
use crate::consensus::network::{decode, encode};
use crate::names::{CURSORS, DEFAULT_NAMESPACE, is_internal};
use crate::partition::Partition;
use crate::tls::Peer;
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use crate::view::{PartitionView, StreamView, View};
use arc_swap::ArcSwap;
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Carries out requests of clients on this broker.
#[derive(Debug)]
pub(crate) struct RequestServer {
    broker_id: String,
    view: Arc<ArcSwap<View>>,
    access: Arc<Access>,
    positions: Positions,
    /// Reads of other brokers' clients that are answered at once.
    reads: Arc<Semaphore>,
    /// Those whose answer is one batch above [`MOST_BYTES`].
    large: Arc<Semaphore>,
}

impl RequestServer {
    pub fn new(
        broker_id: &str,
        view: &Arc<ArcSwap<View>>,
        access: &Arc<Access>,
        positions: Positions,
    ) -> Self {
        Self {
            broker_id: broker_id.to_owned(),
            view: view.clone(),
            access: access.clone(),
            positions,
            reads: Arc::new(Semaphore::new(READS)),
            large: Arc::new(Semaphore::new(1)),
        }
    }

    /// The body of the answer to another broker. That of a read has a share of the room for them until it is dropped.
    ///
    /// # Errors
    /// The request cannot be read.
    pub async fn answer(&self, request: &[u8]) -> io::Result<Bytes> {
        let asked: Asked = decode(request)?;
        let limit = Duration::from_millis(asked.deadline_ms.into()).min(ATTEMPT);
        let until = Instant::now() + limit;
        let later = || encode(&Answered::Later);
        let Some(partition) = self.check(&asked) else {
            return later();
        };
        let mut shares = Vec::new();
        if asked.question.has_batches() {
            let Some(share) = acquire(&self.reads, until).await else {
                return later();
            };
            shares.push(share);
        }
        let left = until.saturating_duration_since(Instant::now());
        let answered = self.attempt(&partition, &asked, left).await;
        if let Answered::Read { batches, .. } = &answered
            && batches.len() > MOST_BYTES as usize
        {
            // Before it is copied.
            let Some(share) = acquire(&self.large, until).await else {
                return later();
            };
            shares.push(share);
        }
        Ok(hold(encode(&answered)?, shares))
    }

    /// The partition that answers, when this broker leads it under the epoch of the request and the user may ask. The broker that asks has
    /// checked the rights too: where the two differ, one of them has not applied the last entries of the metadata yet.
    fn check(&self, asked: &Asked) -> Option<Partition> {
        let view = self.view.load();
        let stream = view.stream(&asked.namespace, &asked.stream)?;
        let namespace = view.numbers.id(&asked.namespace)?;
        let found = stream.partitions.get(asked.partition as usize)?;
        let is_own = asked.namespace == DEFAULT_NAMESPACE && is_internal(&asked.stream);
        if found.incarnation != asked.incarnation || asked.ids != (namespace, stream.id) || is_own {
            return None;
        }
        let owner = asked.owner();
        let is_cursor = |owner: &Owner| !owner.id.starts_with('\0');
        if owner.as_ref().is_some_and(is_cursor) || !self.may(&view, asked, stream) {
            return None;
        }
        let answers = match &owner {
            Some(owner) => {
                let cursors = view.stream(DEFAULT_NAMESPACE, CURSORS)?;
                cursors.partitions.get(owner.place(cursors) as usize)?
            }
            None => found,
        };
        self.led(answers, asked.leader_epoch)
    }

    fn led(&self, found: &PartitionView, epoch: u64) -> Option<Partition> {
        let is_led = found.leader == self.broker_id && found.leader_epoch == epoch;
        let handle = found.handle.clone().filter(|_| is_led && !found.paused);
        handle.filter(|handle| handle.is_leading() && handle.may_read())
    }

    fn may(&self, view: &View, asked: &Asked, stream: &StreamView) -> bool {
        let Some(rights) = view.users.get(&asked.user) else {
            return false;
        };
        let peer = Peer {
            address: asked.address.parse().ok(),
            identity: None,
        };
        let caller = UserCaller {
            user: asked.user,
            rights,
            access: &self.access,
            peer: &peer,
        };
        let action = match asked.question {
            Question::Flush => UserAction::Send,
            _ => UserAction::Poll,
        };
        caller.may_with(action, Some(asked.ids.0), stream)
    }

    /// Carries out a request whose client may ask, on the partition that answers; gives it up after `limit`.
    pub async fn attempt(&self, partition: &Partition, asked: &Asked, limit: Duration) -> Answered {
        let answered = timeout(limit, self.carry_out(partition, asked)).await;
        let late = if asked.question.appends() {
            Answered::Unknown
        } else {
            Answered::Later
        };
        let answered = answered.unwrap_or(late);
        let is_of_now = matches!(
            answered,
            Answered::Read { .. } | Answered::Position(_) | Answered::Deleted(false)
        );
        // Compared after the look-up: what was found is the newest only if the lease has not ended since.
        if is_of_now && !(partition.is_leading() && partition.may_read()) {
            return Answered::Later;
        }
        answered
    }

    async fn carry_out(&self, partition: &Partition, asked: &Asked) -> Answered {
        let owner = asked.owner();
        let positions = &self.positions;
        match (&asked.question, &owner) {
            (
                &Question::Read {
                    start,
                    count,
                    bytes,
                },
                _,
            ) => {
                let reader = partition.reader();
                let read = tokio::task::spawn_blocking(move || {
                    reading::read(&reader, start, count, bytes)
                });
                match read.await {
                    Ok(Ok(answered)) => answered,
                    Ok(Err(_)) | Err(_) => Answered::Failed,
                }
            }
            (Question::Flush, _) => {
                if partition.flush_committed().await {
                    Answered::Flushed
                } else if partition.failure().is_some() {
                    Answered::Failed
                } else {
                    Answered::Later
                }
            }
            (Question::FindPosition(_), Some(owner)) => positions.find(partition, owner).await,
            (Question::StorePosition { offset, waits, .. }, Some(owner)) => {
                positions.store(partition, owner, *offset, *waits).await
            }
            (Question::DeletePosition(_), Some(owner)) => positions.delete(partition, owner).await,
            (_, None) => Answered::Failed,
        }
    }
}

impl Asked {
    /// Whose position is asked for, at which partition; `None`: nobody's.
    pub fn owner(&self) -> Option<Owner> {
        let id = match &self.question {
            Question::Read { .. } | Question::Flush => return None,
            Question::FindPosition(id)
            | Question::StorePosition { id, .. }
            | Question::DeletePosition(id) => id,
        };
        Some(Owner {
            id: id.clone(),
            stream: format!("#{}/{}", self.ids.0, self.ids.1),
            partition: i32::try_from(self.partition).unwrap_or(i32::MAX),
            incarnation: self.incarnation,
        })
    }
}
