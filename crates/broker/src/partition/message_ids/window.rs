//! The window of ids of one partition.
use super::IdBudget;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// How long an id is remembered, ns.
pub(crate) const WINDOW_NS: i64 = 120 * 1_000_000_000;
/// Ids remembered at most.
pub(super) const MAX_IDS: usize = 1_000_000;
/// What an id occupies beside its text, about, bytes.
const ENTRY_BYTES: usize = 160;

/// A remembered id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub id: Arc<[u8]>,
    /// Where its record is.
    pub offset: u64,
    /// When it was received, by the window's clock.
    pub time: i64,
}

/// Ids by text: the map hashes with a secret key, so nobody can construct ids that it confuses or is slow with.
#[derive(Debug)]
pub(crate) struct MessageIds {
    by_text: HashMap<Arc<[u8]>, (u64, i64)>,
    /// Ascending by offset. The newest stays when it has expired: it may be the id of the last record.
    entries: VecDeque<Entry>,
    budget: IdBudget,
    most: usize,
    clock: Clock,
}

/// Time that no change of the time of day hurries: ns since 1970 as of the start, then monotonic.
#[derive(Clone, Copy, Debug)]
struct Clock {
    began: Instant,
    began_ns: i64,
}

impl MessageIds {
    /// Without ids. `now_ns`: time of day.
    pub fn new(budget: IdBudget, now_ns: i64) -> Self {
        Self {
            by_text: HashMap::new(),
            entries: VecDeque::new(),
            budget,
            most: MAX_IDS,
            clock: Clock {
                began: Instant::now(),
                began_ns: now_ns,
            },
        }
    }

