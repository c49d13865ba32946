//! What is staged, in memory: sealed pieces, open calls, and what both count against quotas.
use super::error::StageError;
use super::piece::PieceId;
use super::rules;
use super::table::{Attempt, Sink, SinkTable};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::time::Instant;

/// Least that a piece counts, bytes.
const MIN_BYTES: u64 = 4096;
/// Most staged bytes of a sink whose quota is not set.
const SINK_BYTES: u64 = 8 << 30;
/// Most pieces of a sink.
const SINK_PIECES: u64 = 100_000;

/// What a piece file of so many bytes counts.
pub(super) fn charge(bytes: u64) -> u64 {
    bytes.max(MIN_BYTES)
}

/// A call that is open: the pieces it will seal, and the id of its stream.
pub(super) type CallKey = (PieceId, u64);

/// Guarded by one lock, which is never held while anything waits for the disk.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Bytes of the files of sealed pieces, by incarnation.
    pieces: BTreeMap<u64, BTreeMap<PieceId, u64>>,
    calls: HashSet<CallKey>,
    /// Open calls that have rows for a partition, by incarnation.
    writing: HashMap<u64, usize>,
    usage: HashMap<u64, Usage>,
    total: u64,
    /// When an attempt of a sink last did something.
    touched: HashMap<(u64, Attempt), Instant>,
    /// Partitions that were deleted in this run.
    deleted: HashSet<u64>,
}

/// What one sink has staged here, open calls included.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    bytes: u64,
    pieces: u64,
}

/// What one attempt has staged here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Staged {
    pub idle_ms: u64,
    pub bytes: u64,
    pub pieces: u64,
    pub incarnations: Vec<u64>,
}

impl Index {
    /// Adds a sealed piece that was found at the start.
    pub fn add_found(&mut self, incarnation: u64, id: PieceId, bytes: u64, now: Instant) {
        self.count(id.sink, charge(bytes), 1);
        self.touch(&id, now);
        self.add(incarnation, id, bytes);
    }

    /// Adds a sealed piece, which is counted already.
    pub fn add(&mut self, incarnation: u64, id: PieceId, bytes: u64) {
        let known = self
            .pieces
            .entry(incarnation)
            .or_default()
            .insert(id, bytes);
        debug_assert!(known.is_none(), "a piece is sealed once");
    }

    /// Takes void pieces of these sinks out, of all when there are none given; returns them.
    pub fn take_void(&mut self, table: &SinkTable, sinks: Option<&[u64]>) -> Vec<(u64, PieceId)> {
        let ranges: Vec<_> = match sinks {
            None => vec![(Bound::Unbounded, Bound::Unbounded)],
            Some(sinks) => sinks
                .iter()
                .map(|sink| {
                    let (first, last) = (PieceId::first_of(*sink), PieceId::last_of(*sink));
                    (Bound::Included(first), Bound::Included(last))
                })
                .collect(),
        };
        let mut void = Vec::new();
        for (incarnation, pieces) in &mut self.pieces {
            for range in &ranges {
                let is_void = |id: &PieceId, _: &mut u64| rules::is_void(table, *incarnation, id);
                let taken = pieces.extract_if(*range, is_void);
                void.extend(taken.map(|(id, bytes)| (*incarnation, id, bytes)));
            }
        }
        self.pieces.retain(|_, pieces| !pieces.is_empty());
        for (_, id, bytes) in &void {
            self.release(id.sink, charge(*bytes), 1);
        }
        void.into_iter()
            .map(|(incarnation, id, _)| (incarnation, id))
            .collect()
    }

    /// Forgets the pieces of a partition whose files are gone.
    pub fn forget(&mut self, incarnation: u64) {
        self.deleted.insert(incarnation);
        for (id, bytes) in self.pieces.remove(&incarnation).unwrap_or_default() {
            self.release(id.sink, charge(bytes), 1);
        }
    }

    /// Whether a partition was deleted in this run.
    pub fn is_deleted(&self, incarnation: u64) -> bool {
        self.deleted.contains(&incarnation)
    }

    /// Whether a piece is here.
    pub fn has(&self, incarnation: u64, id: &PieceId) -> bool {
        let pieces = self.pieces.get(&incarnation);
        pieces.is_some_and(|pieces| pieces.contains_key(id))
    }

    /// Pieces of one attempt to write an epoch in a partition, by task, with the bytes of their files.
    pub fn of_attempt(
        &self,
        incarnation: u64,
        sink: u64,
        attempt: Attempt,
    ) -> impl Iterator<Item = (&PieceId, u64)> {
        let first = PieceId {
            sink,
            attempt,
            task: 0,
            task_attempt: 0,
        };
        let last = PieceId {
            task: u32::MAX,
            task_attempt: u64::MAX,
            ..first
        };
        let pieces = self.pieces.get(&incarnation).into_iter();
        pieces
            .flat_map(move |pieces| pieces.range(first..=last))
            .map(|(id, bytes)| (id, *bytes))
    }

