//! A small state that must survive a crash: a file of two slots of 4 KiB (`specs/formats/data-directory.md`).
//!
//! Both are written and synced, one after the other, before a state counts as stored: so one readable slot is never older than what
//! was answered (W22). Slots that differ at a start are made equal before anything is answered by them (W40). The file knows its inode:
//! a copy is found.
use crate::owner_only;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const VERSION: u32 = 1;
const SLOT_BYTES: usize = 4096;
/// Magic, version, sequence, length of the body.
const HEAD_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 4;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlotError {
    /// Neither slot can be read.
    #[error("neither slot is readable")]
    Damaged,
    /// The file is a copy of another one.
    #[error("it is a copy (inode {inode} of file system {device} wrote it)")]
    Copied {
        /// The inode that wrote it.
        inode: u64,
        /// The file system that wrote it.
        device: u64,
    },
    /// An earlier write failed, so what the disk holds is unknown.
    #[error("an earlier write of it failed; what it holds is unknown until the next start")]
    Failed,
    /// The state does not fit a slot.
    #[error("the state takes {bytes} bytes, a slot holds {most}")]
    TooLarge {
        /// Bytes of the state.
        bytes: usize,
        /// Most that fit.
        most: usize,
    },
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The file, open.
#[derive(Debug)]
pub(crate) struct SlotFile<T> {
    file: File,
    magic: [u8; 4],
    sequence: u64,
    state: T,
    has_failed: bool,
}

/// What a slot holds.
#[derive(Debug, Serialize, Deserialize)]
struct Body<T> {
    inode: u64,
    device: u64,
    state: T,
}

impl<T: Clone + Default + Serialize + DeserializeOwned> SlotFile<T> {
    /// Creates the file; it and its name are durable when this returns. Blocks.
    ///
    /// # Errors
    /// [`SlotError::Io`], also when the file exists; [`SlotError::TooLarge`].
    pub fn create(path: &Path, magic: [u8; 4], state: T) -> Result<Self, SlotError> {
        let file = owner_only::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        let mut created = Self {
            file,
            magic,
            sequence: 0,
            state: T::default(),
            has_failed: false,
        };
        created.write(state)?;
        let directory = path.parent().ok_or(io::ErrorKind::NotFound);
        File::open(directory.map_err(io::Error::from)?)?.sync_all()?;
        Ok(created)
    }

    /// Opens the file. Both slots hold the same, synced, when this returns. Blocks.
    ///
    /// # Errors
    /// [`SlotError`].
    pub fn open(path: &Path, magic: [u8; 4]) -> Result<Self, SlotError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let slots = [
            read_slot::<T>(&file, magic, 0)?,
            read_slot::<T>(&file, magic, 1)?,
        ];
        let sequences: Vec<Option<u64>> = slots
            .iter()
            .map(|slot| slot.as_ref().map(|(sequence, _)| *sequence))
            .collect();
        let are_equal = sequences.windows(2).all(|pair| pair.first() == pair.last());
        let newest = slots.into_iter().flatten().max_by_key(|slot| slot.0);
        let (sequence, body) = newest.ok_or(SlotError::Damaged)?;
        let found = file.metadata()?;
        if (body.inode, body.device) != (found.ino(), found.dev()) {
            return Err(SlotError::Copied {
                inode: body.inode,
                device: body.device,
            });
        }
        let mut opened = Self {
            file,
            magic,
            sequence,
            state: body.state.clone(),
            has_failed: false,
        };
        if !are_equal {
            opened.write(body.state)?;
        }
        Ok(opened)
    }

    /// What is stored.
    pub fn state(&self) -> &T {
        &self.state
    }

    /// Stores a state: in both slots, synced, when this returns. Blocks.
    ///
    /// # Errors
    /// [`SlotError`]; nothing may be answered by this state, and after [`SlotError::Io`] every later call fails.
    pub fn write(&mut self, state: T) -> Result<(), SlotError> {
        if self.has_failed {
            return Err(SlotError::Failed);
        }
        let found = self.file.metadata()?;
        let body = Body {
            inode: found.ino(),
            device: found.dev(),
            state,
        };
        let sequence = self.sequence.saturating_add(1);
        let slot = to_slot(self.magic, sequence, &body)?;
        // Until both are synced, it is not known what a power cut leaves.
        self.has_failed = true;
        for number in 0..2 {
            self.file.write_all_at(&slot, number * SLOT_BYTES as u64)?;
            self.file.sync_all()?;
        }
        (self.sequence, self.state, self.has_failed) = (sequence, body.state, false);
        Ok(())
    }
}

fn to_slot<T: Serialize>(
    magic: [u8; 4],
    sequence: u64,
    body: &Body<T>,
) -> Result<Vec<u8>, SlotError> {
    let most = SLOT_BYTES - HEAD_BYTES - CHECKSUM_BYTES;
    // Integers and bytes in memory: only a size beyond 4 GiB could fail.
    let body = rmp_serde::to_vec(body).unwrap_or_else(|_| vec![0; SLOT_BYTES]);
    if body.len() > most {
        let bytes = body.len();
        return Err(SlotError::TooLarge { bytes, most });
    }
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    slot.extend_from_slice(&magic);
    slot.extend_from_slice(&VERSION.to_le_bytes());
    slot.extend_from_slice(&sequence.to_le_bytes());
    slot.extend_from_slice(&(body.len() as u32).to_le_bytes());
    slot.extend_from_slice(&body);
    slot.resize(SLOT_BYTES - CHECKSUM_BYTES, 0);
    let checksum = crc32c::crc32c(&slot);
    slot.extend_from_slice(&checksum.to_le_bytes());
    Ok(slot)
}

/// Sequence and body of a slot; `None` when it fails its checksum.
fn read_slot<T: DeserializeOwned>(
    file: &File,
    magic: [u8; 4],
    number: u64,
) -> io::Result<Option<(u64, Body<T>)>> {
    let mut slot = vec![0; SLOT_BYTES];
    match file.read_exact_at(&mut slot, number * SLOT_BYTES as u64) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        outcome => outcome?,
    }
    Ok(parse(magic, &slot))
}

fn parse<T: DeserializeOwned>(magic: [u8; 4], slot: &[u8]) -> Option<(u64, Body<T>)> {
    let (checked, checksum) = slot.split_last_chunk::<CHECKSUM_BYTES>()?;
    let number = |at: usize| Some(u32::from_le_bytes(*checked.get(at..)?.first_chunk()?));
    let is_whole = u32::from_le_bytes(*checksum) == crc32c::crc32c(checked);
    if !is_whole || checked.first_chunk() != Some(&magic) || number(4)? != VERSION {
        return None;
    }
    let sequence = u64::from_le_bytes(*checked.get(8..)?.first_chunk()?);
    let body = checked.get(HEAD_BYTES..)?.get(..number(16)? as usize)?;
    Some((sequence, rmp_serde::from_slice(body).ok()?))
}
