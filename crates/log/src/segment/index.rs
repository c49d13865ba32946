//! The sparse index of a segment: about one entry per 64 KiB, for look-ups by offset and by time.
//!
//! In memory it grows without locks: one writer appends, readers see whole entries. On disk (`.idx`, written when a
//! segment is sealed and at a clean close, checksummed as a whole) it also carries the segment's summary; its bytes are in
//! `specs/formats/segment.md`.
//!
//! An entry names the beginning of a batch. Its time is the largest timestamp of the segment *before* that batch, as
//! ns after the first timestamp (the first entry: 0).
use crate::LogId;
use crate::io::fields::{i64_at, seal, u32_at, u64_at, unseal};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of batches between two entries, at least.
pub(crate) const INDEX_INTERVAL: u64 = 64 << 10;
const MAGIC: [u8; 4] = *b"BSCI";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 88;
const ENTRY_BYTES: usize = 16;
const CHUNK: usize = 64;

/// The beginning of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Its base offset.
    pub offset: u64,
    /// Its position in the file.
    pub position: u64,
    /// No record of the segment before it is later than this, ns.
    pub time_before: i64,
}

type Chunk = Box<[OnceLock<IndexEntry>]>;

/// Entries in order of position. One thread appends, any number of threads look up.
#[derive(Debug)]
pub(crate) struct SparseIndex {
    chunks: Box<[OnceLock<Chunk>]>,
    len: AtomicUsize,
}

impl SparseIndex {
    /// Room for a segment of about `segment_bytes`; entries beyond it are not kept, which only makes look-ups slower.
    pub fn with_room(segment_bytes: u64) -> Self {
        let entries = (segment_bytes / INDEX_INTERVAL) as usize + 1;
        Self {
            chunks: (0..entries.div_ceil(CHUNK))
                .map(|_| OnceLock::new())
                .collect(),
            len: AtomicUsize::new(0),
        }
    }

    /// Appends an entry; only the writer of the segment may call it.
    pub fn push(&self, entry: IndexEntry) {
        let at = self.len.load(Ordering::Relaxed);
        let Some(chunk) = self.chunks.get(at / CHUNK) else {
            return;
        };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        if let Some(slot) = chunk.get(at % CHUNK)
            && slot.set(entry).is_ok()
        {
            self.len.store(at + 1, Ordering::Release);
        }
    }

    /// Entries so far.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Entry `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<IndexEntry> {
        self.chunks
            .get(i / CHUNK)?
            .get()?
            .get(i % CHUNK)?
            .get()
            .copied()
    }

    /// Last entry at or before `offset`.
    pub fn floor(&self, offset: u64) -> Option<IndexEntry> {
        self.last_where(|entry| entry.offset <= offset)
    }

    /// Last entry before which every record is earlier than `timestamp`.
    pub fn floor_time(&self, timestamp: i64) -> Option<IndexEntry> {
        self.last_where(|entry| entry.time_before < timestamp)
    }

    /// Last entry for which `holds`, which must be true for a prefix only.
    fn last_where(&self, holds: impl Fn(&IndexEntry) -> bool) -> Option<IndexEntry> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(|entry| holds(&entry)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.get(low.checked_sub(1)?)
    }
}

/// The summary of a segment in its index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Link of the last batch.
    pub chain: u32,
    /// First offset of the segment.
    pub base_offset: u64,
    /// First offset after it.
    pub next_offset: u64,
    /// Position after the last batch.
    pub end: u64,
    /// Records inside.
    pub records: u64,
    /// Timestamp of the first record, `i64::MIN` = none.
    pub first_timestamp: i64,
    /// Latest timestamp up to the end of the segment, `i64::MIN` = none.
    pub last_timestamp: i64,
    /// Leader epoch of the last batch.
    pub epoch: u64,
}

/// The bytes of an `.idx` file.
pub(crate) fn to_bytes(identity: LogId, summary: &Summary, index: &SparseIndex) -> Vec<u8> {
    first_to_bytes(identity, summary, index, index.len())
}

/// As [`to_bytes`], with at most the first `entries` entries.
pub(crate) fn first_to_bytes(
    identity: LogId,
    summary: &Summary,
    index: &SparseIndex,
    entries: usize,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + entries * ENTRY_BYTES + 4);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&identity.incarnation.to_le_bytes());
    out.extend_from_slice(&identity.partition.to_le_bytes());
    out.extend_from_slice(&summary.chain.to_le_bytes());
    out.extend_from_slice(&summary.base_offset.to_le_bytes());
    out.extend_from_slice(&summary.next_offset.to_le_bytes());
    out.extend_from_slice(&summary.end.to_le_bytes());
    out.extend_from_slice(&summary.records.to_le_bytes());
    out.extend_from_slice(&summary.first_timestamp.to_le_bytes());
    out.extend_from_slice(&summary.last_timestamp.to_le_bytes());
    out.extend_from_slice(&summary.epoch.to_le_bytes());
    out.extend_from_slice(&(entries as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for entry in (0..entries).filter_map(|i| index.get(i)) {
        let offset = entry.offset.saturating_sub(summary.base_offset) as u32;
        let time = entry
            .time_before
            .saturating_sub(summary.first_timestamp)
            .max(0) as u64;
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&(entry.position as u32).to_le_bytes());
        out.extend_from_slice(&time.to_le_bytes());
    }
    seal(&mut out);
    out
}

/// Reads an `.idx` file; `None` when it is damaged, of another version or of another segment.
pub(crate) fn read(
    bytes: &[u8],
    identity: LogId,
    base_offset: u64,
) -> Option<(Summary, SparseIndex)> {
    read_with_room(bytes, identity, base_offset, 0)
}

/// As [`read`], with room in the index for a segment of `segment_bytes`.
pub(crate) fn read_with_room(
    bytes: &[u8],
    identity: LogId,
    base_offset: u64,
    segment_bytes: u64,
) -> Option<(Summary, SparseIndex)> {
    let body = unseal(bytes)?;
    let ours = body.get(..4)? == MAGIC
        && u32_at(body, 4)? == VERSION
        && u64_at(body, 8)? == identity.incarnation
        && u32_at(body, 16)? == identity.partition
        && u64_at(body, 24)? == base_offset;
    if !ours {
        return None;
    }
    let summary = Summary {
        chain: u32_at(body, 20)?,
        base_offset,
        next_offset: u64_at(body, 32)?,
        end: u64_at(body, 40)?,
        records: u64_at(body, 48)?,
        first_timestamp: i64_at(body, 56)?,
        last_timestamp: i64_at(body, 64)?,
        epoch: u64_at(body, 72)?,
    };
    let entries = body.get(HEAD_BYTES..)?;
    if entries.len() != u32_at(body, 80)? as usize * ENTRY_BYTES {
        return None;
    }
    let room = (entries.len() / ENTRY_BYTES) as u64 * INDEX_INTERVAL;
    let index = SparseIndex::with_room(room.max(segment_bytes));
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let time = i64::try_from(u64_at(entry, 8)?).ok()?;
        index.push(IndexEntry {
            offset: base_offset.checked_add(u64::from(u32_at(entry, 0)?))?,
            position: u64::from(u32_at(entry, 4)?),
            time_before: summary.first_timestamp.saturating_add(time),
        });
    }
    Some((summary, index))
}
