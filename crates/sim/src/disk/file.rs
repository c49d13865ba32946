//! One file: what readers see, what is on the disk, and what lies between the two.
//!
//! Writes go to pages in memory. A sync makes them durable. At a crash each page that was not synced is kept, lost, kept
//! in part (sectors of 512 bytes, any of them), or left as noise; the length is any between the durable one and the
//! last. Noise hits only sectors that held nothing yet: a disk writes a sector whole or not at all where one was. A cut that was not synced may come undone as a whole, and then nothing behind it was written either: both are
//! changes of metadata, which filesystems keep in order.
use super::SimRng;
use std::collections::BTreeSet;

/// Unit of caching.
pub(crate) const PAGE: usize = 4096;
/// Unit that a disk writes whole.
const SECTOR: usize = 512;

/// How a crash treats what was not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// Probability that a page is kept as a whole.
    pub keep: f64,
    /// Probability that a page which is not is kept in part.
    pub tear: f64,
    /// Probability that a sector of a torn page is noise.
    pub noise: f64,
}

/// What a crash did to one file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    /// Pages kept whole.
    pub kept: u64,
    /// Pages lost.
    pub lost: u64,
    /// Pages kept in part.
    pub torn: u64,
}

/// The content of a file, in memory and on the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileState {
    data: Vec<u8>,
    durable: Vec<u8>,
    /// Numbers of pages written since they last reached the disk.
    dirty: BTreeSet<usize>,
    /// The least length the file was cut to since the last sync.
    cut_to: Option<usize>,
}

