//! What every server of the broker sees.
use crate::access::Access;
use crate::admission::Admission;
use crate::condition::Condition;
use crate::encryption::Masters;
use crate::events::Events;
use crate::groups::GroupVersions;
use crate::liftbridge::{CursorIndexes, Members};
use crate::metrics::Reported;
use crate::nats::NatsLink;
use crate::partition::IdBudget;
use crate::space::Space;
use crate::statistics::Statistics;
use crate::tls::Tls;
use crate::view::View;
use crate::watchdog::EventLoop;
use arc_swap::ArcSwap;
use serde::Deserialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tokio::sync::{Notify, Semaphore};

/// Events that may wait for the control plane.
const EVENTS: usize = 65_536;

/// Least that a subscription reads ahead, bytes.
const LEAST_SHARE: usize = 16 << 10;

/// Bounds, all finite (`specs/formats/seam.md`).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Limits {
    pub queue_bytes: usize,
    pub queue_records: usize,
    pub inflight_bytes: usize,
    pub subscription_bytes: usize,
    pub delivery_bytes: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    pub handshakes: usize,
    pub handshake_ms: u64,
    pub streams_per_connection: u32,
    pub connection_window_bytes: u32,
    pub calls: usize,
    pub calls_per_identity: usize,
    pub first_message_ms: u64,
    pub health_checks: usize,
    pub health_watches: usize,
    pub request_bytes: usize,
    pub cursors: usize,
    pub admin_requests: usize,
    pub admin_requests_per_identity: usize,
    pub admin_request_bytes: usize,
    pub descriptor_reserve: usize,
    pub subscriptions: usize,
    pub message_bytes: usize,
    pub nats_pending_bytes: usize,
    /// Memory for message ids of streams that acknowledge JetStream publishers.
    pub nats_message_id_bytes: usize,
    pub grace_ms: u64,
    /// Dirty segments in one round of syncs from which on the journal is synced in their place; 0 = never.
    pub journal_from_dirty_files: usize,
    /// Segments kept open.
    pub open_segments: usize,
}
impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_bytes: 32 << 20,
            queue_records: 65_536,
            inflight_bytes: 128 << 20,
            subscription_bytes: 1 << 20,
            delivery_bytes: 256 << 20,
            connections: 4096,
            connections_per_address: 1024,
            handshakes: 1024,
            handshake_ms: 5000,
            streams_per_connection: 1024,
            connection_window_bytes: 4 << 20,
            calls: 16_384,
            calls_per_identity: 8192,
            first_message_ms: 10_000,
            health_checks: 256,
            health_watches: 4096,
            request_bytes: 128 << 20,
            cursors: 100_000,
            admin_requests: 1024,
            admin_requests_per_identity: 512,
            admin_request_bytes: 64 << 20,
            descriptor_reserve: 256,
            subscriptions: 4096,
            message_bytes: 4 << 20,
            nats_pending_bytes: 128 << 20,
            nats_message_id_bytes: 256 << 20,
            grace_ms: 60_000,
            journal_from_dirty_files: 4,
            open_segments: 512,
        }
    }
}

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
    /// Places for connections, calls and bytes of requests.
    pub admission: Admission,
    /// How connections are protected, and what makes clients known.
    pub tls: Tls,
    /// What clients may do.
    pub access: Access,
    /// The current view. Load once per request.
    pub view: ArcSwap<View>,
    /// Events and requests for the control plane.
    pub events: Arc<Events>,
    /// Publishing to NATS: acks, copies, `PublishToSubject`.
    pub nats: NatsLink,
    /// Counters and gauges.
    pub statistics: Statistics,
    /// Where the broker is in its run, for probes.
    pub condition: Condition,
    /// What health answers; false = draining or not ready yet.
    pub serving: AtomicBool,
    /// Room for waiting and uncommitted appends of all partitions together, bytes.
    pub inflight: Arc<Semaphore>,
    /// Whether the control plane runs.
    pub event_loop: EventLoop,
    /// What the control plane counts.
    pub reported: Reported,
    /// For members of consumer groups that wait for a change.
    pub groups: GroupVersions,
    /// Which member of each consumer group reads what.
    pub(crate) members: Members,
    /// What the partitions of `__cursors` led here say.
    pub(crate) cursors: CursorIndexes,
    /// Wakes the task that removes files of deleted partitions.
    pub deleted: Notify,
    /// Whether the data directory has space.
    pub space: Space,
    /// Whether scrubs wait.
    pub scrub_paused: AtomicBool,
    /// Open Subscribe and `DoGet` calls, against `limits.subscriptions`.
    pub open_subscriptions: AtomicI64,
    /// What wraps the streams' data keys.
    pub masters: Masters,
    /// Memory for message ids.
    pub(crate) message_ids: IdBudget,
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
        let events =
            Events::new(EVENTS)?.with_requests(limits.admin_requests, limits.admin_request_bytes);
        let events = Arc::new(events);
        Ok(Self {
            cluster_id: cluster_id.to_owned(),
            broker_id: broker_id.to_owned(),
            namespace: namespace.to_owned(),
            limits,
            admission: Admission::new(limits),
            tls: Tls::default(),
            access: Access::new(events.clone()),
            view: ArcSwap::default(),
            events,
            nats: NatsLink::default(),
            statistics: Statistics::default(),
            condition: Condition::default(),
            serving: AtomicBool::new(false),
            inflight: Arc::new(Semaphore::new(
                limits.inflight_bytes.min(Semaphore::MAX_PERMITS),
            )),
            event_loop: EventLoop::default(),
            reported: Reported::default(),
            groups: GroupVersions::default(),
            members: Members::default(),
            cursors: CursorIndexes::default(),
            deleted: Notify::new(),
            space: Space::default(),
            scrub_paused: AtomicBool::new(false),
            open_subscriptions: AtomicI64::new(0),
            masters: Masters::default(),
            message_ids: IdBudget::new(limits.nats_message_id_bytes),
        })
    }

    /// What one subscription or scan may read ahead, bytes: its part of `limits.delivery_bytes`, and never so little that
    /// it would not get on.
    pub(crate) fn delivery_share(&self) -> usize {
        let open = self.open_subscriptions.load(Ordering::Relaxed).max(1);
        (self.limits.delivery_bytes / usize::try_from(open).unwrap_or(1)).max(LEAST_SHARE)
    }

    /// The same with master keys.
    #[must_use]
    pub fn with_masters(mut self, masters: Masters) -> Self {
        self.masters = masters;
        self
    }
}

/// How the servers hold it.
pub type SharedRef = Arc<Shared>;
