//! The head of the journal: which uses of its files there have to be.
//!
//! It lies beside the journal's directory, `<directory>.head`, in the slots of [`crate::io::slots`]. It is written and synced
//! behind the first round of a use, before that is acknowledged; and before a file whose frames the segments have is used
//! again, removed or put aside. So a use that it names and that is not there was lost, and what happens to the frames of one
//! that it does not name costs nothing.
//!
//! | Offset | Type | Field |
//! |---|---|---|
//! | 0 | u32 | magic `BSCH` |
//! | 4 | u32 | version = 1 |
//! | 8 | u64 | sequence number of the slot |
//! | 16 | 16 B | the newest use with an acknowledged frame: sequence number u64 (0: none), position behind its first round u32, checksum of its preamble u32 |
//! | 32 | u64 | first needed use: segments may not have the frames of this one and of all later ones |
//! | 40 | u32 | number of uses before it of which the same holds, at most 28 |
//! | 44 | u32 | reserved: writers write 0, readers ignore |
//! | 48 | 16 B each | those, as above, each with the position behind its last frame; then zeros |
//! | 496 | u64 | number of the data directory, as in the preambles of its journal's files |
//! | 504 | u32 | reserved: writers write 0, readers ignore |
//! | 508 | u32 | CRC-32C of bytes 0–507 |
use super::format::{REACHED_BYTES, Reached};
use crate::io::disk::{self, SyncFile};
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use crate::io::slots::{self, FIRST_SLOT, SLOT_DISTANCE, Slots};
use crate::io::storage::{OpenMode, Storage};
use crate::{Error, IoOp};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Uses of earlier lives that are named one by one, at most.
pub(crate) const KEPT: usize = 28;
const MAGIC: [u8; 4] = *b"BSCH";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 512;
const HOME: usize = 48 + KEPT * REACHED_BYTES;

/// What the head says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The newest use with an acknowledged frame, and at least how far those reach.
    pub newest: Reached,
    /// Segments may not have what this use and all later ones hold.
    pub first_needed: u64,
    /// The same of these uses before it, and how far they reach.
    pub kept: Vec<Reached>,
    /// The data directory: a file with another number is another one's. 0: not known yet.
    pub home: u64,
}

impl Facts {
    /// Whether segments may not have what the use holds.
    pub fn needs(&self, sequence: u64) -> bool {
        sequence >= self.first_needed || self.kept.iter().any(|kept| kept.sequence == sequence)
    }

    /// Of two who tell at once what is not needed any more both are right.
    pub fn need_no_more_than(&mut self, other: &Self) {
        let known = self.clone();
        self.kept.retain(|kept| other.needs(kept.sequence));
        for kept in &other.kept {
            if known.needs(kept.sequence) && !known.kept.contains(kept) {
                self.kept.push(*kept);
            }
        }
        self.kept.truncate(KEPT);
        self.first_needed = self.first_needed.max(other.first_needed);
        if self.newest.sequence == 0 {
            self.newest = other.newest;
        }
        if self.home == 0 {
            self.home = other.home;
        }
    }
}

/// Those of an empty journal.
impl Default for Facts {
    fn default() -> Self {
        Self {
            newest: Reached::default(),
            first_needed: 1,
            kept: Vec::new(),
            home: 0,
        }
    }
}

/// The file, open from when it is there.
pub(crate) struct Head {
    path: PathBuf,
    file: Option<Arc<SyncFile>>,
    /// Of the newer slot, which is synced.
    sequence: u64,
    slot: Option<u64>,
    /// What that slot says.
    facts: Option<Facts>,
    /// A slot does not check.
    is_damaged: bool,
}

