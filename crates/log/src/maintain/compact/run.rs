//! One compaction of one log.
//!
//! Segments are rewritten from the oldest on, each durably before the next begins. So a tombstone can be removed once every
//! segment before its own was processed: no older record of its key is left that could reappear.
use super::latest::LatestOffsets;
use super::rewriter::{Rewritten, Task, rewrite};
use super::{Compaction, CompactionInput, CompactionReport, DUE_SHARE, Next, Pace, Stopped, swap};
use crate::io::disk;
use crate::io::files::Files;
use crate::segment::Segment;
use crate::state::compaction::Progress;
use crate::state::shared::Shared;
use crate::{Error, IoOp};
use bascule_record::Batch;
use std::sync::Arc;

impl Progress {
    /// Whether a run is due.
    pub(super) fn is_due(&self, shared: &Shared, compaction: &Compaction, now_ns: i64) -> bool {
        let compactable = compactable_end(shared, compaction);
        let limit = compactable.min(shared.hold()).min(compaction.held_from);
        let segments = shared.segments();
        let Some((_, sealed)) = segments.split_last() else {
            return false;
        };
        let ready = sealed
            .iter()
            .take_while(|segment| segment.next_offset() <= limit)
            .map(|segment| segment.batch_bytes());
        let (any, ready_bytes) = ready.fold((false, 0), |(_, sum), bytes| (true, sum + bytes));
        let (base, scanned) = self.scanned_to;
        let new: u64 = segments
            .iter()
            .filter(|segment| segment.base_offset >= base && segment.base_offset < compactable)
            .map(|segment| {
                let seen = if segment.base_offset == base {
                    scanned
                } else {
                    0
                };
                segment.end().saturating_sub(seen)
            })
            .sum();
        let expired = self.tombstone_due.is_some_and(|due| now_ns >= due);
        any && (expired || (new > 0 && new.saturating_mul(DUE_SHARE) >= ready_bytes))
    }
}

/// End of the committed records that are durable here and on every other replica. Later ones may be lost, so they supersede
/// nothing.
fn compactable_end(shared: &Shared, compaction: &Compaction) -> u64 {
    let here = shared.high_watermark().min(shared.durable_end());
    here.min(compaction.replicated_to)
}

/// What was found out about the log so far.
pub(super) struct Run<'a> {
    pub(super) shared: &'a Shared,
    pub(super) files: &'a Arc<Files>,
    compaction: Compaction,
    now_ns: i64,
    pub(super) pace: Pace,
    report: CompactionReport,
    /// Base offset of the first skipped segment.
    left: Option<u64>,
    tombstone_due: Option<i64>,
}

impl<'a> Run<'a> {
    pub fn new(
        shared: &'a Shared,
        files: &'a Arc<Files>,
        compaction: Compaction,
        now_ns: i64,
        pace: Pace,
    ) -> Self {
        Self {
            shared,
            files,
            compaction,
            now_ns,
            pace,
            report: CompactionReport::default(),
            left: None,
            tombstone_due: None,
        }
    }

    /// Compacts all committed and durable records.
    ///
    /// # Errors
    /// Those of the storage; completed segments stay rewritten.
    pub fn all(mut self, progress: &mut Progress) -> Result<CompactionReport, Error> {
        if let Some(failure) = self.files.failure() {
            return Err(failure.to_error());
        }
        let limit = compactable_end(self.shared, &self.compaction);
        // Read after the limit: what is to be held is appended under a hold.
        let clean_end = limit.min(self.shared.hold()).min(self.compaction.held_from);
        let segments = self.shared.segments();
        let scanned_to = segments
            .iter()
            .rev()
            .find(|segment| segment.base_offset <= limit)
            .map_or((0, 0), |segment| (segment.base_offset, segment.end()));
        let clean_to = segments
            .iter()
            .take(segments.len().saturating_sub(1))
            .take_while(|segment| segment.next_offset() <= clean_end)
            .last()
            .map_or(0, |segment| segment.next_offset());
        self.tombstone_due = progress.tombstone_due;
        match self.passes(progress.clean_to, limit, clean_to) {
            Err(Stopped::Cancelled) => {
                self.report.cancelled = true;
                return Ok(self.report);
            }
            // The files of a closed log are closed, too.
            Err(Stopped::Failed(_) | Stopped::Unreadable(_)) if self.shared.is_closed() => {
                self.report.cancelled = true;
                return Ok(self.report);
            }
            Err(Stopped::Failed(error) | Stopped::Unreadable(error)) => return Err(error),
            // Only segments without damage and without locked batches are processed.
            Ok(()) | Err(Stopped::Damaged | Stopped::Locked) => {}
        }
        *progress = Progress {
            clean_to: self.left.map_or(clean_to, |left| clean_to.min(left)),
            scanned_to,
            tombstone_due: self.tombstone_due,
        };
        Ok(self.report)
    }

    /// Makes passes over parts of [from, limit), as large as the memory allows, and merges what they leave empty.
    fn passes(&mut self, mut from: u64, limit: u64, clean_to: u64) -> Result<(), Stopped> {
        let mut latest = LatestOffsets::with_memory(self.compaction.map_bytes);
        while from < limit {
            self.report.passes += 1;
            let to = self.gather(&mut latest, from, limit)?;
            self.pass(&latest, to, clean_to)?;
            from = to;
        }
        self.merge_vacant(clean_to)
    }

