//! Links: appending the pieces of a published epoch to the logs of their partitions (`docs/decisions/sink.md`, "Linking").
//!
//! * [`Links`]: the partitions that are led here.
//! * [`drive`]: follows each of them that the sink table has something for; one task for the whole broker.
//! * `follow`: one partition, until the table has nothing more for it or it closes.
//! * `requests`: what a link asks of the partition's task.
//! * `attempt`: one epoch in turns of a few MiB, on a thread that may wait for the disk. What is linked is counted in the log, so
//!   that it may end anywhere and begin again. `rest`: the rows that are still to be appended.
//!
//! Everything follows from the table and the log: a link keeps no state of its own on disk.
mod attempt;
mod follow;
mod requests;
mod rest;

pub(super) use requests::LinkRequest;

use super::{Partition, PartitionContext};
use futures_util::FutureExt;
use parking_lot::Mutex;
use requests::WeakPartition;
use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// Turns of links at once: each has one group of batches in memory, and a thread.
const AT_ONCE: usize = 2;
/// Between two looks at the table while it has something to be linked, and the pause after a defect.
const LOOK: Duration = Duration::from_secs(2);

/// The partitions that are led here.
#[derive(Debug)]
pub(crate) struct Links {
    led: Mutex<HashMap<u64, WeakPartition>>,
    changed: Notify,
    permits: Semaphore,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            led: Mutex::default(),
            changed: Notify::new(),
            permits: Semaphore::new(AT_ONCE),
        }
    }
}

impl Links {
    /// A partition is led from now on.
    pub fn lead(&self, partition: &Partition) {
        let incarnation = partition.identity().incarnation;
        self.led.lock().insert(incarnation, partition.downgrade());
        self.changed.notify_one();
    }

    /// A partition has ended.
    pub fn end(&self, partition: &Partition) {
        let incarnation = partition.identity().incarnation;
        let mut led = self.led.lock();
        // It may have been opened again.
        if led
            .get(&incarnation)
            .is_some_and(|known| known.is(partition))
        {
            led.remove(&incarnation);
        }
    }

    fn find(&self, incarnation: u64) -> Option<Partition> {
        let led = self.led.lock();
        let partition = led.get(&incarnation)?.upgrade()?;
        partition.is_leading().then_some(partition)
    }
}

/// Links what the sink table says, for as long as the runtime lives.
pub(crate) async fn drive(context: Arc<PartitionContext>) {
    let mut version = context.stage.watch();
    let mut running = HashSet::new();
    let mut tasks = JoinSet::new();
    loop {
        version.borrow_and_update();
        let table = context.stage.table();
        let targets = table.targets().filter(|_| table.is_complete());
        for incarnation in targets {
            if running.contains(&incarnation) {
                continue;
            }
            if let Some(partition) = context.links.find(incarnation) {
                running.insert(incarnation);
                tasks.spawn(guarded(context.clone(), partition));
            }
        }
        let looks = table.targets().next().is_some();
        tokio::select! {
            // The context has the sender.
            _ = version.changed() => {}
            () = context.links.changed.notified() => {}
            Some(ended) = tasks.join_next() => {
                if let Ok(incarnation) = ended {
                    running.remove(&incarnation);
                }
            }
            () = tokio::time::sleep(LOOK), if looks => {}
        }
    }
}

/// Follows a partition and returns which one it was, whatever happens.
async fn guarded(context: Arc<PartitionContext>, partition: Partition) -> u64 {
    let incarnation = partition.identity().incarnation;
    let following = AssertUnwindSafe(follow::follow(context, partition));
    if following.catch_unwind().await.is_err() {
        tokio::time::sleep(LOOK).await;
    }
    incarnation
}
