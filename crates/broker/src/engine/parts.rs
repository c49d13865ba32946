//! The parts of a broker, put together in one place: each gets what it uses.
use super::EngineSettings;
use super::serve::Services;
use crate::access::Access;
use crate::admission::{Admission, Listener};
use crate::checks::CheckContext;
use crate::client_requests::{Positions, RequestServer, Requests};
use crate::cursor_index::CursorIndexes;
use crate::encryption::MasterKeyStore;
use crate::events::{Events, LogLimiter};
use crate::flight::{FlightContext, FlightRouter};
use crate::forward::server::ForwardServer;
use crate::forward::{Forwarder, ForwarderParts};
use crate::groups::{GroupVersions, Members};
use crate::iggy::{IggyContext, Producers, Turns};
use crate::lag::QueryPositions;
use crate::liftbridge::{
    AdminMethods, GroupPositions, HealthMethods, LiftbridgeContext, LiftbridgeMethods, RawService,
};
use crate::limits::Limits;
use crate::metrics::MetricsContext;
use crate::nats::{NatsContext, NatsLink};
use crate::partition::PartitionContext;
use crate::run_state::RunState;
use crate::statistics::{Reported, Statistics};
use crate::subscriptions::Subscriptions;
use crate::tls::Tls;
use crate::view::View;
use crate::watchdog::EventLoop;
use arc_swap::ArcSwap;
use bascule_log::GroupCommitter;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Events that may wait for the control plane.
const EVENTS: usize = 65_536;

/// Everything that the engine drives and hands to its servers; only the engine has all of it.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) broker_id: String,
    /// Prefix of internal NATS subjects.
    namespace: String,
    limits: Limits,
    pub(crate) run_state: Arc<RunState>,
    /// Whether the control plane runs.
    pub(crate) event_loop: Arc<EventLoop>,
    pub(crate) events: Arc<Events>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) partitions: Arc<PartitionContext>,
    pub(crate) nats: NatsLink,
    pub(crate) admission: Arc<Admission>,
    pub(crate) access: Arc<Access>,
    pub(crate) tls: Arc<Tls>,
    /// Publishes for partitions that are led elsewhere.
    pub(crate) forwarder: Arc<Forwarder>,
    /// Publishes of other brokers' clients.
    pub(crate) publishes: Arc<ForwardServer>,
    /// Reads and positions of clients, for the partitions led here.
    pub(crate) requests: Arc<RequestServer>,
    subscriptions: Arc<Subscriptions>,
    pub(crate) groups: Arc<GroupVersions>,
    pub(crate) members: Arc<Members>,
    cursors: Arc<CursorIndexes>,
}

impl Parts {
    /// A broker that serves nothing yet and is not connected to NATS.
    ///
    /// # Errors
    /// When the system gives no descriptor for the events.
    pub(crate) fn new(settings: &EngineSettings, master_keys: MasterKeyStore) -> io::Result<Self> {
        let limits = settings.limits;
        let events =
            Events::new(EVENTS)?.with_requests(limits.admin_requests, limits.admin_request_bytes);
        let events = Arc::new(events);
        let statistics = Arc::new(Statistics::default());
        let nats = NatsLink::new(NatsContext {
            cluster_id: settings.cluster_id.clone(),
            broker_id: settings.broker_id.clone(),
            namespace: settings.namespace.clone(),
            pending_bytes: limits.nats_pending_bytes,
            events: events.clone(),
            statistics: statistics.clone(),
        });
        let partitions = PartitionContext::new(
            limits,
            events.clone(),
            statistics.clone(),
            master_keys,
            Arc::new(nats.clone()),
        );
        let view = Arc::<ArcSwap<View>>::default();
        let admission = Arc::new(Admission::new(limits, statistics.clone()));
        let access = Arc::new(Access::new(events.clone()));
        let forwarder = Forwarder::new(ForwarderParts {
            broker_id: settings.broker_id.clone(),
            view: view.clone(),
            statistics: statistics.clone(),
            events: events.clone(),
            budget: limits.inflight_bytes,
        });
        let publishes = ForwardServer {
            broker_id: settings.broker_id.clone(),
            view: view.clone(),
            access: access.clone(),
            admission: admission.clone(),
        };
        let cursors = Arc::<CursorIndexes>::default();
        let positions = Positions::new(limits.cursors, events.clone(), cursors.clone());
        let requests = RequestServer::new(&settings.broker_id, &view, &access, positions);
        Ok(Self {
            broker_id: settings.broker_id.clone(),
            namespace: settings.namespace.clone(),
            limits,
            run_state: Arc::default(),
            event_loop: Arc::default(),
            view,
            partitions: Arc::new(partitions),
            nats,
            admission,
            access,
            forwarder: Arc::new(forwarder),
            publishes: Arc::new(publishes),
            requests: Arc::new(requests),
            tls: Arc::default(),
            subscriptions: Arc::new(Subscriptions::new(&limits, statistics.clone())),
            groups: Arc::default(),
            members: Arc::default(),
            cursors,
            events,
            statistics,
        })
    }

