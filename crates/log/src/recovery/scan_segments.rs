//! Recovery of one log (reliability §3.1, steps 4 to 7).
//!
//! Segments below the durable point with a valid index file are not scanned, and the last segment is scanned from its index
//! snapshot on. The scan reads headers below the durable point and whole batches from there on. The first invalid batch at
//! or above the durable point is the torn tail: everything from there on is truncated, later segments included. The
//! truncation is synced before anything else happens, so no truncated batch reappears in a later run. An invalid batch below
//! the durable point is damage: nothing is truncated, the scan continues at the next batch that is proven to belong to the
//! log, and reads of the gap are refused.
//!
//! Without a readable checkpoint the durable point is the start of the last segment, because a segment is synced when it is
//! sealed. A crash may have come before that sync; then the WAL has the batches from the invalid one on. The durable point
//! is never below the log start: removed offsets are not used again.
use crate::io::disk::{self};
use crate::io::files::Files;
use crate::io::preallocate::{Preallocation, cover_last_block};
use crate::recovery::replay::Replay;
use crate::segment::damage::{Damage, Fault};
use crate::segment::epochs::EpochTable;
use crate::segment::preamble::PREAMBLE_BYTES;
use crate::segment::scan::LogPosition;
use crate::segment::segment_file::SegmentFile;
use crate::segment::segment_scan::{SegmentScan, Step, Tail};
use crate::segment::{NO_TIME, Segment};
use crate::state::checkpoint::Checkpoint;
use crate::state::index_snapshot::{IndexSnapshot, SnapshotState};
use crate::state::producers::Producers;
use crate::{Error, IoOp, LogId, LogOptions};
use bascule_record::Header;
use bascule_record::planted_bug::{self, PlantedBug};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a recovery, for the log line and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes scanned.
    pub scanned_bytes: u64,
    /// Batches found valid in the scan.
    pub batches: u64,
    /// Bytes of torn tail that were truncated, without the zeros after them.
    pub cut_bytes: u64,
    /// Damaged ranges below the durable point: offsets [start, end).
    pub damaged: Vec<(u64, u64)>,
    /// Batches replayed from the WAL.
    pub replayed: u64,
    /// Whether the log was closed cleanly.
    pub clean: bool,
}

/// The recovered state of a log. All of it is durable.
pub(crate) struct Recovered {
    /// The directory of the log.
    pub directory: PathBuf,
    /// All segments, the active one last.
    pub segments: Vec<Arc<Segment>>,
    /// The active segment.
    pub active: Arc<Segment>,
    /// The zeros after its end.
    pub preallocation: Arc<Preallocation>,
    /// First offset on disk.
    pub first_offset: u64,
    /// First offset after everything.
    pub next_offset: u64,
    /// Link of the last batch.
    pub chain: u32,
    /// Position of the last batch in the active segment, if known.
    pub last_batch: Option<u64>,
    /// The state of index snapshots of the active segment.
    pub index_snapshot_state: SnapshotState,
    /// Latest timestamp.
    pub last_timestamp: i64,
    /// (epoch, start offset), ascending.
    pub epochs: Vec<(u64, u64)>,
    /// The last batches of producers.
    pub producers: Producers,
    /// The damaged ranges of the report, with the files.
    pub quarantine: Vec<Damage>,
    /// The report.
    pub report: Recovery,
}

/// State of a log from files other than its segments, read before the scan.
pub(crate) struct RecoveryHints<'a> {
    /// The checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The index snapshot of the last segment.
    pub snapshot: Option<IndexSnapshot>,
    /// The batches of this log in the WAL.
    pub wal: Option<&'a Replay>,
}

/// The scan of the segments, in order.
pub(super) struct RecoveryScan<'a> {
    pub(super) files: &'a Arc<Files>,
    pub(super) directory: &'a Path,
    pub(super) identity: LogId,
    pub(super) options: &'a LogOptions,
    /// Offsets below it were removed.
    pub(super) log_start: u64,
    pub(super) durable: u64,
    pub(super) place: LogPosition,
    pub(super) last_timestamp: i64,
    pub(super) epochs: Vec<(u64, u64)>,
    pub(super) producers: Producers,
    /// The producers include every batch below this offset.
    pub(super) producers_to: u64,
    /// Whether the `producers` file is there and could not be read.
    pub(super) producers_unread: bool,
    pub(super) snapshot: Option<IndexSnapshot>,
    /// Position of the last batch of the segment.
    pub(super) last_batch: Option<u64>,
    pub(super) index_snapshot_state: SnapshotState,
    /// Whether a file was truncated.
    pub(super) truncated: bool,
    pub(super) report: Recovery,
    /// The batches of this log in the WAL, by base offset and chain value, if there is no checkpoint.
    pub(super) in_wal: Option<&'a HashSet<(u64, u32)>>,
    /// Damage whose end is not known yet.
    pub(super) broken: Option<(PathBuf, u64, Fault)>,
    pub(super) quarantine: Vec<Damage>,
}

