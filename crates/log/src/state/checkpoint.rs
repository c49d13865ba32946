//! The `checkpoint` file: high watermark, log start, durable point, in two slots (`specs/formats/segment.md`).
//!
//! The slots are those of [`crate::io::slots`]. All values are lower bounds: an old checkpoint costs a longer scan, nothing
//! else. It is written to the page cache; the log start is also synced before files are removed. So the slots alternate only
//! after a sync. An open syncs the file before it reads it, so that it reads what the disk holds.
use crate::io::disk::SyncFile;
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use crate::io::slots::{self, FIRST_SLOT, SLOT_DISTANCE, Slots};
use crate::io::storage::{OpenMode, Storage, StorageFile};
use crate::{Error, IoOp, LogId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file.
pub(crate) const CHECKPOINT: &str = "checkpoint";
const MAGIC: [u8; 4] = *b"BSCC";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 64;
const CLEAN: u32 = 1;

/// The fields of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// End of committed records, exclusive.
    pub high_watermark: u64,
    /// First readable offset.
    pub log_start: u64,
    /// Everything below was synced.
    pub durable: u64,
    /// The log was closed after this checkpoint.
    pub clean: bool,
}

/// The file, with what was written last.
#[derive(Debug)]
pub(crate) struct CheckpointFile {
    path: PathBuf,
    /// Open from a write until it is synced or released.
    handle: Option<Arc<SyncFile>>,
    identity: LogId,
    sequence: u64,
    last: Option<Checkpoint>,
    /// The slot of `last`.
    slot: u64,
    /// The slot that survives a power cut; `None` before the first sync of a new file.
    synced: Option<u64>,
    /// A slot fails its checksum.
    is_doubtful: bool,
}

impl CheckpointFile {
    /// Opens or creates `<directory>/checkpoint`, syncs it and reads the newer valid slot, if any.
    pub fn open(storage: &dyn Storage, directory: &Path, identity: LogId) -> Result<Self, Error> {
        let path = directory.join(CHECKPOINT);
        let target = SyncFile::open(storage, &path, OpenMode::Create)?;
        let file = &*target.file;
        slots::reserve(file, SLOT_BYTES).map_err(|source| Error::io(IoOp::Write, &path, source))?;
        let failed = |operation| {
            let path = &path;
            move |source| Error::io(operation, path, source)
        };
        // An earlier run may have been killed before its sync, or have ended after a failed one: then the page cache shows
        // what the disk does not have.
        file.forget_cached(0).map_err(failed(IoOp::Sync))?;
        let slots = read(file, identity).map_err(failed(IoOp::Read))?;
        Ok(Self {
            identity,
            sequence: slots.sequence,
            slot: slots.newest.unwrap_or_default(),
            synced: slots.newest,
            last: slots.last,
            is_doubtful: slots.is_damaged,
            handle: Some(target),
            path,
        })
    }

    /// Raises the log start to the first segment when a slot is damaged: the damaged slot may be the newer one, and segments
    /// that retention removed since are not missing.
    pub fn raise_log_start(&mut self, first_offset: u64) {
        if let Some(last) = self.last.as_mut().filter(|_| self.is_doubtful) {
            last.log_start = last.log_start.max(first_offset);
        }
    }

    /// Raises the durable point to that of the index snapshot.
    pub fn raise_durable(&mut self, offset: u64) {
        if let Some(last) = &mut self.last {
            last.durable = last.durable.max(offset);
        }
    }

    /// The checkpoint read at the open, or the last one written.
    pub fn last(&self) -> Option<Checkpoint> {
        self.last
    }

    /// Syncs the last checkpoint. If the file was released since, the slot is written again: the kernel reports a failed
    /// write-back only to descriptors that were open at the time.
    pub fn sync(&mut self, storage: &dyn Storage) -> Result<(), Error> {
        if let Some(last) = self.last
            && self.handle.is_none()
            && self.synced != Some(self.slot)
        {
            let bytes = to_bytes(self.sequence, self.identity, last);
            self.write_slot(storage, &bytes, self.slot)?;
        }
        if let Some(file) = self.handle.take() {
            file.sync()?;
        }
        self.synced = self.last.map(|_| self.slot);
        Ok(())
    }

    /// Closes the file, synced or not: all values are lower bounds.
    pub fn release(&mut self) {
        self.handle = None;
    }

    fn write_slot(&mut self, storage: &dyn Storage, bytes: &[u8], slot: u64) -> Result<(), Error> {
        let file = match self.handle.take() {
            Some(file) => file,
            None => SyncFile::open(storage, &self.path, OpenMode::ReadWrite)?,
        };
        self.handle
            .insert(file)
            .file
            .write_all_at(bytes, slot * SLOT_DISTANCE)
            .map_err(|source| Error::io(IoOp::Write, &self.path, source))
    }

