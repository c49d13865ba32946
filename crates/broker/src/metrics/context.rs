//! Dependencies of metrics.
use crate::access::Access;
use crate::admission::Admission;
use crate::checks::CheckContext;
use crate::events::Events;
use crate::lag::{PositionLag, QueryPositions, lags};
use crate::liftbridge::GroupPositions;
use crate::partition::PartitionContext;
use crate::statistics::{Reported, Statistics};
use std::sync::Arc;

/// One for the broker; everything in it is safe to share.
#[derive(Debug)]
pub(crate) struct MetricsContext {
    pub(crate) checks: CheckContext,
    pub(crate) statistics: Arc<Statistics>,
    /// Counters of the control plane.
    pub(crate) reported: Reported,
    pub(crate) admission: Arc<Admission>,
    pub(crate) access: Arc<Access>,
    pub(crate) events: Arc<Events>,
    pub(crate) partitions: Arc<PartitionContext>,
    pub(crate) positions: GroupPositions,
    pub(crate) queries: QueryPositions,
}

impl MetricsContext {
    /// The positions of all groups and queries. Waits for the disk: not for async tasks.
    pub(crate) fn lags(&self) -> Vec<PositionLag> {
        lags(
            &self.checks.view.load(),
            &self.positions,
            &self.queries,
            &self.partitions.holds,
        )
    }
}