impl Head {
    /// Looks at the head of the journal in that directory; it need not be there. With [`OpenMode::ReadWrite`] it is synced
    /// first: what it says then is what the disk holds.
    ///
    /// # Errors
    /// [`Error::Io`] when it is there and cannot be read.
    pub fn look(storage: &dyn Storage, journal: &Path, mode: OpenMode) -> Result<Self, Error> {
        let path = path_of(journal);
        let mut head = Self {
            file: None,
            sequence: 0,
            slot: None,
            facts: None,
            is_damaged: false,
            path,
        };
        let file = match SyncFile::open(storage, &head.path, mode) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(head);
            }
            other => other?,
        };
        if mode == OpenMode::ReadWrite {
            let synced = file.file.forget_cached(0);
            synced.map_err(|source| Error::io(IoOp::Sync, &head.path, source))?;
        }
        let slots = Slots::read::<SLOT_BYTES>(&*file.file, parse_slot);
        let slots = slots.map_err(|source| Error::io(IoOp::Read, &head.path, source))?;
        head.sequence = slots.sequence;
        head.slot = slots.newest;
        head.facts = slots.last;
        head.is_damaged = slots.is_damaged;
        head.file = Some(file);
        Ok(head)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says; `None` when it is not there or no slot of it checks.
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    /// Number of the data directory, as it says; 0 when it does not.
    pub fn home(&self) -> u64 {
        self.facts.as_ref().map_or(0, |facts| facts.home)
    }

    /// It is another data directory's: as if no slot of it checked.
    pub fn disown(&mut self) {
        self.facts = None;
        self.is_damaged = true;
    }

    /// Whether a slot does not check.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Makes the file when it is not there, for the data directory of that number; durable with its name. The directory that
    /// it is in has to be there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn make(&mut self, storage: &dyn Storage, home: u64) -> Result<(), Error> {
        if self.facts.is_some() {
            return Ok(());
        }
        let facts = Facts::default();
        self.set(storage, Facts { home, ..facts })
    }

    /// Says this from now on; durable when it returns. What it said before is over.
    ///
    /// # Errors
    /// [`Error::Io`]: after a failed sync the directory has to fail; after anything else it says what it said.
    pub fn set(&mut self, storage: &dyn Storage, facts: Facts) -> Result<(), Error> {
        let is_new = self.file.is_none();
        if !self.is_damaged && !is_new && self.facts.as_ref() == Some(&facts) {
            return Ok(());
        }
        let failed = |source| Error::io(IoOp::Write, &self.path, source);
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => SyncFile::open(storage, &self.path, OpenMode::Create)?,
        };
        slots::reserve(&*file.file, SLOT_BYTES).map_err(failed)?;
        // Both slots, where one of them says nothing.
        for _ in 0..=usize::from(self.is_damaged) {
            let slot = self.slot.map_or(FIRST_SLOT, |synced| 1 - synced);
            let bytes = to_bytes(self.sequence + 1, &facts);
            let written = file.file.write_all_at(&bytes, slot * SLOT_DISTANCE);
            written.map_err(|source| Error::io(IoOp::Write, &self.path, source))?;
            file.sync()?;
            self.sequence += 1;
            self.slot = Some(slot);
        }
        if let Some(parent) = self.path.parent().filter(|_| is_new) {
            disk::sync_directory(storage, parent)?;
        }
        self.facts = Some(facts);
        self.is_damaged = false;
        self.file = Some(file);
        Ok(())
    }

    /// The first round of a use is synced, up to there.
    ///
    /// # Errors
    /// As [`Head::set`].
    pub fn began(&mut self, storage: &dyn Storage, newest: Reached) -> Result<(), Error> {
        let facts = self.facts.clone().unwrap_or_default();
        self.set(storage, Facts { newest, ..facts })
    }

    /// No more uses are needed than `facts` says. Returns what is said now.
    ///
    /// # Errors
    /// As [`Head::set`].
    pub fn need_no_more_than(
        &mut self,
        storage: &dyn Storage,
        facts: &Facts,
    ) -> Result<Facts, Error> {
        let mut known = self.facts.clone().unwrap_or_default();
        known.need_no_more_than(facts);
        self.set(storage, known.clone())?;
        Ok(known)
    }
}

/// `<journal>.head`.
fn path_of(journal: &Path) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(".head");
    PathBuf::from(name)
}

fn to_bytes(sequence: u64, facts: &Facts) -> Vec<u8> {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&facts.newest.to_bytes());
    out.extend_from_slice(&facts.first_needed.to_le_bytes());
    out.extend_from_slice(&(facts.kept.len() as u64).to_le_bytes());
    for kept in &facts.kept {
        out.extend_from_slice(&kept.to_bytes());
    }
    out.resize(HOME, 0);
    out.extend_from_slice(&facts.home.to_le_bytes());
    out.resize(SLOT_BYTES - 4, 0);
    seal(&mut out);
    out
}

/// Sequence number and content of a slot. One that does not check or has another version is absent.
pub(crate) fn parse_slot(bytes: &[u8]) -> Option<(u64, Facts)> {
    let body = unseal(bytes).filter(|_| bytes.len() == SLOT_BYTES)?;
    if body.get(..4)? != MAGIC || u32_at(body, 4)? != VERSION {
        return None;
    }
    let count = u32_at(body, 40)? as usize;
    (count <= KEPT).then_some(())?;
    let facts = Facts {
        newest: Reached::read(body, 16)?,
        first_needed: u64_at(body, 32)?,
        kept: (0..count)
            .map(|i| Reached::read(body, 48 + REACHED_BYTES * i))
            .collect::<Option<_>>()?,
        home: u64_at(body, HOME)?,
    };
    Some((u64_at(body, 8)?, facts))
}
