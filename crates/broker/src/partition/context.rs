//! What the partitions of a broker share.
use super::link::Links;
use super::replica::Replicas;
use super::{CommitObserver, IdBudget};
use crate::disk_full::DiskFullTracker;
use crate::encryption::MasterKeyStore;
use crate::events::Events;
use crate::holds::Holds;
use crate::limits::Limits;
use crate::stage::Stage;
use crate::statistics::Statistics;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Budgets, counters and what a partition reports to.
#[derive(Debug)]
pub struct PartitionContext {
    pub(crate) limits: Limits,
    pub(crate) events: Arc<Events>,
    pub(crate) statistics: Arc<Statistics>,
    /// The keys that wrap the streams' data keys.
    pub(crate) master_keys: MasterKeyStore,
    /// Republishes committed records.
    pub(crate) observer: Arc<dyn CommitObserver>,
    /// Whether the data directory is full.
    pub(crate) disk_full: DiskFullTracker,
    /// Budget for waiting and uncommitted appends of all partitions, bytes.
    pub inflight: Arc<Semaphore>,
    /// Memory for message ids.
    pub(crate) message_ids: IdBudget,
    /// What is staged for sinks, and the sink table.
    pub(crate) stage: Arc<Stage>,
    /// What queries hold.
    pub(crate) holds: Holds,
    /// Partitions that are led here, for their links.
    pub(crate) links: Links,
    /// Partitions with several replicas.
    pub(crate) replicas: Replicas,
}

impl PartitionContext {
    /// Unused budgets, and these collaborators.
    pub fn new(
        limits: Limits,
        events: Arc<Events>,
        statistics: Arc<Statistics>,
        master_keys: MasterKeyStore,
        observer: Arc<dyn CommitObserver>,
    ) -> Self {
        let stage = Arc::new(Stage::new(events.clone()));
        let inflight = limits.inflight_bytes.min(Semaphore::MAX_PERMITS);
        Self {
            limits,
            events,
            statistics,
            master_keys,
            observer,
            disk_full: DiskFullTracker::default(),
            inflight: Arc::new(Semaphore::new(inflight)),
            message_ids: IdBudget::new(limits.nats_message_id_bytes),
            stage,
            holds: Holds::default(),
            links: Links::default(),
            replicas: Replicas::default(),
        }
    }
}
