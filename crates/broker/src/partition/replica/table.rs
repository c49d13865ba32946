//! Roles and open replicas of a broker.
use super::super::{Partition, PartitionSpec};
use super::applied::AppliedRoles;
use super::messages::{Question, SlotState};
use super::role::{RoleChanges, RoleSpec};
use bascule_log::Start;
use bascule_replica::leader::{IsrChange, Resignation};
use bascule_replica::types::{BrokerId, Instant64};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// What a replica has to say to the controller. Repeated by the replica until an entry settles it.
#[derive(Clone, Debug)]
pub(crate) enum ReplicaReport {
    /// A leader asks for another ISR.
    Isr(IsrChange),
    /// A leader gives up.
    Resign(Resignation),
    /// A leader found that the run of a member has lost data.
    Unclean {
        leader_epoch: u64,
        broker: u64,
        boot_epoch: u64,
    },
    /// A follower cannot tell that it holds what was counted of it.
    OwnUnclean { leader_epoch: u64 },
    /// It could not lead, and can again.
    Able { leader_epoch: u64 },
    /// A follower's leader lacks what was committed.
    Leader {
        leader_epoch: u64,
        last_epoch: u64,
        end: u64,
        high_watermark: u64,
    },
}

/// The way from a replica to other brokers and to NATS. Nothing here waits.
pub(crate) trait ToBrokers: Debug + Send + Sync {
    /// Fetch from the broker `leader`, with these values from now on.
    fn fetch(&self, leader: u64, partition: &Partition, slot: SlotState);
    /// Fetch no more.
    fn end_fetch(&self, leader: u64, incarnation: u64);
    /// End the connection to a leader that broke the protocol.
    fn disconnect(&self, leader: u64);
    /// Ask a member where its log ends, until it answers or the take-over is due; both come back as messages.
    fn ask_position(&self, member: BrokerId, question: Question, partition: &Partition);
    /// Ask a member for the batches from `offset` on; they, or that the time has run out, come back as a message.
    fn ask_range(
        &self,
        member: BrokerId,
        question: Question,
        attempt: u64,
        offset: u64,
        partition: &Partition,
    );
    /// Until when this broker may act as a leader or report as a follower (exclusive).
    fn lease(&self) -> Instant64;
    /// Send to the controller.
    fn report(&self, incarnation: u64, report: ReplicaReport);
    /// This broker begins to lead the partition: it listens to NATS.
    fn begin_leading(&self, partition: &Partition);
    /// This broker leads the partition no more.
    fn end_leading(&self, incarnation: u64);
}

/// A replica whose log is to be as the leader's, by more than appends.
#[derive(Debug)]
pub(crate) struct LogChange {
    /// The replica, which is closed for it and opened again.
    pub partition: Partition,
    pub spec: PartitionSpec,
    /// Under which it is changed.
    pub leader_epoch: u64,
    pub wanted: WantedLog,
}

/// How a log is to be.
#[derive(Clone, Debug)]
pub(crate) enum WantedLog {
    /// It ends at an offset at which a batch begins; `keeps`: what is truncated is copied first.
    Truncated { to: u64, keeps: bool },
    /// It has no records and begins elsewhere: the leader has removed what would come next.
    Begun(Start),
}

impl WantedLog {
    /// Where it ends, or begins.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Truncated { to, .. } => *to,
            Self::Begun(start) => start.offset,
        }
    }
}

/// Roles and open replicas of partitions that have several.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    table: Mutex<Table>,
    changes: Mutex<VecDeque<LogChange>>,
    asked: Notify,
    to_brokers: OnceLock<Arc<dyn ToBrokers>>,
    applied: AppliedRoles,
    /// How long the oldest call to the disk, by the group committer, has lasted, ms.
    oldest_call_ms: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    index: u64,
    own: u64,
    roles: HashMap<u64, Arc<RoleSpec>>,
    open: HashMap<u64, (Partition, PartitionSpec)>,
}

impl Replicas {
    /// Connects it with the other brokers. Only the first call counts.
    pub fn connect(&self, to_brokers: Arc<dyn ToBrokers>) {
        // A second one would be another run's.
        let _ = self.to_brokers.set(to_brokers);
    }

