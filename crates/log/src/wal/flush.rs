//! Segments whose latest batches are only in the WAL, until they are synced.
use super::manifest::ManifestState;
use super::{FLUSH_BYTES, FLUSH_TIME, State, Wal};
use crate::Error;
use crate::failpoint;
use crate::io::disk::SyncFile;
use crate::io::storage::OpenMode;
use crate::state::shared::Shared;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A segment whose latest batches are only in the WAL.
pub(super) struct PendingFlush {
    pub file: Arc<SyncFile>,
    pub shared: Arc<Shared>,
    /// End of the log's batches in the segment; synced with it.
    pub end: u64,
}

/// Distinct segments in the order in which they came, so that the same rounds sync the same files one after the other.
#[derive(Default)]
pub(super) struct PendingFlushes {
    pub entries: Vec<PendingFlush>,
    /// Index of an entry by the address of its file, which the entry keeps alive.
    places: HashMap<usize, usize>,
}

impl PendingFlushes {
    /// Returns whether the file is one of them.
    pub fn has(&self, file: &SyncFile) -> bool {
        self.places.contains_key(&address(file))
    }

    /// Adds a segment, or raises the end of one that is there.
    pub fn add(&mut self, new: PendingFlush) {
        let place = self.places.entry(address(&new.file));
        let place = *place.or_insert(self.entries.len());
        match self.entries.get_mut(place) {
            Some(known) => known.end = known.end.max(new.end),
            None => self.entries.push(new),
        }
    }
}

impl Wal {
    /// Time until segments have to be synced; `None` when nothing waits.
    pub fn due_in(&self) -> Option<Duration> {
        let state = self.state.lock();
        let since = state.flush_since.filter(|_| !state.is_flushing)?;
        Some(FLUSH_TIME.saturating_sub(since.elapsed()))
    }

    /// Has the segments synced in the background when it is time. Called after each round and when [`Wal::due_in`] has passed.
    pub fn flush_when_due(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let late = state
            .flush_since
            .is_some_and(|since| since.elapsed() >= FLUSH_TIME);
        let often = !self.threads && state.flush_rounds >= self.options.flush_rounds;
        let much = state.flush_bytes >= FLUSH_BYTES || state.ring.is_short();
        let is_idle = state.unflushed.entries.is_empty() && !state.ring.is_short();
        if state.is_flushing || is_idle || !(late || often || much) {
            return;
        }
        let pending = begin(&mut state);
        drop(state);
        let wal = Arc::clone(self);
        self.background
            .submit(Box::new(move || wal.flush_these(pending)));
    }

    /// Syncs the segments now, so that no file is needed any more: at the end of a clean run.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        if self.threads && state.is_flushing {
            // Waits for the job that syncs them, unless no thread runs it.
            self.flushed.wait_for(&mut state, FLUSH_TIME);
        }
        if state.is_flushing || state.ring.is_unused() {
            return;
        }
        state.ring.end_current();
        let pending = begin(&mut state);
        drop(state);
        self.flush_these(pending);
    }

    fn flush_these(&self, pending: PendingFlushes) {
        let outcome = self.sync_segments(&pending.entries);
        failpoint::pass("journal.segments_synced");
        let outcome = outcome.and_then(|()| self.release_flushed(true));
        let mut state = self.state.lock();
        state.is_flushing = false;
        state.ring.retired(outcome.as_ref().ok());
        self.flushed.notify_all();
        match outcome {
            Ok(named) => self.release_old(&mut state, &named),
            Err(error) => {
                // A lack of descriptors lost nothing: the next flush tries all of it again.
                let since = std::mem::replace(&mut state.unflushed, pending);
                for new in since.entries {
                    state.unflushed.add(new);
                }
                state.flush_since = self.threads.then(Instant::now);
                drop(state);
                self.files.fail_if_fatal(&error);
            }
        }
    }

    /// Has the manifest name only what is needed still, and returns its content; `is_flushed`: retiring files are not needed.
    pub(super) fn release_flushed(&self, is_flushed: bool) -> Result<ManifestState, Error> {
        let state = self.state.lock();
        let needed = state.ring.needed(is_flushed, &state.pending);
        drop(state);
        let mut manifest = self.manifest.lock();
        manifest.release(self.files.storage(), &needed)
    }

    /// Syncs through descriptors of its own: the kernel reports a failed write-back once for each descriptor, and the one that acks
    /// are synced through must see it.
    fn sync_segments(&self, pending: &[PendingFlush]) -> Result<(), Error> {
        for PendingFlush { file, shared, end } in pending {
            let own = match SyncFile::open(self.files.storage(), &file.path, OpenMode::ReadWrite) {
                Ok(own) => own,
                // Removed, with its log or by retention.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            own.sync()?;
            shared.raise_segment_synced_end(*end);
        }
        Ok(())
    }
}

/// Takes all that waits.
fn begin(state: &mut State) -> PendingFlushes {
    state.is_flushing = true;
    state.ring.retire();
    (state.flush_bytes, state.flush_since, state.flush_rounds) = (0, None, 0);
    std::mem::take(&mut state.unflushed)
}

fn address(file: &SyncFile) -> usize {
    std::ptr::from_ref(file) as usize
}
