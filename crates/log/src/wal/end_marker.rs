//! The end markers of a WAL file: the end of the frames of its log number, stored apart from the frames (the bytes are in
//! `specs/formats/journal.md`).
//!
//! Each round writes one of two slots, in turn, in the same sync as its frames; the first round writes both. A marker has
//! the end that was synced before its round began, and the end of that round. So when the last frames are lost, the markers prove
//! that there were some, and that all but those of the last round were acknowledged. Each slot has a block of its own: a
//! power cut tears only the one that is being written.
use super::format::{PREAMBLE_BYTES, Preamble};
use crate::io::disk::read_up_to;
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use crate::io::storage::StorageFile;
use std::io;

const MARKER_BYTES: usize = 32;
/// Bytes of a block of most disks; and of the block that a small file uses instead.
const BLOCK: u64 = 4096;
const SMALL_BLOCK: u64 = 512;
/// Files of this length and above have whole blocks for the markers.
const LARGE: u64 = 256 << 10;

/// How far the frames reached when a round was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndMarker {
    /// Frames before this position were synced.
    pub synced: u32,
    /// Frames of the round reach to this position.
    pub written: u32,
}

/// Both slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndMarkers {
    /// Where they begin.
    pub position: u64,
    /// The farther of both.
    pub farthest: EndMarker,
    /// How many are valid and of this log number: both, once a round of it was synced.
    pub valid: usize,
}

impl EndMarker {
    /// The slot's bytes, under the log number of that preamble.
    pub fn to_bytes(self, of: &Preamble) -> Vec<u8> {
        let mut out = Vec::with_capacity(MARKER_BYTES);
        out.extend_from_slice(&of.number.to_le_bytes());
        for field in [of.link, self.synced, self.written] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(MARKER_BYTES - 4, 0);
        seal(&mut out);
        out
    }

    /// A slot; `None` when it fails its checksum or is of another log number than that preamble.
    pub fn read(bytes: &[u8], of: &Preamble) -> Option<Self> {
        let body = unseal(bytes.get(..MARKER_BYTES)?)?;
        let is_ours = u64_at(body, 0)? == of.number && u32_at(body, 8)? == of.link;
        is_ours.then_some(Self {
            synced: u32_at(body, 12)?,
            written: u32_at(body, 16)?,
        })
    }
}

/// The last bytes of a file, as its first round writes them.
pub(crate) fn first_tail(first: &[u8], none: &[u8], preamble: &[u8], file_bytes: u64) -> Vec<u8> {
    let tail = tail_bytes(file_bytes) as usize;
    let mut out = first.to_vec();
    out.resize(tail / 2, 0);
    out.extend_from_slice(none);
    out.resize(tail - PREAMBLE_BYTES, 0);
    out.extend_from_slice(preamble);
    out
}

/// Bytes at the end of a file of that length that hold no frames: the markers, and the copy of the preamble.
pub(crate) const fn tail_bytes(file_bytes: u64) -> u64 {
    2 * if file_bytes < LARGE {
        SMALL_BLOCK
    } else {
        BLOCK
    }
}

/// The position of the marker of a round, after `others` rounds, in a file of `file_bytes` bytes.
pub(crate) fn position(others: u64, file_bytes: u64) -> u64 {
    let tail = tail_bytes(file_bytes);
    file_bytes - tail + others % 2 * (tail / 2)
}

/// The markers of the file; none is valid when its end is cut off.
///
/// # Errors
/// Those of the storage.
pub(crate) fn read(file: &dyn StorageFile, len: u64, of: &Preamble) -> io::Result<EndMarkers> {
    let made = u64::from(of.file_bytes);
    if made < tail_bytes(made) || len < made {
        return Ok(EndMarkers::default());
    }
    let mut valid = Vec::new();
    for others in 0..2 {
        let mut slot = [0; MARKER_BYTES];
        read_up_to(file, &mut slot, position(others, made))?;
        valid.extend(EndMarker::read(&slot, of));
    }
    let farthest = |of: fn(&EndMarker) -> u32| valid.iter().map(of).max().unwrap_or(0);
    Ok(EndMarkers {
        position: position(0, made),
        farthest: EndMarker {
            synced: farthest(|marker| marker.synced),
            written: farthest(|marker| marker.written),
        },
        valid: valid.len(),
    })
}
