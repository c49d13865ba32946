//! Up to which entry of the metadata log the replicas of this broker have taken over their roles.
//!
//! A role that has ended has stopped when the partition's task has taken over the next one: no acknowledgement and no read as
//! leader of before comes after it (N41). Heartbeats report the index ([`AppliedRoles::index`]).
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Roles that were handed to the tasks of partitions, and not taken over yet.
#[derive(Debug, Default)]
pub(crate) struct AppliedRoles(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The control plane has handed over the roles of every entry up to this.
    known: u64,
    /// How many partitions have yet to take over a role of an entry, by its index.
    waiting: BTreeMap<u64, usize>,
}

impl AppliedRoles {
    /// The roles of every entry up to `index` were handed over.
    pub fn know(&self, index: u64) {
        let mut state = self.0.lock();
        state.known = state.known.max(index);
    }

    /// A role as of entry `index` is handed to a partition: it counts as taken over when the ticket is dropped.
    ///
    /// After a snapshot it may be of any entry behind those that are known, so it holds back all of these.
    pub fn hand_over(&self, index: u64) -> RoleTicket {
        let mut state = self.0.lock();
        let index = index.min(state.known + 1);
        *state.waiting.entry(index).or_default() += 1;
        RoleTicket {
            state: self.0.clone(),
            index,
        }
    }

    /// Index of the last entry (inclusive) whose roles were taken over, and those of all entries before it; 0 = none.
    pub fn index(&self) -> u64 {
        let state = self.0.lock();
        let first = state.waiting.keys().next();
        first.map_or(state.known, |first| {
            state.known.min(first.saturating_sub(1))
        })
    }
}

/// A role on its way to a partition. Dropped when the task has taken it over, or has ended.
#[derive(Debug)]
pub(crate) struct RoleTicket {
    state: Arc<Mutex<State>>,
    index: u64,
}

impl Drop for RoleTicket {
    fn drop(&mut self) {
        let waiting = &mut self.state.lock().waiting;
        if let Some(count) = waiting.get_mut(&self.index) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_role_that_was_not_taken_over_holds_the_index() {
        let roles = AppliedRoles::default();
        assert_eq!(roles.index(), 0);
        roles.know(4);
        let (first, second) = (roles.hand_over(5), roles.hand_over(5));
        let later = roles.hand_over(8);
        roles.know(9);
        assert_eq!(roles.index(), 4);
        drop(first);
        assert_eq!(roles.index(), 4);
        drop(later);
        assert_eq!(roles.index(), 4);
        drop(second);
        assert_eq!(roles.index(), 9);
    }

    #[test]
    fn a_role_of_an_entry_that_is_known_holds_back_what_follows_it() {
        let roles = AppliedRoles::default();
        roles.know(7);
        let (early, late) = (roles.hand_over(5), roles.hand_over(8));
        roles.know(9);
        assert_eq!(roles.index(), 4);
        drop(early);
        assert_eq!(roles.index(), 7);
        drop(late);
        assert_eq!(roles.index(), 9);
    }

    #[test]
    fn a_role_out_of_a_snapshot_may_be_of_any_entry_that_it_replaces() {
        let roles = AppliedRoles::default();
        roles.know(10);
        let ended_by_entry_20 = roles.hand_over(9000);
        roles.know(9000);
        assert_eq!(roles.index(), 10);
        drop(ended_by_entry_20);
        assert_eq!(roles.index(), 9000);
    }

    #[test]
    fn an_entry_that_was_not_handed_over_as_a_whole_does_not_count() {
        let roles = AppliedRoles::default();
        roles.know(6);
        let ticket = roles.hand_over(7);
        assert_eq!(roles.index(), 6);
        drop(ticket);
        assert_eq!(roles.index(), 6);
        roles.know(3);
        assert_eq!(roles.index(), 6);
    }
}
