//! Positions of consumer groups, for operators.
use super::methods::GROUP;
use crate::context::SharedRef;
use crate::liftbridge::resume::resume;
use crate::names::{CURSORS, DEFAULT_NAMESPACE};
use bascule_wire::liftbridge::cursors::split_key;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long a partition of `__cursors` that is paused may take to be resumed.
const RESUMING: Duration = Duration::from_secs(5);

/// Where a group continues in a partition of the default namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupPosition {
    pub group: String,
    pub stream: String,
    pub partition: i32,
    /// Which creation of the partition it belongs to.
    pub incarnation: u64,
    /// The offset to read next.
    pub next: u64,
}

fn resume_later(shared: &SharedRef, number: i32) {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let shared = shared.clone();
    runtime.spawn(async move {
        // A failure is seen by whoever stores a position.
        let _ = resume(&shared, CURSORS.as_bytes(), number, Some(RESUMING)).await;
    });
}

/// The stored positions of all groups, also of those without members, as far as their partitions of `__cursors` are open
/// here and can be read. One that is paused is resumed for the next time, without waiting. Waits for the disk: not for async
/// tasks.
pub(crate) fn group_positions(shared: &SharedRef) -> Vec<GroupPosition> {
    let view = shared.view.load();
    let Some(cursors) = view.stream(DEFAULT_NAMESPACE, CURSORS) else {
        return Vec::new();
    };
    let mut positions = Vec::new();
    for partition in &cursors.partitions {
        let Some(handle) = partition.handle.as_ref().filter(|_| !partition.paused) else {
            if partition.paused {
                resume_later(shared, partition.number as i32);
            }
            continue;
        };
        // Damage that keeps them from being read is logged and counted by the log itself.
        let Ok(stored) = shared.cursors.beginning_with(handle, GROUP) else {
            continue;
        };
        positions.extend(stored.into_iter().filter_map(|(key, position)| {
            let (cursor_id, stream, partition) = split_key(&key)?;
            Some(GroupPosition {
                group: cursor_id.strip_prefix(GROUP)?.to_owned(),
                stream,
                partition,
                incarnation: position.incarnation,
                // The last one read is stored; −1 = the position was deleted.
                next: u64::try_from(position.offset).ok()?.checked_add(1)?,
            })
        }));
    }
    positions
}
