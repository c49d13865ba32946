//! The state that the writer of a log shares with its readers: the list of segments and the end offsets, read without locks.
//!
//! Order of publication: bytes are in the page cache before a segment's end moves, a segment is in the list before the
//! log end moves into it, and the high watermark moves last. So a reader that loads the high watermark first finds
//! everything below it.
use crate::LogId;
use crate::segment::scan::LogPosition;
use crate::segment::{NO_TIME, Segment, SyncProgress};
use crate::state::checkpoint::Checkpoint;
use crate::state::quarantine::Quarantine;
use arc_swap::ArcSwap;
use bascule_record::Header;
use bascule_record::crypt::KeyRing;
use bascule_record::planted_bug::{self, PlantedBug};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Batches that are durable although the segment that they belong to is not synced yet.
pub(crate) trait UnsyncedBatches: Debug + Send + Sync {
    /// The batch of a log at a place; `None` when it is not there or cannot be read.
    fn find(&self, identity: LogId, place: &LogPosition) -> Option<(Header, Bytes)>;
}

/// Segments in order of offsets; the last is the active one. Never empty.
pub(crate) type SegmentList = Vec<Arc<Segment>>;

/// The readable side of a log.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The directory of the log.
    pub directory: PathBuf,
    /// The id of the log.
    pub identity: LogId,
    segments: ArcSwap<SegmentList>,
    /// Held by background work while it renames or replaces sealed segments or writes derived files. Such work first checks
    /// whether the log is closed: then another log may own the files.
    pub pending_deletes: Mutex<PendingDeletes>,
    log_start: AtomicU64,
    log_end: AtomicU64,
    durable_end: AtomicU64,
    segment_synced_end: AtomicU64,
    high_watermark: AtomicU64,
    hold: AtomicU64,
    last_timestamp: AtomicI64,
    closed: AtomicBool,
    /// Whether the last commit was synced in the WAL.
    is_in_wal: AtomicBool,
    /// Whether a sweep of the directory is queued.
    pub sweep_waits: AtomicBool,
    keys: ArcSwap<KeyRing>,
    /// Holds the batches between the segment-synced and the durable end.
    wal: OnceLock<Weak<dyn UnsyncedBatches>>,
    /// The known damaged ranges.
    pub quarantine: Quarantine,
}

/// Files that wait to be unlinked. Times are monotonic, ns, so that setting the clock shortens no grace period.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletes {
    /// When the log was opened: files marked earlier have waited at least since then.
    pub opened: i64,
    /// When each file was marked in this run.
    pub marked: HashMap<PathBuf, i64>,
    /// Segments that left the list and whose files still have their names, with the time of day when they left, ns since
    /// 1970.
    pub expired: Vec<(i64, Arc<Segment>)>,
    /// Segments that left the list, and since when.
    pub retired: Vec<(i64, Arc<Segment>)>,
}

impl Shared {
    /// The state of a log that shows no records yet.
    pub fn new(directory: PathBuf, identity: LogId, segments: SegmentList, log_start: u64) -> Self {
        Self {
            directory,
            identity,
            segments: ArcSwap::from_pointee(segments),
            pending_deletes: Mutex::default(),
            log_start: AtomicU64::new(log_start),
            log_end: AtomicU64::new(log_start),
            durable_end: AtomicU64::new(log_start),
            segment_synced_end: AtomicU64::new(log_start),
            high_watermark: AtomicU64::new(log_start),
            hold: AtomicU64::new(u64::MAX),
            last_timestamp: AtomicI64::new(NO_TIME),
            closed: AtomicBool::new(false),
            is_in_wal: AtomicBool::new(false),
            sweep_waits: AtomicBool::new(false),
            keys: ArcSwap::default(),
            wal: OnceLock::new(),
            quarantine: Quarantine::default(),
        }
    }

    /// The list as it is now.
    pub fn segments(&self) -> Arc<SegmentList> {
        self.segments.load_full()
    }

    /// Changes the list. The writer adds and removes, a compaction replaces: `edit` may run more than once.
    pub fn edit_segments(&self, edit: impl Fn(&mut SegmentList)) {
        self.segments.rcu(|segments| {
            let mut segments = segments.as_ref().clone();
            edit(&mut segments);
            segments
        });
    }

    /// Replaces adjacent segments by others; `false` when one of them is no longer in the list.
    pub fn replace_segments(&self, old: &[Arc<Segment>], new: &[Arc<Segment>]) -> bool {
        let replaced = AtomicBool::new(false);
        let is_here = |window: &[Arc<Segment>]| {
            let mut pairs = window.iter().zip(old);
            pairs.all(|(here, old)| Arc::ptr_eq(here, old))
        };
        self.edit_segments(|segments| {
            let place = segments.windows(old.len().max(1)).position(is_here);
            replaced.store(place.is_some(), Ordering::Relaxed);
            if let Some(at) = place {
                segments.splice(at..at + old.len(), new.iter().cloned());
            }
        });
        replaced.into_inner()
    }

    /// Returns whether exactly this segment is in the list.
    pub fn holds(&self, segment: &Arc<Segment>) -> bool {
        self.segments()
            .iter()
            .any(|other| Arc::ptr_eq(other, segment))
    }

