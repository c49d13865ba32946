//! The files of one data directory: the storage they are in, and which sealed segments are held open.
//!
//! A segment is opened on use. At most a set number stays open, so that many segments do not exhaust the descriptors: one
//! more closes the file that was opened first and was not used since the last scan of the list. A file with unsynced writes
//! stays open beyond the limit. A reader of a closed segment keeps its file until it is done.
use crate::Error;
use crate::io::failure::{Failure, Health, WatchedStorage};
use crate::io::storage::Storage;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The default limit of open segments.
pub(crate) const OPEN_SEGMENTS: usize = 512;

/// Something with a file that is opened when it is used, and may be closed while it is not in use.
pub(crate) trait HeldFile: Debug + Send + Sync {
    /// Returns whether the file was used since the last call.
    fn take_used(&self) -> bool;

    /// Closes the file unless something in it is unsynced. Returns whether it is closed.
    fn close_unless_unsynced(&self) -> bool;

    /// Returns whether the file is held open.
    #[cfg(test)]
    fn is_open(&self) -> bool;
}

/// Shared by all logs of a group committer.
#[derive(Debug)]
pub(crate) struct Files {
    storage: Arc<dyn Storage>,
    health: Arc<Health>,
    limit: AtomicUsize,
    /// In the order in which they were opened or passed over.
    open: Mutex<VecDeque<Weak<dyn HeldFile>>>,
}

impl Files {
    /// The files in `storage`; nothing is open.
    pub fn new(storage: Arc<dyn Storage>) -> Arc<Self> {
        let health = Arc::new(Health::default());
        Arc::new(Self {
            storage: WatchedStorage::new(storage, &health),
            health,
            limit: AtomicUsize::new(OPEN_SEGMENTS),
            open: Mutex::default(),
        })
    }

    /// Where they are.
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Returns whether anything has failed: every failed sync of a file of [`Files::storage`] does.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The first failure, if any.
    pub fn failure(&self) -> Option<&Failure> {
        self.health.failure()
    }

    /// Fails the directory for good; only the first reason is kept. When it returns, nothing is acknowledged any more.
    pub fn fail(&self, error: &Error) {
        self.health.fail(Failure::from(error));
    }

    /// As [`Files::fail`], unless the error is a lack of space or descriptors.
    pub fn fail_unless_transient(&self, error: &Error) {
        if !error.is_transient() {
            self.fail(error);
        }
    }

    /// As [`Files::fail`], when the error means that something may not be on disk.
    pub fn fail_if_fatal(&self, error: &Error) {
        if error.is_fatal() {
            self.fail(error);
        }
    }

    /// Sets how many segments stay open, at least 1.
    pub fn set_limit(&self, segments: usize) {
        self.limit.store(segments.max(1), Ordering::Relaxed);
        self.close_surplus(&mut self.open.lock());
    }

    /// Adds a segment that holds its file open, and closes surplus ones.
    pub fn opened<F: HeldFile + 'static>(&self, segment: &Arc<F>) {
        let opened: Weak<dyn HeldFile> = Arc::<F>::downgrade(segment);
        let mut open = self.open.lock();
        open.retain(|other| !Weak::ptr_eq(other, &opened));
        open.push_back(opened);
        self.close_surplus(&mut open);
    }

    /// Closes what was not used since the last call and has nothing unsynced.
    pub fn close_idle(&self) {
        self.open.lock().retain(|segment| {
            segment
                .upgrade()
                .is_some_and(|segment| segment.take_used() || !segment.close_unless_unsynced())
        });
    }

    /// Segments that are held open.
    #[cfg(test)]
    pub fn open_count(&self) -> usize {
        let open = self.open.lock();
        open.iter()
            .filter(|segment| segment.upgrade().is_some_and(|segment| segment.is_open()))
            .count()
    }

    fn close_surplus(&self, open: &mut VecDeque<Weak<dyn HeldFile>>) {
        let limit = self.limit.load(Ordering::Relaxed);
        // A file in use is skipped once. After two passes every file was tried and none can be closed.
        let mut passes = 2 * open.len();
        while open.len() > limit && passes > 0 {
            let Some(oldest) = open.pop_front() else {
                return;
            };
            let Some(segment) = oldest.upgrade() else {
                continue;
            };
            if segment.take_used() || !segment.close_unless_unsynced() {
                passes -= 1;
                open.push_back(oldest);
            }
        }
    }
}