    /// The way to the other brokers; `None` = the broker is of no cluster, or not yet.
    pub fn to_brokers(&self) -> Option<&Arc<dyn ToBrokers>> {
        self.to_brokers.get()
    }

    /// Index of the last entry (inclusive) whose roles the replicas have taken over, and those of all entries before it.
    pub fn applied(&self) -> u64 {
        self.applied.index()
    }

    /// Takes over roles as of entry `index`; those of an older entry are ignored.
    pub fn set_roles(&self, index: u64, changes: RoleChanges) {
        let mut table = self.table.lock();
        if index < table.index {
            return;
        }
        (table.index, table.own) = (index, changes.broker);
        for incarnation in changes.removed {
            table.roles.remove(&incarnation);
        }
        for role in changes.roles {
            let role = Arc::new(role);
            let incarnation = role.incarnation;
            table.roles.insert(incarnation, role.clone());
            if let Some((partition, _)) = table.open.get(&incarnation) {
                partition.set_role(table.own, role, self.applied.hand_over(index));
            }
        }
        self.applied.know(changes.applied);
    }

    /// How long the oldest call to the disk that partitions wait for has lasted, ms; 0 = none runs.
    pub fn oldest_call_ms(&self) -> u64 {
        self.oldest_call_ms.load(Ordering::Relaxed)
    }

    /// Whoever watches the disk says so.
    pub fn set_oldest_call_ms(&self, age_ms: u64) {
        self.oldest_call_ms.store(age_ms, Ordering::Relaxed);
    }

    /// The open replicas that have a role, with the number of this broker.
    pub fn watched(&self) -> (u64, Vec<(Arc<RoleSpec>, Partition)>) {
        let table = self.table.lock();
        let open = table.roles.iter().filter_map(|(incarnation, role)| {
            let (partition, _) = table.open.get(incarnation)?;
            Some((role.clone(), partition.clone()))
        });
        (table.own, open.collect())
    }

    /// A replica was opened: it gets its role, if that is known.
    pub fn opened(&self, partition: &Partition, spec: PartitionSpec) {
        let mut table = self.table.lock();
        let incarnation = partition.identity().incarnation;
        if let Some(role) = table.roles.get(&incarnation) {
            let ticket = self.applied.hand_over(table.index);
            partition.set_role(table.own, role.clone(), ticket);
        }
        table.open.insert(incarnation, (partition.clone(), spec));
    }

    /// An open partition got other settings.
    pub fn configured(&self, spec: &PartitionSpec) {
        if let Some((_, known)) = self.table.lock().open.get_mut(&spec.incarnation) {
            known.clone_from(spec);
        }
    }

    /// Has the log of a replica changed.
    pub fn change_log(&self, partition: &Partition, leader_epoch: u64, wanted: WantedLog) {
        let incarnation = partition.identity().incarnation;
        let spec = match self.table.lock().open.get(&incarnation) {
            Some((open, spec)) if open.is(partition) => spec.clone(),
            _ => return,
        };
        self.changes.lock().push_back(LogChange {
            partition: partition.clone(),
            spec,
            leader_epoch,
            wanted,
        });
        self.asked.notify_one();
    }

    /// The next change of a log that is asked for. One caller at a time.
    pub async fn next_log_change(&self) -> LogChange {
        loop {
            if let Some(next) = { self.changes.lock().pop_front() } {
                return next;
            }
            self.asked.notified().await;
        }
    }

    /// A replica has ended; another one of the same partition may be open by now.
    pub fn closed(&self, partition: &Partition) {
        let mut table = self.table.lock();
        let incarnation = partition.identity().incarnation;
        let open = table.open.get(&incarnation);
        if open.is_some_and(|(open, _)| open.is(partition)) {
            table.open.remove(&incarnation);
        }
    }

    /// The open replica of a partition.
    pub fn find(&self, incarnation: u64) -> Option<Partition> {
        let table = self.table.lock();
        table.open.get(&incarnation).map(|(open, _)| open.clone())
    }
}
