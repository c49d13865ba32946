//! The index snapshot of a log: the index and the producers up to a synced position in its active segment.
//!
//! With a snapshot, recovery scans the active segment from that position on; without one, from its beginning. The file
//! `landmark` is replaced as a whole (temporary file, rename) and not synced: it describes only what was synced before it
//! was written, so whichever version a crash leaves is true. It is trusted when its checksum matches, it describes the last
//! segment, that segment is long enough, and the batch before the position is the one it names: the link of that batch
//! commits to the whole history before it. Otherwise it counts as absent. Its bytes are in `specs/formats/segment.md`.
use crate::io::disk;
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use crate::io::storage::Storage;
use crate::segment::Segment;
use crate::segment::index::{self, SparseIndex, Summary};
use crate::segment::preamble::PREAMBLE_BYTES;
use crate::segment::scan::LogPosition;
use crate::segment::segment_file::SegmentFile;
use crate::state::producers::Producers;
use crate::state::shared::Shared;
use crate::{Error, LogId};
use bascule_record::{HEADER_BYTES, Header};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the file.
pub(crate) const INDEX_SNAPSHOT: &str = "landmark";
const MAGIC: [u8; 4] = *b"BSCL";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 24;
/// Bytes of a producer in the file, about.
pub(crate) const PRODUCER_BYTES: u64 = 136;

/// A trusted index snapshot.
#[derive(Debug)]
pub(crate) struct IndexSnapshot {
    /// The segment up to the snapshot position.
    pub summary: Summary,
    /// Its index up to there, with room for the rest of the segment.
    pub index: SparseIndex,
    /// Position of the last batch before the snapshot position.
    pub last_batch: u64,
    /// The producers with every batch up to the snapshot position.
    pub producers: Producers,
}

impl IndexSnapshot {
    /// The index snapshot of the last of `sources`, if there is a trusted one. `segment_bytes`: size of the segment that the index
    /// has room for.
    pub fn find(
        storage: &dyn Storage,
        directory: &Path,
        identity: LogId,
        sources: &[SegmentFile],
        segment_bytes: u64,
    ) -> Option<Self> {
        let source = sources.last().filter(|last| last.preamble.is_some())?;
        let bytes = disk::read(storage, &directory.join(INDEX_SNAPSHOT)).ok()?;
        let room = segment_bytes.max(source.len);
        let snapshot = read(&bytes, identity, source.base_offset, room)?;
        snapshot
            .names_batch_in(source, identity)
            .then_some(snapshot)
    }

    /// First offset after the snapshot.
    pub fn end_offset(&self) -> u64 {
        self.summary.next_offset
    }

    /// The snapshot position, and what the next batch must carry.
    pub fn place(&self) -> LogPosition {
        LogPosition {
            position: self.summary.end,
            offset: self.summary.next_offset,
            chain: Some(self.summary.chain),
            epoch: self.summary.epoch,
            previous_batch: Some(self.last_batch),
        }
    }

    /// Returns whether the file still has the batch before the snapshot position.
    fn names_batch_in(&self, source: &SegmentFile, identity: LogId) -> bool {
        let summary = &self.summary;
        if summary.end > source.len || self.last_batch < PREAMBLE_BYTES {
            return false;
        }
        let mut head = [0; HEADER_BYTES];
        let read = disk::read_up_to(&*source.file, &mut head, self.last_batch);
        let header = read.ok().and_then(|_| Header::read(&head).ok());
        header.is_some_and(|header| {
            header.incarnation == identity.incarnation
                && header.partition == identity.partition
                && header.link() == summary.chain
                && header.leader_epoch == summary.epoch
                && header.next_offset() == summary.next_offset
                && self.last_batch + header.batch_bytes() as u64 == summary.end
        })
    }
}

/// Reads the file; `None` when it is damaged, of another version or of another segment. `room`: length of the segment
/// that the index has room for.
fn read(bytes: &[u8], identity: LogId, base_offset: u64, room: u64) -> Option<IndexSnapshot> {
    let body = unseal(bytes)?;
    if body.get(..4)? != MAGIC || u32_at(body, 4)? != VERSION {
        return None;
    }
    let parts = body.get(HEAD_BYTES..)?;
    let (described, producers) = parts.split_at_checked(u32_at(body, 16)? as usize)?;
    if producers.len() != u32_at(body, 20)? as usize {
        return None;
    }
    let (summary, index) = index::read_with_room(described, identity, base_offset, room)?;
    let (producers, to) = Producers::read(producers, identity)?;
    (to == summary.next_offset).then_some(IndexSnapshot {
        summary,
        index,
        last_batch: u64_at(body, 8)?,
        producers,
    })
}

/// The state of a log when its checkpoint was requested. It becomes the index snapshot once all of it is synced.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// The active segment of that time.
    pub segment: Arc<Segment>,
    /// The summary of its batches then.
    pub summary: Summary,
    /// Entries its index had.
    pub entries: usize,
    /// Position of its last batch.
    pub last_batch: u64,
    /// The bytes of a `producers` file.
    pub producers: Vec<u8>,
    pub written: AtomicBool,
}

impl Candidate {
    /// The bytes of the index snapshot.
    pub fn to_bytes(&self, identity: LogId) -> Vec<u8> {
        let index = self.segment.index();
        let described = index::first_to_bytes(identity, &self.summary, index, self.entries);
        let mut out = Vec::with_capacity(HEAD_BYTES + described.len() + self.producers.len() + 4);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.last_batch.to_le_bytes());
        out.extend_from_slice(&(described.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.producers.len() as u32).to_le_bytes());
        out.extend_from_slice(&described);
        out.extend_from_slice(&self.producers);
        seal(&mut out);
        out
    }

    /// Replaces the index snapshot, without a sync, once everything below it is synced in the segments.
    pub fn write_if_synced(&self, storage: &dyn Storage, shared: &Shared) -> Result<(), Error> {
        if self.is_written() || shared.segment_synced_end() < self.summary.next_offset {
            return Ok(());
        }
        let _deletes = shared.pending_deletes.lock();
        if shared.is_closed() {
            return Ok(());
        }
        let path = shared.directory.join(INDEX_SNAPSHOT);
        let temporary = path.with_extension("tmp");
        disk::write(storage, &temporary, &self.to_bytes(shared.identity))?;
        disk::rename(storage, &temporary, &path)?;
        self.written.store(true, Ordering::Release);
        Ok(())
    }

    pub fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }
}

/// State of the writer of a log between two index snapshots.
#[derive(Debug, Default)]
pub(crate) struct SnapshotState {
    /// A candidate that is not written yet.
    pub pending: Option<Arc<Candidate>>,
    /// Base offset of the segment of the last candidate, and where that ended.
    pub covered_to: (u64, u64),
    /// Where the active segment ended at the last checkpoint.
    pub end_at_checkpoint: u64,
}

impl SnapshotState {
    /// The state after recovery from an index snapshot that ends here.
    pub fn up_to(base_offset: u64, end: u64) -> Self {
        Self {
            pending: None,
            covered_to: (base_offset, end),
            end_at_checkpoint: end,
        }
    }

    /// Bytes of batches in the active segment after the last candidate.
    pub fn bytes_since(&self, active: &Segment) -> u64 {
        let (base_offset, end) = self.covered_to;
        let snapshot_end = (base_offset == active.base_offset).then_some(end);
        active.end() - snapshot_end.unwrap_or(PREAMBLE_BYTES)
    }
}
