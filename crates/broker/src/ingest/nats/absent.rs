//! Partitions that are paused: nothing is stored for them, and what arrives meanwhile is counted.
use super::context::IngestContext;
use super::losses::{Loss, Losses};
use crate::nats::connections::Unstored;
use crate::partition::Partition;
use std::sync::Arc;

/// Where a paused partition would listen.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its incarnation.
    pub incarnation: u64,
    /// `stream/number`.
    pub name: String,
    /// The NATS subject, with the suffix of its number; empty = none.
    pub subject: String,
    /// Whether what arrives is counted. Not of a stream with a queue group, whose messages go to its other members, nor of one
    /// that acknowledges JetStream publishers, who are to hear from NATS that nobody responds.
    pub counts: bool,
    /// Partition number.
    pub number: u32,
    /// How many partitions share the subject by its hash; 0 = none.
    pub subject_partitions: u32,
}

impl From<&Partition> for Place {
    fn from(partition: &Partition) -> Self {
        let identity = partition.identity();
        Self {
            incarnation: identity.incarnation,
            name: format!("{}/{}", identity.stream, identity.number),
            subject: identity.subject.clone(),
            counts: identity.queue_group.is_empty() && !partition.acknowledges_jetstream(),
            number: identity.number,
            subject_partitions: identity.subject_partitions,
        }
    }
}

/// A paused partition on its route.
pub(crate) struct Absent {
    pub(crate) incarnation: u64,
    place: Place,
    losses: Arc<Losses>,
}

impl Absent {
    pub(crate) fn new(place: Place, losses: Arc<Losses>) -> Self {
        Self {
            incarnation: place.incarnation,
            place,
            losses,
        }
    }

    /// Counts the messages on these subjects that would have been its own; an empty one is the partition's.
    pub(crate) fn miss<'a>(
        &self,
        context: &IngestContext,
        subjects: impl Iterator<Item = &'a [u8]>,
    ) {
        let place = &self.place;
        let is_own = |subject: &&[u8]| {
            let subject = if subject.is_empty() {
                place.subject.as_bytes()
            } else {
                subject
            };
            place.subject_partitions < 2
                || crc32c::crc32c(subject) % place.subject_partitions == place.number
        };
        let messages = subjects.filter(is_own).count() as u64;
        if messages > 0 {
            context.statistics.nats_dropped.add(messages);
            self.losses.add(Loss::Paused, messages);
            let name = format!("{} {}", place.name, Loss::Paused.sentence());
            let reporter = &context.reporter;
            reporter.unstored(Unstored::Partition, messages, name);
        }
    }
}
