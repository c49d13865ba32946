//! Positions of consumer groups, for operators.
use super::methods::GROUP;
use crate::cursor_index::CursorIndexes;
use crate::events::Events;
use crate::liftbridge::resume::resume;
use crate::names::{CURSORS, DEFAULT_NAMESPACE};
use crate::view::View;
use arc_swap::ArcSwap;
use bascule_wire::liftbridge::cursors::split_key;
use std::sync::Arc;
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

/// Where the positions of all groups are read from.
#[derive(Debug)]
pub(crate) struct GroupPositions {
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) events: Arc<Events>,
    pub(crate) cursors: Arc<CursorIndexes>,
}

impl GroupPositions {
    /// The stored positions of all groups, also of those without members, as far as their partitions of `__cursors` are
    /// led here and can be read. One that is paused is resumed for the next time, without waiting. Waits for the disk: not
    /// for async tasks.
    pub(crate) fn read(&self) -> Vec<GroupPosition> {
        let view = self.view.load();
        let Some(cursors) = view.stream(DEFAULT_NAMESPACE, CURSORS) else {
            return Vec::new();
        };
        let mut positions = Vec::new();
        for partition in &cursors.partitions {
            let Some(handle) = partition.handle.as_ref().filter(|_| !partition.paused) else {
                if partition.paused {
                    self.resume_later(partition.number as i32);
                }
                continue;
            };
            if !handle.is_leading() {
                continue;
            }
            // Damage that keeps them from being read is logged and counted by the log itself.
            let Ok(stored) = self.cursors.beginning_with(handle, GROUP) else {
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

    fn resume_later(&self, number: i32) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let events = self.events.clone();
        runtime.spawn(async move {
            // A failure is seen by whoever stores a position.
            let _ = resume(&events, CURSORS.as_bytes(), number, Some(RESUMING)).await;
        });
    }
}
