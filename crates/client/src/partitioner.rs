//! Chooses the partition of a record whose publisher names none.
use bascule_wire::partitioning::partition_of_key;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;

/// Records without a key stay with one partition for so many records or bytes, whichever is reached first: batches are
/// then large, and each partition gets its share all the same.
const STICKY_RECORDS: u32 = 1024;
const STICKY_BYTES: usize = 64 << 10;

/// How a partition is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// By CRC-32 of the key, as other Liftbridge clients do; without a key sticky.
    Key,
    /// One after the other, from 0, whatever the key is.
    RoundRobin,
}

/// Chooses partitions of one stream. Safe to share between threads.
#[derive(Debug)]
pub struct Partitioner {
    rule: Rule,
    partitions: NonZeroU32,
    turn: Mutex<Turn>,
}

#[derive(Debug)]
struct Turn {
    partition: u32,
    records: u32,
    bytes: usize,
}

impl Partitioner {
    /// For a stream of `partitions` partitions.
    pub fn new(rule: Rule, partitions: NonZeroU32) -> Self {
        // Publishers that start together do not all begin with the same partition.
        let start = match rule {
            Rule::Key => RandomState::new().hash_one(0) as u32 % partitions,
            Rule::RoundRobin => 0,
        };
        Self {
            rule,
            partitions,
            turn: Mutex::new(Turn {
                partition: start,
                records: 0,
                bytes: 0,
            }),
        }
    }

    /// Partitions of the stream.
    pub fn partitions(&self) -> NonZeroU32 {
        self.partitions
    }

    /// Partition of the next record. `bytes`: length of its value. An empty key is none.
    pub fn choose(&self, key: &[u8], bytes: usize) -> u32 {
        if self.partitions.get() == 1 {
            return 0;
        }
        match self.rule {
            Rule::Key if !key.is_empty() => partition_of_key(key, self.partitions),
            Rule::Key => self.take_turn(bytes, STICKY_RECORDS, STICKY_BYTES),
            Rule::RoundRobin => self.take_turn(bytes, 1, usize::MAX),
        }
    }

    fn take_turn(&self, bytes: usize, most_records: u32, most_bytes: usize) -> u32 {
        let mut turn = self.turn.lock();
        let partition = turn.partition;
        turn.records += 1;
        turn.bytes = turn.bytes.saturating_add(bytes);
        if turn.records >= most_records || turn.bytes >= most_bytes {
            *turn = Turn {
                partition: (partition + 1) % self.partitions,
                records: 0,
                bytes: 0,
            };
        }
        partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitioner(rule: Rule, partitions: u32) -> Partitioner {
        Partitioner::new(rule, NonZeroU32::new(partitions).unwrap_or(NonZeroU32::MIN))
    }

    #[test]
    fn a_key_always_goes_to_the_partition_of_its_hash() {
        let chosen = partitioner(Rule::Key, 5);
        for _ in 0..3 {
            assert_eq!(chosen.choose(b"123456789", 1), 0xCBF4_3926 % 5);
        }
    }

    #[test]
    fn records_without_a_key_stay_for_a_while_and_reach_every_partition() {
        let chosen = partitioner(Rule::Key, 3);
        let numbers: Vec<u32> = (0..3 * STICKY_RECORDS)
            .map(|_| chosen.choose(b"", 1))
            .collect();
        let runs: Vec<&[u32]> = numbers.chunk_by(|a, b| a == b).collect();
        assert_eq!(runs.len(), 3);
        assert!(runs.iter().all(|run| run.len() == STICKY_RECORDS as usize));
        let large = partitioner(Rule::Key, 3);
        assert_ne!(
            large.choose(b"", STICKY_BYTES),
            large.choose(b"", STICKY_BYTES)
        );
    }

    #[test]
    fn round_robin_starts_at_the_first_and_ignores_keys() {
        let chosen = partitioner(Rule::RoundRobin, 3);
        let numbers: Vec<u32> = (0..7).map(|_| chosen.choose(b"k", 1)).collect();
        assert_eq!(numbers, [0, 1, 2, 0, 1, 2, 0]);
    }
}
