//! What a handle of a partition does for its replicas.
use super::{ReplicaMessage, RoleSpec, ToBrokers};
use crate::partition::task::Message;
use crate::partition::{Partition, PartitionContext};
use bascule_log::Error;
use std::sync::Arc;

impl Partition {
    /// Takes over what the metadata says of its replicas; `own` is the number of this broker.
    pub(in crate::partition) fn set_role(&self, own: u64, role: Arc<RoleSpec>) {
        let _ = self.0.messages.send(Message::Role(Box::new((own, role))));
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

    /// What it shares with the other partitions.
    pub(in crate::partition) fn context(&self) -> &PartitionContext {
        &self.0.context
    }

    /// Whether both are handles of one open partition.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
