//! Producers of batches that sessions send: with them a partition recognises a batch that it has stored already.
//!
//! A producer is lent to one send at a time, so a partition knows as many as there were sends to it at once, however many
//! sessions there are. Numbers of batches are counted for each partition, by this broker. The numbers of producers are those of
//! one run of the broker: after a restart others begin.
use bascule_record::Producer;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Partitions that have idle producers; above, all idle ones are forgotten: partitions that are gone stay in no memory.
const MOST_PARTITIONS: usize = 10_000;
/// Where a run's numbers begin is random below this; far from the numbers of sinks.
const NUMBERS: u64 = 1 << 62;

/// Producers that are lent to nobody.
#[derive(Debug)]
pub(crate) struct Producers {
    /// By incarnation of the partition.
    idle: Mutex<HashMap<u64, Vec<Lease>>>,
    last: AtomicU64,
}

/// A producer at one partition, lent until it is given back. One that is dropped instead is never used again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lease {
    incarnation: u64,
    id: u64,
    /// Of the next record.
    sequence: u32,
}

impl Lease {
    /// Whether it is one of this partition.
    pub(super) fn is_of(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation
    }

    /// Whether nothing was stored with it yet.
    pub(super) fn is_new(&self) -> bool {
        self.sequence == 0
    }

    /// What the next batch is sealed with.
    pub(super) fn producer(&self) -> Producer {
        Producer {
            id: self.id,
            epoch: 0,
            base_sequence: self.sequence,
        }
    }
}

impl Default for Producers {
    fn default() -> Self {
        let mut random = [0; 8];
        // Without random numbers the producers of two runs may meet, and the later one draws others when that is noticed.
        let _ = SystemRandom::new().fill(&mut random);
        Self {
            idle: Mutex::default(),
            last: AtomicU64::new(u64::from_le_bytes(random) % NUMBERS),
        }
    }
}

impl Producers {
    /// An idle producer of a partition, or a new one.
    pub(super) fn take(&self, incarnation: u64) -> Lease {
        let idle = self.idle.lock().get_mut(&incarnation).and_then(Vec::pop);
        idle.unwrap_or_else(|| self.create(incarnation))
    }

    /// A producer that no partition knows.
    pub(super) fn create(&self, incarnation: u64) -> Lease {
        Lease {
            incarnation,
            id: self.last.fetch_add(1, Ordering::Relaxed) % NUMBERS + 1,
            sequence: 0,
        }
    }

    /// Takes a producer back with which so many records were stored, 0 = none.
    pub(super) fn give_back(&self, mut lease: Lease, records: u32) {
        lease.sequence = lease.sequence.wrapping_add(records);
        let mut idle = self.idle.lock();
        if idle.len() >= MOST_PARTITIONS && !idle.contains_key(&lease.incarnation) {
            idle.clear();
        }
        idle.entry(lease.incarnation).or_default().push(lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn sends_one_after_the_other_share_a_producer_and_count_for_each_partition() {
        let producers = Producers::default();
        let mut seen = HashSet::new();
        for turn in 0..20_000_u32 {
            let lease = producers.take(7);
            let producer = lease.producer();
            assert_eq!(producer.base_sequence, turn.wrapping_mul(3));
            assert!((1..Producer::FIRST_SINK_ID).contains(&producer.id));
            seen.insert(producer.id);
            producers.give_back(lease, 3);
        }
        assert_eq!(seen.len(), 1);
        assert!(producers.take(8).is_new());
    }

    #[test]
    fn sends_at_once_have_producers_of_their_own_and_a_dropped_one_does_not_return() {
        let producers = Producers::default();
        let dropped = producers.take(7).producer().id;
        let second = producers.take(7);
        assert_ne!(dropped, second.producer().id);
        producers.give_back(second, 1);
        let ids = [producers.take(7), producers.take(7)].map(|lease| lease.producer().id);
        assert!(!ids.contains(&dropped));
    }

    #[test]
    fn idle_producers_of_partitions_are_bounded() {
        let producers = Producers::default();
        for incarnation in 0..MOST_PARTITIONS as u64 + 5 {
            producers.give_back(producers.create(incarnation), 1);
        }
        assert_eq!(producers.idle.lock().len(), 5);
    }
}
