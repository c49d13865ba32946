//! The last batches of idempotent producers, so that a retry is answered instead of stored again.
//!
//! A producer is known while its last batch is retained, and never forgotten within [`KEPT_NS`] of it. At most
//! [`MAX_PRODUCERS`] are known. Beyond that, the producer with the oldest last batch is forgotten if it is old enough;
//! otherwise a new producer is refused for the time being. The state depends only on the log and its timestamps, so every
//! run and every replica has the same one.
//!
//! Producers from 2^63 on are those of sinks: a link counts what it stored in the log itself ([`crate::LogReader::produced`]), so
//! that their batches are neither kept here nor make others be forgotten.
//!
//! Sequences count records and wrap at 2^32. A batch that compaction rewrote counts with its span, the number of records that
//! it had.
//!
//! The `producers` file is the state at the start of a segment; later batches are read from their headers. Its
//! bytes are in `specs/formats/segment.md`.
use crate::LogId;
use crate::io::fields::{i64_at, seal, u32_at, u64_at, unseal};
use bascule_record::{Header, Producer};
use std::collections::{BTreeMap, HashMap};

/// Producers remembered per partition.
pub(crate) const MAX_PRODUCERS: usize = 10_000;
/// No producer is forgotten so soon after its last batch, ns: 15 minutes (reliability P4).
pub(crate) const KEPT_NS: i64 = 15 * 60 * 1_000_000_000;
/// Batches remembered per producer: the window within which a repeated send is recognised.
const WINDOW: usize = 5;
const MAGIC: [u8; 4] = *b"BSCP";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
const BATCH_BYTES: usize = 24;

/// Where an append landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: u64,
    /// First offset after the batch.
    pub next_offset: u64,
    /// Timestamp of the first record as stored, ns.
    pub base_timestamp: i64,
}

/// A producer's batch that is neither new nor a known duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// The sequence does not follow the last one.
    #[error("sequence {got} does not follow: {expected} is next")]
    Gap {
        /// The expected sequence.
        expected: u32,
        /// The received value.
        got: u32,
    },
    /// A newer generation of this producer exists.
    #[error("producer epoch {got} is fenced by {current}")]
    Fenced {
        /// The newest epoch seen.
        current: u32,
        /// The received value.
        got: u32,
    },
    /// The maximum number of producers is known and none has been silent for 15 minutes. Try again later.
    #[error("{limit} producers appended within 15 minutes; another one is refused for now")]
    TooMany {
        /// The maximum.
        limit: usize,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    base_sequence: u32,
    count: u32,
    base_offset: u64,
    base_timestamp: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    epoch: u32,
    /// Oldest first; never empty.
    sent: Vec<Sent>,
}

impl State {
    fn last_offset(&self) -> u64 {
        self.sent.last().map_or(0, |sent| sent.base_offset)
    }

    /// Timestamp of the first record of the last batch.
    fn last_heard(&self) -> i64 {
        self.sent
            .last()
            .map_or(i64::MIN, |sent| sent.base_timestamp)
    }

    fn expected(&self) -> u32 {
        self.sent
            .last()
            .map_or(0, |sent| sent.base_sequence.wrapping_add(sent.count))
    }
}

/// The producers of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    by_id: HashMap<u64, State>,
    by_offset: BTreeMap<u64, u64>,
}

impl Producers {
    /// How many are known.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a stored batch; see [`Producers::add`].
    pub fn note(&mut self, header: &Header) {
        if let Some(producer) = header.producer {
            // The span is the number of records before compaction removed some.
            self.add(
                producer,
                header.span,
                header.base_offset,
                header.base_timestamp,
            );
        }
    }

    /// Adds a stored batch of `count` records. Batches come in the order of offsets and times. Those of sinks are not kept.
    pub fn add(&mut self, producer: Producer, count: u32, base_offset: u64, base_timestamp: i64) {
        if producer.id >= Producer::FIRST_SINK_ID {
            return;
        }
        let state = self.by_id.entry(producer.id).or_insert_with(|| State {
            epoch: producer.epoch,
            sent: Vec::with_capacity(WINDOW),
        });
        if !state.sent.is_empty() {
            self.by_offset.remove(&state.last_offset());
        }
        if state.epoch != producer.epoch {
            state.epoch = producer.epoch;
            state.sent.clear();
        }
        if state.sent.len() == WINDOW {
            state.sent.remove(0);
        }
        state.sent.push(Sent {
            base_sequence: producer.base_sequence,
            count,
            base_offset,
            base_timestamp,
        });
        self.by_offset.insert(base_offset, producer.id);
        while self.by_id.len() > MAX_PRODUCERS && self.forget_oldest(base_timestamp, u64::MAX) {}
    }

    /// Forgets producers whose last batch lies below `log_start` and is old enough at `now_ns`.
    pub fn forget_removed(&mut self, log_start: u64, now_ns: i64) {
        while self.forget_oldest(now_ns, log_start) {}
    }

    /// Forgets the producer whose last batch is oldest, if that lies below `end` and is old enough at `now_ns`.
    fn forget_oldest(&mut self, now_ns: i64, end: u64) -> bool {
        let Some(oldest) = self.by_offset.first_entry() else {
            return false;
        };
        let forgets = *oldest.key() < end && is_old(self.by_id.get(oldest.get()), now_ns);
        if forgets {
            let id = oldest.remove();
            self.by_id.remove(&id);
        }
        forgets
    }

