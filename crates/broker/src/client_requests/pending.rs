//! Positions that polls have stored and that are not committed yet: what the next poll of the consumer starts from.
//!
//! After a crash those are gone: messages are read twice, never passed over.
use parking_lot::Mutex;
use std::collections::HashMap;

/// By key of the position.
#[derive(Debug, Default)]
pub(crate) struct PendingPositions(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    /// Turn and offset.
    offsets: HashMap<String, (u64, u64)>,
    last_turn: u64,
}

impl PendingPositions {
    /// The offset that is being stored under a key.
    pub(super) fn get(&self, key: &str) -> Option<u64> {
        self.0.lock().offsets.get(key).map(|(_, offset)| *offset)
    }

    /// From now on `offset` is the position; returns the turn for [`Self::settle`].
    pub(super) fn put(&self, key: String, offset: u64) -> u64 {
        let mut pending = self.0.lock();
        pending.last_turn += 1;
        let turn = pending.last_turn;
        pending.offsets.insert(key, (turn, offset));
        turn
    }

    /// The position of this turn is committed, or will never be: the log has the word again, unless a later one came.
    pub(super) fn settle(&self, key: &str, turn: u64) {
        let mut pending = self.0.lock();
        if pending
            .offsets
            .get(key)
            .is_some_and(|(last, _)| *last == turn)
        {
            pending.offsets.remove(key);
        }
    }

    /// Forgets what is being stored under a key, before something else is stored there.
    pub(super) fn forget(&self, key: &str) {
        self.0.lock().offsets.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_position_of_a_key_stays_until_its_own_turn_is_settled() {
        let pending = PendingPositions::default();
        let first = pending.put("k".to_owned(), 5);
        let second = pending.put("k".to_owned(), 9);
        pending.settle("k", first);
        assert_eq!(pending.get("k"), Some(9));
        assert_eq!(pending.get("other"), None);
        pending.settle("k", second);
        assert_eq!(pending.get("k"), None);
        let third = pending.put("k".to_owned(), 11);
        pending.forget("k");
        assert_eq!(pending.get("k"), None);
        pending.settle("k", third);
        assert_eq!(pending.get("k"), None);
    }
}