    /// Writes a changed checkpoint to the page cache, into the slot that was not synced last.
    pub fn write(&mut self, storage: &dyn Storage, checkpoint: Checkpoint) -> Result<(), Error> {
        if self.last == Some(checkpoint) {
            return Ok(());
        }
        self.write_next(storage, checkpoint)
    }

    /// Writes and syncs a checkpoint in both slots: it survives the damage of one.
    pub fn write_both(
        &mut self,
        storage: &dyn Storage,
        checkpoint: Checkpoint,
    ) -> Result<(), Error> {
        for _ in 0..2 {
            self.write_next(storage, checkpoint)?;
            self.sync(storage)?;
        }
        Ok(())
    }

    fn write_next(&mut self, storage: &dyn Storage, checkpoint: Checkpoint) -> Result<(), Error> {
        let sequence = self.sequence + 1;
        let bytes = to_bytes(sequence, self.identity, checkpoint);
        let slot = self.synced.map_or(FIRST_SLOT, |synced| 1 - synced);
        #[cfg(feature = "failpoints")]
        {
            let half = bytes.get(..SLOT_BYTES / 2).unwrap_or_default();
            self.write_slot(storage, half, slot)?;
            crate::failpoint::pass("checkpoint.slot_half_written");
        }
        self.write_slot(storage, &bytes, slot)?;
        self.sequence = sequence;
        self.slot = slot;
        self.last = Some(checkpoint);
        Ok(())
    }
}

/// Reads `<directory>/checkpoint` without changing it; `None` when there is none.
pub(crate) fn peek(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
) -> Option<Slots<Checkpoint>> {
    let path = directory.join(CHECKPOINT);
    let file = storage.open(&path, OpenMode::Read).ok()?;
    read(&*file, identity).ok()
}

/// Lowers a closed log's checkpoint: the log ends at `offset` from now on. In both slots, since the older one names later offsets;
/// durable when it returns.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn lower(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    offset: u64,
) -> Result<(), Error> {
    let last = peek(storage, directory, identity).and_then(|slots| slots.last);
    let last = last.unwrap_or_default();
    let lowered = Checkpoint {
        high_watermark: last.high_watermark.min(offset),
        log_start: last.log_start.min(offset),
        durable: last.durable.min(offset),
        clean: false,
    };
    CheckpointFile::open(storage, directory, identity)?.write_both(storage, lowered)
}

/// Reads both slots. An error must not count as an absent checkpoint: without the durable point recovery would truncate data.
fn read(file: &dyn StorageFile, identity: LogId) -> std::io::Result<Slots<Checkpoint>> {
    Slots::read::<SLOT_BYTES>(file, |bytes| parse_slot(bytes, identity))
}

/// The log that the checkpoint in the directory belongs to, by a valid slot; `None` when there is none.
pub(crate) fn owner(storage: &dyn Storage, directory: &Path) -> Result<Option<LogId>, Error> {
    let path = directory.join(CHECKPOINT);
    let file = match storage.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| Error::io(IoOp::Open, &path, source))?,
    };
    for position in [0, SLOT_DISTANCE] {
        let bytes = slots::read_slot::<SLOT_BYTES>(&*file, position)
            .map_err(|source| Error::io(IoOp::Read, &path, source))?;
        let identity = unseal(&bytes).filter(|body| body.get(..4) == Some(&MAGIC));
        let identity = identity.and_then(|body| {
            Some(LogId {
                incarnation: u64_at(body, 16)?,
                partition: u32_at(body, 24)?,
            })
        });
        if identity.is_some() {
            return Ok(identity);
        }
    }
    Ok(None)
}

fn to_bytes(sequence: u64, identity: LogId, checkpoint: Checkpoint) -> Vec<u8> {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&identity.incarnation.to_le_bytes());
    out.extend_from_slice(&identity.partition.to_le_bytes());
    out.extend_from_slice(&(if checkpoint.clean { CLEAN } else { 0 }).to_le_bytes());
    out.extend_from_slice(&checkpoint.high_watermark.to_le_bytes());
    out.extend_from_slice(&checkpoint.log_start.to_le_bytes());
    out.extend_from_slice(&checkpoint.durable.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    seal(&mut out);
    out
}

/// Sequence number and content of a slot; `None` when it is invalid, of another log or of another version.
pub(crate) fn parse_slot(bytes: &[u8], identity: LogId) -> Option<(u64, Checkpoint)> {
    let body = unseal(bytes).filter(|_| bytes.len() == SLOT_BYTES)?;
    let ours = body.get(..4)? == MAGIC
        && u32_at(body, 4)? == VERSION
        && u64_at(body, 16)? == identity.incarnation
        && u32_at(body, 24)? == identity.partition;
    if !ours {
        return None;
    }
    let checkpoint = Checkpoint {
        high_watermark: u64_at(body, 32)?,
        log_start: u64_at(body, 40)?,
        durable: u64_at(body, 48)?,
        clean: u32_at(body, 28)? & CLEAN != 0,
    };
    Some((u64_at(body, 8)?, checkpoint))
}
