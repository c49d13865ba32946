//! The appends of one call to one partition: sent in order, and again where that is safe.
//!
//! What the leader refused without appending it may be sent again, and with a producer id also what it did not answer. Before anything
//! is sent again everything that is under way is answered, so nothing overtakes. Reliability rule 17.
use super::item::{Content, Item, Publisher};
use super::link::{Answer, Outgoing};
use super::{Forwarder, Place, Target};
use crate::partition::{Append, AppendError, Committed, Partition};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

/// How long an append without a deadline waits for a leader.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for a leader, whatever the deadline.
const LONGEST: Duration = Duration::from_mins(1);
/// Before what was refused is sent again: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Appends under way; one until the leader has taken one, so that a leader that is not ready refuses that one only.
const UNDER_WAY: usize = 64;

/// Whether a call has to end: an append without a producer id has an unknown outcome.
#[derive(Debug, Default)]
pub(super) struct LaneEnd {
    is_unknown: AtomicBool,
    changed: Notify,
}

impl LaneEnd {
    /// Waits until there is an unknown outcome. One waiter at a time.
    pub async fn unknown(&self) {
        while !self.is_unknown.load(Ordering::Acquire) {
            self.changed.notified().await;
        }
    }

    fn set(&self) {
        self.is_unknown.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

/// See the module. Dropped, what it was given is still sent and answered.
#[derive(Debug)]
pub(super) struct Lane {
    forwarder: Arc<Forwarder>,
    items: mpsc::UnboundedSender<Charged>,
    pending: Arc<AtomicUsize>,
}

/// An append and its share of the budget.
#[derive(Debug)]
struct Charged {
    item: Item,
    share: Option<OwnedSemaphorePermit>,
}

impl Lane {
    pub fn start(
        forwarder: &Arc<Forwarder>,
        target: &Target,
        publisher: &Publisher,
        end: &Arc<LaneEnd>,
    ) -> Self {
        let (items, incoming) = mpsc::unbounded_channel();
        let pending = Arc::<AtomicUsize>::default();
        let run = Run {
            forwarder: forwarder.clone(),
            target: Arc::new(target.clone()),
            publisher: publisher.clone(),
            end: end.clone(),
            incoming,
            is_closed: false,
            again: VecDeque::new(),
            sent: VecDeque::new(),
            place: None,
            is_proven: false,
            pause: FIRST_PAUSE,
            broken: None,
            pending: pending.clone(),
        };
        tokio::spawn(run.live());
        Self {
            forwarder: forwarder.clone(),
            items,
            pending,
        }
    }

    /// Hands an append over, waiting for the budget. It is answered through `done`, once, after `deadline` at the latest unless it is
    /// under way then.
    pub async fn append(&self, append: Append, deadline: Option<Instant>) {
        let now = Instant::now();
        let until = deadline.map_or(now + PATIENCE, |deadline| deadline.min(now + LONGEST));
        let Some(item) = Item::new(append, until) else {
            return;
        };
        let cost = u32::try_from(item.cost()).unwrap_or(u32::MAX);
        let cost = cost.min(self.forwarder.most);
        // Never closed.
        let share = self.forwarder.budget.clone().acquire_many_owned(cost);
        let charged = Charged {
            item,
            share: share.await.ok(),
        };
        self.pending.fetch_add(1, Ordering::AcqRel);
        if let Err(refused) = self.items.send(charged) {
            refused.0.item.answer(Err(AppendError::Closed));
        }
    }

    /// Whether everything was answered.
    pub fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }
}

/// An append under way.
struct Sent {
    charged: Charged,
    answer: oneshot::Receiver<Answer>,
}

/// What follows from an answer.
enum Verdict {
    /// It is over.
    Final(Result<Committed, AppendError>),
    /// It may be sent again.
    Again(AppendError),
    /// It may be stored, and must not be sent again.
    Unknown(AppendError),
}

struct Run {
    forwarder: Arc<Forwarder>,
    target: Arc<Target>,
    publisher: Publisher,
    end: Arc<LaneEnd>,
    incoming: mpsc::UnboundedReceiver<Charged>,
    is_closed: bool,
    /// To be sent next, in order: refused before, or waiting for a place.
    again: VecDeque<Charged>,
    sent: VecDeque<Sent>,
    /// Where what is under way was sent to.
    place: Option<Place>,
    /// What is under way there may be more than one append.
    is_proven: bool,
    pause: Duration,
    /// An earlier outcome is unknown: nothing is sent any more.
    broken: Option<String>,
    pending: Arc<AtomicUsize>,
}

impl Run {
    async fn live(mut self) {
        while !(self.is_closed && self.again.is_empty() && self.sent.is_empty()) {
            let most = if self.is_proven { UNDER_WAY } else { 1 };
            let has_room = self.sent.len() < most;
            if has_room && let Some(next) = self.again.pop_front() {
                self.send(next).await;
                continue;
            }
            tokio::select! {
                biased;
                answer = first(&mut self.sent), if !self.sent.is_empty() => self.settle(answer).await,
                item = self.incoming.recv(), if has_room && !self.is_closed => match item {
                    Some(item) => self.again.push_back(item),
                    None => self.is_closed = true,
                }
            }
        }
    }

