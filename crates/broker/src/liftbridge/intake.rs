//! Messages of a PublishAsync call on their way in: framing, checks, and groups by partition.
use super::acks::put_refusal;
use super::frames::{FrameError, FrameReader};
use super::refusal::Refusal;
use super::resume::resume;
use super::route::{AckContext, Destination, Routes, split};
use crate::partition::IncomingRecord;
use crate::shared::SharedRef;
use crate::tls::Peer;
use bascule_wire::liftbridge::publish::PublishView;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tonic::Status;

/// Charged for each message besides its length: its response and bookkeeping, bytes.
pub(super) const MESSAGE_COST: usize = 192;

/// How often a partition that is paused again at once is resumed.
const RESUMES: usize = 3;

/// Messages taken in and not yet appended.
pub(super) struct Intake {
    frames: FrameReader,
    shared: SharedRef,
    routes: Routes,
    pending: Vec<Pending>,
    /// Messages for paused partitions, with their lengths.
    parked: Vec<(PublishView, usize)>,
    refused: Vec<u8>,
    refused_cost: usize,
}

/// Records of one partition, in order.
pub(super) struct Pending {
    pub(super) destination: Arc<Destination>,
    pub(super) records: Vec<IncomingRecord>,
    pub(super) acks: Vec<AckContext>,
    /// Share of the call's budget, bytes.
    pub(super) cost: usize,
}

impl Intake {
    pub(super) fn new(shared: &SharedRef, peer: &Peer) -> Self {
        Self {
            frames: FrameReader::new(shared.limits.message_bytes),
            shared: shared.clone(),
            routes: Routes::new(shared, peer),
            pending: Vec::new(),
            parked: Vec::new(),
            refused: Vec::new(),
            refused_cost: 0,
        }
    }

    /// Forgets routes of an older view, and of older rights.
    pub(super) fn refresh(&mut self) {
        self.routes.refresh();
    }

    /// Checks that the body did not end inside a message.
    pub(super) fn end(&self) -> Result<(), FrameError> {
        self.frames.end()
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
        let view = PublishView::read(message).ok_or_else(|| {
            Status::internal("grpc: error unmarshalling request: malformed PublishRequest")
        })?;
        self.place(view, length);
        Ok(())
    }

    /// Puts a message where it belongs: to its partition, to the refusals, or aside until its partition is resumed.
    fn place(&mut self, view: PublishView, length: usize) {
        let cost = length + MESSAGE_COST;
        match self
            .routes
            .find(&view.stream, view.partition)
            .check(view.ack_policy)
        {
            Err(Refusal::Paused(_)) => self.parked.push((view, length)),
            Err(refusal) => self.refuse(&view, length, &refusal),
            Ok(destination) => {
                let pending = pending_of(&mut self.pending, destination);
                let (record, ack) = split(view, length);
                pending.records.push(record);
                pending.acks.push(ack);
                pending.cost += cost;
            }
        }
    }

    fn refuse(&mut self, view: &PublishView, length: usize, refusal: &Refusal) {
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
            for (view, length) in std::mem::take(&mut self.parked) {
                let partition = (view.stream.clone(), view.partition);
                match failures.get(&partition) {
                    Some(refusal) => self.refuse(&view, length, refusal),
                    None => self.place(view, length),
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
                && let Err(failure) = resume(&self.shared, &partition.0, partition.1, None).await
            {
                failures.insert(partition, failure.refusal());
            }
        }
        failures
    }
}

/// The group of a destination, made when there is none. Few partitions are written at once, and mostly the last one again.
fn pending_of<'a>(groups: &'a mut Vec<Pending>, destination: &Arc<Destination>) -> &'a mut Pending {
    let found = groups
        .iter()
        .rposition(|group| Arc::ptr_eq(&group.destination, destination));
    let index = found.unwrap_or_else(|| {
        groups.push(Pending {
            destination: destination.clone(),
            records: Vec::new(),
            acks: Vec::new(),
            cost: 0,
        });
        groups.len() - 1
    });
    &mut groups[index]
}
