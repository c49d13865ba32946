//! What lives from one `connect` to the next: the two connections, the outgoing queues and their tasks.
use crate::budget::{Budget, StallBudget};
use crate::context::SharedRef;
use crate::ingest::nats::acks::{self, AckJob};
use crate::ingest::nats::publish_acks::{self, PublishAckJob};
use crate::ingest::nats::router::Router;
use crate::nats::client::headers;
use crate::nats::client::settings::NatsSettings;
use crate::nats::client::{Inbox, Message, Subscription};
use crate::nats::connections::connection::{Connection, Role, Watch};
use crate::nats::connections::report::Reporter;
use crate::nats::connections::state::NatsState;
use crate::nats::presence;
use crate::republish::job::RepublishJob;
use crate::republish::marks::seal::Seal;
use crate::republish::republisher;
use bascule_wire::liftbridge::publish::MAX_HEADERS;
use bytes::Bytes;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Acks of so many appends may wait to go out.
const ACK_QUEUE: usize = 4096;
/// Answers to probes that may wait.
const ANSWER_QUEUE: usize = 4096;
/// What NATS says when nobody listens on a subject.
const NO_RESPONDERS: u16 = 503;
/// The part of `pending_bytes` that slices may keep of one connection's buffers before what waits is copied.
const HELD_SHARE: usize = 4;
/// How long closing waits for what is queued.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// See [`NatsSettings::pause_ms`].
const PAUSE: Duration = Duration::from_millis(250);

/// One session. Its tasks hold it until [`Session::close`] or [`Session::abandon`] ends them: those of each connection on
/// the connection's thread, the outgoing ones on the runtime that started it.
pub(crate) struct Session {
    pub(crate) shared: SharedRef,
    pub(crate) settings: NatsSettings,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) ingest: Connection,
    pub(crate) streams: Connection,
    /// Messages taken off the connections and not yet queued at a partition.
    pub(crate) pending: Arc<Budget>,
    stall_budget: StallBudget,
    /// Copies that wait to go out.
    pub(crate) copying: Arc<Budget>,
    pub(crate) acks: mpsc::Sender<AckJob>,
    pub(crate) publish_acks: mpsc::Sender<PublishAckJob>,
    pub(crate) copies: mpsc::UnboundedSender<RepublishJob>,
    /// Prefix of the subjects on which the server answers the republisher's probes.
    pub(crate) inbox: String,
    /// Proves which copies are our own.
    pub(crate) seal: Arc<Seal>,
    closing: watch::Sender<bool>,
    outgoing: Mutex<Vec<JoinHandle<()>>>,
    watch: Arc<Watch>,
    /// The subscriptions to the answers to probes and to what brokers announce.
    own_subscriptions: Mutex<Vec<Subscription>>,
}

