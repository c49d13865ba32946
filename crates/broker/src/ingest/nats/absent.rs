//! Paused partitions: their messages are not stored, but counted.
use super::context::IngestContext;
use super::losses::{Loss, Losses};
use crate::nats::connections::Unstored;
use crate::partition::Partition;
use std::sync::Arc;

/// A paused partition and the subject that it would listen on.
#[derive(Clone, Debug)]
pub struct PausedPartition {
    /// Its incarnation.
    pub incarnation: u64,
    /// `stream/number`.
    pub name: String,
    /// The NATS subject, with the suffix of its number; empty = none.
    pub subject: String,
    /// Whether its messages are counted. `false` for a stream with a queue group, because other members of the group get them, and
    /// for a stream that acknowledges JetStream publishers, because NATS answers them that nobody responds.
    pub counts: bool,
    /// Partition number.
    pub number: u32,
    /// How many partitions share the subject by its hash; 0 = none.
    pub subject_partitions: u32,
}

impl From<&Partition> for PausedPartition {
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
    place: PausedPartition,
    losses: Arc<Losses>,
}

impl Absent {
    pub(crate) fn new(place: PausedPartition, losses: Arc<Losses>) -> Self {
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
