//! State of the path from subscriptions into partitions during one NATS session.
use super::acks::AckQueue;
use super::publish_acks::PublishAckQueue;
use crate::budget::{Budget, StallBudget};
use crate::nats::connections::{ConnectionPair, Reporter};
use crate::republish::marks::seal::Seal;
use crate::statistics::Statistics;
use std::sync::Arc;

/// Connections, bounds and queues of ingest.
pub(crate) struct IngestContext {
    pub(crate) connections: Arc<ConnectionPair>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) cluster_id: String,
    /// Identifies this broker's own republished messages.
    pub(crate) seal: Arc<Seal>,
    /// Messages taken off the connections and not yet queued at a partition, bytes.
    pub(crate) pending: Arc<Budget>,
    pub(crate) stall_budget: StallBudget,
    pub(crate) acks: AckQueue,
    pub(crate) publish_acks: PublishAckQueue,
}

impl IngestContext {
    /// Waits before messages of `bytes` are handed on while there is no room for them, which leaves the following ones with
    /// NATS. Blocks, so only for the thread of a connection: it reads nothing meanwhile.
    pub(crate) fn hold_back(&self, bytes: usize) {
        if !self.pending.has_room(bytes) {
            self.stall_budget
                .spend(|limit| self.pending.wait_for_room(bytes, limit));
        }
    }
}
