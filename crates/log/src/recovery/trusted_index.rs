//! Segments that need no scan: whole ones by their index file, the beginning of the last one by the index snapshot.
use super::scan_segments::RecoveryScan;
use crate::io::disk;
use crate::segment::Segment;
use crate::segment::index::{self, SparseIndex, Summary};
use crate::segment::preamble::PREAMBLE_BYTES;
use crate::segment::segment_file::SegmentFile;
use crate::state::index_snapshot::{IndexSnapshot, SnapshotState};
use bascule_record::planted_bug::{self, PlantedBug};

/// The index file of a segment.
#[derive(Default)]
pub(super) struct IndexFile {
    /// The content, if it describes the file exactly and no scan is needed.
    pub trusted: Option<(Summary, SparseIndex)>,
    /// Otherwise the index alone, for resynchronisation after damage.
    pub index: Option<SparseIndex>,
}

impl RecoveryScan<'_> {
    /// Reads the index file and decides whether it replaces the scan.
    pub(super) fn read_index_file(&self, source: &SegmentFile) -> IndexFile {
        let read = disk::read(self.files.storage(), &source.path.with_extension("idx"));
        let known = read
            .ok()
            .and_then(|bytes| index::read(&bytes, self.identity, source.base_offset));
        let Some((summary, index)) = known else {
            return IndexFile::default();
        };
        // Also where compaction left batches without records.
        let epoch_known = summary.end <= PREAMBLE_BYTES
            || self.epochs.iter().any(|(epoch, _)| *epoch == summary.epoch);
        let enough = summary.end == source.len
            && source.preamble.is_some()
            && summary.next_offset <= self.durable
            && summary.next_offset <= self.producers_to
            && epoch_known;
        if enough || planted_bug::is_active(PlantedBug::IndexTrusted) {
            return IndexFile {
                trusted: Some((summary, index)),
                index: None,
            };
        }
        IndexFile {
            trusted: None,
            index: Some(index),
        }
    }

    /// The segment up to its index snapshot, and the position after it, if the snapshot is of this segment and complete.
    pub(super) fn begin_at_index_snapshot(&mut self, source: &SegmentFile) -> Option<Segment> {
        let of_this =
            |snapshot: &mut IndexSnapshot| snapshot.summary.base_offset == source.base_offset;
        let snapshot = self.snapshot.take_if(of_this)?;
        let summary = snapshot.summary;
        let epoch_known = self.epochs.iter().any(|(epoch, _)| *epoch == summary.epoch);
        if !epoch_known || summary.next_offset > self.durable {
            return None;
        }
        self.place = snapshot.place();
        self.last_timestamp = self.last_timestamp.max(summary.last_timestamp);
        if self.producers_to < summary.next_offset {
            self.producers = snapshot.producers;
            self.producers_to = summary.next_offset;
        }
        self.last_batch = Some(snapshot.last_batch);
        self.index_snapshot_state = SnapshotState::up_to(summary.base_offset, summary.end);
        let (files, path) = (self.files, source.path.clone());
        Some(Segment::from_summary(files, path, &summary, snapshot.index))
    }
}
