//! The subject column while it is gathered: a dictionary, and an index per record once there are two entries.
use std::hash::{BuildHasher, RandomState};

/// Most entries of a dictionary, inclusive.
pub(crate) const MAX_SUBJECTS: usize = 65_535;

/// What a look-up found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// The entry with this number.
    Known(u16),
    /// Nothing; here is the hash for [`Subjects::insert`].
    New(u32),
}

/// Dictionary of distinct subjects in order of appearance; the empty one stands for the partition's own.
///
/// Invariants: `ends` is empty or has one more element than there are entries; `index` is empty while there is at most
/// one entry; `table` is a power of two, at most half full.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    pub(crate) blob: Vec<u8>,
    pub(crate) ends: Vec<u32>,
    pub(crate) index: Vec<u16>,
    last: u16,
    /// Open addressing: hash, and entry number + 1 (0 = free).
    table: Vec<(u32, u32)>,
    hasher: RandomState,
}

impl Subjects {
    /// Number of distinct subjects.
    pub(crate) fn len(&self) -> usize {
        self.ends.len().saturating_sub(1)
    }

    /// Entry `i`, i < len.
    pub(crate) fn entry(&self, i: usize) -> &[u8] {
        &self.blob[self.ends[i] as usize..self.ends[i + 1] as usize]
    }

    /// Looks for `subject`, first at the entry of the record before.
    pub(crate) fn find(&self, subject: &str) -> Found {
        if !self.ends.is_empty() && self.entry(usize::from(self.last)) == subject.as_bytes() {
            return Found::Known(self.last);
        }
        let hash = self.hasher.hash_one(subject) as u32;
        if self.table.is_empty() {
            return Found::New(hash);
        }
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.table[slot] {
                (_, 0) => return Found::New(hash),
                (h, i) if h == hash && self.entry(i as usize - 1) == subject.as_bytes() => {
                    return Found::Known((i - 1) as u16);
                }
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Adds an entry that [`Subjects::find`] said is new; returns its number. The caller checked [`MAX_SUBJECTS`].
    pub(crate) fn insert(&mut self, subject: &str, hash: u32) -> u16 {
        if self.ends.is_empty() {
            self.ends.push(0);
        }
        let entry = self.len();
        self.blob.extend_from_slice(subject.as_bytes());
        self.ends.push(self.blob.len() as u32);
        if self.table.len() < 2 * (entry + 1) {
            self.grow();
        }
        Self::place(&mut self.table, hash, entry as u32 + 1);
        entry as u16
    }

    /// Gives the next record, which `count` records precede, the subject of `entry`.
    pub(crate) fn assign(&mut self, count: usize, entry: u16) {
        if self.len() > 1 {
            if self.index.is_empty() {
                self.index.resize(count, 0);
            }
            self.index.push(entry);
        }
        self.last = entry;
    }

    /// Turns `own` into the empty entry, so that one meaning has one form. Afterwards look-ups are no longer valid.
    pub(crate) fn fold_own(&mut self, own: &str) {
        let Found::Known(own) = self.find(own) else {
            return;
        };
        let own = usize::from(own);
        let empty = match self.find("") {
            Found::Known(entry) => Some(usize::from(entry)),
            Found::New(_) => None,
        };
        if empty == Some(own) {
            return;
        }
        let gone = self.ends[own + 1] - self.ends[own];
        self.blob
            .drain(self.ends[own] as usize..self.ends[own + 1] as usize);
        for end in &mut self.ends[own + 1..] {
            *end -= gone;
        }
        if let Some(empty) = empty {
            // The earlier stays, so that entries keep the order in which they appeared.
            self.merge(own.max(empty), own.min(empty));
        }
    }

    /// Forgets everything, keeps memory.
    pub(crate) fn clear(&mut self) {
        self.blob.clear();
        self.ends.clear();
        self.index.clear();
        self.last = 0;
        self.table.fill((0, 0));
    }

    /// Removes the entry `from` in favour of `to`; both are empty.
    fn merge(&mut self, from: usize, to: usize) {
        self.ends.remove(from + 1);
        let shifted = |entry: usize| if entry > from { entry - 1 } else { entry };
        for entry in &mut self.index {
            let old = usize::from(*entry);
            *entry = shifted(if old == from { to } else { old }) as u16;
        }
        if self.len() == 1 {
            self.index.clear();
        }
    }

    fn grow(&mut self) {
        let mut table = vec![(0, 0); (self.table.len() * 2).max(8)];
        for &(hash, entry) in self.table.iter().filter(|slot| slot.1 != 0) {
            Self::place(&mut table, hash, entry);
        }
        self.table = table;
    }

    fn place(table: &mut [(u32, u32)], hash: u32, entry: u32) {
        let mask = table.len() - 1;
        let mut slot = hash as usize & mask;
        while table[slot].1 != 0 {
            slot = (slot + 1) & mask;
        }
        table[slot] = (hash, entry);
    }
}