    /// The services of the gRPC port.
    pub(crate) fn services(&self) -> Services {
        let liftbridge = Arc::new(self.liftbridge());
        Services {
            limits: self.limits,
            listener: Listener {
                asks_for_certificates: true,
                admission: self.admission.clone(),
                tls: self.tls.clone(),
                events: self.events.clone(),
            },
            liftbridge: RawService(LiftbridgeMethods(liftbridge.clone())),
            admin: RawService(AdminMethods(liftbridge)),
            health: RawService(HealthMethods::new(
                self.run_state.clone(),
                self.event_loop.clone(),
            )),
            flight: FlightRouter::new(self.flight()),
        }
    }

    pub(crate) fn liftbridge(&self) -> LiftbridgeContext {
        LiftbridgeContext {
            broker_id: self.broker_id.clone(),
            namespace: self.namespace.clone(),
            limits: self.limits,
            run_state: self.run_state.clone(),
            admission: self.admission.clone(),
            access: self.access.clone(),
            view: self.view.clone(),
            events: self.events.clone(),
            nats: self.nats.clone(),
            statistics: self.statistics.clone(),
            subscriptions: self.subscriptions.clone(),
            groups: self.groups.clone(),
            members: self.members.clone(),
            cursors: self.cursors.clone(),
            forwarder: self.forwarder.clone(),
        }
    }

    /// For the listener of Iggy's clients.
    pub(crate) fn iggy(&self) -> Arc<IggyContext> {
        let requests = Requests::new(self.forwarder.clone(), self.requests.clone());
        Arc::new(IggyContext {
            broker_id: self.broker_id.clone(),
            limits: self.limits,
            run_state: self.run_state.clone(),
            listener: Listener {
                asks_for_certificates: false,
                admission: self.admission.clone(),
                tls: self.tls.clone(),
                events: self.events.clone(),
            },
            access: self.access.clone(),
            view: self.view.clone(),
            statistics: self.statistics.clone(),
            requests: Arc::new(requests),
            turns: Turns::default(),
            members: Arc::default(),
            clients: Arc::default(),
            producers: Producers::default(),
            closures: LogLimiter::default(),
        })
    }

    fn flight(&self) -> FlightContext {
        FlightContext {
            broker_id: self.broker_id.clone(),
            message_bytes: self.limits.message_bytes,
            run_state: self.run_state.clone(),
            admission: self.admission.clone(),
            access: self.access.clone(),
            view: self.view.clone(),
            events: self.events.clone(),
            partitions: self.partitions.clone(),
            statistics: self.statistics.clone(),
            subscriptions: self.subscriptions.clone(),
            forwarder: self.forwarder.clone(),
        }
    }

    /// For probes and metrics, of a broker with this data directory.
    pub(crate) fn metrics(&self, committer: Weak<GroupCommitter>, data: PathBuf) -> MetricsContext {
        MetricsContext {
            checks: CheckContext {
                run_state: self.run_state.clone(),
                view: self.view.clone(),
                nats: self.nats.clone(),
                event_loop: self.event_loop.clone(),
                committer,
                data,
            },
            statistics: self.statistics.clone(),
            reported: Reported::default(),
            admission: self.admission.clone(),
            access: self.access.clone(),
            events: self.events.clone(),
            partitions: self.partitions.clone(),
            positions: GroupPositions {
                view: self.view.clone(),
                events: self.events.clone(),
                cursors: self.cursors.clone(),
            },
            queries: QueryPositions::default(),
        }
    }
}
