//! The marks of a journal file: how far the frames of its use reach, said in a place of its own.
//!
//! Each round writes one of two slots, in turn, behind its frames and in the same sync; the first one of a use writes both.
//! So a mark says what was synced before its round began, and what that round wrote: where the last frames of a use are
//! gone, it tells that there were some, and of all but those of the last round that they were acknowledged. The slots lie in
//! sectors of their own: a power cut tears no more than the one that is being written.
//!
//! | Position in the file | What |
//! |---|---|
//! | length − 1,024 | mark of the rounds with an odd number |
//! | length − 512 | mark of the rounds with an even number; with the first round one that says nothing was written |
//!
//! | Offset | Type | Field |
//! |---|---|---|
//! | 0 | u64 | sequence number of the use |
//! | 8 | u32 | checksum of its preamble |
//! | 12 | u32 | position behind the last frame of the rounds before, which were synced; 0: there are none |
//! | 16 | u32 | position behind the last frame of this round |
//! | 20 | 8 B | reserved: writers write 0, readers ignore |
//! | 28 | u32 | CRC-32C of bytes 0–27 |
use super::format::{PREAMBLE_BYTES, Preamble};
use crate::disk::read_up_to;
use crate::fields::{seal, u32_at, u64_at, unseal};
use crate::storage::StorageFile;
use std::io;

/// Bytes at the end of a file that hold no frames: the marks, and the copy of the preamble.
pub(crate) const TAIL_BYTES: usize = 1024;
const SLOT_DISTANCE: usize = 512;
const MARK_BYTES: usize = 32;

/// How far the frames of a use reached when a round of it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// What lies before this position was synced.
    pub synced: u32,
    /// Frames of the round reach to this position.
    pub written: u32,
}

/// What the two slots say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Where they begin.
    pub position: u64,
    /// The farther of both.
    pub farthest: Mark,
    /// A slot does not check, or is another use's: of a use with a synced round both are its own.
    pub is_damaged: bool,
}

impl Mark {
    /// The slot's bytes, in the use with that preamble.
    pub fn to_bytes(self, sequence: u64, seed: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(MARK_BYTES);
        out.extend_from_slice(&sequence.to_le_bytes());
        for field in [seed, self.synced, self.written] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(MARK_BYTES - 4, 0);
        seal(&mut out);
        out
    }

    /// A slot of the use with that preamble; `None` when it does not check or is another's.
    pub fn read(bytes: &[u8], of: &Preamble) -> Option<Self> {
        let body = unseal(bytes.get(..MARK_BYTES)?)?;
        let is_ours = u64_at(body, 0)? == of.sequence && u32_at(body, 8)? == of.link;
        is_ours.then_some(Self {
            synced: u32_at(body, 12)?,
            written: u32_at(body, 16)?,
        })
    }
}

/// The last bytes of a file with the first round of a use.
pub(crate) fn first_tail(first: &[u8], none: &[u8], preamble: &[u8]) -> Vec<u8> {
    let mut out = first.to_vec();
    out.resize(SLOT_DISTANCE, 0);
    out.extend_from_slice(none);
    out.resize(TAIL_BYTES - PREAMBLE_BYTES, 0);
    out.extend_from_slice(preamble);
    out
}

/// Where the mark of a round goes, behind so many others of the use, in a file of that length.
pub(crate) fn position(others: u64, file_bytes: u64) -> u64 {
    file_bytes - TAIL_BYTES as u64 + others % 2 * SLOT_DISTANCE as u64
}

/// The marks of the file's use; `None` where it has none: an older version wrote it, or its end is cut off.
///
/// # Errors
/// Those of the storage.
pub(crate) fn read(file: &dyn StorageFile, len: u64, of: &Preamble) -> io::Result<Option<Marks>> {
    let made = u64::from(of.file_bytes);
    if !of.is_witnessed() || made < TAIL_BYTES as u64 || len < made {
        return Ok(None);
    }
    let position = made - TAIL_BYTES as u64;
    let mut tail = [0; TAIL_BYTES];
    read_up_to(file, &mut tail, position)?;
    let slots = tail.as_chunks::<SLOT_DISTANCE>().0.iter();
    let slots: Vec<Option<Mark>> = slots.map(|slot| Mark::read(slot, of)).collect();
    let valid = || slots.iter().flatten();
    Ok(Some(Marks {
        position,
        farthest: Mark {
            synced: valid().map(|mark| mark.synced).max().unwrap_or(0),
            written: valid().map(|mark| mark.written).max().unwrap_or(0),
        },
        is_damaged: slots.contains(&None),
    }))
}
