//! One segment as readers and the writer share it.
use crate::damage::resume::{Ending, Known};
use crate::disk::SyncFile;
use crate::files::Files;
use crate::index::{INDEX_INTERVAL, IndexEntry, SparseIndex, Summary};
use crate::preamble::{PREAMBLE_BYTES, Preamble};
use crate::storage::OpenMode;
use arc_swap::ArcSwapOption;
use bascule_record::Header;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// "No timestamp": no record so far.
pub(crate) const NO_TIME: i64 = i64::MIN;

/// A file of consecutive batches. Only the writer of the log changes it, and only while it is active.
#[derive(Debug)]
pub(crate) struct Segment {
    /// First offset.
    pub base_offset: u64,
    path: PathBuf,
    files: Arc<Files>,
    file: ArcSwapOption<SyncFile>,
    /// Read from since the files of sealed segments were last looked at.
    used: AtomicBool,
    /// Compaction put another file in this one's place.
    replaced: AtomicBool,
    /// When this life began to hold all of it: monotonic, ns.
    held_since: AtomicI64,
    /// Compaction left no record in it.
    vacant: AtomicBool,
    end: AtomicU64,
    next_offset: AtomicU64,
    records: AtomicU64,
    first_timestamp: AtomicI64,
    last_timestamp: AtomicI64,
    /// How late records may be that are lost at its end: [`NO_TIME`] when none are, `i64::MAX` when that is not known.
    lost_until: AtomicI64,
    /// Begun behind a lost tail: its first batch follows no batch.
    begins_anew: AtomicBool,
    index: SparseIndex,
}

impl Segment {
    /// A segment without batches.
    pub fn new(files: &Arc<Files>, path: PathBuf, base_offset: u64, segment_bytes: u64) -> Self {
        Self {
            base_offset,
            path,
            files: Arc::clone(files),
            file: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            held_since: AtomicI64::new(files.storage().monotonic_ns()),
            vacant: AtomicBool::new(false),
            end: AtomicU64::new(PREAMBLE_BYTES),
            next_offset: AtomicU64::new(base_offset),
            records: AtomicU64::new(0),
            first_timestamp: AtomicI64::new(NO_TIME),
            last_timestamp: AtomicI64::new(NO_TIME),
            lost_until: AtomicI64::new(NO_TIME),
            begins_anew: AtomicBool::new(false),
            index: SparseIndex::with_room(segment_bytes),
        }
    }

    /// A sealed segment as its index file describes it.
    pub fn from_summary(
        files: &Arc<Files>,
        path: PathBuf,
        summary: &Summary,
        index: SparseIndex,
    ) -> Self {
        Self {
            base_offset: summary.base_offset,
            path,
            files: Arc::clone(files),
            file: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            held_since: AtomicI64::new(files.storage().monotonic_ns()),
            vacant: AtomicBool::new(false),
            end: AtomicU64::new(summary.end),
            next_offset: AtomicU64::new(summary.next_offset),
            records: AtomicU64::new(summary.records),
            first_timestamp: AtomicI64::new(summary.first_timestamp),
            last_timestamp: AtomicI64::new(summary.last_timestamp),
            lost_until: AtomicI64::new(NO_TIME),
            begins_anew: AtomicBool::new(false),
            index,
        }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, opened when it is not. One of a sealed segment may be closed again when others are opened; who holds it
    /// keeps it. A segment that was removed or replaced stays readable to those, and is not found by others.
    pub fn file(self: &Arc<Self>) -> io::Result<Arc<SyncFile>> {
        if let Some(file) = self.file.load_full() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return Ok(file);
        }
        let file = self.files.storage().open(&self.path, OpenMode::Read)?;
        // Asked for after the file was opened: the name may have changed its meaning in between.
        if self.replaced.load(Ordering::Acquire) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = SyncFile::new(self.path.clone(), file);
        self.file.store(Some(Arc::clone(&file)));
        self.files.opened(self);
        Ok(file)
    }

    /// To be called before another file gets this one's name, or when it did not get it.
    pub fn set_replaced(&self, replaced: bool) {
        self.replaced.store(replaced, Ordering::Release);
    }

    /// Gives the segment the descriptor that its writer holds.
    pub fn set_file(&self, file: &Arc<SyncFile>) {
        self.file.store(Some(Arc::clone(file)));
    }

    /// From now on the writer does not hold the file any more.
    pub fn sealed(self: &Arc<Self>) {
        self.set_held_since(self.files.storage().monotonic_ns());
        self.files.opened(self);
    }

    /// Monotonic time since which nothing was added in this life, ns.
    pub fn held_since(&self) -> i64 {
        self.held_since.load(Ordering::Relaxed)
    }

    /// Sets that time.
    pub fn set_held_since(&self, monotonic_ns: i64) {
        self.held_since.store(monotonic_ns, Ordering::Relaxed);
    }

