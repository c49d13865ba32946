//! State that all servers of the broker share.
use crate::access::Access;
use crate::admission::Admission;
use crate::condition::Condition;
use crate::cursor_index::CursorIndexes;
use crate::encryption::Masters;
use crate::events::Events;
use crate::groups::{GroupVersions, Members};
use crate::limits::Limits;
use crate::nats::{NatsContext, NatsLink};
use crate::partition::PartitionContext;
use crate::statistics::{Reported, Statistics};
use crate::tls::Tls;
use crate::view::View;
use crate::watchdog::EventLoop;
use arc_swap::ArcSwap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tokio::sync::Notify;

/// Events that may wait for the control plane.
const EVENTS: usize = 65_536;

/// Least that a subscription reads ahead, bytes.
const LEAST_SHARE: usize = 16 << 10;

/// One per broker; everything in it is safe to share.
#[derive(Debug)]
pub struct Shared {
    /// Cluster id.
    pub cluster_id: String,
    /// This broker's id.
    pub broker_id: String,
    /// Prefix of internal NATS subjects.
    pub namespace: String,
    /// Bounds.
    pub limits: Limits,
    /// Limits of connections, calls and bytes of requests.
    pub admission: Arc<Admission>,
    /// How connections are protected, and what makes clients known.
    pub tls: Arc<Tls>,
    /// Authorization of clients.
    pub access: Access,
    /// The current view. Load once per request.
    pub view: ArcSwap<View>,
    /// Events and requests for the control plane.
    pub events: Arc<Events>,
    /// Publishing to NATS: acks, copies, `PublishToSubject`.
    pub nats: NatsLink,
    /// Counters and gauges.
    pub statistics: Arc<Statistics>,
    /// Where the broker is in its run, for probes.
    pub condition: Condition,
    /// Whether health checks succeed; `false` = draining or not ready yet.
    pub serving: AtomicBool,
    /// Whether the control plane runs.
    pub event_loop: Arc<EventLoop>,
    /// Counters of the control plane.
    pub reported: Reported,
    /// For members of consumer groups that wait for a change.
    pub groups: GroupVersions,
    /// Which member of each consumer group reads what.
    pub(crate) members: Members,
    /// Stored positions in the partitions of `__cursors` led here.
    pub(crate) cursors: CursorIndexes,
    /// Wakes the task that removes files of deleted partitions.
    pub deleted: Notify,
    /// Whether scrubs wait.
    pub scrub_paused: AtomicBool,
    /// Open Subscribe and `DoGet` calls, against `limits.subscriptions`.
    pub open_subscriptions: AtomicI64,
    /// State that partitions share.
    pub partitions: Arc<PartitionContext>,
}

impl Shared {
    /// A broker that serves nothing yet and is not connected to NATS.
    ///
    /// # Errors
    /// When the system gives no descriptor for the events.
    pub fn new(
        cluster_id: &str,
        broker_id: &str,
        namespace: &str,
        limits: Limits,
    ) -> io::Result<Self> {
        Self::with_masters(cluster_id, broker_id, namespace, limits, Masters::default())
    }

    /// As [`Shared::new`], with master keys.
    ///
    /// # Errors
    /// When the system gives no descriptor for the events.
    pub fn with_masters(
        cluster_id: &str,
        broker_id: &str,
        namespace: &str,
        limits: Limits,
        masters: Masters,
    ) -> io::Result<Self> {
        let events =
            Events::new(EVENTS)?.with_requests(limits.admin_requests, limits.admin_request_bytes);
        let events = Arc::new(events);
        let statistics = Arc::new(Statistics::default());
        let nats = NatsLink::new(NatsContext {
            cluster_id: cluster_id.to_owned(),
            broker_id: broker_id.to_owned(),
            namespace: namespace.to_owned(),
            pending_bytes: limits.nats_pending_bytes,
            events: events.clone(),
            statistics: statistics.clone(),
        });
        let partitions = PartitionContext::new(
            limits,
            events.clone(),
            statistics.clone(),
            masters,
            Arc::new(nats.clone()),
        );
        Ok(Self {
            cluster_id: cluster_id.to_owned(),
            broker_id: broker_id.to_owned(),
            namespace: namespace.to_owned(),
            limits,
            admission: Arc::new(Admission::new(limits, statistics.clone())),
            tls: Arc::default(),
            access: Access::new(events.clone()),
            view: ArcSwap::default(),
            events,
            nats,
            statistics,
            condition: Condition::default(),
            serving: AtomicBool::new(false),
            event_loop: Arc::default(),
            reported: Reported::default(),
            groups: GroupVersions::default(),
            members: Members::default(),
            cursors: CursorIndexes::default(),
            deleted: Notify::new(),
            scrub_paused: AtomicBool::new(false),
            open_subscriptions: AtomicI64::new(0),
            partitions: Arc::new(partitions),
        })
    }

    /// Bytes that one subscription or scan may read ahead: an equal share of `limits.delivery_bytes`, with a minimum that lets it
    /// make progress.
    pub(crate) fn delivery_share(&self) -> usize {
        let open = self.open_subscriptions.load(Ordering::Relaxed).max(1);
        (self.limits.delivery_bytes / usize::try_from(open).unwrap_or(1)).max(LEAST_SHARE)
    }
}

/// How the servers hold it.
pub type SharedRef = Arc<Shared>;