impl Session {
    /// Starts connecting; acks and copies are made on the current runtime.
    ///
    /// # Errors
    /// When the system gives no threads for the connections.
    pub(crate) fn start(
        shared: &SharedRef,
        settings: NatsSettings,
        router: &Arc<Router>,
    ) -> io::Result<Arc<Self>> {
        let reporter = Arc::new(Reporter::new(shared.clone(), Handle::current()));
        let pending_bytes = settings
            .pending_bytes
            .unwrap_or(shared.limits.nats_pending_bytes);
        let held_bytes = pending_bytes / HELD_SHARE;
        let stall_budget = StallBudget::new(settings.pause_ms.map_or(PAUSE, Duration::from_millis));
        let (ack_sender, ack_receiver) = mpsc::channel(ACK_QUEUE);
        let (publish_ack_sender, publish_ack_receiver) = mpsc::channel(ACK_QUEUE);
        let (copy_sender, copy_receiver) = mpsc::unbounded_channel();
        let (nobody_sender, nobody_receiver) = mpsc::channel(ANSWER_QUEUE);
        let watch = Arc::new(Watch::new(reporter.clone()));
        let session = Arc::new(Self {
            shared: shared.clone(),
            settings,
            reporter,
            ingest: Connection::new(Role::Ingest, &watch, held_bytes)?,
            streams: Connection::new(Role::Streams, &watch, held_bytes)?,
            pending: Arc::new(Budget::new(pending_bytes)),
            stall_budget,
            copying: Arc::new(Budget::new(pending_bytes)),
            acks: ack_sender,
            publish_acks: publish_ack_sender,
            copies: copy_sender,
            inbox: republisher::probe_inbox()?,
            seal: Arc::new(Seal::new()?),
            own_subscriptions: Mutex::default(),
            closing: watch::Sender::new(false),
            outgoing: Mutex::default(),
            watch: watch.clone(),
        });
        let nobody = Arc::new(Nobody(nobody_sender));
        let (heard_sender, heard_receiver) = mpsc::channel(presence::QUEUE);
        let heard = Arc::new(presence::Announcements(heard_sender));
        let client = session.ingest.any_client();
        *session.own_subscriptions.lock() = vec![
            client.subscribe(&format!("{}.*", session.inbox), "", nobody),
            client.subscribe(&presence::subject(&shared.namespace), "", heard),
        ];
        router.subscribe_all(&session);
        for connection in [&session.ingest, &session.streams] {
            connection.start(&session.settings, &session.watch);
        }
        let acks = acks::run(session.clone(), ack_receiver);
        let publish_acks = publish_acks::run(session.clone(), publish_ack_receiver);
        let copies = republisher::run(
            session.clone(),
            router.clone(),
            copy_receiver,
            nobody_receiver,
        );
        *session.outgoing.lock() = vec![
            tokio::spawn(acks),
            tokio::spawn(publish_acks),
            tokio::spawn(copies),
            tokio::spawn(presence::run(session.clone(), heard_receiver)),
        ];
        Ok(session)
    }

    /// Before messages of `bytes` are handed on: leaves the rest with NATS for a while when there is no room for them.
    /// Blocks, so only for the thread of a connection: nothing else is read meanwhile.
    pub(crate) fn hold_back(&self, bytes: usize) {
        if !self.pending.has_room(bytes) {
            self.stall_budget
                .spend(|limit| self.pending.wait_for_room(bytes, limit));
        }
    }

    /// Whether messages that wait keep so much of what was read that they are to be copied.
    pub(crate) fn is_pressed(&self) -> bool {
        self.ingest.buffers.is_pressed() || self.streams.buffers.is_pressed()
    }

    /// State of the connections.
    pub(crate) fn state(&self) -> NatsState {
        self.watch.states.summary()
    }

    /// Returns after each connect of the ingest connection, once.
    pub(crate) async fn ingest_connected(&self) {
        self.watch.ingest_connected.notified().await;
    }

    pub(crate) fn connection(&self, role: Role) -> &Connection {
        match role {
            Role::Ingest => &self.ingest,
            Role::Streams => &self.streams,
        }
    }

    /// Becomes true when what is queued should go out and no more is taken.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Lets the queued acks and copies go out, at most one second, and ends the session.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        let mut outgoing = std::mem::take(&mut *self.outgoing.lock());
        let drained = async {
            for task in &mut outgoing {
                // One that panicked has nothing left to send.
                let _ended = task.await;
            }
            self.streams.flush(CLOSE_LIMIT).await;
            self.ingest.flush(CLOSE_LIMIT).await;
        };
        // After the second, whatever still waits is given up: acks and copies are best effort.
        let _in_time = tokio::time::timeout(CLOSE_LIMIT, drained).await;
        outgoing.iter().for_each(JoinHandle::abort);
        self.abandon();
    }

    /// Ends the session at once.
    pub(crate) fn abandon(&self) {
        for task in self.outgoing.lock().drain(..) {
            task.abort();
        }
        self.own_subscriptions.lock().clear();
        self.ingest.end();
        self.streams.end();
    }
}

/// Passes on which of the republisher's probes nobody received; the token is the last part of the subject.
struct Nobody(mpsc::Sender<Bytes>);

impl Inbox for Nobody {
    fn take(&self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            let block = headers::parse(&message.headers, MAX_HEADERS);
            let status = block.and_then(|block| block.status);
            if status == Some(NO_RESPONDERS) {
                // When more wait than fit, copies go out that nobody wants: that is all.
                let _ = self.0.try_send(Bytes::copy_from_slice(&message.subject));
            }
        }
    }
}