    /// Whether compaction has found that no record is left, and nothing is damaged.
    pub fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::Relaxed)
    }

    /// Says so.
    pub fn set_vacant(&self) {
        self.vacant.store(true, Ordering::Relaxed);
    }

    /// Whether it was read from since the last call.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Whether the file is held open.
    #[cfg(test)]
    pub fn is_open(&self) -> bool {
        self.file.load().is_some()
    }

    /// Lets go of the file.
    pub fn close_file(&self) {
        self.file.store(None);
    }

    /// Takes note of a batch that lies at the end.
    pub fn add(&self, header: &Header) {
        let position = self.end();
        let last_entry = self
            .index
            .len()
            .checked_sub(1)
            .and_then(|i| self.index.get(i));
        let first = self.records() == 0;
        if last_entry.is_none_or(|entry| position - entry.position >= INDEX_INTERVAL)
            && u32::try_from(position).is_ok()
        {
            let time_before = if first {
                header.base_timestamp
            } else {
                self.last_timestamp()
            };
            self.index.push(IndexEntry {
                offset: header.base_offset,
                position,
                time_before,
            });
        }
        if first {
            self.first_timestamp
                .store(header.base_timestamp, Ordering::Relaxed);
        }
        self.last_timestamp
            .store(header.max_timestamp, Ordering::Relaxed);
        self.records
            .fetch_add(u64::from(header.count), Ordering::Relaxed);
        self.next_offset
            .store(header.next_offset(), Ordering::Relaxed);
        self.end
            .store(position + header.batch_bytes() as u64, Ordering::Release);
    }

    /// Moves the end past bytes that are damaged or belong to no batch.
    pub fn skip(&self, end: u64, next_offset: u64) {
        self.next_offset.store(next_offset, Ordering::Relaxed);
        self.end.store(end, Ordering::Release);
    }

    /// Position after the last batch.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// First offset after the last batch.
    pub fn next_offset(&self) -> u64 {
        self.next_offset.load(Ordering::Acquire)
    }

    /// Records inside.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes of batches.
    pub fn batch_bytes(&self) -> u64 {
        self.end() - PREAMBLE_BYTES
    }

    /// Timestamp of the first record, [`NO_TIME`] when there is none.
    pub fn first_timestamp(&self) -> i64 {
        self.first_timestamp.load(Ordering::Relaxed)
    }

    /// Timestamp of the last record, [`NO_TIME`] when there is none.
    pub fn last_timestamp(&self) -> i64 {
        self.last_timestamp.load(Ordering::Relaxed)
    }

    /// Records at its end are lost, the last of them not later than `timestamp`; `i64::MAX` when that is not known.
    pub fn set_lost_until(&self, timestamp: i64) {
        self.lost_until.store(timestamp, Ordering::Relaxed);
    }

    /// Time of the last record that it held, lost ones included: [`NO_TIME`] when there was none, `None` when it is not
    /// known any more.
    pub fn latest(&self) -> Option<i64> {
        let lost = self.lost_until.load(Ordering::Relaxed);
        (lost != i64::MAX).then(|| lost.max(self.last_timestamp()))
    }

    /// Takes note of what its preamble says.
    pub fn set_preamble(&self, preamble: &Preamble) {
        let anew = preamble.chain == 0 && self.base_offset != 0;
        self.begins_anew.store(anew, Ordering::Relaxed);
    }

    /// Whether records at its end are lost.
    pub fn has_lost_end(&self) -> bool {
        self.lost_until.load(Ordering::Relaxed) != NO_TIME
    }

    /// What its first batch has to carry as chain value, when the batch before has this link; `None` when it may be any.
    pub fn first_chain(&self, link_before: Option<u32>) -> Option<u32> {
        link_before.filter(|_| !self.begins_anew.load(Ordering::Relaxed))
    }

    /// Takes over what cannot be seen in its batches, from the segment that this one replaces.
    pub fn take_over_from(&self, other: &Self) {
        self.set_held_since(other.held_since());
        self.set_lost_until(other.lost_until.load(Ordering::Relaxed));
        self.begins_anew
            .store(other.begins_anew.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Where to start a look-up.
    pub fn index(&self) -> &SparseIndex {
        &self.index
    }

    /// What is known of the file without reading it.
    pub fn known(&self) -> Known<'_> {
        // The end is read first: what it is followed by may only have moved on since.
        let position = self.end();
        Known {
            index: Some(&self.index),
            end: Ending {
                offset: u64::MAX,
                position: Some(position),
                chain: None,
            },
            durable: u64::MAX,
        }
    }

    /// What the index file will say.
    pub fn summary(&self, chain: u32, epoch: u64) -> Summary {
        Summary {
            chain,
            base_offset: self.base_offset,
            next_offset: self.next_offset(),
            end: self.end(),
            records: self.records(),
            first_timestamp: self.first_timestamp(),
            last_timestamp: self.last_timestamp(),
            epoch,
        }
    }
}

/// `<base offset, 20 digits>.seg`.
pub(crate) fn segment_name(base_offset: u64) -> String {
    format!("{base_offset:020}.seg")
}

/// The base offset in a segment's name; `None` when it is not one.
pub(crate) fn base_offset_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".seg")?;
    (name.len() == 20).then(|| name.parse().ok()).flatten()
}