    /// Sends the next append once that keeps the order; puts it back if it has to wait.
    async fn send(&mut self, charged: Charged) {
        if let Some(why) = &self.broken {
            let why = Err(AppendError::Unknown(why.clone()));
            self.count(&why);
            return self.finish(charged, why);
        }
        let item = &charged.item;
        let late = (item.until <= Instant::now()).then(|| {
            let text = "no leader took it in time".to_owned();
            item.refused
                .clone()
                .unwrap_or(AppendError::Unreachable(text))
        });
        if let Some(late) = late {
            self.forwarder.statistics.forwarded.expired.add(1);
            return self.finish(charged, Err(late));
        }
        let place = self.forwarder.place(&self.target);
        let same = self.place.as_ref().is_some_and(|now| now.is(&place));
        if !self.sent.is_empty() && !same {
            self.again.push_front(charged);
            let answer = first(&mut self.sent).await;
            return self.settle(answer).await;
        }
        match &place {
            Place::Gone => {
                let gone = Err(AppendError::Closed);
                self.count(&gone);
                return self.finish(charged, gone);
            }
            Place::Nowhere(why) => {
                let mut charged = charged;
                charged.item.refused = Some(AppendError::Unreachable(why.clone()));
                self.again.push_front(charged);
                return self.wait().await;
            }
            Place::Here(_) | Place::There(..) => {}
        }
        let (sender, answer) = oneshot::channel();
        let content = charged.item.content.clone();
        match &place {
            Place::Here(partition) => append_here(partition, &content, sender).await,
            Place::There(leader, epoch) => {
                let outgoing = Outgoing {
                    content,
                    target: self.target.clone(),
                    epoch: *epoch,
                    publisher: self.publisher.clone(),
                    until: charged.item.until,
                    answer: sender,
                };
                match self.forwarder.link(*leader) {
                    Some(link) => link.send(outgoing),
                    None => outgoing.not_sent("there is no cluster"),
                }
            }
            // Handled above.
            Place::Nowhere(_) | Place::Gone => drop(sender),
        }
        self.is_proven &= same;
        self.place = Some(place);
        self.sent.push_back(Sent { charged, answer });
    }

    /// Takes the answer to the first append under way.
    async fn settle(&mut self, answer: Answer) {
        let Some(sent) = self.sent.pop_front() else {
            return;
        };
        let is_idempotent = sent.charged.item.is_idempotent();
        match verdict(answer, is_idempotent) {
            Verdict::Final(outcome) => {
                self.is_proven = outcome.is_ok();
                self.pause = FIRST_PAUSE;
                self.count(&outcome);
                self.finish(sent.charged, outcome);
            }
            Verdict::Unknown(error) => self.break_off(sent.charged, error),
            again @ Verdict::Again(_) => self.recover(sent.charged, again).await,
        }
    }

