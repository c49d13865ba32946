//! One segment, shared by its writer and readers.
use crate::io::disk::SyncFile;
use crate::io::files::{Files, HeldFile};
use crate::io::storage::{OpenMode, StorageFile};
use crate::segment::index::{INDEX_INTERVAL, IndexEntry, SparseIndex, Summary};
use crate::segment::preamble::{PREAMBLE_BYTES, Preamble};
use crate::segment::resync::{ScanHints, SegmentBounds};
use crate::{Error, IoOp};
use arc_swap::ArcSwapOption;
use bascule_record::Header;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// "No timestamp": no record so far.
pub(crate) const NO_TIME: i64 = i64::MIN;

/// The log of an active segment, which knows how far its segments are synced.
pub(crate) trait SyncProgress: Debug + Send + Sync {
    /// Everything below this offset is synced in the segments themselves.
    fn segment_synced_end(&self) -> u64;
}

/// State of the writer of an active segment. The kernel reports a failed write-back only to descriptors that
/// were open at the time, so the file stays open until everything is synced.
#[derive(Debug)]
struct Writing {
    /// The log it belongs to; none yet, or none any more = nothing is synced.
    log: Option<Weak<dyn SyncProgress>>,
    /// The file was created and is not synced yet.
    is_new: bool,
    /// End offset of everything written, failed attempts included.
    to: u64,
}

impl Writing {
    fn is_unsynced(&self) -> bool {
        let log = self.log.as_ref().and_then(Weak::upgrade);
        self.is_new || log.is_none_or(|log| log.segment_synced_end() < self.to)
    }
}

/// A file of consecutive batches. Only the writer of the log changes it, and only while it is active.
#[derive(Debug)]
pub(crate) struct Segment {
    /// First offset.
    pub base_offset: u64,
    path: PathBuf,
    files: Arc<Files>,
    file: ArcSwapOption<SyncFile>,
    /// Whether it was used since the last [`HeldFile::take_used`].
    used: AtomicBool,
    /// The state of the writer while the segment is active.
    writing: Mutex<Option<Writing>>,
    /// Whether compaction replaced the file.
    replaced: AtomicBool,
    /// Monotonic time, ns, since which this process has held all of it.
    held_since: AtomicI64,
    /// Whether compaction left no record in it.
    vacant: AtomicBool,
    end: AtomicU64,
    next_offset: AtomicU64,
    records: AtomicU64,
    first_timestamp: AtomicI64,
    last_timestamp: AtomicI64,
    /// Latest time of records lost at its end: [`NO_TIME`] when none are lost, `i64::MAX` when unknown.
    lost_until: AtomicI64,
    /// Begun after a lost tail: its first batch has no predecessor.
    starts_new_chain: AtomicBool,
    index: SparseIndex,
}

impl Segment {
    /// A segment without batches.
    pub fn new(files: &Arc<Files>, path: PathBuf, base_offset: u64, segment_bytes: u64) -> Self {
        let summary = Summary {
            base_offset,
            next_offset: base_offset,
            end: PREAMBLE_BYTES,
            records: 0,
            first_timestamp: NO_TIME,
            last_timestamp: NO_TIME,
            chain: 0,
            epoch: 0,
        };
        let index = SparseIndex::with_room(segment_bytes);
        Self::from_summary(files, path, &summary, index)
    }

