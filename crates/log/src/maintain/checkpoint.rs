//! Checkpoints, and the index snapshots that are written with them.
use crate::failpoint;
use crate::io::jobs::Job;
use crate::segment::index::INDEX_INTERVAL;
use crate::state::index_snapshot::{Candidate, PRODUCER_BYTES};
use crate::{Committed, Durability, Error, Log};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Log {
    /// As [`Log::commit`], and in class `memory` too everything appended so far is synced before `done` is called: there it runs on
    /// the background worker, and is dropped when the log is closed first.
    pub fn sync(&mut self, done: Committed) {
        if self.options.durability == Durability::Disk {
            return self.commit(done);
        }
        let end = self.shared.log_end();
        let mut files = match self.target() {
            Ok(file) => vec![file],
            Err(error) => return done(Err(Arc::new(error))),
        };
        files.extend(self.epochs.take_unsynced());
        self.sync_then(files, None, end, move |synced| {
            done(synced.map(|()| end).map_err(Arc::new));
        });
    }

    /// Submits the writing of the checkpoint (high watermark, log start, durable point) and, when due, of the index snapshot at
    /// which the next recovery begins. The background worker writes both after the return; in class `memory` it syncs the data
    /// first.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.committer.check_usable()?;
        let end = self.shared.log_end();
        if self.options.durability == Durability::Memory && self.shared.durable_end() < end {
            let mut files = vec![self.target()?];
            files.extend(self.epochs.take_unsynced());
            self.sync_in_background(files, None, end);
        }
        let candidate = self.candidate();
        self.background.submit(self.checkpoint_job(candidate));
        Ok(())
    }

    /// A job that writes the state of the moment when it runs.
    pub(super) fn checkpoint_job(&self, candidate: Option<Arc<Candidate>>) -> Job {
        let (shared, files) = (Arc::clone(&self.shared), Arc::clone(self.committer.files()));
        let checkpoint = Arc::clone(&self.checkpoint);
        Box::new(move || {
            let mut checkpoint = checkpoint.lock();
            if shared.is_closed() {
                return;
            }
            let result = checkpoint.write(files.storage(), shared.checkpoint(false));
            checkpoint.release();
            drop(checkpoint);
            failpoint::pass("checkpoint.durable_written");
            result
                .and_then(|()| match candidate.filter(|_| files.failure().is_none()) {
                    Some(candidate) => candidate.write_if_synced(files.storage(), &shared),
                    None => Ok(()),
                })
                .unwrap_or_else(|error| files.fail_unless_transient(&error));
        })
    }

    /// Whether another [`Log::checkpoint`] would shorten the next recovery, even if nothing was appended since the last one.
    pub fn has_more_to_snapshot(&self) -> bool {
        let bytes_since = self.index_snapshot_state.bytes_since(&self.active);
        let may_snapshot =
            self.last_batch.is_some() && bytes_since > 0 && bytes_since >= self.least_interval();
        self.index_snapshot_state.pending.is_some() || may_snapshot
    }

    /// Bytes of batches after which an index snapshot is due: its size is a 4,096th of the segment before it, plus the
    /// producers.
    fn snapshot_interval(&self) -> u64 {
        let most = self.options.segment_bytes / 256;
        most.max(16 * self.producers.len() as u64 * PRODUCER_BYTES)
    }

    /// As [`Log::snapshot_interval`], for a log without new appends.
    fn least_interval(&self) -> u64 {
        self.snapshot_interval().min(INDEX_INTERVAL)
    }

    /// The candidate for an index snapshot to write with the next checkpoint.
    pub(crate) fn candidate(&mut self) -> Option<Arc<Candidate>> {
        let is_new = |candidate: &Arc<Candidate>| {
            Arc::ptr_eq(&candidate.segment, &self.active) && !candidate.is_written()
        };
        self.index_snapshot_state.pending = self.index_snapshot_state.pending.take().filter(is_new);
        let end = self.active.end();
        let rests = std::mem::replace(&mut self.index_snapshot_state.end_at_checkpoint, end) == end;
        let bytes_since = self.index_snapshot_state.bytes_since(&self.active);
        let is_due = bytes_since >= self.snapshot_interval()
            || rests && bytes_since >= self.least_interval();
        if self.index_snapshot_state.pending.is_none()
            && is_due
            && bytes_since > 0
            && let Some(last_batch) = self.last_batch
        {
            self.index_snapshot_state.covered_to = (self.active.base_offset, end);
            self.index_snapshot_state.pending = Some(Arc::new(Candidate {
                segment: Arc::clone(&self.active),
                summary: self.active.summary(self.chain, self.epochs.last()),
                entries: self.active.index().len(),
                last_batch,
                producers: self
                    .producers
                    .to_bytes(self.shared.identity, self.shared.log_end()),
                written: AtomicBool::new(false),
            }));
        }
        self.index_snapshot_state.pending.clone()
    }
}