    /// Now, by the window's clock.
    pub fn now(&self) -> i64 {
        let elapsed = i64::try_from(self.clock.began.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.clock.began_ns.saturating_add(elapsed)
    }

    /// Offset of the record with this id, if it was received less than [`WINDOW_NS`] before `now`.
    pub fn find(&self, id: &[u8], now: i64) -> Option<u64> {
        let (offset, time) = self.by_text.get(id)?;
        is_current(*time, now).then_some(*offset)
    }

    /// Whether one more id may be remembered.
    pub fn has_room(&self, id: &[u8]) -> bool {
        self.entries.len() < self.most && self.budget.has_room(cost(id))
    }

    /// Remembers the id of the record at `offset`, which is above those of all others.
    pub fn insert(&mut self, id: &[u8], offset: u64, time: i64) {
        let id: Arc<[u8]> = id.into();
        self.budget.take(cost(&id));
        self.by_text.insert(Arc::clone(&id), (offset, time));
        self.entries.push_back(Entry { id, offset, time });
    }

    /// Forgets what has expired. Only between groups: what [`MessageIds::take_back`] leaves must be what was there before.
    pub fn expire(&mut self, now: i64) {
        while self.entries.len() > 1
            && let Some(oldest) = self
                .entries
                .pop_front_if(|oldest| !is_current(oldest.time, now))
        {
            self.forget(&oldest);
        }
    }

    /// Forgets the ids of records at `end` and above, which were not stored after all.
    pub fn take_back(&mut self, end: u64) {
        while let Some(newest) = self.entries.pop_back_if(|newest| newest.offset >= end) {
            self.forget(&newest);
        }
    }

    /// Id of the last record of a log that ends at `end`; empty when it has none.
    pub fn last_id(&self, end: u64) -> &[u8] {
        match self.entries.back() {
            Some(newest) if newest.offset.checked_add(1) == Some(end) => &newest.id,
            _ => b"",
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Those of records below `end`, ascending by offset.
    pub(super) fn below(&self, end: u64) -> Vec<Entry> {
        let count = self.entries.partition_point(|entry| entry.offset < end);
        self.entries.range(..count).cloned().collect()
    }

    fn forget(&mut self, entry: &Entry) {
        self.budget.give_back(cost(&entry.id));
        // The same id may have come again after it expired.
        if self.by_text.get(&entry.id) == Some(&(entry.offset, entry.time)) {
            self.by_text.remove(&entry.id);
        }
    }

    #[cfg(test)]
    pub(super) fn with_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }
}

impl Drop for MessageIds {
    fn drop(&mut self) {
        let bytes = self.entries.iter().map(|entry| cost(&entry.id)).sum();
        self.budget.give_back(bytes);
    }
}

fn is_current(time: i64, now: i64) -> bool {
    now.saturating_sub(time) < WINDOW_NS
}

fn cost(id: &[u8]) -> usize {
    id.len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;

    fn window(most: usize) -> (MessageIds, IdBudget) {
        let budget = IdBudget::new(1 << 20);
        (MessageIds::new(budget.clone(), 0).with_most(most), budget)
    }

    #[test]
    fn an_id_is_known_for_two_minutes_and_not_longer() {
        let (mut ids, _) = window(10);
        ids.insert(b"a", 0, 5);
        assert_eq!(ids.find(b"a", 5 + WINDOW_NS - 1), Some(0));
        assert_eq!(ids.find(b"a", 5 + WINDOW_NS), None);
        assert_eq!(ids.find(b"A", 5), None);
    }

    #[test]
    fn the_id_of_the_last_record_is_known_after_it_expired() {
        let (mut ids, _) = window(10);
        ids.insert(b"a", 0, 0);
        ids.insert(b"b", 1, 0);
        ids.expire(WINDOW_NS);
        assert_eq!((ids.len(), ids.last_id(2)), (1, &b"b"[..]));
        assert_eq!(ids.last_id(3), b"", "the last record has no id");
        // A record that was not stored after all leaves what was there before.
        ids.insert(b"c", 2, WINDOW_NS);
        assert_eq!(ids.last_id(3), b"c");
        ids.take_back(2);
        assert_eq!(ids.last_id(2), b"b");
        assert_eq!(ids.find(b"c", WINDOW_NS), None);
    }

    #[test]
    fn an_id_that_came_again_after_it_expired_is_kept_when_the_first_one_goes() {
        let (mut ids, _) = window(10);
        ids.insert(b"a", 0, 0);
        ids.insert(b"a", 1, WINDOW_NS);
        ids.expire(WINDOW_NS);
        assert_eq!(ids.find(b"a", WINDOW_NS), Some(1));
    }

    #[test]
    fn both_bounds_refuse_one_more_id() {
        let (mut ids, budget) = window(2);
        ids.insert(b"a", 0, 0);
        assert!(ids.has_room(b"b"));
        ids.insert(b"b", 1, 0);
        assert!(!ids.has_room(b"c"));
        ids.expire(WINDOW_NS);
        assert!(ids.has_room(b"c"));
        assert!(
            !ids.has_room(&vec![b'x'; 1 << 20]),
            "an id may be as long as a header"
        );
        let other = MessageIds::new(budget.clone(), 0);
        budget.take(1 << 20);
        assert!(!other.has_room(b"c"), "the bound is the broker's");
        budget.give_back(1 << 20);
        drop(ids);
        assert_eq!(budget.used(), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Records of one group, by id (0 = none), and how many of them are stored.
        Group(Vec<u8>, usize),
        Wait(i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let group = (proptest::collection::vec(0_u8..6, 0..8), 0_usize..9);
        let step = prop_oneof![
            3 => group.prop_map(|(ids, stored)| Step::Group(ids, stored)),
            1 => (0..90 * SECOND).prop_map(Step::Wait),
        ];
        proptest::collection::vec(step, 0..40)
    }

    /// What the window should say, by the records themselves.
    #[derive(Default)]
    struct Log(Vec<(u8, i64)>);

    impl Log {
        fn find(&self, id: u8, now: i64) -> Option<u64> {
            let is_it = |(other, time): &(u8, i64)| *other == id && now - time < WINDOW_NS;
            self.0.iter().rposition(is_it).map(|at| at as u64)
        }

        fn last_id(&self) -> Vec<u8> {
            self.0
                .last()
                .filter(|(id, _)| *id > 0)
                .map(|(id, _)| vec![*id])
                .unwrap_or_default()
        }
    }

    proptest! {
        #[test]
        fn the_window_says_what_the_records_say(steps in steps()) {
            let (mut ids, budget) = window(1000);
            let (mut log, mut now) = (Log::default(), 0);
            for step in steps {
                let (group, stored) = match step {
                    Step::Wait(ns) => { now += ns; continue; }
                    Step::Group(group, stored) => (group, stored),
                };
                ids.expire(now);
                let before = log.0.len();
                for id in group {
                    prop_assert_eq!(ids.find(&[id], now), log.find(id, now).filter(|_| id > 0));
                    prop_assert_eq!(ids.last_id(log.0.len() as u64), &log.last_id()[..]);
                    if id > 0 && ids.find(&[id], now).is_some() {
                        continue;
                    }
                    if id > 0 {
                        ids.insert(&[id], log.0.len() as u64, now);
                    }
                    log.0.push((id, now));
                }
                if log.0.len() - before > stored {
                    log.0.truncate(before + stored);
                    ids.take_back(log.0.len() as u64);
                }
                for id in 1..6 {
                    prop_assert_eq!(ids.find(&[id], now), log.find(id, now));
                }
                prop_assert_eq!(ids.last_id(log.0.len() as u64), &log.last_id()[..]);
                let bytes: usize = ids.entries.iter().map(|entry| cost(&entry.id)).sum();
                prop_assert_eq!(budget.used(), bytes);
            }
        }
    }
}
