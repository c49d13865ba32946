//! The broker's side of NATS, the same for all sessions.
use crate::events::Events;
use crate::statistics::Statistics;
use std::sync::Arc;

/// The broker's identity on NATS, and the receivers of its reports.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct NatsContext {
    pub cluster_id: String,
    pub broker_id: String,
    /// Prefix of internal NATS subjects.
    pub namespace: String,
    /// `limits.nats_pending_bytes`.
    pub pending_bytes: usize,
    pub events: Arc<Events>,
    pub statistics: Arc<Statistics>,
}
