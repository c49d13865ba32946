//! Where each leader epoch began.
//!
//! The `epochs` file grows by one entry when an epoch begins, and is synced together with the first records of that
//! epoch, before they are acked. It can be rebuilt from the batch headers. Its bytes are in `specs/formats/segment.md`.
use crate::io::disk::{self, SyncFile};
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use crate::io::storage::{OpenMode, Storage};
use crate::{Error, IoOp, LogId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ENTRY_BYTES: usize = 24;

/// The table, and the file it is kept in.
#[derive(Debug)]
pub(crate) struct EpochTable {
    entries: Vec<(u64, u64)>,
    identity: LogId,
    path: PathBuf,
    /// Open while it holds entries whose sync was not requested.
    unsynced: Option<Arc<SyncFile>>,
}

impl EpochTable {
    /// Reads the valid entries of `<directory>/epochs`; empty when there is none.
    pub fn read(storage: &dyn Storage, directory: &Path, identity: LogId) -> Vec<(u64, u64)> {
        let bytes = disk::read(storage, &directory.join("epochs")).unwrap_or_default();
        parse(&bytes, identity)
    }

    /// A table of `entries`; the file is rewritten unless it holds exactly these.
    pub fn open(
        storage: &dyn Storage,
        directory: &Path,
        identity: LogId,
        entries: Vec<(u64, u64)>,
    ) -> Result<Self, Error> {
        let path = directory.join("epochs");
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|entry| to_bytes(*entry, identity))
            .collect();
        if disk::read(storage, &path).ok().as_deref() != Some(&bytes) {
            disk::replace(storage, &path, &bytes)?;
        }
        Ok(Self {
            entries,
            identity,
            path,
            unsynced: None,
        })
    }

    /// The last epoch, 0 when there is none.
    pub fn last(&self) -> u64 {
        self.entries.last().map_or(0, |(epoch, _)| *epoch)
    }

    /// Returns whether a record of this epoch would begin it.
    pub fn is_new(&self, epoch: u64) -> bool {
        self.entries.last().is_none_or(|(last, _)| epoch > *last)
    }

    /// Adds an epoch that begins at `start`, to the page cache. The caller syncs [`EpochTable::take_unsynced`] before it
    /// acks.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Full`]: the table is as it was.
    pub fn begin(&mut self, storage: &dyn Storage, epoch: u64, start: u64) -> Result<(), Error> {
        let file = match self.unsynced.take() {
            Some(file) => file,
            None => SyncFile::open(storage, &self.path, OpenMode::ReadWrite)?,
        };
        let file = self.unsynced.insert(file);
        let position = (self.entries.len() * ENTRY_BYTES) as u64;
        file.file
            .write_all_at(&to_bytes((epoch, start), self.identity), position)
            .map_err(|error| Error::io(IoOp::Write, &self.path, error))?;
        self.entries.push((epoch, start));
        Ok(())
    }

    /// Takes back the entry of an epoch whose first append failed.
    pub fn withdraw(&mut self, epoch: u64) {
        self.entries.retain(|(known, _)| *known != epoch);
    }

    /// (epoch, start offset), ascending.
    pub fn entries(&self) -> &[(u64, u64)] {
        &self.entries
    }

    /// The file, if it has unsynced entries. The caller has to sync it.
    pub fn take_unsynced(&mut self) -> Option<Arc<SyncFile>> {
        self.unsynced.take()
    }
}

/// The valid entries, up to the first invalid one.
pub(crate) fn parse(bytes: &[u8], identity: LogId) -> Vec<(u64, u64)> {
    let mut entries: Vec<(u64, u64)> = Vec::new();
    for entry in bytes.chunks_exact(ENTRY_BYTES) {
        let fields = unseal(entry).and_then(|body| {
            let ours = u32_at(body, 16)? == identity.incarnation as u32;
            ours.then_some((u64_at(body, 0)?, u64_at(body, 8)?))
        });
        match (fields, entries.last()) {
            (Some((epoch, start)), last)
                if last.is_none_or(|last| epoch > last.0 && start >= last.1) =>
            {
                entries.push((epoch, start));
            }
            _ => break,
        }
    }
    entries
}

fn to_bytes((epoch, start): (u64, u64), identity: LogId) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENTRY_BYTES);
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&(identity.incarnation as u32).to_le_bytes());
    seal(&mut out);
    out
}