/// How the scan of one segment ended.
enum End {
    /// At the end of its batches.
    Whole,
    /// The batches end at or above the durable point, before the end of the segment: truncate here.
    Cut {
        /// Whether anything but zeros follows.
        torn: bool,
    },
}

impl Recovered {
    /// Scans the segments, truncates the torn tail and syncs. `sources` is not empty.
    pub fn scan(
        files: &Arc<Files>,
        directory: &Path,
        identity: LogId,
        mut sources: Vec<SegmentFile>,
        hints: RecoveryHints<'_>,
        options: &LogOptions,
    ) -> Result<Self, Error> {
        let RecoveryHints {
            checkpoint,
            snapshot,
            wal,
        } = hints;
        let first_offset = sources.first().map_or(0, |source| source.base_offset);
        let last_base = sources.last().map_or(0, |source| source.base_offset);
        let durable = checkpoint.map_or(last_base, |known| known.durable.max(known.log_start));
        let snapshot_end = snapshot.as_ref().map_or(0, IndexSnapshot::end_offset);
        let in_wal = wal.filter(|_| checkpoint.is_none());
        let in_wal = in_wal.map(Replay::batches).transpose()?;
        let mut scan = RecoveryScan::new(
            files,
            directory,
            identity,
            options,
            durable.max(snapshot_end),
        );
        scan.snapshot = snapshot;
        scan.in_wal = in_wal.as_ref();
        scan.load_producer_snapshot(first_offset);
        if let Some(known) = checkpoint {
            scan.log_start = known.log_start;
            // Retention and trims alone move the log start, and they write the checkpoint before they remove a file.
            scan.place.offset = known.log_start;
            scan.mark_lost_until(first_offset);
        }
        let mut segments = Vec::with_capacity(sources.len());
        let mut kept = Vec::with_capacity(sources.len());
        let mut rest = sources.drain(..);
        while let Some(source) = rest.next() {
            if !kept.is_empty() && scan.is_left_over(&source)? {
                scan.remove_left_over(&source)?;
                continue;
            }
            if !scan.enter(&source, kept.is_empty()) {
                let dropped: Vec<SegmentFile> = std::iter::once(source).chain(rest).collect();
                scan.remove_segments_after(&dropped)?;
                break;
            }
            let (segment, end) = scan.segment(&source, rest.as_slice())?;
            if let Some(preamble) = &source.preamble {
                segment.set_preamble(preamble);
            }
            segments.push(Arc::new(segment));
            kept.push(source);
            if let End::Cut { torn } = end {
                let dropped: Vec<SegmentFile> = rest.collect();
                scan.remove_segments_after(&dropped)?;
                if let Some(source) = kept.last_mut() {
                    scan.cut(source, torn)?;
                }
                break;
            }
        }
        scan.finish(kept, segments, first_offset, checkpoint)
    }
}

impl<'a> RecoveryScan<'a> {
    fn new(
        files: &'a Arc<Files>,
        directory: &'a Path,
        identity: LogId,
        options: &'a LogOptions,
        durable: u64,
    ) -> Self {
        Self {
            files,
            directory,
            identity,
            options,
            log_start: 0,
            durable,
            place: LogPosition::first(0),
            last_timestamp: NO_TIME,
            epochs: EpochTable::read(files.storage(), directory, identity),
            producers: Producers::default(),
            producers_to: 0,
            producers_unread: false,
            snapshot: None,
            last_batch: None,
            index_snapshot_state: SnapshotState::default(),
            truncated: false,
            report: Recovery::default(),
            in_wal: None,
            broken: None,
            quarantine: Vec::new(),
        }
    }

