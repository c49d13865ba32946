//! Consistency checks between adjacent segments.
use super::scan_segments::RecoveryScan;
use crate::io::file_names::segment_name;
use crate::segment::damage::{Damage, Fault};
use crate::segment::segment_file::{SegmentFile, empty_end, has_batch, is_vacant, mark_removed};
use crate::segment::{NO_TIME, Segment};
use crate::{Error, IoOp};
use bascule_record::Header;
use std::sync::Arc;

impl RecoveryScan<'_> {
    /// Returns whether the batch overlaps the next segment and that segment is valid: then the batch is a misplaced copy. A next
    /// segment without a batch may be the rest of a roll without space, after which the writer continued here.
    pub(super) fn overlaps_next_segment(
        &self,
        header: &Header,
        next: Option<&SegmentFile>,
        resumed_before: bool,
    ) -> Result<bool, Error> {
        let Some(next) = next.filter(|next| next.base_offset < header.next_offset()) else {
            return Ok(false);
        };
        let continues = next.base_offset == self.place.offset
            && next.preamble.map(|preamble| preamble.chain) == self.place.chain;
        if !resumed_before {
            return Ok(continues && has_batch(next, self.identity)?);
        }
        let vacant = is_vacant(next).map_err(|source| Error::io(IoOp::Read, &next.path, source))?;
        Ok(header.base_offset < next.base_offset || !vacant)
    }

    /// Returns whether a roll that ran out of space left this segment, or a compaction that merged it: it begins before the end of the
    /// log, and is empty or has no records.
    pub(super) fn is_left_over(&self, source: &SegmentFile) -> Result<bool, Error> {
        let log_end = self.place.offset;
        if source.base_offset >= log_end {
            return Ok(false);
        }
        let merged = empty_end(source, self.identity)?.is_some_and(|end| end <= log_end);
        Ok(merged || !has_batch(source, self.identity)?)
    }

    /// Renames its file to a deleted name.
    pub(super) fn remove_left_over(&self, source: &SegmentFile) -> Result<(), Error> {
        let storage = self.files.storage();
        let path = std::iter::once(source.path.as_path());
        mark_removed(storage, self.directory, path, storage.wall_clock_ns())
    }

    /// Sets the latest time of records lost at the ends of segments. The preamble of the next segment has it, unless that
    /// segment was begun after a lost tail.
    pub(super) fn mark_lost_ends(&self, kept: &[SegmentFile], segments: &[Arc<Segment>]) {
        for (at, segment) in segments.iter().enumerate() {
            let (next, end) = (kept.get(at + 1), segment.next_offset());
            let ends_in_hole =
                |(_, hole_end): &(u64, u64)| end == *hole_end && end > segment.base_offset;
            let is_short = next.is_some_and(|next| end < next.base_offset);
            if is_short || self.report.damaged.iter().any(ends_in_hole) {
                let preamble = next.and_then(|next| next.preamble.as_ref());
                let latest = preamble.filter(|preamble| preamble.chain != 0);
                let latest = latest.map(|preamble| preamble.last_timestamp);
                segment.set_lost_until(latest.filter(|time| *time != NO_TIME).unwrap_or(i64::MAX));
            }
        }
    }

    /// Records that the offsets from the position up to `end` are lost, unless they were removed. Without known damage a whole
    /// file is missing.
    pub(super) fn mark_lost_until(&mut self, end: u64) {
        let start = self.place.offset.max(self.log_start);
        let broken = self.broken.take();
        if start >= end {
            return;
        }
        let missing = || (self.directory.join(segment_name(start)), 0, Fault::Missing);
        let (path, position, fault) = broken.unwrap_or_else(missing);
        self.report.damaged.push((start, end));
        self.quarantine.push(Damage {
            start,
            end,
            path,
            position,
            fault,
        });
    }
}