    /// Whether one more producer may become known at `now_ns`.
    fn has_room(&self, now_ns: i64) -> bool {
        self.by_id.len() < MAX_PRODUCERS
            || self
                .by_offset
                .first_key_value()
                .is_some_and(|(_, id)| is_old(self.by_id.get(id), now_ns))
    }

    /// See [`crate::Log::find_duplicate`].
    pub fn find(
        &self,
        producer: Producer,
        count: u32,
        now_ns: i64,
    ) -> Option<Result<Appended, SequenceError>> {
        if producer.id >= Producer::FIRST_SINK_ID {
            return None;
        }
        let Some(state) = self.by_id.get(&producer.id) else {
            return (!self.has_room(now_ns)).then_some(Err(SequenceError::TooMany {
                limit: MAX_PRODUCERS,
            }));
        };
        if producer.epoch < state.epoch {
            return Some(Err(SequenceError::Fenced {
                current: state.epoch,
                got: producer.epoch,
            }));
        }
        let expected = if producer.epoch > state.epoch {
            0
        } else {
            state.expected()
        };
        if producer.base_sequence == expected {
            return None;
        }
        let same =
            |sent: &&Sent| sent.base_sequence == producer.base_sequence && sent.count == count;
        let known = state
            .sent
            .iter()
            .find(same)
            .filter(|_| producer.epoch == state.epoch);
        Some(known.map_or(
            Err(SequenceError::Gap {
                expected,
                got: producer.base_sequence,
            }),
            |sent| {
                Ok(Appended {
                    base_offset: sent.base_offset,
                    next_offset: sent.base_offset + u64::from(sent.count),
                    base_timestamp: sent.base_timestamp,
                })
            },
        ))
    }

    /// A copy without batches at `end` or above.
    pub fn only_below(&self, end: u64) -> Self {
        let mut kept = Self::default();
        for (id, state) in self
            .by_offset
            .values()
            .filter_map(|id| self.by_id.get_key_value(id))
        {
            for sent in state.sent.iter().filter(|sent| sent.base_offset < end) {
                let producer = Producer {
                    id: *id,
                    epoch: state.epoch,
                    base_sequence: sent.base_sequence,
                };
                kept.add(producer, sent.count, sent.base_offset, sent.base_timestamp);
            }
        }
        kept
    }

    /// The bytes of a `producers` file that includes every batch below `offset`.
    pub fn to_bytes(&self, identity: LogId, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.by_id.len() * (16 + BATCH_BYTES));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&identity.incarnation.to_le_bytes());
        out.extend_from_slice(&identity.partition.to_le_bytes());
        out.extend_from_slice(&(self.by_id.len() as u32).to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        for (id, state) in self
            .by_offset
            .values()
            .filter_map(|id| self.by_id.get_key_value(id))
        {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&state.epoch.to_le_bytes());
            out.extend_from_slice(&(state.sent.len() as u32).to_le_bytes());
            for sent in &state.sent {
                out.extend_from_slice(&sent.base_sequence.to_le_bytes());
                out.extend_from_slice(&sent.count.to_le_bytes());
                out.extend_from_slice(&sent.base_offset.to_le_bytes());
                out.extend_from_slice(&sent.base_timestamp.to_le_bytes());
            }
        }
        seal(&mut out);
        out
    }

    /// Reads a `producers` file: the state and its end offset. `None` when it is damaged, of another log, or inconsistent: a
    /// producer twice or without batches, batches out of order or behind the end offset, or two last batches at one offset.
    pub fn read(bytes: &[u8], identity: LogId) -> Option<(Self, u64)> {
        let body = unseal(bytes)?;
        let ours = body.get(..4)? == MAGIC
            && u32_at(body, 4)? == VERSION
            && u64_at(body, 8)? == identity.incarnation
            && u32_at(body, 16)? == identity.partition;
        if !ours {
            return None;
        }
        let mut producers = Self::default();
        let offset = u64_at(body, 24)?;
        let mut at = HEAD_BYTES;
        let mut last = None;
        for _ in 0..u32_at(body, 20)? {
            let (id, epoch) = (u64_at(body, at)?, u32_at(body, at + 8)?);
            let batches = u32_at(body, at + 12)? as usize;
            if !(1..=WINDOW).contains(&batches) || producers.by_id.contains_key(&id) {
                return None;
            }
            at += 16;
            let mut before = None;
            for _ in 0..batches {
                let producer = Producer {
                    id,
                    epoch,
                    base_sequence: u32_at(body, at)?,
                };
                let (count, base_offset) = (u32_at(body, at + 4)?, u64_at(body, at + 8)?);
                let ordered = before.replace(base_offset) < Some(base_offset);
                if !ordered
                    || base_offset.checked_add(u64::from(count))? > offset
                    || producers.is_last_of_another(id, base_offset)
                {
                    return None;
                }
                producers.add(producer, count, base_offset, i64_at(body, at + 16)?);
                at += BATCH_BYTES;
            }
            // Producers are in the order of their last batches.
            if last >= before {
                return None;
            }
            last = before;
        }
        Some((producers, offset))
    }

    /// Whether the last batch of a producer other than `id` begins at `base_offset`.
    fn is_last_of_another(&self, id: u64, base_offset: u64) -> bool {
        self.by_offset
            .get(&base_offset)
            .is_some_and(|&known| known != id)
    }
}

/// Whether a producer was last heard long enough before `now_ns` to be forgotten.
fn is_old(state: Option<&State>, now_ns: i64) -> bool {
    state.is_none_or(|state| now_ns.saturating_sub(state.last_heard()) >= KEPT_NS)
}
