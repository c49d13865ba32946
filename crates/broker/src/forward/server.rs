//! The leader's end: appends what other brokers hand on, and answers by number.
use super::item::{BodyError, payload};
use super::outcome::to_answer;
use crate::access::{Access, Action, stream_resource};
use crate::admission::Admission;
use crate::names::{DEFAULT_NAMESPACE, is_internal};
use crate::partition::{AckLevel, Append, AppendError, Committed, Done, Partition, Payload};
use crate::tls::Peer;
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use crate::view::{StreamView, View};
use arc_swap::ArcSwap;
use bascule_record::Producer;
use bascule_wire::peer::{Forward, Frame, FrameError, FrameType};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

/// Appends of one connection that wait for the queues of their partitions, bytes.
const WAITING_BYTES: usize = 32 << 20;

/// Takes publishes of other brokers' clients.
#[derive(Debug)]
pub struct ForwardServer {
    pub(crate) broker_id: String,
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) access: Arc<Access>,
    pub(crate) admission: Arc<Admission>,
}

/// One connection of another broker.
pub(crate) struct ForwardSession {
    server: Arc<ForwardServer>,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Waiting>,
}

impl ForwardServer {
    /// A session whose answers, whole frames, go to `answers`.
    pub(crate) fn session(
        self: &Arc<Self>,
        answers: mpsc::UnboundedSender<Vec<u8>>,
    ) -> ForwardSession {
        ForwardSession {
            server: self.clone(),
            answers,
            waiting: Arc::default(),
        }
    }

    /// A share of `limits.request_bytes` for a frame.
    pub async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.admission.reserve(bytes).await
    }

    /// The partition that a publish is for, when this broker leads it under the epoch that the publish names and its client may
    /// publish to it.
    fn check(&self, forward: &Forward) -> Result<Partition, AppendError> {
        let view = self.view.load();
        let stream = view.stream(&forward.namespace, &forward.stream);
        let stream = stream.ok_or(AppendError::NotLeader)?;
        let resource = stream_resource(&forward.namespace, &forward.stream);
        let peer = Peer {
            address: forward.address.parse().ok(),
            identity: forward.principal.as_deref().map(Into::into),
        };
        if let Some(user) = forward.user {
            self.check_user(&view, user, &peer, stream)?;
        } else {
            let allowed = self.access.check(&peer, Action::Publish, &resource);
            allowed.map_err(AppendError::Denied)?;
        }
        if forward.namespace == DEFAULT_NAMESPACE && is_internal(&forward.stream) {
            let text = "the stream is reserved: the broker alone writes to it";
            return Err(AppendError::Invalid(text.to_owned()));
        }
        let found = stream.partitions.get(forward.partition as usize);
        let found = found.filter(|found| {
            found.incarnation == forward.incarnation
                && found.leader_epoch == forward.leader_epoch
                && found.leader == self.broker_id
        });
        let handle = found.and_then(|found| found.handle.clone());
        handle.ok_or(AppendError::NotLeader)
    }
}

impl ForwardServer {
    /// Checks the rights of a user. The broker that asked has checked them too: where the two differ, one of them has not applied the last
    /// entries of the metadata yet, and the answer makes it ask again.
    fn check_user(
        &self,
        view: &View,
        user: u64,
        peer: &Peer,
        stream: &StreamView,
    ) -> Result<(), AppendError> {
        let rights = view.users.get(&user).ok_or(AppendError::NotLeader)?;
        let caller = UserCaller {
            user,
            rights,
            access: &self.access,
            peer,
        };
        let namespace = view.numbers.id(&stream.namespace);
        if caller.may_with(UserAction::Send, namespace, stream) {
            return Ok(());
        }
        Err(AppendError::NotLeader)
    }
}

impl ForwardSession {
    /// Takes a publish: its answer comes later. Returns once it is in order behind those before it; never waits for a partition.
    ///
    /// # Errors
    /// A body that breaks the protocol.
    pub async fn take(
        &self,
        forward: Forward,
        body: Bytes,
        charge: Option<OwnedSemaphorePermit>,
    ) -> Result<(), FrameError> {
        let (request, answers) = (forward.request, self.answers.clone());
        let done: Done = Box::new(move |outcome: Result<Committed, AppendError>| {
            let head = to_answer(request, &outcome);
            // Fails only when the connection has ended.
            let _ = answers.send(Frame::write(FrameType::ForwardAnswer, &head, b""));
        });
        let partition = match self.server.check(&forward) {
            Ok(partition) => partition,
            Err(error) => {
                done(Err(error));
                return Ok(());
            }
        };
        let until = Instant::now() + Duration::from_millis(u64::from(forward.deadline_ms));
        let bytes = body.len();
        let (append, done) = match read(forward, body, &partition).await {
            Ok(append) => (append, done),
            Err(BodyError::Frame(error)) => return Err(error),
            Err(error @ (BodyError::Batch(_) | BodyError::Producer(_))) => {
                done(Err(AppendError::Invalid(error.to_string())));
                return Ok(());
            }
            Err(BodyError::Stopped(_)) => {
                done(Err(AppendError::Closed));
                return Ok(());
            }
        };
        let held = Held {
            append: append(done),
            until,
            bytes,
            charge,
        };
        self.waiting.hand_over(&partition, held);
        Ok(())
    }
}

