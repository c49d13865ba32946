//! What the metadata says of a partition with several replicas, as it crosses the seam (`specs/formats/seam.md`).
use bascule_replica::types::{BrokerId, Class, Config, Loss, Replica};
use serde::Deserialize;

/// `Engine.set_roles`: roles that are new or have changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleChanges {
    /// Number of this broker in the group of voters.
    pub broker: u64,
    /// Roles, whole.
    pub roles: Vec<RoleSpec>,
    /// Incarnations without a role from now on.
    pub removed: Vec<u64>,
    /// The roles of every entry up to this are handed over, and partitions with one replica that they paused are closed.
    pub applied: u64,
    /// Brokers some of whose roles the entry changed, and whether it ended one that its broker may not know of.
    pub changed: Vec<(u64, bool)>,
}

/// One partition. Brokers are named by their numbers in the group of voters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleSpec {
    /// The partition.
    pub incarnation: u64,
    /// 0 = nobody leads it.
    pub leader: u64,
    /// Index of the entry that named, or ended, the leader.
    pub leader_epoch: u64,
    /// Index of the last entry that changed what is below.
    pub partition_epoch: u64,
    /// All replicas.
    pub replicas: Vec<ReplicaSpec>,
    /// The committed ISR.
    pub isr: Vec<u64>,
    /// Those that hold everything committed.
    pub eligible: Vec<u64>,
    /// Nothing is committed while the ISR is smaller; ≥ 1.
    pub min_isr: usize,
    /// Records are acknowledged from memory.
    pub memory: bool,
    /// Compaction is on, or was.
    pub compacted: bool,
    /// (leader epoch, first offset that may be missing).
    pub losses: Vec<(u64, u64)>,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // the flags of the metadata
pub struct ReplicaSpec {
    /// The broker.
    pub id: u64,
    /// Of its last run.
    pub boot_epoch: u64,
    /// That run may lead.
    pub confirmed: bool,
    /// See `Partition` of the metadata.
    pub unclean: bool,
    /// The same.
    pub unable: bool,
    /// The same.
    pub cut: bool,
    /// The same.
    pub tried: bool,
}

impl RoleSpec {
    /// Whether the replica of this broker is flagged as one that cannot lead.
    pub fn is_unable(&self, broker: u64) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|replica| replica.id == broker && replica.unable)
    }

    /// As the step functions take it.
    pub fn config(&self) -> Config {
        let replica = |spec: &ReplicaSpec| {
            let replica = Replica {
                boot_epoch: spec.boot_epoch,
                confirmed: spec.confirmed,
                unclean: spec.unclean,
                unable: spec.unable,
                cut: spec.cut,
                tried: spec.tried,
            };
            (BrokerId(spec.id), replica)
        };
        let ids = |ids: &[u64]| ids.iter().copied().map(BrokerId).collect();
        let loss = |&(epoch, start): &(u64, u64)| Loss { epoch, start };
        Config {
            leader: Some(self.leader).filter(|id| *id != 0).map(BrokerId),
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            replicas: self.replicas.iter().map(replica).collect(),
            isr: ids(&self.isr),
            eligible: ids(&self.eligible),
            min_isr: self.min_isr.max(1),
            class: if self.memory {
                Class::Memory
            } else {
                Class::Disk
            },
            compacted: self.compacted,
            losses: self.losses.iter().map(loss).collect(),
        }
    }
}
