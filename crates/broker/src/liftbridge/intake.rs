//! Messages of a PublishAsync call on their way in: framing, checks, and groups by partition.
use super::acks::put_refusal;
use super::call::malformed_publish;
use super::context::LiftbridgeContext;
use super::frames::FrameReader;
use super::publish::check_producer;
use super::refusal::Refusal;
use super::resume::resume;
use super::route::{AckContext, Destination, Routes, split};
use crate::admission::{self, PATIENCE};
use crate::partition::IncomingRecord;
use crate::resume::RESUMES;
use crate::tls::Peer;
use bascule_record::Producer;
use bascule_wire::liftbridge::messages::AckPolicy;
use bascule_wire::liftbridge::publish::{ProducerBatch, PublishView};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tonic::Status;

/// Charged for each message besides its length: its response and bookkeeping, bytes.
pub(super) const MESSAGE_COST: usize = 192;

/// Most bytes of a producer's batch, besides a single message that is larger.
const BATCH_BYTES: usize = 16 << 20;

/// Messages taken in and not yet appended.
pub(super) struct Intake {
    frames: FrameReader,
    context: Arc<LiftbridgeContext>,
    routes: Routes,
    pending: Vec<Pending>,
    /// Messages for paused partitions, with their lengths.
    parked: Vec<Message>,
    /// A producer's batch that is not whole yet.
    batch: Option<OpenBatch>,
    refused: Vec<u8>,
    refused_cost: usize,
}

/// A message and its length as received.
type Message = (PublishView, usize);

/// A producer's batch while its messages come in. What it holds is charged to `limits.request_bytes`, as a message is that is
/// not whole.
struct OpenBatch {
    begun: ProducerBatch,
    messages: Vec<Message>,
    bytes: usize,
    charge: Option<OwnedSemaphorePermit>,
    until: Instant,
}

/// Records of one partition, in order.
pub(super) struct Pending {
    /// Whose batch they are; `None` = nobody's, others may join them.
    pub(super) producer: Option<Producer>,
    pub(super) destination: Arc<Destination>,
    pub(super) records: Vec<IncomingRecord>,
    pub(super) acks: Vec<AckContext>,
    /// Share of the call's budget, bytes.
    pub(super) cost: usize,
}

impl Intake {
    pub(super) fn new(context: &Arc<LiftbridgeContext>, peer: &Peer) -> Self {
        Self {
            frames: FrameReader::new(context.limits.message_bytes),
            context: context.clone(),
            routes: Routes::new(context, peer),
            pending: Vec::new(),
            parked: Vec::new(),
            batch: None,
            refused: Vec::new(),
            refused_cost: 0,
        }
    }

    /// Forgets routes of an older view, and of older rights.
    pub(super) fn refresh(&mut self) {
        self.routes.refresh();
    }

    /// Checks that a producer's batch does not take for ever.
    pub(super) fn check_patience(&self) -> Result<(), Status> {
        if self
            .batch
            .as_ref()
            .is_some_and(|batch| batch.until < Instant::now())
        {
            let seconds = PATIENCE.as_secs();
            let text = format!("a batch of a producer took longer than {seconds} s to arrive");
            return Err(Status::deadline_exceeded(text));
        }
        Ok(())
    }

    /// Checks that the body did not end inside a message or a producer's batch.
    pub(super) fn end(&self) -> Result<(), Status> {
        self.frames.end()?;
        match self.batch {
            None => Ok(()),
            Some(_) => Err(broken_batch("the call ends")),
        }
    }

    /// Framed refusals, and what they cost.
    pub(super) fn take_refused(&mut self) -> (Vec<u8>, usize) {
        (
            std::mem::take(&mut self.refused),
            std::mem::take(&mut self.refused_cost),
        )
    }

