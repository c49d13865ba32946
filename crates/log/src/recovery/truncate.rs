//! The end of a recovered log: truncates the torn tail and rebuilds the producer snapshot that it invalidates.
use super::scan_segments::RecoveryScan;
use crate::io::disk;
use crate::io::preallocate::Preallocation;
use crate::segment::Segment;
use crate::segment::create::create_segment;
use crate::segment::damage::Fault;
use crate::segment::preamble::{PREAMBLE_BYTES, Preamble};
use crate::segment::scan::LogPosition;
use crate::segment::segment_file::{SegmentFile, last_non_zero, mark_removed};
use crate::segment::segment_scan::{SegmentScan, Step, Tail};
use crate::state::producers::Producers;
use crate::{Error, IoOp, failpoint};
use bascule_record::planted_bug::{self, PlantedBug};
use std::io;
use std::sync::Arc;

impl RecoveryScan<'_> {
    /// Removes the segments after the truncation, newest first: a crash in between leaves a prefix of the log.
    pub(super) fn remove_segments_after(&mut self, dropped: &[SegmentFile]) -> Result<(), Error> {
        if dropped.is_empty() {
            return Ok(());
        }
        self.report.cut_bytes += dropped
            .iter()
            .map(|source| source.len - PREAMBLE_BYTES.min(source.len))
            .sum::<u64>();
        let paths = dropped.iter().rev().map(|source| source.path.as_path());
        let now_ns = self.files.storage().wall_clock_ns();
        mark_removed(self.files.storage(), self.directory, paths, now_ns)
    }

    /// Truncates the segment at the position.
    pub(super) fn cut(&mut self, source: &mut SegmentFile, torn: bool) -> Result<(), Error> {
        let end = self.place.position;
        if torn {
            let last = last_non_zero(source, end)
                .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
            self.report.cut_bytes += last - end;
        }
        if source.len > end && !planted_bug::is_active(PlantedBug::TailNotCut) {
            source
                .file
                .set_len(end)
                .map_err(|error| Error::io(IoOp::Truncate, &source.path, error))?;
            source.len = end;
            self.truncated = true;
            failpoint::pass("recovery.cut_not_synced");
        }
        disk::remove_file(self.files.storage(), &source.path.with_extension("idx"))
    }

    /// Loads the `producers` file.
    pub(super) fn load_producer_snapshot(&mut self, first_offset: u64) {
        let read = disk::read(self.files.storage(), &self.directory.join("producers"));
        self.producers_unread = read
            .as_ref()
            .is_err_and(|error| error.kind() != io::ErrorKind::NotFound);
        let snapshot = Producers::read(&read.unwrap_or_default(), self.identity);
        (self.producers, self.producers_to) =
            snapshot.unwrap_or((Producers::default(), first_offset));
    }

    /// Rebuilds the producers after their file included lost batches. Entries below the first segment are kept; the others are
    /// read from the headers of all remaining batches.
    pub(super) fn rebuild_producers(&mut self, segments: &[Arc<Segment>]) -> Result<(), Error> {
        let first = segments.first().map_or(0, |segment| segment.base_offset);
        self.producers = self.producers.only_below(first);
        for segment in segments {
            let failed = |error| Error::io(IoOp::Read, segment.path(), error);
            let file = segment.file().map_err(failed)?;
            let first = LogPosition::first(segment.base_offset);
            let mut scan = SegmentScan::of_segment(segment, &*file.file, self.identity, first)
                .payloads_from(u64::MAX);
            while scan.place.offset < segment.next_offset() {
                let at = scan.place.offset;
                let fault = match scan.next().map_err(failed)? {
                    Step::Batch(_, header) => {
                        self.producers.note(&header);
                        continue;
                    }
                    Step::Gap(gap) => Some(gap.fault),
                    Step::Tail(Tail::Lost(fault)) => Some(fault),
                    Step::Tail(Tail::Unreadable(error)) => return Err(failed(error)),
                    Step::Tail(_) => None,
                };
                // The scan before it could read what is not known as damaged: the producers must not be stored without it.
                if fault == Some(Fault::Unreadable) && !self.is_damaged(at) {
                    let text = format!("the batch at offset {at} could not be read again");
                    return Err(failed(io::Error::other(text)));
                }
                if scan.place.offset == at {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the scan found damage at the offset.
    fn is_damaged(&self, offset: u64) -> bool {
        let mut known = self.quarantine.iter();
        known.any(|damage| (damage.start..damage.end).contains(&offset))
    }

    /// Replaces the `producers` file, which includes truncated batches. Recovery rejects such a file only while its end is
    /// beyond the log end, and the log will grow past it. So it is replaced, too, when it could not be read.
    pub(super) fn write_producer_snapshot(&self) -> Result<(), Error> {
        let (storage, path) = (self.files.storage(), self.directory.join("producers"));
        let bytes = self.producers.to_bytes(self.identity, self.place.offset);
        match disk::replace(storage, &path, &bytes) {
            Err(error) if error.is_transient() => {
                disk::remove_file(storage, &path)?;
                disk::sync_directory(storage, self.directory)
            }
            other => other,
        }
    }

    /// Continues in a new segment when the last one cannot be written to: it ends in damage, or its preamble is damaged.
    pub(super) fn continue_in_new(
        &self,
        segments: &mut Vec<Arc<Segment>>,
    ) -> Result<(Arc<Segment>, Arc<Preallocation>), Error> {
        let preamble = Preamble {
            chain: self.place.chain.unwrap_or(0),
            last_timestamp: self.last_timestamp,
            epoch: self.place.epoch,
            ..Preamble::first(self.files.storage(), self.identity, self.place.offset)
        };
        let (segment, preallocation) =
            create_segment(self.files, self.directory, preamble, self.options, 0)?;
        segment.sync()?;
        disk::sync_directory(self.files.storage(), self.directory)?;
        // A last segment without a batch had this name: it is the same file, replaced. Listed twice, retention would remove it
        // while it is being written.
        if segments
            .last()
            .is_some_and(|last| last.base_offset == segment.base_offset)
        {
            segments.pop();
        }
        segments.push(Arc::clone(&segment));
        Ok((segment, preallocation))
    }
}