    /// The first append under way may be sent again: waits for the answers to all, then puts what is sent again in order.
    async fn recover(&mut self, first: Charged, verdict_of_first: Verdict) {
        let mut all = vec![(first, verdict_of_first)];
        for mut sent in std::mem::take(&mut self.sent) {
            let answer = answered(&mut sent.answer).await;
            let verdict = verdict(answer, sent.charged.item.is_idempotent());
            all.push((sent.charged, verdict));
        }
        let may_be_stored =
            |verdict: &Verdict| matches!(verdict, Verdict::Final(Ok(_)) | Verdict::Unknown(_));
        let last = all.iter().rposition(|(_, verdict)| may_be_stored(verdict));
        let mut again = VecDeque::new();
        for (index, (mut charged, verdict)) in all.into_iter().enumerate() {
            match verdict {
                Verdict::Final(outcome) => {
                    self.count(&outcome);
                    self.finish(charged, outcome);
                }
                Verdict::Unknown(error) => self.break_off(charged, error),
                // A later one is stored, or may be. Of a producer the sequence decides.
                Verdict::Again(error)
                    if !charged.item.is_idempotent() && last.is_some_and(|last| index < last) =>
                {
                    let refused = Err(error);
                    self.count(&refused);
                    self.finish(charged, refused);
                }
                Verdict::Again(error) => {
                    let forwarded = &self.forwarder.statistics.forwarded;
                    forwarded.retried.add(1);
                    if error.may_be_stored() {
                        charged.item.unsure = Some(error);
                    } else {
                        charged.item.refused = Some(error);
                    }
                    again.push_back(charged);
                }
            }
        }
        again.append(&mut self.again);
        self.again = again;
        if self.broken.is_none() {
            self.wait().await;
        }
    }

    /// The outcome of an append is unknown, and it has no producer id.
    fn break_off(&mut self, charged: Charged, error: AppendError) {
        self.forwarder.statistics.forwarded.unknown.add(1);
        let (name, number) = (&self.target.stream, self.target.number);
        self.broken.get_or_insert_with(|| {
            format!("an earlier record of this call for partition {number} of stream {name:?} has no answer")
        });
        self.finish(charged, Err(error));
        self.end.set();
    }

    async fn wait(&mut self) {
        self.is_proven = false;
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn count(&self, outcome: &Result<Committed, AppendError>) {
        let forwarded = &self.forwarder.statistics.forwarded;
        match outcome {
            Ok(_) => forwarded.committed.add(1),
            Err(error) if error.may_be_stored() => forwarded.unknown.add(1),
            Err(_) => forwarded.refused.add(1),
        }
    }

    fn finish(&self, charged: Charged, outcome: Result<Committed, AppendError>) {
        let Charged { item, share } = charged;
        drop(share);
        self.pending.fetch_sub(1, Ordering::AcqRel);
        item.answer(outcome);
    }
}

async fn append_here(partition: &Partition, content: &Content, answer: oneshot::Sender<Answer>) {
    let outcome = content.to_payload();
    // Whoever waits is gone when the broker stops.
    let done = move |outcome| drop(answer.send(Answer::Outcome(outcome)));
    match outcome {
        Ok(payload) => {
            let append = Append {
                payload,
                producer: content.producer,
                republish: content.republish,
                ack: content.ack,
                done: Box::new(done),
            };
            partition.append(append).await;
        }
        Err(error) => done(Err(error)),
    }
}

/// The answer to the first append under way. Cancel-safe.
async fn first(sent: &mut VecDeque<Sent>) -> Answer {
    match sent.front_mut() {
        Some(first) => answered(&mut first.answer).await,
        None => std::future::pending().await,
    }
}

async fn answered(answer: &mut oneshot::Receiver<Answer>) -> Answer {
    let stops = || Answer::Lost("the broker stops".to_owned());
    answer.await.unwrap_or_else(|_| stops())
}

fn verdict(answer: Answer, is_idempotent: bool) -> Verdict {
    let error = match answer {
        Answer::Outcome(Ok(committed)) => return Verdict::Final(Ok(committed)),
        Answer::NotSent(why) => return Verdict::Again(AppendError::Unreachable(why)),
        Answer::Lost(why) => AppendError::Unknown(why),
        Answer::Outcome(Err(error)) => error,
    };
    match error {
        AppendError::NotLeader | AppendError::Closed | AppendError::Busy => Verdict::Again(error),
        AppendError::LeaderChanged | AppendError::Unknown(_) if is_idempotent => {
            Verdict::Again(error)
        }
        error if error.may_be_stored() && !is_idempotent => Verdict::Unknown(error),
        error => Verdict::Final(Err(error)),
    }
}
