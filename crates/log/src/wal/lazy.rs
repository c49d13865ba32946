//! Segments whose latest batches are only in the journal, until they are synced.
use super::head::Facts;
use super::ring::Use;
use super::{Journal, LAZY_BYTES, LAZY_TIME, State};
use crate::Error;
use crate::failpoint;
use crate::io::disk::SyncFile;
use crate::io::storage::OpenMode;
use crate::state::shared::Shared;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A segment whose latest batches are only in the journal.
pub(super) struct Lazy {
    pub file: Arc<SyncFile>,
    pub shared: Arc<Shared>,
    /// What of the log is in it when it is synced.
    pub end: u64,
}

/// Distinct segments in the order in which they came, so that the same rounds sync the same files one after the other.
#[derive(Default)]
pub(super) struct LazySegments {
    pub entries: Vec<Lazy>,
    /// Place of an entry by the address of its file, which the entry keeps alive.
    places: HashMap<usize, usize>,
}

impl LazySegments {
    /// Whether it is one of them.
    pub fn has(&self, file: &SyncFile) -> bool {
        self.places.contains_key(&address(file))
    }

    /// Puts one among them, or more of it.
    pub fn add(&mut self, new: Lazy) {
        let place = self.places.entry(address(&new.file));
        let place = *place.or_insert(self.entries.len());
        match self.entries.get_mut(place) {
            Some(known) => known.end = known.end.max(new.end),
            None => self.entries.push(new),
        }
    }
}

impl Journal {
    /// How long until segments have to be synced; `None` when nothing waits.
    pub fn due_in(&self) -> Option<Duration> {
        let state = self.state.lock();
        let since = state.lazy_since.filter(|_| !state.settling)?;
        Some(LAZY_TIME.saturating_sub(since.elapsed()))
    }

    /// Has the segments synced when it is time. Called after each round and when [`Journal::due_in`] has passed.
    pub fn settle_when_due(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let late = state
            .lazy_since
            .is_some_and(|since| since.elapsed() >= LAZY_TIME);
        let often = !self.threads && state.lazy_rounds >= self.options.lazy_rounds;
        let much = state.lazy_bytes >= LAZY_BYTES || state.ring.is_short();
        let is_idle = state.lazy.entries.is_empty() && !state.ring.is_short();
        if state.settling || is_idle || !(late || often || much) {
            return;
        }
        let (lazy, retired) = begin(&mut state);
        drop(state);
        let journal = Arc::clone(self);
        self.background
            .submit(Box::new(move || journal.settle_these(lazy, retired)));
    }

    /// Syncs the segments now, so that no file is needed any more: at the end of a life of which nothing is left to do.
    pub fn settle(&self) {
        let mut state = self.state.lock();
        if self.threads && state.settling {
            // What a job is about to sync is waited for, unless there is nobody who does the job.
            self.settled.wait_for(&mut state, LAZY_TIME);
        }
        if state.settling || state.ring.is_unused() {
            return;
        }
        state.ring.end_current();
        let (lazy, retired) = begin(&mut state);
        drop(state);
        self.settle_these(lazy, retired);
    }

    fn settle_these(&self, lazy: LazySegments, retired: Vec<Use>) {
        let outcome = self.sync_segments(&lazy.entries);
        failpoint::pass("journal.segments_synced");
        let outcome = outcome.and_then(|()| self.need_less(true));
        let mut state = self.state.lock();
        state.settling = false;
        state.retiring.clear();
        self.settled.notify_all();
        match outcome {
            Ok(named) => {
                state.ring.release(retired);
                self.release_old(&mut state, &named);
            }
            Err(error) => {
                // Nothing was lost by a lack of descriptors: all of it is tried again with the next.
                state.ring.keep_full(retired);
                let since = std::mem::replace(&mut state.lazy, lazy);
                for new in since.entries {
                    state.lazy.add(new);
                }
                state.lazy_since = self.threads.then(Instant::now);
                drop(state);
                self.files.fail_if_fatal(&error);
            }
        }
    }

    /// Has the head name only what is needed still, and returns what it names; `is_settled`: what is retiring is not needed.
    pub(super) fn need_less(&self, is_settled: bool) -> Result<Facts, Error> {
        let state = self.state.lock();
        let retiring = if is_settled { &[][..] } else { &state.retiring };
        let needed = state.ring.needed(retiring, &state.pending);
        drop(state);
        let mut head = self.head.lock();
        head.need_no_more_than(self.files.storage(), &needed)
    }

    /// Syncs by descriptors of its own: the kernel tells a failed write-back once per descriptor, and on the one that acks
    /// are synced by it would be taken away from them.
    fn sync_segments(&self, lazy: &[Lazy]) -> Result<(), Error> {
        for Lazy { file, shared, end } in lazy {
            let own = match SyncFile::open(self.files.storage(), &file.path, OpenMode::ReadWrite) {
                Ok(own) => own,
                // Removed, with its log or by retention.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            own.sync()?;
            shared.raise_settled_end(*end);
        }
        Ok(())
    }
}

/// All that waits is being settled.
fn begin(state: &mut State) -> (LazySegments, Vec<Use>) {
    state.settling = true;
    let lazy = std::mem::take(&mut state.lazy);
    let retired = state.ring.take_full();
    state.retiring.clone_from(&retired);
    (state.lazy_bytes, state.lazy_since, state.lazy_rounds) = (0, None, 0);
    (lazy, retired)
}

fn address(file: &SyncFile) -> usize {
    std::ptr::from_ref(file) as usize
}
