//! What a handle of a partition does for its replicas.
use super::gate::Gate;
use super::health::{DamagedSince, Turns};
use super::{ReplicaMessage, RoleSpec, RoleTicket, ToBrokers};
use crate::clock::since_boot;
use crate::partition::task::Message;
use crate::partition::{Partition, PartitionContext};
use bascule_log::Error;
use bascule_replica::types::Instant64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// How often it is checked whether this broker still leads.
const LOOK: Duration = Duration::from_millis(100);

/// What readers of a replica have to know of its role.
#[derive(Debug, Default)]
pub(in crate::partition) struct ReadRole {
    /// There are other replicas.
    pub has_peers: bool,
    /// Of the leader: first offset of its epoch.
    epoch_start: AtomicU64,
    /// Of a follower: until when it may be read, milliseconds of the clock of leases.
    reads_until: AtomicU64,
    /// The broker stops: it takes no more records as a leader of several replicas.
    has_stopped: AtomicBool,
    /// Stops the role of a leader that resigns.
    gate: Gate,
    /// Of the task.
    pub turns: Turns,
    /// Of the log.
    pub damaged: DamagedSince,
}

impl ReadRole {
    pub fn new(replicas: u32) -> Self {
        let has_peers = replicas > 1;
        Self {
            has_peers,
            ..Self::default()
        }
    }
}

impl Partition {
    /// Takes over what the metadata says of its replicas; `own` is the number of this broker. The ticket is dropped when that is done.
    pub(in crate::partition) fn set_role(&self, own: u64, role: Arc<RoleSpec>, ticket: RoleTicket) {
        let message = Message::Role(Box::new((own, role, ticket)));
        let _ = self.0.messages.send(message);
    }

    /// Hands on what came from another broker. Dropped, a fetch answers for itself.
    pub(crate) fn send_replica(&self, message: ReplicaMessage) {
        let _ = self.0.messages.send(Message::Replica(Box::new(message)));
    }

    /// A sync has ended.
    pub(in crate::partition) fn send_durable(&self, outcome: Result<u64, Arc<Error>>) {
        let _ = self.0.messages.send(Message::Durable(outcome));
    }

    /// The way to other brokers, if there are any.
    pub(in crate::partition) fn to_brokers(&self) -> Option<&Arc<dyn ToBrokers>> {
        self.0.context.replicas.to_brokers()
    }

    /// The leader's epoch has begun here, at this offset.
    pub(in crate::partition) fn begin_leading(&self, leader_epoch: u64, epoch_start: u64) {
        let role = &self.0.read_role;
        role.epoch_start.store(epoch_start, Ordering::Release);
        role.gate.begin(leader_epoch);
        let leads = !role.has_stopped.load(Ordering::Acquire);
        self.0.leading.store(leads, Ordering::Release);
    }

    /// Whether this broker leads it now: it accepts appends, with other replicas under its lease.
    pub fn is_leading(&self) -> bool {
        self.0.leading.load(Ordering::Acquire) && !self.gate().has_stopped()
    }

    /// Stops its role as the leader of several replicas.
    pub(crate) fn gate(&self) -> &Gate {
        &self.0.read_role.gate
    }

    /// Takes no more records as a leader of several replicas, and shows nothing as one; followers still get what they lack. For ever.
    pub fn stop_leading(&self) {
        let role = &self.0.read_role;
        if role.has_peers {
            role.has_stopped.store(true, Ordering::Release);
            self.0.leading.store(false, Ordering::Release);
        }
    }

    /// Whether it takes no more records as a leader of several replicas, for ever or for now.
    pub(in crate::partition) fn has_stopped(&self) -> bool {
        self.0.read_role.has_stopped.load(Ordering::Acquire) || self.gate().has_stopped()
    }

    /// Whether everything in the log is committed.
    pub fn is_committed(&self) -> bool {
        let reader = &self.0.reader;
        reader.high_watermark() >= reader.log_end()
    }

    /// Waits until every append queued before this call is committed or was refused; `false`: the log failed, or this broker does not lead it
    /// any more, or has begun to lead it again since.
    pub(crate) async fn flush_committed(&self) -> bool {
        let epoch = self.gate().led();
        self.flush(true).await;
        let (end, mut committed) = (self.0.reader.log_end(), self.watch());
        let leads = || self.is_leading() && self.gate().led() == epoch;
        while self.0.reader.high_watermark() < end {
            if !leads() || self.failure().is_some() {
                return false;
            }
            // Nobody wakes who waits here when the role ends.
            if let Ok(Err(_)) = timeout(LOOK, committed.changed()).await {
                return false;
            }
        }
        leads()
    }

    /// As a follower it may be read until then (exclusive).
    pub(in crate::partition) fn reads_until(&self, until: Instant64) {
        let role = &self.0.read_role;
        role.reads_until.store(until.0, Ordering::Release);
    }

    /// Whether its high watermark may be shown to clients, and what is below be read, now. The leader has to have a lease, and to have
    /// committed all that earlier leaders had; a follower has to be in the ISR of a leader with a lease. A partition without other
    /// replicas may always be read.
    pub fn may_read(&self) -> bool {
        let role = &self.0.read_role;
        let until = if !role.has_peers {
            return true;
        } else if !self.is_leading() {
            Instant64(role.reads_until.load(Ordering::Acquire))
        } else if self.0.reader.high_watermark() >= role.epoch_start.load(Ordering::Acquire) {
            self.lease()
        } else {
            return false;
        };
        since_boot() < until
    }

    fn lease(&self) -> Instant64 {
        let to_brokers = self.to_brokers();
        to_brokers.map_or_else(Instant64::default, |to| to.lease())
    }

    /// What it shares with the other partitions.
    pub(in crate::partition) fn context(&self) -> &PartitionContext {
        &self.0.context
    }

    /// Whether both are handles of one open partition.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
