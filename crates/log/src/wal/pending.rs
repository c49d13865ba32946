//! The chunks of the WAL that logs still have to replay, and the files that hold them.
use crate::io::disk::{SyncFile, read_up_to};
use crate::io::storage::StorageFile;
use crate::{Error, IoOp, LogId};
use bascule_record::{Batches, Header};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// Batches, one after the other.
    Batches,
    /// Lost batches whose offsets are known.
    Lost,
    /// The log was cut at its first offset.
    Cut,
}

/// A part of a frame of one log.
#[derive(Clone, Debug)]
pub(crate) struct ReplayChunk {
    /// Its kind.
    pub kind: ChunkKind,
    /// The file that holds it.
    pub file: Arc<SyncFile>,
    /// Where the batches begin, or else the frame.
    pub position: u64,
    /// Length of the batches, bytes.
    pub len: usize,
    /// First offset.
    pub start: u64,
    /// First offset after them.
    pub end: u64,
    /// Everything below was written in earlier rounds.
    pub frame_start: u64,
    /// The round of the frame was synced.
    pub was_acked: bool,
}

impl ReplayChunk {
    /// Its batches, each with its header.
    pub fn batches(&self) -> Result<impl Iterator<Item = (Header, Bytes)> + use<>, Error> {
        let content = read(&*self.file.file, self.position, self.len);
        let content = content.map_err(|source| Error::io(IoOp::Read, &self.file.path, source))?;
        let batches = Batches::new(content).map_while(Result::ok);
        Ok(batches.filter_map(|batch| Some((Header::read(&batch).ok()?, batch))))
    }

    /// Up to where offsets before `offset`, in this chunk or before it, were certainly acknowledged.
    pub fn known_before(&self, offset: u64) -> u64 {
        if self.was_acked {
            offset
        } else {
            self.frame_start.min(offset)
        }
    }

    /// Returns whether only its offsets are left.
    pub fn is_lost(&self) -> bool {
        self.kind == ChunkKind::Lost
    }
}

/// Chunks by log, in the order in which they were written.
#[derive(Default)]
pub(crate) struct Pending {
    chunks: HashMap<LogId, Vec<ReplayChunk>>,
    /// Number of chunks in a file, by its address: the chunks keep the file alive.
    counts: HashMap<usize, usize>,
}

impl Pending {
    /// Returns whether some log has yet to replay something from the file.
    pub fn is_in(&self, file: &Arc<SyncFile>) -> bool {
        let count = self.counts.get(&address(file));
        count.is_some_and(|count| *count > 0)
    }

    /// The chunks of a log; `None` when there are none.
    pub fn of(&self, log: LogId) -> Option<&[ReplayChunk]> {
        self.chunks.get(&log).map(Vec::as_slice)
    }

    /// The log has replayed its chunks.
    pub fn remove(&mut self, log: LogId) {
        for chunk in self.chunks.remove(&log).unwrap_or_default() {
            let count = self.counts.entry(address(&chunk.file));
            count.and_modify(|count| *count -= 1);
        }
    }

    /// Adds one after the others of its log.
    pub fn add(&mut self, log: LogId, chunk: ReplayChunk) {
        *self.counts.entry(address(&chunk.file)).or_default() += 1;
        self.chunks.entry(log).or_default().push(chunk);
    }
}

fn address(file: &Arc<SyncFile>) -> usize {
    Arc::as_ptr(file) as usize
}

fn read(file: &dyn StorageFile, position: u64, len: usize) -> std::io::Result<Bytes> {
    let mut content = vec![0; len];
    let read = read_up_to(file, &mut content, position)?;
    content.truncate(read);
    Ok(Bytes::from(content))
}
