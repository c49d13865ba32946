//! Records for several partitions of one stream, which are published together.
use crate::partitioner::Partitioner;
use crate::publish_batch::{NewRecord, PublishBatch};
use parking_lot::Mutex;
use std::sync::Arc;

/// Marks a partition without records.
const NOWHERE: u32 = u32::MAX;

/// One [`PublishBatch`] for each partition that has records, and the order in which they came.
#[derive(Debug)]
pub struct Spread {
    stream: String,
    ack_policy: i32,
    in_flight: usize,
    partitioner: Arc<Partitioner>,
    parts: Vec<Arc<Mutex<PublishBatch>>>,
    /// Index into `parts` by partition.
    slots: Vec<u32>,
    /// Index into `parts` by record.
    order: Vec<u32>,
    bytes: usize,
}

/// Offset, timestamp and partition of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Negative until the record is known to be stored.
    pub offset: i64,
    /// When the broker received it, ns since 1970.
    pub timestamp: i64,
    /// Its partition.
    pub partition: i32,
}

impl Spread {
    /// An empty spread. `ack_policy` and `in_flight` as of [`PublishBatch::new`].
    pub fn new(
        stream: &str,
        partitioner: Arc<Partitioner>,
        ack_policy: i32,
        in_flight: usize,
    ) -> Self {
        Self {
            stream: stream.into(),
            ack_policy,
            in_flight,
            parts: Vec::new(),
            slots: vec![NOWHERE; partitioner.partitions().get() as usize],
            partitioner,
            order: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a record; everything is copied. `partition`: which one it goes to; `None` = the partitioner chooses. False, and
    /// nothing was added, when the stream has no such partition.
    pub fn push(&mut self, record: &NewRecord<'_>, partition: Option<u32>) -> bool {
        let bytes = record.value.map_or(0, <[u8]>::len);
        let partition = partition.unwrap_or_else(|| self.partitioner.choose(record.key, bytes));
        let Some(slot) = self.slots.get_mut(partition as usize) else {
            return false;
        };
        if *slot == NOWHERE {
            *slot = self.parts.len() as u32;
            let part = PublishBatch::new(
                &self.stream,
                partition as i32,
                self.ack_policy,
                self.in_flight,
            );
            let part = part.sharing(self.partitioner.partitions().get() as usize);
            self.parts.push(Arc::new(Mutex::new(part)));
        }
        let slot = *slot;
        if let Some(part) = self.parts.get(slot as usize) {
            let mut part = part.lock();
            let before = part.bytes();
            part.push(record);
            self.bytes += part.bytes() - before;
        }
        self.order.push(slot);
        true
    }

    /// The partitioner.
    pub fn partitioner(&self) -> &Arc<Partitioner> {
        &self.partitioner
    }

    /// Records added.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Approximate bytes to send.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The batches, one for each partition that has records.
    pub fn parts(&self) -> &[Arc<Mutex<PublishBatch>>] {
        &self.parts
    }

    /// Partition of record `index`.
    pub fn partition_of(&self, index: usize) -> Option<i32> {
        let part = self.parts.get(*self.order.get(index)? as usize)?;
        Some(part.lock().partition())
    }

    /// Index of record `index` of `partition` among all records.
    pub fn position(&self, partition: u32, index: usize) -> Option<usize> {
        let slot = *self.slots.get(partition as usize)?;
        let of_part = self.order.iter().enumerate().filter(|(_, of)| **of == slot);
        of_part.map(|(position, _)| position).nth(index)
    }

    /// Offset, timestamp and partition of each record, in order; empty for policy NONE.
    pub fn places(&self) -> Vec<Place> {
        let parts: Vec<_> = self.parts.iter().map(|part| part.lock()).collect();
        if parts.iter().any(|part| part.is_unacknowledged()) {
            return Vec::new();
        }
        let mut next: Vec<_> = parts
            .iter()
            .map(|part| (part.partition(), part.places().iter()))
            .collect();
        let place = |slot: &u32| {
            let (partition, places) = next.get_mut(*slot as usize)?;
            // A part that was never sent has no outcomes.
            let (offset, timestamp) = places.next().copied().unwrap_or((-1, 0));
            Some(Place {
                offset,
                timestamp,
                partition: *partition,
            })
        };
        self.order.iter().filter_map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitioner::Rule;
    use std::num::NonZeroU32;

    #[test]
    fn records_keep_their_index_across_partitions() {
        let partitions = NonZeroU32::new(4).unwrap_or(NonZeroU32::MIN);
        let partitioner = Arc::new(Partitioner::new(Rule::RoundRobin, partitions));
        let mut spread = Spread::new("s", partitioner, 0, 100);
        for partition in [None, Some(2), None, Some(2), None] {
            assert!(spread.push(&NewRecord::default(), partition));
        }
        assert!(!spread.push(&NewRecord::default(), Some(4)));
        let size = |part: &Arc<Mutex<PublishBatch>>| {
            let part = part.lock();
            (part.partition(), part.len())
        };
        let sizes: Vec<_> = spread.parts().iter().map(size).collect();
        assert_eq!((spread.len(), sizes), (5, vec![(0, 1), (2, 3), (1, 1)]));
        assert_eq!(spread.position(2, 0), Some(1));
        assert_eq!(spread.position(2, 2), Some(4));
        let partitions = [1, 2, 5].map(|index| spread.partition_of(index));
        assert_eq!(partitions, [Some(2), Some(1), None]);
        assert_eq!((spread.position(2, 3), spread.position(3, 0)), (None, None));
        let bytes: usize = spread.parts().iter().map(|part| part.lock().bytes()).sum();
        assert_eq!(spread.bytes(), bytes);
    }

    #[test]
    fn a_part_that_was_not_sent_does_not_hide_other_offsets() {
        for (policy, wanted) in [(0, vec![(-1, 0), (-1, 1), (-1, 0)]), (2, vec![])] {
            let partitions = NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN);
            let partitioner = Arc::new(Partitioner::new(Rule::RoundRobin, partitions));
            let mut spread = Spread::new("s", partitioner, policy, 100);
            for _ in 0..3 {
                assert!(spread.push(&NewRecord::default(), None));
            }
            for part in spread.parts().iter().skip(1) {
                part.lock().stamp(None);
            }
            let places = spread.places();
            let found: Vec<_> = places.iter().map(|at| (at.offset, at.partition)).collect();
            assert_eq!(found, wanted);
        }
    }
}