impl FileState {
    /// What readers see.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// What is on the disk.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Whether a sync has something to write.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.cut_to.is_some() || self.data.len() != self.durable.len()
    }

    /// Bytes of memory that a write of `len` bytes at `position` would add to the file.
    pub fn growth(&self, position: usize, len: usize) -> usize {
        (position + len).saturating_sub(self.data.len())
    }

    /// Writes to memory.
    pub fn write(&mut self, bytes: &[u8], position: usize) {
        let end = position + bytes.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        if let Some(place) = self.data.get_mut(position..end) {
            place.copy_from_slice(bytes);
        }
        if !bytes.is_empty() {
            self.dirty.extend(position / PAGE..end.div_ceil(PAGE));
        }
    }

    /// Cuts the file, or makes it longer with zeros.
    pub fn set_len(&mut self, len: usize) {
        if len < self.data.len() {
            self.cut_to = Some(self.cut_to.map_or(len, |before| before.min(len)));
            self.dirty.split_off(&len.div_ceil(PAGE));
        }
        self.data.resize(len, 0);
    }

    /// Makes everything durable.
    pub fn sync(&mut self) {
        self.persist_length(self.data.len());
        for page in std::mem::take(&mut self.dirty) {
            self.persist(page);
        }
    }

    /// Forgets what is in memory from a position on and not going to be written: the next read shows what the disk holds.
    pub fn forget_cached(&mut self, from: u64) {
        let first = usize::try_from(from).unwrap_or(usize::MAX) / PAGE;
        let clean: Vec<usize> = (first..self.data.len().div_ceil(PAGE))
            .filter(|page| !self.dirty.contains(page))
            .collect();
        for page in clean {
            self.evict(page);
        }
    }

    /// As [`FileState::forget_cached`], for some of the pages.
    pub fn forget_some(&mut self, random: &mut SimRng) {
        for page in 0..self.data.len().div_ceil(PAGE) {
            if random.chance(0.3) && !self.dirty.contains(&page) {
                self.evict(page);
            }
        }
    }

    fn evict(&mut self, page: usize) {
        let mut bytes = page_of(&self.durable, page).to_vec();
        // What a cut took away does not come back into memory, even if the disk still has it.
        let cut = self.cut_to.unwrap_or(usize::MAX);
        bytes.truncate(cut.saturating_sub(page * PAGE));
        bytes.resize(PAGE, 0);
        overwrite(&mut self.data, page * PAGE, &bytes);
    }

    /// A sync that fails: some pages reached the disk, the others are forgotten, and nobody will write them again.
    pub fn fail_sync(&mut self, random: &mut SimRng) {
        for page in std::mem::take(&mut self.dirty) {
            if random.chance(0.5) {
                self.persist(page);
            }
        }
    }

    /// Writes one page back, as the kernel does at any time. Returns whether there was one.
    pub fn write_back(&mut self, random: &mut SimRng) -> bool {
        let chosen = random.below(self.dirty.len() as u64) as usize;
        let Some(page) = self.dirty.iter().nth(chosen).copied() else {
            return false;
        };
        self.dirty.remove(&page);
        let end = ((page + 1) * PAGE).min(self.data.len());
        self.persist_length(end);
        self.persist(page);
        true
    }

    /// Syncs, but one page lands where another one should be. Returns the two places, if there were two.
    pub fn sync_misdirected(&mut self, random: &mut SimRng) -> Option<(usize, usize)> {
        let pages = self.data.len() / PAGE;
        let chosen = random.below(self.dirty.len() as u64) as usize;
        let meant = self.dirty.iter().nth(chosen).copied()?;
        let hit = random.below(pages as u64) as usize;
        let stale = page_of(&self.durable, meant).to_vec();
        self.sync();
        if hit == meant || pages == 0 {
            return None;
        }
        let moved = page_of(&self.data, meant).to_vec();
        overwrite(&mut self.durable, meant * PAGE, &[0; PAGE]);
        overwrite(&mut self.durable, meant * PAGE, &stale);
        overwrite(&mut self.durable, hit * PAGE, &moved);
        Some((meant * PAGE, hit * PAGE))
    }

    /// Changes bytes in memory and on the disk behind everybody's back. The file grows when they lie beyond its end.
    pub fn damage(&mut self, position: usize, bytes: &[u8]) {
        let end = position + bytes.len();
        for content in [&mut self.data, &mut self.durable] {
            content.resize(content.len().max(end), 0);
        }
        overwrite(&mut self.data, position, bytes);
        overwrite(&mut self.durable, position, bytes);
    }

    /// Cuts the file in memory and on the disk behind everybody's back.
    pub fn damage_length(&mut self, len: usize) {
        self.data.truncate(len);
        self.durable.truncate(len);
    }

    /// Loses power: what is left is what readers see from now on.
    pub fn crash(&mut self, how: Crash, random: &mut SimRng) -> Loss {
        let mut loss = Loss::default();
        let mut dirty = std::mem::take(&mut self.dirty);
        let undone = self.cut_to.is_some() && random.chance(0.5);
        if undone {
            let first = self.cut_to.unwrap_or_default() / PAGE;
            dirty.split_off(&first);
        } else {
            let (least, most) = (
                self.durable.len().min(self.cut_to.unwrap_or(usize::MAX)),
                self.data.len(),
            );
            let grown = most.saturating_sub(least) as u64;
            let len = match random.below(4) {
                0 => least,
                1 => least + random.below(grown + 1) as usize,
                _ => most.max(least),
            };
            self.persist_length(len);
        }
        for page in dirty {
            if random.chance(how.keep) {
                loss.kept += 1;
                self.persist(page);
            } else if random.chance(how.tear) {
                loss.torn += 1;
                self.tear(page, how.noise, random);
            } else {
                loss.lost += 1;
            }
        }
        self.cut_to = None;
        self.data.clone_from(&self.durable);
        loss
    }

    /// Makes the length durable: first the cut, then the growth, with zeros.
    fn persist_length(&mut self, len: usize) {
        if let Some(cut) = self.cut_to.take() {
            self.durable.truncate(cut);
        }
        self.durable.resize(len.max(self.durable.len()), 0);
    }

    /// Copies a page to the disk, as far as the file is that long there.
    fn persist(&mut self, page: usize) {
        let bytes = page_of(&self.data, page).to_vec();
        overwrite(&mut self.durable, page * PAGE, &bytes);
    }

    fn tear(&mut self, page: usize, noise: f64, random: &mut SimRng) {
        let bytes = page_of(&self.data, page).to_vec();
        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
            let position = page * PAGE + number * SECTOR;
            let before = self.durable.get(position..position + sector.len());
            let empty = before.is_some_and(|before| before.iter().all(|byte| *byte == 0));
            let first = empty && sector.iter().any(|byte| *byte != 0);
            if random.chance(noise) && first {
                let garbage: Vec<u8> = sector.iter().map(|_| random.below(256) as u8).collect();
                overwrite(&mut self.durable, position, &garbage);
            } else if random.chance(0.5) {
                overwrite(&mut self.durable, position, sector);
            }
        }
    }
}

/// The bytes of a page, fewer at the end.
fn page_of(content: &[u8], page: usize) -> &[u8] {
    let start = (page * PAGE).min(content.len());
    let end = (start + PAGE).min(content.len());
    content.get(start..end).unwrap_or_default()
}

/// Overwrites as much as lies within the content.
fn overwrite(content: &mut [u8], position: usize, bytes: &[u8]) {
    let start = position.min(content.len());
    let end = (start + bytes.len()).min(content.len());
    if let (Some(place), Some(source)) = (content.get_mut(start..end), bytes.get(..end - start)) {
        place.copy_from_slice(source);
    }
}