    /// Collects the keys of [from, limit), or of as much as fits the memory. Returns the end of that part, above `from`.
    fn gather(
        &mut self,
        latest: &mut LatestOffsets,
        from: u64,
        limit: u64,
    ) -> Result<u64, Stopped> {
        latest.clear();
        let segments = self.shared.segments();
        let wanted = segments
            .iter()
            .filter(|segment| segment.next_offset() > from && segment.base_offset < limit);
        for segment in wanted {
            match self.gather_segment(latest, segment, from, limit) {
                Ok(None) => {}
                Ok(Some(full_at)) => return Ok(full_at),
                // Its records behind the damage supersede nothing.
                Err(Stopped::Damaged | Stopped::Locked) => self.leave(segment),
                Err(other) => return Err(other),
            }
        }
        Ok(limit)
    }

    /// `Some(offset)`: the memory is full from this offset on.
    fn gather_segment(
        &mut self,
        latest: &mut LatestOffsets,
        segment: &Arc<Segment>,
        from: u64,
        limit: u64,
    ) -> Result<Option<u64>, Stopped> {
        let keys = self.shared.keys();
        let unreadable =
            |source| Stopped::Unreadable(Error::io(IoOp::Read, segment.path(), source));
        let mut input = CompactionInput::new(segment, self.shared.identity).map_err(unreadable)?;
        loop {
            let (header, bytes) = match input.next().map_err(unreadable)? {
                Next::Batch(header, bytes) => (header, bytes),
                Next::End => return Ok(None),
                Next::Strange => return Err(Stopped::Damaged),
            };
            self.pace.took(bytes.len())?;
            if header.base_offset >= limit {
                return Ok(None);
            }
            if header.next_offset() <= from || header.count == 0 {
                continue;
            }
            let batch = Batch::open(&bytes, &keys).map_err(|error| {
                if error.is_locked() {
                    Stopped::Locked
                } else {
                    Stopped::Damaged
                }
            })?;
            if let Some(full_at) = note_keys(latest, &self.compaction, &batch, from) {
                return Ok(Some(full_at));
            }
        }
    }

    /// Rewrites the segments below `clean_to` that begin below `to`.
    fn pass(&mut self, latest: &LatestOffsets, to: u64, clean_to: u64) -> Result<(), Stopped> {
        if latest.is_empty() && self.tombstone_due.is_none_or(|due| self.now_ns < due) {
            return Ok(());
        }
        self.tombstone_due = None;
        let segments = self.shared.segments();
        let concerned = segments
            .iter()
            .filter(|segment| segment.next_offset() <= clean_to && segment.base_offset < to);
        for segment in concerned {
            match self.segment(latest, segment, to) {
                Ok(()) => {}
                Err(Stopped::Damaged | Stopped::Locked) => {
                    self.leave(segment);
                    self.remove_temporary(segment)?;
                }
                Err(stopped) => {
                    // The temporary file is useless; if it stays, the next open removes it.
                    let _ = self.remove_temporary(segment);
                    return Err(stopped);
                }
            }
        }
        Ok(())
    }

    fn segment(
        &mut self,
        latest: &LatestOffsets,
        old: &Arc<Segment>,
        to: u64,
    ) -> Result<(), Stopped> {
        let compaction = self.compaction;
        let grace = compaction.tombstone_grace_ns;
        let (now_ns, may_go) = (self.now_ns, self.left.is_none());
        let mut tombstone_due = self.tombstone_due;
        let keep = |batch: &Batch, i: usize| {
            let Some(key) = compaction.key_of(batch, i) else {
                return true;
            };
            let offset = batch.offset(i);
            if latest.get(&key).is_some_and(|latest| latest > offset) {
                return false;
            }
            if batch.value(i).is_some() {
                return true;
            }
            let due = batch.timestamp(i).saturating_add(grace);
            let expired = may_go && offset < to && now_ns >= due;
            if now_ns < due {
                tombstone_due = Some(tombstone_due.map_or(due, |other: i64| other.min(due)));
            }
            !expired
        };
        let task = Task {
            files: self.files,
            identity: self.shared.identity,
            keys: self.shared.keys(),
            forget_producers: self.forgets_producers(old),
        };
        let new: Rewritten = rewrite(&task, old, &mut self.pace, keep)?;
        new.segment.take_over_from(old);
        if new.segment.records() == 0 {
            new.segment.set_vacant();
            if new.file.is_none() {
                old.set_vacant();
            }
        }
        let (before, after) = (old.batch_bytes(), new.segment.batch_bytes());
        let (removed, changed) = (new.removed, new.file.is_some());
        if swap::replace(self.shared, self.files, std::slice::from_ref(old), new)? && changed {
            self.report.segments += 1;
            self.report.records += removed;
            self.report.bytes_before += before;
            self.report.bytes_after += after;
        }
        self.tombstone_due = tombstone_due;
        Ok(())
    }

    /// Returns whether batches without records of the segment lose their producers.
    pub(super) fn forgets_producers(&self, segment: &Segment) -> bool {
        let grace = self.compaction.producer_grace_ns;
        self.now_ns >= segment.last_timestamp().saturating_add(grace)
    }

    /// Skips the segment; later segments must keep their tombstones.
    fn leave(&mut self, segment: &Segment) {
        let base = segment.base_offset;
        if self.left.is_none_or(|left| base != left) {
            self.report.skipped += 1;
        }
        self.left = Some(self.left.map_or(base, |left| left.min(base)));
    }

    pub(super) fn remove_temporary(&self, segment: &Segment) -> Result<(), Error> {
        disk::remove_file(self.files.storage(), &segment.path().with_extension("tmp"))
    }
}

/// Adds the keys of a batch; returns the offset of the first one that does not fit.
fn note_keys(
    latest: &mut LatestOffsets,
    compaction: &Compaction,
    batch: &Batch,
    from: u64,
) -> Option<u64> {
    (batch.seek(from)..batch.len()).find_map(|i| {
        let key = compaction.key_of(batch, i)?;
        let offset = batch.offset(i);
        (!latest.insert(&key, offset)).then_some(offset)
    })
}
