//! What lives from one `connect` to the next: the two connections, the outgoing queues and their tasks.
use super::acks::{self, AckJob};
use super::budget::{Budget, Patience};
use super::connection::{Connection, Role, Watch};
use super::copies;
use super::copy_job::CopyJob;
use super::publish_acks::{self, PublishAckJob};
use super::report::Reporter;
use super::router::Router;
use super::settings::NatsSettings;
use super::state::NatsState;
use crate::shared::SharedRef;
use async_nats::{StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Acks of so many appends may wait to go out.
const ACK_QUEUE: usize = 4096;
/// How long closing waits for what is queued.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// See [`NatsSettings::pause_ms`].
const PAUSE: Duration = Duration::from_millis(250);

/// One session. Its tasks hold it until [`Session::close`] or [`Session::abandon`] ends them: those of each connection on
/// the connection's thread, the outgoing ones on the runtime that started it.
pub(super) struct Session {
    pub(super) shared: SharedRef,
    pub(super) settings: NatsSettings,
    pub(super) reporter: Arc<Reporter>,
    pub(super) ingest: Connection,
    pub(super) streams: Connection,
    /// Messages taken off the connections and not yet queued at a partition.
    pub(super) pending: Arc<Budget>,
    patience: Patience,
    /// Copies that wait to go out.
    pub(super) copying: Arc<Budget>,
    /// Bytes of copies handed to the *ingest* connection since it was last waited for.
    pub(super) handed: AtomicUsize,
    pub(super) acks: mpsc::Sender<AckJob>,
    pub(super) publish_acks: mpsc::Sender<PublishAckJob>,
    pub(super) copies: mpsc::UnboundedSender<CopyJob>,
    /// Prefix of the subjects on which the server answers the copier's probes; set once *ingest* is connected.
    pub(super) inbox: OnceLock<String>,
    sync_subject: OnceLock<String>,
    closing: watch::Sender<bool>,
    outgoing: Mutex<Vec<JoinHandle<()>>>,
    watch: Arc<Watch>,
}

impl Session {
    /// Starts connecting; acks and copies are made on the current runtime.
    ///
    /// # Errors
    /// When the system gives no threads for the connections.
    pub(super) fn start(
        shared: &SharedRef,
        settings: NatsSettings,
        router: &Arc<Router>,
    ) -> io::Result<Arc<Self>> {
        let reporter = Arc::new(Reporter::new(shared.clone(), Handle::current()));
        let pending_bytes = settings
            .pending_bytes
            .unwrap_or(shared.limits.nats_pending_bytes);
        let patience = Patience::new(settings.pause_ms.map_or(PAUSE, Duration::from_millis));
        let (ack_sender, ack_receiver) = mpsc::channel(ACK_QUEUE);
        let (publish_ack_sender, publish_ack_receiver) = mpsc::channel(ACK_QUEUE);
        let (copy_sender, copy_receiver) = mpsc::unbounded_channel();
        let (nobody_sender, nobody_receiver) = mpsc::unbounded_channel();
        let watch = Arc::new(Watch::new(reporter.clone()));
        let session = Arc::new(Self {
            shared: shared.clone(),
            settings,
            reporter,
            ingest: Connection::new(Role::Ingest)?,
            streams: Connection::new(Role::Streams)?,
            pending: Arc::new(Budget::new(pending_bytes)),
            patience,
            copying: Arc::new(Budget::new(pending_bytes)),
            handed: AtomicUsize::new(0),
            acks: ack_sender,
            publish_acks: publish_ack_sender,
            copies: copy_sender,
            inbox: OnceLock::new(),
            sync_subject: OnceLock::new(),
            closing: watch::Sender::new(false),
            outgoing: Mutex::default(),
            watch: watch.clone(),
        });
        let ingest = session
            .clone()
            .keep_ingest(router.clone(), watch.clone(), nobody_sender);
        session.ingest.spawn(ingest);
        let streams = session.clone().keep_streams(router.clone(), watch);
        session.streams.spawn(streams);
        let acks = acks::run(session.clone(), ack_receiver);
        let publish_acks = publish_acks::run(session.clone(), publish_ack_receiver);
        let copies = copies::run(
            session.clone(),
            router.clone(),
            copy_receiver,
            nobody_receiver,
        );
        *session.outgoing.lock() = vec![
            tokio::spawn(acks),
            tokio::spawn(publish_acks),
            tokio::spawn(copies),
        ];
        Ok(session)
    }

    /// Before messages of `bytes` are handed on: leaves the rest with NATS for a while when there is no room for them.
    /// Blocks, so only for the thread of a connection: nothing else is read meanwhile.
    pub(super) fn hold_back(&self, bytes: usize) {
        if !self.pending.has_room(bytes) {
            self.patience
                .spend(|limit| self.pending.wait_for_room(bytes, limit));
        }
    }

    /// Answered by our *streams* connection, or by the server when nobody listens: for [`Connection::sync`].
    pub(super) fn sync_subject(&self) -> String {
        self.sync_subject
            .get()
            .cloned()
            .unwrap_or_else(|| format!("{}.sync", self.shared.namespace))
    }

    /// State of the connections.
    pub(super) fn state(&self) -> NatsState {
        self.watch.states.summary()
    }

    pub(super) fn connection(&self, role: Role) -> &Connection {
        match role {
            Role::Ingest => &self.ingest,
            Role::Streams => &self.streams,
        }
    }

    /// Becomes true when what is queued should go out and no more is taken.
    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Lets the queued acks and copies go out, at most one second, and ends the session.
    pub(super) async fn close(&self) {
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
    pub(super) fn abandon(&self) {
        for task in self.outgoing.lock().drain(..) {
            task.abort();
        }
        self.ingest.end();
        self.streams.end();
    }

    async fn keep_ingest(
        self: Arc<Self>,
        router: Arc<Router>,
        watch: Arc<Watch>,
        nobody: mpsc::UnboundedSender<Bytes>,
    ) {
        let client = self.ingest.establish(&self.settings, &watch).await;
        let inbox = self.inbox.get_or_init(|| client.new_inbox());
        match client.subscribe(format!("{inbox}.*")).await {
            Ok(answers) => drop(self.ingest.spawn(forward_nobody(answers, nobody))),
            Err(error) => self.reporter.error(
                Role::Ingest.name(),
                format!("cannot subscribe to an inbox: {error}"),
            ),
        }
        self.keep_subscribed(&router, &watch, Role::Ingest).await;
    }

    async fn keep_streams(self: Arc<Self>, router: Arc<Router>, watch: Arc<Watch>) {
        let client = self.streams.establish(&self.settings, &watch).await;
        let subject = self.sync_subject.get_or_init(|| client.new_inbox());
        match client.subscribe(subject.clone()).await {
            Ok(requests) => drop(self.streams.spawn(answer_syncs(client, requests))),
            Err(error) => self.reporter.error(
                Role::Streams.name(),
                format!("cannot subscribe to an inbox: {error}"),
            ),
        }
        self.keep_subscribed(&router, &watch, Role::Streams).await;
    }

    /// Subscribes after each connect to what was asked for while the connection was down.
    async fn keep_subscribed(self: &Arc<Self>, router: &Router, watch: &Watch, role: Role) {
        loop {
            router.subscribe_all(self, role).await;
            watch.connected(role).notified().await;
        }
    }
}

/// Tells the copier which of its probes nobody received; the token is the last part of the subject.
async fn forward_nobody(mut answers: Subscriber, nobody: mpsc::UnboundedSender<Bytes>) {
    while let Some(answer) = answers.next().await {
        if answer.status == Some(StatusCode::NO_RESPONDERS)
            && nobody
                .send(Bytes::from(answer.subject.into_string()))
                .is_err()
        {
            return;
        }
    }
}

async fn answer_syncs(client: async_nats::Client, mut requests: Subscriber) {
    while let Some(request) = requests.next().await {
        if let Some(reply) = request.reply {
            // Who asked goes on after a second without an answer, and reports it.
            let _sent = client.publish(reply, Bytes::new()).await;
        }
    }
}
