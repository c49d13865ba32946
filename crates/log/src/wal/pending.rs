//! What logs have yet to take over from the journal, and which of its files that keeps.
use crate::io::disk::{SyncFile, read_up_to};
use crate::io::storage::StorageFile;
use crate::{Error, Identity, IoOp};
use bascule_record::{Batches, Header};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// A part of a frame of one log: batches, one behind the other, or what is lost of it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The file that holds it.
    pub file: Arc<SyncFile>,
    /// Where the batches begin, or the frame that lost them.
    pub position: u64,
    /// Length of the batches; 0: they are lost.
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

impl Part {
    /// Its batches; empty when they are lost.
    pub fn content(&self) -> Result<Bytes, Error> {
        let content = read(&*self.file.file, self.position, self.len);
        content.map_err(|source| Error::io(IoOp::Read, &self.file.path, source))
    }

    /// Its batches, each with its header.
    pub fn batches(&self) -> Result<impl Iterator<Item = (Header, Bytes)> + use<>, Error> {
        let batches = Batches::new(self.content()?).map_while(Result::ok);
        Ok(batches.filter_map(|batch| Some((Header::read(&batch).ok()?, batch))))
    }

    /// Up to where offsets before `offset`, in this part or before it, were certainly acknowledged.
    pub fn known_before(&self, offset: u64) -> u64 {
        if self.was_acked {
            offset
        } else {
            self.frame_start.min(offset)
        }
    }

    /// Whether only that they are lost is known.
    pub fn is_lost(&self) -> bool {
        self.len == 0
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.file) as usize
    }
}

/// Parts by log, in the order in which they were written.
#[derive(Default)]
pub(crate) struct Pending {
    parts: HashMap<Identity, Vec<Part>>,
    /// How many lie in a file, by its address, which they keep alive.
    uses: HashMap<usize, usize>,
}

impl Pending {
    /// Whether some log has something to take over from the file.
    pub fn is_in(&self, file: &Arc<SyncFile>) -> bool {
        let uses = self.uses.get(&(Arc::as_ptr(file) as usize));
        uses.is_some_and(|uses| *uses > 0)
    }

    /// What a log has to take over; `None` when nothing.
    pub fn take_over(&self, identity: Identity) -> Option<Vec<Part>> {
        self.parts.get(&identity).cloned()
    }

    /// It has.
    pub fn remove(&mut self, identity: Identity) {
        for part in self.parts.remove(&identity).unwrap_or_default() {
            let uses = self.uses.entry(part.address());
            uses.and_modify(|uses| *uses -= 1);
        }
    }

    /// One more, behind the others of its log.
    pub fn add(&mut self, identity: Identity, part: Part) {
        *self.uses.entry(part.address()).or_default() += 1;
        self.parts.entry(identity).or_default().push(part);
    }
}

fn read(file: &dyn StorageFile, position: u64, len: usize) -> std::io::Result<Bytes> {
    let mut content = vec![0; len];
    let read = read_up_to(file, &mut content, position)?;
    content.truncate(read);
    Ok(Bytes::from(content))
}
