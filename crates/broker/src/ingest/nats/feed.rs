//! The way of NATS messages into one partition: straight into its queue while there is room, otherwise through a backlog
//! that is bounded in bytes, over the whole broker.
//!
//! Each source (a subscription, the copier) pushes from one task, and its order is kept: while anything waits in the
//! backlog, everything goes through it.
use super::acks::{AckJob, PendingAck};
use super::context::IngestContext;
use super::detach;
use super::group::Group;
use super::losses::{Loss, Losses};
use super::publish_acks::PublishAcks;
use crate::budget::Reservation;
use crate::nats::connections::{Unstored, partition_name};
use crate::partition::{
    AckLevel, Append, AppendError, Committed, Done, EndReason, Partition, Payload, RejectReason,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::mpsc;

/// Feeds one partition. Dropping it ends the feeding once the backlog is empty.
pub(crate) struct Feed {
    partition: Partition,
    started: Instant,
    /// Appends in the backlog, with the one that is just being handed over.
    waiting: Arc<AtomicUsize>,
    backlog: mpsc::UnboundedSender<BacklogEntry>,
    losses: Arc<Losses>,
}

/// Small, as the messages of a partition's task are.
struct BacklogEntry {
    append: Box<Append>,
    /// Given back when the partition has taken the append.
    _reservation: Reservation,
}

const _: () = assert!(size_of::<BacklogEntry>() <= 32);

impl Feed {
    /// Starts feeding on the current runtime.
    pub(crate) fn start(partition: Partition, losses: Arc<Losses>) -> Arc<Self> {
        let (backlog, waiting_appends) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        tokio::spawn(hand_over(
            partition.clone(),
            waiting.clone(),
            waiting_appends,
        ));
        Arc::new(Self {
            partition,
            started: Instant::now(),
            waiting,
            backlog,
            losses,
        })
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.partition.identity().incarnation
    }

    /// `stream/number`.
    pub(crate) fn name(&self) -> String {
        partition_name(&self.partition)
    }

    /// Whether it takes messages of every subject that its route has.
    pub(crate) fn takes_all(&self) -> bool {
        self.partition.identity().subject_partitions < 2
    }

    /// When its partition began to listen.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Whether its partition has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.partition.end() == EndReason::Open
    }

    /// Appends a group, now or when there is room. Never blocks; what does not fit is dropped, counted and reported.
    pub(crate) fn push(&self, context: &Arc<IngestContext>, mut group: Group) {
        if !self.takes_all() {
            let own = self.partition.identity().subject.as_bytes();
            group.keep(|record| {
                let subject: &[u8] = &record.subject;
                let subject = if subject.is_empty() { own } else { subject };
                self.partition.takes(subject)
            });
            if group.records.is_empty() {
                return;
            }
        }
        if context.connections.is_pressed() {
            detach::detach(&mut group);
        }
        let waiting_bytes = group.waiting_bytes();
        let Group { records, acks, .. } = group;
        let count = records.len() as u64;
        let publish_acks = PublishAcks::of(&self.partition, &records);
        let mut append = Append {
            payload: Payload::Records(records),
            producer: None,
            republish: false,
            ack: AckLevel::All,
            done: self.answer(context.clone(), acks, publish_acks, count),
        };
        if self.waiting.load(Ordering::Acquire) == 0 {
            match self.partition.try_append(append) {
                Ok(()) => return,
                Err(refused) => append = refused,
            }
        }
        let Some(reservation) = context.pending.try_reserve(waiting_bytes) else {
            return refuse_busy(append);
        };
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let waiting = BacklogEntry {
            append: Box::new(append),
            _reservation: reservation,
        };
        // The receiver lives as long as this sender.
        if let Err(error) = self.backlog.send(waiting) {
            refuse_busy(*error.0.append);
        }
    }

    /// Counts and reports messages that are not stored.
    pub(crate) fn lost(&self, context: &IngestContext, loss: Loss, messages: u64) {
        lost(context, &self.partition, &self.losses, loss, messages);
    }

    /// Called when the append is committed or refused.
    fn answer(
        &self,
        context: Arc<IngestContext>,
        acks: Vec<PendingAck>,
        publish_acks: PublishAcks,
        count: u64,
    ) -> Done {
        let (partition, losses) = (self.partition.clone(), self.losses.clone());
        Box::new(move |outcome| {
            publish_acks.answer(&context.publish_acks, &outcome);
            partition.count_publish_errors(&outcome, count as usize);
            match outcome {
                Ok(committed) => {
                    let stored = u64::from(committed.count);
                    context.statistics.nats_stored.add(stored);
                    count_rejected(&context, &partition, &losses, &committed);
                    if !acks.is_empty() {
                        context.acks.push(AckJob::new(partition, &committed, acks));
                    }
                }
                // A publisher that wanted Liftbridge's ack gets none and tries again.
                Err(error) => lost(&context, &partition, &losses, loss_of(&error), count),
            }
        })
    }
}

/// Answers, counts and reports an append that has no place to wait.
fn refuse_busy(append: Append) {
    (append.done)(Err(AppendError::Busy));
}

fn loss_of(error: &AppendError) -> Loss {
    match error {
        AppendError::Busy => Loss::Overload,
        AppendError::Readonly => Loss::Readonly,
        AppendError::Full => Loss::Full,
        AppendError::NotLeader | AppendError::Closed => Loss::Paused,
        _ => Loss::Other,
    }
}

/// Single records that were refused. Who expects an offset is answered with an ack, and counted nowhere else.
fn count_rejected(
    context: &IngestContext,
    partition: &Partition,
    losses: &Losses,
    committed: &Committed,
) {
    for rejected in &committed.rejected {
        match rejected.reason {
            RejectReason::TooLarge => lost(context, partition, losses, Loss::TooLarge, 1),
            RejectReason::Encryption => lost(context, partition, losses, Loss::Other, 1),
            // Duplicates are stored already; refused ones are counted with their acks.
            _ => {}
        }
    }
}

/// Counts and reports messages for a partition that are not stored.
fn lost(
    context: &IngestContext,
    partition: &Partition,
    losses: &Losses,
    loss: Loss,
    messages: u64,
) {
    context.statistics.nats_dropped.add(messages);
    partition.count_nats_dropped(messages);
    losses.add(loss, messages);
    let name = partition_name(partition);
    let (why, name) = match loss {
        Loss::Overload => (Unstored::Overload, name),
        other => (Unstored::Partition, format!("{name} {}", other.sentence())),
    };
    context.reporter.unstored(why, messages, name);
}

async fn hand_over(
    partition: Partition,
    waiting: Arc<AtomicUsize>,
    mut backlog: mpsc::UnboundedReceiver<BacklogEntry>,
) {
    while let Some(BacklogEntry {
        append,
        _reservation,
    }) = backlog.recv().await
    {
        partition.append(*append).await;
        waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