    /// Moves the scan to the next segment. `false`: the segment does not continue the log and has to be removed.
    fn enter(&mut self, source: &SegmentFile, first: bool) -> bool {
        let preamble = source.preamble;
        if first {
            self.place.epoch = preamble.map_or(0, |preamble| preamble.epoch);
        }
        let continues = !first && self.place.offset == source.base_offset;
        if continues {
            self.broken = None;
        } else {
            if !first && self.place.offset >= self.durable {
                return false;
            }
            if !first {
                self.mark_lost_until(source.base_offset);
            }
            self.place.chain = preamble
                .filter(|preamble| preamble.chain != 0 || source.base_offset == 0)
                .map(|p| p.chain);
        }
        if source.base_offset != 0 && preamble.is_some_and(|preamble| preamble.chain == 0) {
            // Begun after a lost tail: its first batch has no predecessor.
            self.place.chain = None;
        }
        // Compaction may have removed the record with the latest time.
        let before = preamble.map_or(NO_TIME, |preamble| preamble.last_timestamp);
        self.last_timestamp = self.last_timestamp.max(before);
        self.place.position = PREAMBLE_BYTES;
        self.place.offset = source.base_offset;
        self.place.previous_batch = None;
        true
    }

    /// Loads the segment from its index file if that file is trusted, otherwise scans it.
    fn segment(
        &mut self,
        source: &SegmentFile,
        rest: &[SegmentFile],
    ) -> Result<(Segment, End), Error> {
        let index_file = self.read_index_file(source);
        self.last_batch = None;
        if let Some((summary, index)) = index_file.trusted {
            self.place = LogPosition {
                position: summary.end,
                offset: summary.next_offset,
                chain: Some(summary.chain),
                epoch: summary.epoch,
                previous_batch: None,
            };
            self.last_timestamp = self.last_timestamp.max(summary.last_timestamp);
            return Ok((
                Segment::from_summary(self.files, source.path.clone(), &summary, index),
                End::Whole,
            ));
        }
        let segment = self.begin_at_index_snapshot(source).unwrap_or_else(|| {
            let room = self.options.segment_bytes.max(source.len);
            let path = source.path.clone();
            Segment::new(self.files, path, source.base_offset, room)
        });
        let index = index_file.index.as_ref();
        let mut scan =
            SegmentScan::of_file(source, rest, self.identity, self.place, index, self.durable)
                .payloads_from(self.durable)
                .with_wal(self.in_wal);
        let end = self.scan_batches(&mut scan, &segment, rest.first())?;
        self.durable = scan.durable();
        self.report.scanned_bytes += scan.bytes_read();
        Ok((segment, end))
    }

    fn scan_batches(
        &mut self,
        scan: &mut SegmentScan<'_>,
        segment: &Segment,
        next: Option<&SegmentFile>,
    ) -> Result<End, Error> {
        let failed = |error| Error::io(IoOp::Read, segment.path(), error);
        // Segments that begin beyond the durable point were dropped from the cache before.
        let mut forgotten = segment.base_offset >= self.durable;
        let mut resumed_before = false;
        loop {
            if scan.place.offset >= self.durable && !forgotten {
                scan.forget_cached()
                    .map_err(|error| Error::io(IoOp::Sync, segment.path(), error))?;
                forgotten = true;
            }
            let step = match scan.next().map_err(failed)? {
                Step::Batch(at, header)
                    if self.overlaps_next_segment(&header, next, resumed_before)? =>
                {
                    scan.reject(at).map_err(failed)?
                }
                step => step,
            };
            let broken =
                |at: LogPosition, fault| Some((segment.path().to_path_buf(), at.position, fault));
            match step {
                Step::Batch(_, header) => {
                    segment.add(&header);
                    self.add_batch(&header);
                }
                Step::Gap(_) | Step::Tail(Tail::Lost(_))
                    if planted_bug::is_active(PlantedBug::DamageTakenForTornTail) =>
                {
                    return Ok(End::Cut { torn: true });
                }
                Step::Gap(gap) => {
                    self.broken = broken(gap.at, gap.fault);
                    self.mark_lost_until(gap.end);
                    self.place = scan.place;
                    segment.skip(self.place.position, self.place.offset);
                    resumed_before = true;
                }
                Step::Tail(Tail::Next) => return Ok(End::Whole),
                Step::Tail(Tail::Clean) => return Ok(End::Cut { torn: false }),
                Step::Tail(Tail::Torn) => return Ok(End::Cut { torn: true }),
                // Unreadable bytes may have been acknowledged: only bytes that are readable and invalid are a torn tail.
                Step::Tail(Tail::Unreadable(error)) => return Err(failed(error)),
                Step::Tail(Tail::Lost(fault)) => {
                    self.broken = broken(self.place, fault);
                    return Ok(End::Whole);
                }
                Step::Tail(Tail::Newer(source)) => {
                    return Err(Error::NewerBatch {
                        path: segment.path().to_path_buf(),
                        offset: self.place.offset,
                        source,
                    });
                }
            }
        }
    }

