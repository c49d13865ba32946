//! The manifest of the WAL: which log numbers must have a file, and where the closed ones end. It is beside the
//! directory, `<directory>.head`; the bytes are in `specs/formats/journal.md`.
//!
//! It is written and synced after the first round of a log number, before that round is acknowledged; and before a file whose
//! batches the segments have is recycled, removed or quarantined. So a log number that it names and that no file has was
//! lost, and damage in a file that it does not name costs nothing.
use super::format::{POSITION_BYTES, WalPosition};
use crate::io::disk::{self, SyncFile};
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use crate::io::slots::{self, FIRST_SLOT, SLOT_DISTANCE, Slots};
use crate::io::storage::{OpenMode, Storage};
use crate::{Error, IoOp};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Closed log numbers that are named, at most.
pub(crate) const MAX_CLOSED: usize = 28;
const MAGIC: [u8; 4] = *b"BSCH";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 512;
const DATA_DIR_ID: usize = 48 + MAX_CLOSED * POSITION_BYTES;

/// The content of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestState {
    /// The newest log number with an acknowledged frame, and a position that those frames reach at least.
    pub newest: WalPosition,
    /// Segments may not have the batches of this log number and of all later ones.
    pub first_needed: u64,
    /// Closed log numbers whose batches segments may not have either, each with the end of its frames.
    pub closed: Vec<WalPosition>,
    /// The data directory: a file with another number belongs to another one. 0: not known yet.
    pub data_dir_id: u64,
}

impl ManifestState {
    /// Returns whether segments may not have the batches of that log number.
    pub fn needs(&self, number: u64) -> bool {
        number >= self.first_needed || self.closed(number).is_some()
    }

    /// How far a closed log number reached; `None` when it is not one.
    pub fn closed(&self, number: u64) -> Option<&WalPosition> {
        self.closed.iter().find(|of| of.number == number)
    }

    /// Log numbers that must have a file.
    pub fn needed(&self) -> impl Iterator<Item = WalPosition> + '_ {
        let newest = Some(self.newest).filter(|of| of.number > 0);
        let newest = newest.filter(|of| self.closed(of.number).is_none() && self.needs(of.number));
        self.closed.iter().copied().chain(newest)
    }

    /// Names another log number as closed.
    fn close(&mut self, of: WalPosition) {
        if self.closed(of.number).is_none() && self.closed.len() < MAX_CLOSED {
            self.closed.push(of);
        }
    }

    /// Releases the log numbers that `needed` does not need. Concurrent updates are merged: both releases apply.
    pub fn release(&mut self, needed: &Self) {
        let before = self.clone();
        self.closed.retain(|of| needed.needs(of.number));
        let added = needed.closed.iter().filter(|of| before.needs(of.number));
        added.for_each(|of| self.close(*of));
        self.first_needed = self.first_needed.max(needed.first_needed);
        if self.newest.number == 0 {
            self.newest = needed.newest;
        }
        if self.data_dir_id == 0 {
            self.data_dir_id = needed.data_dir_id;
        }
    }
}

/// Of an empty WAL.
impl Default for ManifestState {
    fn default() -> Self {
        Self {
            newest: WalPosition::default(),
            first_needed: 1,
            closed: Vec::new(),
            data_dir_id: 0,
        }
    }
}

/// The manifest file.
#[derive(Default)]
pub(crate) struct WalManifest {
    /// Where it is.
    pub path: PathBuf,
    file: Option<Arc<SyncFile>>,
    /// Of the newer slot, which is synced.
    sequence: u64,
    slot: Option<u64>,
    /// Its content; `None` when it is absent or no slot is valid.
    pub state: Option<ManifestState>,
    /// A slot fails its checksum.
    pub is_damaged: bool,
}

