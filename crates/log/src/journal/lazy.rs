//! Segments whose latest batches are only in the journal, until they are synced.
use crate::disk::SyncFile;
use crate::shared::Shared;
use std::collections::HashMap;
use std::sync::Arc;

/// A segment whose latest batches are only in the journal.
pub(super) struct Lazy {
    pub file: Arc<SyncFile>,
    pub shared: Arc<Shared>,
    /// What of the log is in it when it is synced.
    pub end: u64,
}

/// Distinct segments in the order in which they came, so that the same rounds sync the same files one after the other.
#[derive(Default)]
pub(super) struct LazySegments {
    pub entries: Vec<Lazy>,
    /// Place of an entry by the address of its file, which the entry keeps alive.
    places: HashMap<usize, usize>,
}

impl LazySegments {
    /// Whether it is one of them.
    pub fn has(&self, file: &SyncFile) -> bool {
        self.places.contains_key(&address(file))
    }

    /// Puts one among them, or more of it.
    pub fn add(&mut self, new: Lazy) {
        let place = self.places.entry(address(&new.file));
        let place = *place.or_insert(self.entries.len());
        match self.entries.get_mut(place) {
            Some(known) => known.end = known.end.max(new.end),
            None => self.entries.push(new),
        }
    }
}

fn address(file: &SyncFile) -> usize {
    std::ptr::from_ref(file) as usize
}