/// Reads the body of a publish. The result makes an append of it.
async fn read(
    forward: Forward,
    body: Bytes,
    partition: &Partition,
) -> Result<impl FnOnce(Done) -> Append, BodyError> {
    let most = partition.max_record_bytes();
    let (payload, forward) = if forward.records > 0 {
        (payload(&forward, &body, most)?, forward)
    } else {
        // It may have 64 MiB, all of which is checked.
        let read = move || (payload(&forward, &body, most), forward);
        let (payload, forward) = tokio::task::spawn_blocking(read).await?;
        (payload?, forward)
    };
    let named = forward.producer.map(|producer| Producer {
        id: producer.id,
        epoch: producer.epoch,
        base_sequence: producer.base_sequence,
    });
    let producer = match &payload {
        Payload::Sealed(batch) => batch.producer(),
        Payload::Records(_) => named,
    };
    if let Some(producer) = producer
        && producer.id >= Producer::FIRST_SINK_ID
    {
        return Err(BodyError::Producer(producer.id));
    }
    let ack = if forward.to_all {
        AckLevel::All
    } else {
        AckLevel::Leader
    };
    Ok(move |done| Append {
        payload,
        producer,
        republish: forward.republish,
        ack,
        done,
    })
}

/// An append that its partition has not taken.
struct Held {
    append: Append,
    until: Instant,
    bytes: usize,
    charge: Option<OwnedSemaphorePermit>,
}

/// Appends that wait for the queues of their partitions, in order, by incarnation. An entry is there as long as one of them waits.
#[derive(Default)]
struct Waiting {
    queues: Mutex<HashMap<u64, VecDeque<Held>>>,
    bytes: AtomicUsize,
}

impl Waiting {
    /// Appends at once, or behind those that wait already.
    fn hand_over(self: &Arc<Self>, partition: &Partition, held: Held) {
        let incarnation = partition.identity().incarnation;
        let mut queues = self.queues.lock();
        let (until, bytes) = (held.until, held.bytes);
        let held = match queues.get_mut(&incarnation) {
            Some(queue) if self.bytes.load(Ordering::Acquire) < WAITING_BYTES => {
                self.bytes.fetch_add(bytes, Ordering::AcqRel);
                return queue.push_back(held);
            }
            Some(_) => {
                drop(queues);
                return (held.append.done)(Err(AppendError::Busy));
            }
            None => match partition.try_append(held.append) {
                Ok(()) => return,
                Err(append) => Held {
                    append,
                    until,
                    bytes,
                    charge: held.charge,
                },
            },
        };
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        queues.insert(incarnation, VecDeque::from([held]));
        drop(queues);
        tokio::spawn(self.clone().drain(partition.clone()));
    }

    async fn drain(self: Arc<Self>, partition: Partition) {
        let incarnation = partition.identity().incarnation;
        loop {
            let next = {
                let mut queues = self.queues.lock();
                let next = queues.get_mut(&incarnation).and_then(VecDeque::pop_front);
                if next.is_none() {
                    queues.remove(&incarnation);
                }
                next
            };
            let Some(Held {
                append,
                until,
                bytes,
                charge,
            }) = next
            else {
                return;
            };
            if until <= Instant::now() {
                (append.done)(Err(AppendError::Busy));
            } else {
                partition.append(append).await;
            }
            drop(charge);
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::user_rights::UserRights;

    fn rights(everywhere: UserAction) -> Arc<UserRights> {
        Arc::new(UserRights {
            principal: "iggy:ada".into(),
            everywhere: everywhere as u8,
            streams: HashMap::new(),
            topics: HashMap::new(),
        })
    }

    #[test]
    fn only_a_known_user_with_the_right_to_send_may_publish() {
        let users = [(7, rights(UserAction::Send)), (8, rights(UserAction::Poll))];
        let view = View {
            users: Arc::new(HashMap::from(users)),
            ..View::default()
        };
        let server = ForwardServer {
            broker_id: "b1".into(),
            view: Arc::default(),
            access: Arc::default(),
            admission: Arc::new(Admission::new(Limits::default(), Arc::default())),
        };
        let stream = StreamView {
            namespace: "orders".into(),
            name: "paid".into(),
            id: 3,
            subject: String::new(),
            created_ns: 0,
            partition_by_subject: false,
            concurrency_control: false,
            resume_all: false,
            groups: Vec::new(),
            partitions: Vec::new(),
        };
        let check = |user| server.check_user(&view, user, &Peer::default(), &stream);
        assert!(check(7).is_ok());
        let refused = |user| matches!(check(user), Err(AppendError::NotLeader));
        assert!(refused(8), "may not send");
        assert!(refused(9), "not known");
    }
}
