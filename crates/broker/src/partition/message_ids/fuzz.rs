//! Doors for the fuzz targets.
use super::{IdBudget, MessageIds, Snapshot};

/// More than ids of one file take.
const BUDGET: usize = 1 << 40;

/// A file `message-ids`: what is written for what it says, and how many ids that is; `None` when it is not valid. Its ids
/// pass through the window as at a start.
///
/// # Panics
/// When the window loses one of them, finds one at another offset, or keeps room for what it has dropped.
pub fn message_ids(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let snapshot = Snapshot::from_bytes(bytes)?;
    let budget = IdBudget::new(BUDGET);
    let mut ids = MessageIds::new(budget.clone(), 0);
    for entry in &snapshot.entries {
        ids.insert(&entry.id, entry.offset, entry.time);
        assert_eq!(ids.find(&entry.id, entry.time), Some(entry.offset));
    }
    assert_eq!(ids.below(snapshot.end), snapshot.entries);
    ids.expire(i64::MAX);
    ids.take_back(0);
    assert_eq!(ids.below(u64::MAX), []);
    drop(ids);
    assert!(budget.has_room(BUDGET));
    Some((snapshot.to_bytes(), snapshot.entries.len()))
}