    /// A sealed segment described by its index file.
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
            writing: Mutex::new(None),
            replaced: AtomicBool::new(false),
            held_since: AtomicI64::new(files.storage().monotonic_ns()),
            vacant: AtomicBool::new(false),
            end: AtomicU64::new(summary.end),
            next_offset: AtomicU64::new(summary.next_offset),
            records: AtomicU64::new(summary.records),
            first_timestamp: AtomicI64::new(summary.first_timestamp),
            last_timestamp: AtomicI64::new(summary.last_timestamp),
            lost_until: AtomicI64::new(NO_TIME),
            starts_new_chain: AtomicBool::new(false),
            index,
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, opened if necessary. It may be closed again when other files are opened, unless it has unsynced writes; the
    /// returned handle stays valid, also after the segment was removed or replaced.
    pub fn file(self: &Arc<Self>) -> io::Result<Arc<SyncFile>> {
        if let Some(file) = self.file.load_full() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return Ok(file);
        }
        let writing = self.writing.lock();
        if let Some(file) = self.file.load_full() {
            return Ok(file);
        }
        let mode = match *writing {
            Some(_) => OpenMode::ReadWrite,
            None => OpenMode::Read,
        };
        let file = self.files.storage().open(&self.path, mode)?;
        // Checked after the open: another file may have got the name in between.
        if self.replaced.load(Ordering::Acquire) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = SyncFile::new(self.path.clone(), file);
        self.file.store(Some(Arc::clone(&file)));
        drop(writing);
        self.files.opened(self);
        Ok(file)
    }

    /// The file of an active segment, for writing batches up to `next_offset`. It stays open until they are synced.
    pub fn file_to_write(self: &Arc<Self>, next_offset: u64) -> io::Result<Arc<SyncFile>> {
        self.used.store(true, Ordering::Relaxed);
        let before = {
            let mut guard = self.writing.lock();
            let Some(writing) = guard.as_mut() else {
                return Err(io::Error::other("the segment is sealed"));
            };
            // From here on the file is not closed.
            let before = writing.to;
            writing.to = before.max(next_offset);
            if let Some(file) = self.file.load_full() {
                return Ok(file);
            }
            before
        };
        self.file().inspect_err(|_| {
            if let Some(writing) = self.writing.lock().as_mut() {
                writing.to = before;
            }
        })
    }

    /// Makes the segment active: it was just created, or found by recovery. Its file stays open until [`Segment::attach`].
    pub fn begin_writing(&self, file: Arc<dyn StorageFile>) {
        *self.writing.lock() = Some(Writing {
            log: None,
            is_new: true,
            to: 0,
        });
        self.set_file(&SyncFile::new(self.path.clone(), file));
    }

    /// Syncs the file.
    pub fn sync(self: &Arc<Self>) -> Result<(), Error> {
        let file = self.file();
        file.map_err(|source| Error::io(IoOp::Open, &self.path, source))?
            .sync()
    }

    /// Sets the log of the active segment.
    pub fn attach<L: SyncProgress + 'static>(self: &Arc<Self>, log: &Arc<L>) {
        if let Some(writing) = self.writing.lock().as_mut() {
            let log: Weak<dyn SyncProgress> = Arc::<L>::downgrade(log);
            writing.log = Some(log);
        }
        self.files.opened(self);
    }

    /// Records that the file is synced as it was created or found.
    pub fn made_durable(&self) {
        if let Some(writing) = self.writing.lock().as_mut() {
            writing.is_new = false;
        }
    }

    /// Marks the file as replaced, before another file gets its name; or undoes that when the rename failed.
    pub fn set_replaced(&self, replaced: bool) {
        self.replaced.store(replaced, Ordering::Release);
    }

    /// Sets the open file.
    pub fn set_file(&self, file: &Arc<SyncFile>) {
        self.file.store(Some(Arc::clone(file)));
    }

    /// Ends the writing: the segment is sealed.
    pub fn sealed(self: &Arc<Self>) {
        *self.writing.lock() = None;
        self.set_held_since(self.files.storage().monotonic_ns());
        self.files.opened(self);
    }

    /// Monotonic time since which this process has added nothing, ns.
    pub fn held_since(&self) -> i64 {
        self.held_since.load(Ordering::Relaxed)
    }

    /// Sets [`Segment::held_since`].
    pub fn set_held_since(&self, monotonic_ns: i64) {
        self.held_since.store(monotonic_ns, Ordering::Relaxed);
    }

    /// Returns whether compaction found it without records and without damage.
    pub fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::Relaxed)
    }

    /// Marks the segment as vacant.
    pub fn set_vacant(&self) {
        self.vacant.store(true, Ordering::Relaxed);
    }

    /// Closes the file; it is reopened on use.
    pub fn close_file(&self) {
        self.file.store(None);
    }

    /// Closes the file for good: current readers finish, later ones cannot open it.
    pub fn release(&self) {
        self.set_replaced(true);
        // The holder of this lock may be opening the file, and checks the flag before.
        let _writing = self.writing.lock();
        self.file.store(None);
    }

    /// Adds a batch at the end.
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

    /// Moves the end past damaged bytes.
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

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes of batches.
    pub fn batch_bytes(&self) -> u64 {
        self.end() - PREAMBLE_BYTES
    }

    /// Bytes of batches from the last indexed one at or before `offset`.
    pub fn bytes_from(&self, offset: u64) -> u64 {
        let indexed = self.index().floor(offset);
        let from = indexed.map_or(PREAMBLE_BYTES, |entry| entry.position);
        self.end().saturating_sub(from)
    }

    /// Timestamp of the first record, [`NO_TIME`] when there is none.
    pub fn first_timestamp(&self) -> i64 {
        self.first_timestamp.load(Ordering::Relaxed)
    }

    /// Timestamp of the last record, [`NO_TIME`] when there is none.
    pub fn last_timestamp(&self) -> i64 {
        self.last_timestamp.load(Ordering::Relaxed)
    }

    /// Records that records at its end are lost, none later than `timestamp`; `i64::MAX` = unknown.
    pub fn set_lost_until(&self, timestamp: i64) {
        self.lost_until.store(timestamp, Ordering::Relaxed);
    }

    /// Time of the last record, lost ones included: [`NO_TIME`] when there was none, `None` when it is unknown.
    pub fn latest(&self) -> Option<i64> {
        let lost = self.lost_until.load(Ordering::Relaxed);
        (lost != i64::MAX).then(|| lost.max(self.last_timestamp()))
    }

    /// Applies the preamble.
    pub fn set_preamble(&self, preamble: &Preamble) {
        let starts = preamble.chain == 0 && self.base_offset != 0;
        self.starts_new_chain.store(starts, Ordering::Relaxed);
    }

    /// Returns whether records at its end are lost.
    pub fn has_lost_end(&self) -> bool {
        self.lost_until.load(Ordering::Relaxed) != NO_TIME
    }

    /// The chain value of its first batch, given the link of the batch before; `None` when any is valid.
    pub fn first_chain(&self, link_before: Option<u32>) -> Option<u32> {
        link_before.filter(|_| !self.starts_new_chain.load(Ordering::Relaxed))
    }

    /// Copies the state that is not in the batches from the segment that this one replaces.
    pub fn take_over_from(&self, other: &Self) {
        self.set_held_since(other.held_since());
        self.set_lost_until(other.lost_until.load(Ordering::Relaxed));
        self.starts_new_chain.store(
            other.starts_new_chain.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }

    /// The sparse index.
    pub fn index(&self) -> &SparseIndex {
        &self.index
    }

    /// Hints for a scan of the file.
    pub fn hints(&self) -> ScanHints<'_> {
        // The end is read first: it may only have grown since.
        let position = self.end();
        ScanHints {
            index: Some(&self.index),
            end: SegmentBounds {
                offset: u64::MAX,
                position: Some(position),
                chain: None,
                is_lost: false,
            },
            durable: u64::MAX,
        }
    }

    /// The summary for the index file.
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

impl HeldFile for Segment {
    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    #[cfg(test)]
    fn is_open(&self) -> bool {
        self.file.load().is_some()
    }

    fn close_unless_unsynced(&self) -> bool {
        // The holder of this lock is opening the file or about to write.
        let Some(writing) = self.writing.try_lock() else {
            return false;
        };
        let closes = !writing.as_ref().is_some_and(Writing::is_unsynced);
        if closes {
            self.file.store(None);
        }
        closes
    }
}
