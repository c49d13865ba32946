//! The way of NATS messages into one partition: straight into its queue while there is room, otherwise through a backlog
//! that is bounded in bytes, over the whole broker.
//!
//! Each source (a subscription, the copier) pushes from one task, and its order is kept: while anything waits in the
//! backlog, everything goes through it.
use crate::budget::Reservation;
use crate::ingest::nats::acks::{AckJob, PendingAck};
use crate::ingest::nats::detach;
use crate::ingest::nats::losses::{Loss, Losses};
use crate::ingest::nats::publish_acks::PublishAcks;
use crate::nats::connections::report::{Unstored, partition_name};
use crate::nats::session::Session;
use crate::partition::{
    Append, AppendError, Committed, Done, EndReason, IncomingRecord, Partition, Payload,
    RejectReason,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::mpsc;

/// What a waiting record occupies beside its bytes, about, and each of its headers.
const RECORD_OVERHEAD: usize = 256;
const HEADER_OVERHEAD: usize = size_of::<(bytes::Bytes, bytes::Bytes)>();

/// Records that go into one append, 1 to 1,024 of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) records: Vec<IncomingRecord>,
    /// Ascending by index into `records`.
    pub(crate) acks: Vec<PendingAck>,
    /// Bytes of the records as received, headers included.
    pub(crate) bytes: usize,
}

impl Group {
    /// Leaves out the records that `wanted` does not want, and their acks.
    pub(crate) fn keep(&mut self, mut wanted: impl FnMut(&IncomingRecord) -> bool) {
        let mut acks = std::mem::take(&mut self.acks).into_iter().peekable();
        let mut kept = Vec::with_capacity(self.records.len());
        self.bytes = 0;
        for (index, record) in (0u32..).zip(std::mem::take(&mut self.records)) {
            let ack = acks.next_if(|ack| ack.index == index);
            if wanted(&record) {
                self.acks.extend(ack.map(|ack| PendingAck {
                    index: kept.len() as u32,
                    ..ack
                }));
                self.bytes += record.received_bytes as usize;
                kept.push(record);
            }
        }
        self.records = kept;
    }

    /// What it occupies while it waits, about.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let headers: usize = self.records.iter().map(|record| record.headers.len()).sum();
        self.bytes + RECORD_OVERHEAD * self.records.len() + HEADER_OVERHEAD * headers
    }
}

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
    pub(crate) fn push(&self, session: &Arc<Session>, mut group: Group) {
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
        if session.is_pressed() {
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
            done: self.answer(session.clone(), acks, publish_acks, count),
        };
        if self.waiting.load(Ordering::Acquire) == 0 {
            match self.partition.try_append(append) {
                Ok(()) => return,
                Err(refused) => append = refused,
            }
        }
        let Some(reservation) = session.pending.try_reserve(waiting_bytes) else {
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
    pub(crate) fn lost(&self, session: &Session, loss: Loss, messages: u64) {
        lost(session, &self.partition, &self.losses, loss, messages);
    }

    /// What happens when the append is committed or refused.
    fn answer(
        &self,
        session: Arc<Session>,
        acks: Vec<PendingAck>,
        publish_acks: PublishAcks,
        count: u64,
    ) -> Done {
        let (partition, losses) = (self.partition.clone(), self.losses.clone());
        Box::new(move |outcome| {
            publish_acks.answer(&session, &outcome);
            partition.count_publish_errors(&outcome, count as usize);
            match outcome {
                Ok(committed) => {
                    let stored = u64::from(committed.count);
                    session.shared.statistics.nats_stored.add(stored);
                    count_rejected(&session, &partition, &losses, &committed);
                    if !acks.is_empty() {
                        AckJob::new(partition, &committed, acks).queue(&session);
                    }
                }
                // A publisher that wanted Liftbridge's ack gets none and tries again.
                Err(error) => lost(&session, &partition, &losses, loss_of(&error), count),
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
    session: &Session,
    partition: &Partition,
    losses: &Losses,
    committed: &Committed,
) {
    for rejected in &committed.rejected {
        match rejected.reason {
            RejectReason::TooLarge => lost(session, partition, losses, Loss::TooLarge, 1),
            RejectReason::Encryption => lost(session, partition, losses, Loss::Other, 1),
            // Duplicates are stored already; refused ones are counted with their acks.
            _ => {}
        }
    }
}

/// Counts and reports messages for a partition that are not stored.
fn lost(session: &Session, partition: &Partition, losses: &Losses, loss: Loss, messages: u64) {
    session.shared.statistics.nats_dropped.add(messages);
    partition.count_nats_dropped(messages);
    losses.add(loss, messages);
    let name = partition_name(partition);
    let (why, name) = match loss {
        Loss::Overload => (Unstored::Overload, name),
        other => (Unstored::Partition, format!("{name} {}", other.sentence())),
    };
    session.reporter.unstored(why, messages, name);
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
