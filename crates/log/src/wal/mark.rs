//! The marks of a journal file: how far the frames of its use reach, said in a place of its own.
//!
//! Each round writes one of two slots, in turn, behind its frames and in the same sync; the first one of a use writes both.
//! So a mark says what was synced before its round began, and what that round wrote: where the last frames of a use are
//! gone, it tells that there were some, and of all but those of the last round that they were acknowledged. The slots lie in
//! blocks of their own: a power cut tears no more than the one that is being written.
//!
//! | Position in the file | What |
//! |---|---|
//! | length − 2 · d | mark of the first, third, … round of a use |
//! | length − d | mark of the second, fourth, … round; with the first one a mark that says nothing was written |
//!
//! d is 4,096, in a file of less than 256 KiB 512.
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
use crate::io::disk::read_up_to;
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use crate::io::storage::StorageFile;
use std::io;

const MARK_BYTES: usize = 32;
/// The block of most disks, and what a small file has in its place.
const BLOCK: u64 = 4096;
const SMALL_BLOCK: u64 = 512;
/// Length of a file from which on it has whole blocks for the marks.
const LARGE: u64 = 256 << 10;

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
    /// How many check and are this use's. Of a use with a synced round both do.
    pub valid: usize,
}

impl Mark {
    /// The slot's bytes, in the use with that preamble.
    pub fn to_bytes(self, of: &Preamble) -> Vec<u8> {
        let mut out = Vec::with_capacity(MARK_BYTES);
        out.extend_from_slice(&of.sequence.to_le_bytes());
        for field in [of.link, self.synced, self.written] {
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
pub(crate) fn first_tail(first: &[u8], none: &[u8], preamble: &[u8], file_bytes: u64) -> Vec<u8> {
    let tail = tail_bytes(file_bytes) as usize;
    let mut out = first.to_vec();
    out.resize(tail / 2, 0);
    out.extend_from_slice(none);
    out.resize(tail - PREAMBLE_BYTES, 0);
    out.extend_from_slice(preamble);
    out
}

/// Bytes at the end of a file of that length that hold no frames: the marks, and the copy of the preamble.
pub(crate) const fn tail_bytes(file_bytes: u64) -> u64 {
    2 * if file_bytes < LARGE {
        SMALL_BLOCK
    } else {
        BLOCK
    }
}

/// Where the mark of a round goes, behind so many others of the use, in a file of that length.
pub(crate) fn position(others: u64, file_bytes: u64) -> u64 {
    let tail = tail_bytes(file_bytes);
    file_bytes - tail + others % 2 * (tail / 2)
}

/// The marks of the file's use; `None` where it has none: an older version wrote it, or its end is cut off.
///
/// # Errors
/// Those of the storage.
pub(crate) fn read(file: &dyn StorageFile, len: u64, of: &Preamble) -> io::Result<Option<Marks>> {
    let made = u64::from(of.file_bytes);
    if !of.seal().is_bound || made < tail_bytes(made) || len < made {
        return Ok(None);
    }
    let mut valid = Vec::new();
    for others in 0..2 {
        let mut slot = [0; MARK_BYTES];
        read_up_to(file, &mut slot, position(others, made))?;
        valid.extend(Mark::read(&slot, of));
    }
    let farthest = |of: fn(&Mark) -> u32| valid.iter().map(of).max().unwrap_or(0);
    Ok(Some(Marks {
        position: position(0, made),
        farthest: Mark {
            synced: farthest(|mark| mark.synced),
            written: farthest(|mark| mark.written),
        },
        valid: valid.len(),
    }))
}