    /// First readable offset.
    pub fn log_start(&self) -> u64 {
        self.log_start.load(Ordering::Acquire)
    }

    /// Moves the log start, never back.
    pub fn raise_log_start(&self, offset: u64) {
        self.log_start.fetch_max(offset, Ordering::AcqRel);
    }

    /// Next offset to be written.
    pub fn log_end(&self) -> u64 {
        self.log_end.load(Ordering::Acquire)
    }

    /// Publishes the end after an append, and the time of its last record.
    pub fn set_log_end(&self, offset: u64, last_timestamp: i64) {
        self.last_timestamp.store(last_timestamp, Ordering::Relaxed);
        self.log_end.store(offset, Ordering::Release);
    }

    /// End of what is synced, in the segments or in the WAL.
    pub fn durable_end(&self) -> u64 {
        self.durable_end.load(Ordering::Acquire)
    }

    /// Moves the durable end, never back.
    pub fn raise_durable_end(&self, offset: u64) {
        self.durable_end.fetch_max(offset, Ordering::AcqRel);
    }

    /// End of what is synced in the segments themselves; above the durable end for an instant at most.
    pub fn segment_synced_end(&self) -> u64 {
        self.segment_synced_end.load(Ordering::Acquire)
    }

    /// Moves the segment-synced end, and the durable one with it; never back.
    pub fn raise_segment_synced_end(&self, offset: u64) {
        self.raise_durable_end(offset);
        self.segment_synced_end.fetch_max(offset, Ordering::AcqRel);
    }

    /// End of committed records.
    pub fn high_watermark(&self) -> u64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// Moves the high watermark, never back and never past the log end.
    pub fn raise_high_watermark(&self, offset: u64) {
        self.high_watermark
            .fetch_max(self.committable(offset), Ordering::AcqRel);
    }

    /// Nothing is removed from this offset on.
    pub fn hold(&self) -> u64 {
        self.hold.load(Ordering::Acquire)
    }

    /// Sets it.
    pub fn set_hold(&self, from: u64) {
        self.hold.store(from, Ordering::Release);
    }

    fn committable(&self, offset: u64) -> u64 {
        if planted_bug::is_active(PlantedBug::HighWatermarkTrusted) {
            return offset;
        }
        offset.min(self.log_end())
    }

    /// The content of a checkpoint written now. The durable point is read first, so it is never ahead of the rest. The log start
    /// is limited to the larger of the durable point and the base offset of the first segment: a trim may move it further, but the
    /// acknowledged records in between may be only in the WAL so far.
    pub fn checkpoint(&self, clean: bool) -> Checkpoint {
        let durable = self.segment_synced_end();
        let first = self.segments().first().map_or(0, |first| first.base_offset);
        Checkpoint {
            high_watermark: self.high_watermark(),
            log_start: self.log_start().min(durable.max(first)),
            durable,
            clean,
        }
    }

    /// Timestamp of the last record, [`NO_TIME`] when nothing was ever appended.
    pub fn last_timestamp(&self) -> i64 {
        self.last_timestamp.load(Ordering::Relaxed)
    }

    /// The stream's keys as they are now.
    pub fn keys(&self) -> KeyRing {
        KeyRing::clone(&self.keys.load())
    }

    /// Replaces the keys; only the writer may.
    pub fn set_keys(&self, keys: &KeyRing) {
        self.keys.store(Arc::new(keys.clone()));
    }

    /// Returns whether the last commit was synced in the WAL: then no ack waits for syncs of the segment.
    pub fn is_in_wal(&self) -> bool {
        self.is_in_wal.load(Ordering::Relaxed)
    }

    /// Records where the last commit was synced.
    pub fn set_in_wal(&self, in_wal: bool) {
        self.is_in_wal.store(in_wal, Ordering::Relaxed);
    }

    /// Sets the WAL that the log uses; once.
    pub fn set_wal<W: UnsyncedBatches + 'static>(&self, wal: &Arc<W>) {
        let wal: Weak<dyn UnsyncedBatches> = Arc::<W>::downgrade(wal);
        // A log is opened once.
        let _ = self.wal.set(wal);
    }

    /// The batch at a place that is durable in the WAL alone.
    pub fn find_in_wal(&self, place: &LogPosition) -> Option<(Header, Bytes)> {
        if !(self.segment_synced_end()..self.durable_end()).contains(&place.offset) {
            return None;
        }
        let wal = self.wal.get().and_then(Weak::upgrade)?;
        wal.find(self.identity, place)
    }

    /// Returns whether the log was closed or deleted.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the files of all segments of a closed log, so that remaining readers do not hold the space of removed files. Waits
    /// for background work that renames files.
    pub fn release_files(&self) {
        let mut deletes = self.pending_deletes.lock();
        let gone = std::mem::take(&mut deletes.expired).into_iter();
        let gone = gone.chain(std::mem::take(&mut deletes.retired));
        gone.for_each(|(_, segment)| segment.release());
        for segment in self.segments().iter() {
            segment.release();
        }
    }

    /// Closes the log for readers.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl SyncProgress for Shared {
    fn segment_synced_end(&self) -> u64 {
        Self::segment_synced_end(self)
    }
}