    /// Partitions that have pieces.
    pub fn incarnations(&self) -> impl Iterator<Item = u64> {
        self.pieces.keys().copied()
    }

    /// Begins a call; false when the same one is open.
    pub fn begin(&mut self, key: CallKey, now: Instant) -> bool {
        self.touch(&key.0, now);
        self.calls.insert(key)
    }

    /// Open calls.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Ends a call that had rows for `incarnations`.
    pub fn end(&mut self, key: &CallKey, incarnations: impl Iterator<Item = u64>) {
        self.calls.remove(key);
        for incarnation in incarnations {
            if let Some(calls) = self.writing.get_mut(&incarnation) {
                *calls -= 1;
                if *calls == 0 {
                    self.writing.remove(&incarnation);
                }
            }
        }
    }

    /// An open call has its first row for a partition.
    pub fn writes_to(&mut self, incarnation: u64) {
        *self.writing.entry(incarnation).or_default() += 1;
    }

    /// Pieces and open calls of a partition.
    pub fn held(&self, incarnation: u64) -> usize {
        let pieces = self.pieces.get(&incarnation).map_or(0, BTreeMap::len);
        pieces + self.writing.get(&incarnation).copied().unwrap_or(0)
    }

    /// An attempt did something.
    pub fn touch(&mut self, id: &PieceId, now: Instant) {
        self.touched.insert((id.sink, id.attempt), now);
    }

    /// Counts `bytes` and `pieces` more for a sink.
    ///
    /// # Errors
    /// [`StageError::Quota`], [`StageError::Pieces`]; then nothing is counted.
    pub fn reserve(
        &mut self,
        sink: &Sink,
        bytes: u64,
        pieces: u64,
        broker_bytes: u64,
    ) -> Result<(), StageError> {
        let used = self.usage.get(&sink.id).copied().unwrap_or_default();
        let quota = match sink.quota_bytes {
            0 => SINK_BYTES,
            quota => quota,
        };
        let over = |what: String, needed, quota, remedy| StageError::Quota {
            what,
            needed,
            quota,
            remedy,
        };
        let needed = used.bytes.saturating_add(bytes);
        if needed > quota {
            let remedy = "an administrator may raise the sink's quota";
            return Err(over(format!("sink {}", sink.name), needed, quota, remedy));
        }
        let needed = self.total.saturating_add(bytes);
        if needed > broker_bytes {
            let remedy = "give the data directory a larger disk, or write less at once";
            return Err(over("this broker".to_owned(), needed, broker_bytes, remedy));
        }
        if used.pieces + pieces > SINK_PIECES {
            return Err(StageError::Pieces {
                name: sink.name.clone(),
                limit: SINK_PIECES,
            });
        }
        self.count(sink.id, bytes, pieces);
        Ok(())
    }

    fn count(&mut self, sink: u64, bytes: u64, pieces: u64) {
        let usage = self.usage.entry(sink).or_default();
        usage.bytes += bytes;
        usage.pieces += pieces;
        self.total += bytes;
    }

    /// The other way round.
    pub fn release(&mut self, sink: u64, bytes: u64, pieces: u64) {
        if let Some(usage) = self.usage.get_mut(&sink) {
            usage.bytes -= bytes;
            usage.pieces -= pieces;
            if usage.pieces == 0 && usage.bytes == 0 {
                self.usage.remove(&sink);
            }
        }
        self.total -= bytes;
    }

    /// What all sinks count, bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What is staged, by sink and attempt; attempts that only have an open call too.
    pub fn staged(&mut self, now: Instant) -> BTreeMap<(u64, Attempt), Staged> {
        let mut staged: BTreeMap<(u64, Attempt), Staged> = BTreeMap::new();
        for (incarnation, pieces) in &self.pieces {
            for (id, bytes) in pieces {
                let of = staged.entry((id.sink, id.attempt)).or_default();
                of.bytes += bytes;
                of.pieces += 1;
                if of.incarnations.last() != Some(incarnation) {
                    of.incarnations.push(*incarnation);
                }
            }
        }
        for (id, _) in &self.calls {
            staged.entry((id.sink, id.attempt)).or_default();
        }
        self.touched.retain(|key, _| staged.contains_key(key));
        for (key, of) in &mut staged {
            let since = self.touched.get(key).copied().unwrap_or(now);
            let idle = now.saturating_duration_since(since).as_millis();
            of.idle_ms = u64::try_from(idle).unwrap_or(u64::MAX);
        }
        staged
    }
}