    /// Adds a valid batch. Its span counts for the producer: compaction may have left fewer records.
    fn add_batch(&mut self, header: &Header) {
        self.report.batches += 1;
        self.last_batch = Some(self.place.position);
        self.place = self.place.after(header);
        self.last_timestamp = self.last_timestamp.max(header.max_timestamp);
        if header.base_offset >= self.producers_to {
            self.producers.note(header);
        }
        let at = self
            .epochs
            .partition_point(|(epoch, _)| *epoch < header.leader_epoch);
        match self.epochs.get_mut(at) {
            Some((epoch, start)) if *epoch == header.leader_epoch => {
                *start = header.base_offset.min(*start);
            }
            _ => self
                .epochs
                .insert(at, (header.leader_epoch, header.base_offset)),
        }
    }

    /// Syncs a truncation and the names of new files. The data beyond the durable point was synced before the scan.
    fn sync_kept(
        &self,
        kept: &[SegmentFile],
        first_offset: u64,
        known: Checkpoint,
    ) -> Result<(), Error> {
        let count = kept.len();
        if let Some(last) = kept.last().filter(|_| self.truncated) {
            let synced = last.file.sync_all();
            synced.map_err(|error| Error::io(IoOp::Sync, &last.path, error))?;
        }
        // A process may have died between creating a file and syncing its name. The names of the directory and of the first
        // segment were synced before any record was durable.
        let (storage, begun) = (self.files.storage(), known.durable > 0);
        if !begun {
            disk::sync_directory_and_name(storage, self.directory)
        } else if count > 1 || first_offset > 0 {
            disk::sync_directory(storage, self.directory)
        } else {
            Ok(())
        }
    }

    fn finish(
        mut self,
        kept: Vec<SegmentFile>,
        mut segments: Vec<Arc<Segment>>,
        first_offset: u64,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Recovered, Error> {
        let known = checkpoint.unwrap_or_default();
        let as_closed = known.clean && known.durable == self.place.offset && !self.truncated;
        if !as_closed {
            self.sync_kept(&kept, first_offset, known)?;
        }
        self.mark_lost_ends(&kept, &segments);
        let last = kept.into_iter().last();
        if self.producers_to > self.place.offset {
            self.rebuild_producers(&segments)?;
            self.write_producer_snapshot()?;
        } else if self.producers_unread {
            self.write_producer_snapshot()?;
        }
        let lost_tail = self.place.offset < self.durable;
        if lost_tail {
            // Trimmed offsets are not lost.
            self.place.offset = self.place.offset.max(known.log_start);
            self.mark_lost_until(self.durable);
            if let Some(segment) = segments.last() {
                segment.set_lost_until(i64::MAX);
            }
            self.place.offset = self.durable;
            self.place.chain = None;
        }
        // Behind other batches nothing would link the next append to the log.
        let linked = self.place.chain.is_some()
            || segments.last().is_some_and(|last| last.batch_bytes() == 0);
        let last = last.filter(|source| linked && !lost_tail && source.preamble.is_some());
        let (active, preallocation) = match (last, segments.last()) {
            (Some(source), Some(segment)) => {
                disk::remove_file(self.files.storage(), &source.path.with_extension("idx"))?;
                let mut len = source.len;
                // The file ends with its last batch, without preallocated zeros.
                let lacks_zeros = !as_closed && !self.truncated && len == self.place.position;
                let is_empty = segment.batch_bytes() == 0;
                if lacks_zeros && !is_empty {
                    len = cover_last_block(&*source.file, len)
                        .map_err(|error| Error::io(IoOp::Sync, &source.path, error))?;
                }
                segment.begin_writing(source.file);
                let preallocation = Preallocation::new(len);
                if lacks_zeros && is_empty {
                    preallocation.cover_at_first_write();
                }
                (Arc::clone(segment), preallocation)
            }
            _ => self.continue_in_new(&mut segments)?,
        };
        let next_offset = self.place.offset;
        self.epochs.retain(|(_, start)| *start < next_offset);
        let untouched = self.report.cut_bytes == 0 && self.report.damaged.is_empty();
        self.report.clean = known.clean && known.durable == next_offset && untouched;
        Ok(Recovered {
            directory: self.directory.to_path_buf(),
            segments,
            active,
            preallocation,
            first_offset,
            next_offset,
            chain: self.place.chain.unwrap_or(0),
            last_batch: self.last_batch,
            index_snapshot_state: self.index_snapshot_state,
            last_timestamp: self.last_timestamp,
            epochs: self.epochs,
            producers: self.producers,
            quarantine: self.quarantine,
            report: self.report,
        })
    }
}
