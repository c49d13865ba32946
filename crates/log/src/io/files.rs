//! The files of one data directory: the storage they are in, and which sealed segments are held open.
//!
//! A segment is opened when it is needed. So that many segments do not use up the descriptors, at most a set number stays
//! open; one more closes the one that was opened longest ago and not used since it was last looked at. One with unsynced
//! writes stays open whatever the number is. Who is reading a closed one keeps it until done.
use crate::io::failure::{Health, WatchedStorage};
use crate::io::storage::Storage;
use crate::segment::Segment;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Segments held open when nothing else is said.
pub(crate) const OPEN_SEGMENTS: usize = 512;

/// Shared by all logs of a coordinator.
#[derive(Debug)]
pub(crate) struct Files {
    storage: Arc<dyn Storage>,
    health: Arc<Health>,
    limit: AtomicUsize,
    /// In the order in which they were opened or passed over.
    open: Mutex<VecDeque<Weak<Segment>>>,
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

    /// Whether anything has failed: every failed sync of a file of [`Files::storage`] does.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Sets how many segments stay open, at least 1.
    pub fn set_limit(&self, segments: usize) {
        self.limit.store(segments.max(1), Ordering::Relaxed);
        self.close_surplus(&mut self.open.lock());
    }

    /// A segment holds its file open from now on.
    pub fn opened(&self, segment: &Arc<Segment>) {
        let opened = Arc::downgrade(segment);
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

    fn close_surplus(&self, open: &mut VecDeque<Weak<Segment>>) {
        let limit = self.limit.load(Ordering::Relaxed);
        // One that was used since is passed over once: after two rounds each has been asked, and cannot be closed.
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
