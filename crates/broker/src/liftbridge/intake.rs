//! Messages of a PublishAsync call on their way in: framing, checks, and groups by partition.
use super::acks::put_refusal;
use super::frames::{FrameError, FrameReader};
use super::route::{AckContext, Destination, Routes, split};
use crate::partition::IncomingRecord;
use crate::shared::SharedRef;
use bascule_wire::liftbridge::publish::PublishView;
use bytes::Bytes;
use std::sync::Arc;
use tonic::Status;

/// Charged for each message besides its length: its response and bookkeeping, bytes.
pub(super) const MESSAGE_COST: usize = 192;

/// Messages taken in and not yet appended.
pub(super) struct Intake {
    frames: FrameReader,
    routes: Routes,
    pending: Vec<Pending>,
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
    pub(super) fn new(shared: &SharedRef) -> Self {
        Self {
            frames: FrameReader::new(shared.limits.message_bytes),
            routes: Routes::new(shared),
            pending: Vec::new(),
            refused: Vec::new(),
            refused_cost: 0,
        }
    }

    /// Forgets routes of an older view.
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
        let cost = length + MESSAGE_COST;
        let view = PublishView::read(message).ok_or_else(|| {
            Status::internal("grpc: error unmarshalling request: malformed PublishRequest")
        })?;
        match self
            .routes
            .find(&view.stream, view.partition)
            .check(view.ack_policy)
        {
            Err(refusal) => {
                put_refusal(&mut self.refused, &view.correlation_id, &refusal);
                self.refused_cost += cost;
            }
            Ok(destination) => {
                let pending = pending_of(&mut self.pending, destination);
                let (record, ack) = split(view, length);
                pending.records.push(record);
                pending.acks.push(ack);
                pending.cost += cost;
            }
        }
        Ok(())
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
