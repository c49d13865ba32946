//! Dependencies of the Flight service.
use crate::access::Access;
use crate::admission::Admission;
use crate::events::Events;
use crate::forward::Forwarder;
use crate::partition::PartitionContext;
use crate::run_state::RunState;
use crate::statistics::Statistics;
use crate::subscriptions::Subscriptions;
use crate::view::View;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// One for the broker; everything in it is safe to share.
#[derive(Debug)]
pub(crate) struct FlightContext {
    pub(crate) broker_id: String,
    /// `limits.message_bytes`.
    pub(crate) message_bytes: usize,
    pub(crate) run_state: Arc<RunState>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) access: Arc<Access>,
    /// Load once per request.
    pub(crate) view: Arc<ArcSwap<View>>,
    /// Requests to resume a partition.
    pub(crate) events: Arc<Events>,
    /// Staged rows, and the space for them.
    pub(crate) partitions: Arc<PartitionContext>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// Rows for partitions that are led elsewhere.
    pub(crate) forwarder: Arc<Forwarder>,
}
