//! Dependencies of the Liftbridge API.
use crate::access::Access;
use crate::admission::Admission;
use crate::cursor_index::CursorIndexes;
use crate::events::Events;
use crate::forward::Forwarder;
use crate::groups::{GroupVersions, Members};
use crate::limits::Limits;
use crate::nats::NatsLink;
use crate::run_state::RunState;
use crate::statistics::Statistics;
use crate::subscriptions::Subscriptions;
use crate::view::View;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// One for the broker; everything in it is safe to share.
#[derive(Debug)]
pub(crate) struct LiftbridgeContext {
    pub(crate) broker_id: String,
    /// Prefix of ack inboxes.
    pub(crate) namespace: String,
    pub(crate) limits: Limits,
    pub(crate) run_state: Arc<RunState>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) access: Arc<Access>,
    /// Load once per request.
    pub(crate) view: Arc<ArcSwap<View>>,
    /// Requests for the control plane.
    pub(crate) events: Arc<Events>,
    /// Acks to inboxes, `PublishToSubject`.
    pub(crate) nats: NatsLink,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// For members of consumer groups that wait for a change.
    pub(crate) groups: Arc<GroupVersions>,
    /// Which member of each consumer group reads what.
    pub(crate) members: Arc<Members>,
    /// Stored positions in the partitions of `__cursors` led here.
    pub(crate) cursors: Arc<CursorIndexes>,
    /// Publishes to partitions that are led elsewhere.
    pub(crate) forwarder: Arc<Forwarder>,
}
