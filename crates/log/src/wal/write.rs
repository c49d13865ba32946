//! The ranges of segments that a round copies into the WAL.
use crate::io::disk::{SyncFile, read_up_to};
use crate::state::shared::Shared;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// The range that one commit of one log adds to its active segment; a round may copy it into the WAL.
#[derive(Debug)]
pub(crate) struct WalWrite {
    /// The active segment.
    pub file: Arc<SyncFile>,
    /// Positions of whole batches, half open.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// The batches there, in order, where all of them are at hand; otherwise too few.
    pub batches: Vec<Bytes>,
    /// The log.
    pub shared: Arc<Shared>,
    /// Its end after these batches.
    pub end: u64,
}

impl WalWrite {
    /// Length of the batches, bytes.
    pub fn bytes(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Returns whether the other one begins where this one ends.
    fn continues_in(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.file, &next.file) && self.to == next.from
    }

    /// Adds the batches to `out`; false when they cannot be read.
    pub fn put(&self, out: &mut Vec<u8>) -> bool {
        let len = self.bytes();
        if self.batches.iter().map(Bytes::len).sum::<usize>() == len {
            self.batches.iter().for_each(|of| out.extend_from_slice(of));
            return true;
        }
        let from = out.len();
        out.resize(from + len, 0);
        let read = out
            .get_mut(from..)
            .map(|to| read_up_to(&*self.file.file, to, self.from));
        read.is_some_and(|read| read.ok() == Some(len))
    }
}

/// Length of all their batches.
pub(super) fn content_bytes(ranges: &[&WalWrite]) -> u64 {
    ranges.iter().map(|range| range.bytes() as u64).sum()
}

/// Groups the ranges by log, in order, so that a round writes one frame for each log. `None` when a log continued in another
/// segment meanwhile.
pub(super) fn by_log<'a>(ranges: &[&'a WalWrite]) -> Option<Vec<Vec<&'a WalWrite>>> {
    let mut places: HashMap<usize, usize> = HashMap::with_capacity(ranges.len());
    let mut out: Vec<Vec<&'a WalWrite>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let place = *places
            .entry(Arc::as_ptr(&range.shared) as usize)
            .or_insert(out.len());
        match out.get_mut(place) {
            None => out.push(vec![*range]),
            Some(before) if before.last().is_some_and(|last| last.continues_in(range)) => {
                before.push(*range);
            }
            Some(_) => return None,
        }
    }
    Some(out)
}