    /// Groups to append.
    pub(super) fn take_pending(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.pending)
    }

    /// Takes in every message that is whole with this chunk.
    pub(super) fn take(&mut self, mut chunk: Bytes) -> Result<(), Status> {
        while let Some(message) = self.frames.next(&mut chunk)? {
            self.take_message(message)?;
        }
        Ok(())
    }

    fn take_message(&mut self, message: Bytes) -> Result<(), Status> {
        let length = message.len();
        if let Some(view) = PublishView::read(message.clone()) {
            if self.batch.is_some() || !view.producer_batch.is_empty() {
                return self.take_produced(view, length);
            }
            self.place(view, length);
            return Ok(());
        }
        let view = PublishView::without_headers(message).ok_or_else(malformed_publish)?;
        if self.batch.is_some() || !view.producer_batch.is_empty() {
            return Err(broken_batch("one of its messages has too many headers"));
        }
        self.refuse(&view, length, &Refusal::TooManyHeaders);
        Ok(())
    }

    /// A message of a producer's batch; the last one completes it.
    fn take_produced(&mut self, view: PublishView, length: usize) -> Result<(), Status> {
        let begun = view.begun_batch().ok_or_else(|| {
            Status::invalid_argument("producerBatch is not 20 bytes that say one")
        })?;
        begun.map_or(Ok(()), |begun| check_producer(begun.producer))?;
        let batch = match (&mut self.batch, begun) {
            (None, None) => {
                self.place(view, length);
                return Ok(());
            }
            (None, Some(begun)) => self.batch.insert(OpenBatch {
                begun,
                messages: Vec::new(),
                bytes: 0,
                charge: None,
                until: Instant::now() + PATIENCE,
            }),
            (Some(batch), None) if batch.is_for(&view) => batch,
            _ => return Err(broken_batch("another begins, or names another partition")),
        };
        batch.bytes += length;
        if batch.bytes > BATCH_BYTES.max(length) {
            return Err(broken_batch("it is larger than 16 MiB"));
        }
        let more = admission::charge(&self.context.admission, length + MESSAGE_COST)?;
        match &mut batch.charge {
            Some(charge) => charge.merge(more),
            none => *none = Some(more),
        }
        batch.messages.push((view, length));
        if batch.messages.len() == batch.begun.records as usize
            && let Some(batch) = self.batch.take()
        {
            self.place_batch(batch.begun.producer, batch.messages);
        }
        Ok(())
    }

    /// The same as [`Self::place`] for a whole batch.
    fn place_batch(&mut self, producer: Producer, messages: Vec<Message>) {
        let Some((first, _)) = messages.first() else {
            return;
        };
        // What may be refused decides for all: a policy of no meaning, or none where concurrency control wants acks.
        let policies = messages.iter().map(|(view, _)| view.ack_policy);
        let policy = policies
            .filter(|policy| {
                *policy != AckPolicy::Leader as i32 && *policy != AckPolicy::All as i32
            })
            .max_by_key(|policy| AckPolicy::try_from(*policy).is_err())
            .unwrap_or(first.ack_policy);
        match self
            .routes
            .find(&first.stream, first.partition)
            .check(policy, messages.iter().map(|(view, _)| &view.subject))
        {
            Err(Refusal::Paused(_)) => self.parked.extend(messages),
            Err(refusal) => {
                for (view, length) in &messages {
                    self.refuse(view, *length, &refusal);
                }
            }
            Ok(destination) => {
                let mut pending = Pending::new(destination, Some(producer));
                for (view, length) in messages {
                    pending.push(view, length);
                }
                self.pending.push(pending);
            }
        }
    }

    /// Puts a message where it belongs: to its partition, to the refusals, or aside until its partition is resumed.
    fn place(&mut self, view: PublishView, length: usize) {
        match self
            .routes
            .find(&view.stream, view.partition)
            .check(view.ack_policy, [&view.subject])
        {
            Err(Refusal::Paused(_)) => self.parked.push((view, length)),
            Err(refusal) => self.refuse(&view, length, &refusal),
            Ok(destination) => {
                pending_of(&mut self.pending, destination).push(view, length);
            }
        }
    }

    fn refuse(&mut self, view: &PublishView, length: usize, refusal: &Refusal) {
        let errors = &self.context.statistics.publish_errors;
        errors.add(refusal.metric(), 1);
        put_refusal(&mut self.refused, &view.correlation_id, refusal);
        self.refused_cost += length + MESSAGE_COST;
    }

    /// Resumes the partitions of messages that were put aside, and puts these where they belong now. Their order within a
    /// partition stays; nothing else is taken in meanwhile.
    pub(super) async fn resume(&mut self) {
        for _ in 0..RESUMES {
            if self.parked.is_empty() {
                return;
            }
            let failures = self.resume_parked().await;
            self.routes.refresh();
            let mut parked = std::mem::take(&mut self.parked).into_iter();
            while let Some((view, length)) = parked.next() {
                let partition = (view.stream.clone(), view.partition);
                match (failures.get(&partition), view.begun_batch().flatten()) {
                    (Some(refusal), _) => self.refuse(&view, length, refusal),
                    (None, None) => self.place(view, length),
                    (None, Some(begun)) => {
                        // The batch was parked whole, in one piece.
                        let others = parked.by_ref().take(begun.records as usize - 1);
                        let messages = std::iter::once((view, length)).chain(others).collect();
                        self.place_batch(begun.producer, messages);
                    }
                }
            }
        }
        for (view, length) in std::mem::take(&mut self.parked) {
            let refusal = Refusal::Paused(view.partition);
            self.refuse(&view, length, &refusal);
        }
    }

    /// Resumes each partition that is waited for once; why those failed that did.
    async fn resume_parked(&self) -> HashMap<(Bytes, i32), Refusal> {
        let mut asked = HashSet::new();
        let mut failures = HashMap::new();
        for (view, _) in &self.parked {
            let partition = (view.stream.clone(), view.partition);
            if asked.insert(partition.clone())
                && let Err(failure) =
                    resume(&self.context.events, &partition.0, partition.1, None).await
            {
                failures.insert(partition, failure.refusal());
            }
        }
        failures
    }
}

impl OpenBatch {
    fn is_for(&self, view: &PublishView) -> bool {
        self.messages.first().is_some_and(|(first, _)| {
            first.stream == view.stream && first.partition == view.partition
        })
    }
}

impl Pending {
    fn new(destination: &Arc<Destination>, producer: Option<Producer>) -> Self {
        Self {
            producer,
            destination: destination.clone(),
            records: Vec::new(),
            acks: Vec::new(),
            cost: 0,
        }
    }

    fn push(&mut self, view: PublishView, length: usize) {
        let (record, ack) = split(view, length);
        self.records.push(record);
        self.acks.push(ack);
        self.cost += length + MESSAGE_COST;
    }
}

fn broken_batch(reason: &str) -> Status {
    Status::invalid_argument(format!(
        "producerBatch: the batch is not whole when {reason}: send its records one behind the other"
    ))
}

/// The group of a destination, made when there is none. Few partitions are written at once, and mostly the last one again.
fn pending_of<'a>(groups: &'a mut Vec<Pending>, destination: &Arc<Destination>) -> &'a mut Pending {
    let found = groups
        .iter()
        .rposition(|group| Arc::ptr_eq(&group.destination, destination))
        // What came behind a producer's batch stays behind it.
        .filter(|index| {
            groups
                .get(*index)
                .is_some_and(|group| group.producer.is_none())
        });
    let index = found.unwrap_or_else(|| {
        groups.push(Pending::new(destination, None));
        groups.len() - 1
    });
    &mut groups[index]
}