impl WalManifest {
    /// Reads the manifest of the WAL in `directory`; it may be absent. With [`OpenMode::ReadWrite`] it is synced
    /// first, so that what is read is what the disk holds.
    ///
    /// # Errors
    /// [`Error::Io`] when it is there and cannot be read.
    pub fn open(storage: &dyn Storage, directory: &Path, mode: OpenMode) -> Result<Self, Error> {
        let mut path = directory.as_os_str().to_owned();
        path.push(".head");
        let path = PathBuf::from(path);
        let file = match SyncFile::open(storage, &path, mode) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    path,
                    ..Self::default()
                });
            }
            other => other?,
        };
        if mode == OpenMode::ReadWrite {
            let synced = file.file.forget_cached(0);
            synced.map_err(|source| Error::io(IoOp::Sync, &path, source))?;
        }
        let slots = Slots::read::<SLOT_BYTES>(&*file.file, parse_slot);
        let slots = slots.map_err(|source| Error::io(IoOp::Read, &path, source))?;
        Ok(Self {
            path,
            file: Some(file),
            sequence: slots.sequence,
            slot: slots.newest,
            state: slots.last,
            is_damaged: slots.is_damaged,
        })
    }

    /// Creates the file when it is absent, durable with its name. Its directory must exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(&mut self, storage: &dyn Storage, data_dir_id: u64) -> Result<(), Error> {
        if self.state.is_some() {
            return Ok(());
        }
        let state = ManifestState {
            data_dir_id,
            ..ManifestState::default()
        };
        self.set(storage, state)
    }

    /// Replaces the content; durable when it returns.
    ///
    /// # Errors
    /// [`Error::Io`]: after a failed sync the directory has to fail; after anything else the content is what it was.
    pub fn set(&mut self, storage: &dyn Storage, state: ManifestState) -> Result<(), Error> {
        let is_new = self.file.is_none();
        if !self.is_damaged && !is_new && self.state.as_ref() == Some(&state) {
            return Ok(());
        }
        let failed = |source| Error::io(IoOp::Write, &self.path, source);
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => SyncFile::open(storage, &self.path, OpenMode::Create)?,
        };
        slots::reserve(&*file.file, SLOT_BYTES).map_err(failed)?;
        // Both slots, when one of them is damaged.
        for _ in 0..=usize::from(self.is_damaged) {
            let slot = self.slot.map_or(FIRST_SLOT, |synced| 1 - synced);
            let bytes = to_bytes(self.sequence + 1, &state);
            let written = file.file.write_all_at(&bytes, slot * SLOT_DISTANCE);
            written.map_err(|source| Error::io(IoOp::Write, &self.path, source))?;
            file.sync()?;
            self.sequence += 1;
            self.slot = Some(slot);
        }
        if let Some(parent) = self.path.parent().filter(|_| is_new) {
            disk::sync_directory(storage, parent)?;
        }
        self.state = Some(state);
        self.is_damaged = false;
        self.file = Some(file);
        Ok(())
    }

    /// The first round of log number `newest` is synced; `closed`: those before it that are needed still.
    ///
    /// # Errors
    /// As [`WalManifest::set`].
    pub fn began(
        &mut self,
        storage: &dyn Storage,
        newest: WalPosition,
        closed: impl IntoIterator<Item = WalPosition>,
    ) -> Result<(), Error> {
        let mut state = self.state.clone().unwrap_or_default();
        state.newest = newest;
        closed.into_iter().for_each(|of| state.close(of));
        self.set(storage, state)
    }

    /// Releases the log numbers that `needed` does not need. Returns the state then.
    ///
    /// # Errors
    /// As [`WalManifest::set`].
    pub fn release(
        &mut self,
        storage: &dyn Storage,
        needed: &ManifestState,
    ) -> Result<ManifestState, Error> {
        let mut state = self.state.clone().unwrap_or_default();
        state.release(needed);
        self.set(storage, state.clone())?;
        Ok(state)
    }
}

fn to_bytes(sequence: u64, state: &ManifestState) -> Vec<u8> {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&state.newest.to_bytes());
    out.extend_from_slice(&state.first_needed.to_le_bytes());
    out.extend_from_slice(&(state.closed.len() as u64).to_le_bytes());
    for closed in &state.closed {
        out.extend_from_slice(&closed.to_bytes());
    }
    out.resize(DATA_DIR_ID, 0);
    out.extend_from_slice(&state.data_dir_id.to_le_bytes());
    out.resize(SLOT_BYTES - 4, 0);
    seal(&mut out);
    out
}

/// Sequence number and content of a slot. `None` when it fails its checksum or has another version.
pub(crate) fn parse_slot(bytes: &[u8]) -> Option<(u64, ManifestState)> {
    let body = unseal(bytes).filter(|_| bytes.len() == SLOT_BYTES)?;
    if body.get(..4)? != MAGIC || u32_at(body, 4)? != VERSION {
        return None;
    }
    let count = u32_at(body, 40)? as usize;
    (count <= MAX_CLOSED).then_some(())?;
    let state = ManifestState {
        newest: WalPosition::read(body, 16)?,
        first_needed: u64_at(body, 32)?,
        closed: (0..count)
            .map(|i| WalPosition::read(body, 48 + POSITION_BYTES * i))
            .collect::<Option<_>>()?,
        data_dir_id: u64_at(body, DATA_DIR_ID)?,
    };
    Some((u64_at(body, 8)?, state))
}
