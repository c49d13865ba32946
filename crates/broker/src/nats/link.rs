//! The facade that everyone else holds.
use super::client::{Client, Inbox, Message, NatsSettings, Publish, SendError};
use super::connections::{NatsContext, NatsState, Reporter, Role};
use super::session::Session;
use crate::ingest::nats::{PausedPartition, Router};
use crate::partition::{CommitObserver, CommittedAppend, Partition};
use arc_swap::ArcSwapOption;
use bascule_wire::subject;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

const DISCONNECTED: &str = "nats: server is disconnected";
const CLOSED: &str = "nats: connection closed";
const BAD_SUBJECT: &str = "nats: invalid subject";
const TOO_LARGE: &str = "nats: maximum payload exceeded";

/// Publishing to NATS. Cheap to clone; works (and refuses) while disconnected.
#[derive(Clone)]
pub struct NatsLink(Arc<Inner>);

struct Inner {
    context: NatsContext,
    router: Arc<Router>,
    session: ArcSwapOption<Session>,
}

impl std::fmt::Debug for NatsLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsLink")
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

impl CommitObserver for NatsLink {
    /// Queues the records to be republished, best effort; while there is no session nothing is republished.
    fn on_commit(
        &self,
        partition: &Partition,
        appends: &mut dyn Iterator<Item = CommittedAppend<'_>>,
    ) {
        if let Some(session) = self.0.session.load().as_ref() {
            session.republish.on_commit(partition, appends);
        }
    }
}

impl NatsLink {
    /// Not connected.
    pub fn new(context: NatsContext) -> Self {
        Self(Arc::new(Inner {
            context,
            router: Arc::default(),
            session: ArcSwapOption::empty(),
        }))
    }

    /// Starts connecting on the current runtime, or reconnects with other settings. Reports by `nats` events; retries for
    /// ever. Partitions that are led already are subscribed as soon as the connection is up.
    pub fn connect(&self, settings: NatsSettings) {
        if let Some(old) = self.0.session.swap(None) {
            old.abandon();
        }
        self.0.router.forget_subscriptions();
        match Session::start(&self.0.context, settings, &self.0.router) {
            Ok(session) => {
                let session = Arc::new(session);
                self.0.session.store(Some(session.clone()));
                // Those that began to listen meanwhile.
                self.0.router.subscribe_all(&session.ingest);
            }
            Err(error) => {
                let NatsContext {
                    events, statistics, ..
                } = &self.0.context;
                let reporter = Reporter::new(events.clone(), statistics.clone(), Handle::current());
                let text = format!("cannot start connections to NATS: {error}");
                reporter.error("both", text);
            }
        }
    }

    /// Whether the connections are up.
    pub fn is_connected(&self) -> bool {
        let session = self.0.session.load();
        session.as_ref().is_some_and(|session| {
            let roles = [Role::Ingest, Role::Streams];
            roles
                .iter()
                .all(|role| session.connections.client(*role).is_some())
        })
    }

    /// State of the connections, with the reason when they are not up.
    pub fn state(&self) -> NatsState {
        let session = self.0.session.load();
        session
            .as_ref()
            .map_or_else(NatsState::off, |session| session.connections.state())
    }

    /// Feeds a partition from its subject from now on (subscribes when needed). Returns once the server has confirmed the
    /// subscription, so that what anyone publishes afterwards is stored; at once while disconnected or when the partition
    /// has no subject. Leading twice is leading once.
    pub async fn lead(&self, partition: &Partition) {
        self.lead_all(std::slice::from_ref(partition)).await;
    }

    /// [`NatsLink::lead`] for many partitions, with one or two round trips for all of them.
    pub async fn lead_all(&self, partitions: &[Partition]) {
        let session = self.0.session.load_full();
        let ingest = session.as_ref().map(|session| &session.ingest);
        self.0.router.lead(ingest, partitions).await;
    }

    /// Stops feeding a partition.
    pub fn stop_feeding(&self, incarnation: u64) {
        self.0.router.stop_feeding(incarnation);
    }

    /// Counts what arrives for a partition that is paused, in place of feeding it. One that is fed stays so, unless
    /// `is_led_here`, when it is just about to be closed.
    pub fn pause(&self, place: PausedPartition, is_led_here: bool) {
        let session = self.0.session.load_full();
        let ingest = session.as_ref().map(|session| &session.ingest);
        self.0.router.pause(ingest, place, is_led_here);
    }

    /// Forgets a partition that was deleted, with what was counted for it.
    pub fn forget(&self, incarnation: u64) {
        self.0.router.forget(incarnation);
    }

    /// How partitions listen and what was not stored for them (`specs/formats/seam.md`).
    pub fn partitions(&self, incarnations: &[u64]) -> Value {
        let session = self.0.session.load();
        let is_up = |role: Role| {
            let session = session.as_ref();
            session.is_some_and(|session| session.connections.client(role).is_some())
        };
        let router = &self.0.router;
        let partition = |incarnation: &u64| {
            let role = router.role(*incarnation).unwrap_or(Role::Ingest);
            let (subscription, text) = router.subscription(*incarnation, is_up(role));
            let losses = router.losses(*incarnation).unwrap_or_default();
            json!({
                "incarnation": incarnation,
                "subscription": subscription,
                "text": text,
                "not_stored": losses.to_json(),
            })
        };
        incarnations.iter().map(partition).collect()
    }

    /// Whether acks may go to `inbox`, see [`NatsSettings::ack_inbox_prefixes`].
    pub fn is_ack_inbox(&self, namespace: &str, inbox: &str) -> bool {
        let session = self.0.session.load();
        session
            .as_ref()
            .is_none_or(|session| session.settings.is_ack_inbox(namespace, inbox))
    }

    /// Closes the connections after flushing what is queued, at most one second. No partition is fed any more.
    pub async fn close(&self) {
        if let Some(session) = self.0.session.swap(None) {
            session.close().await;
        }
        self.0.router.clear();
    }

    /// Publishes one message, waiting for room in the bounded outgoing queue. It is on its way, not received by anyone, when
    /// this returns.
    ///
    /// # Errors
    /// A sentence for the caller's status: `nats: connection closed` before [`NatsLink::connect`] and after
    /// [`NatsLink::close`], `nats: server is disconnected`, `nats: invalid subject`, `nats: maximum payload exceeded`.
    pub async fn publish(
        &self,
        subject: &str,
        reply: Option<&str>,
        payload: Bytes,
    ) -> Result<(), String> {
        send(&self.client()?, subject, reply, payload).await
    }

    /// Waits for the first message on `inbox`, subscribed before `publish` is sent (PublishToSubject with a deadline).
    ///
    /// # Errors
    /// As [`NatsLink::publish`]; the caller applies its own deadline around the future.
    pub async fn publish_and_wait(
        &self,
        subject: &str,
        payload: Bytes,
        inbox: &str,
    ) -> Result<Bytes, String> {
        let client = self.client()?;
        if !subject::is_publish_subject(inbox) {
            return Err(BAD_SUBJECT.to_owned());
        }
        let (first, answer) = oneshot::channel();
        let first = Arc::new(First(Mutex::new(Some(first))));
        // Ends with this future.
        let _subscription = client.subscribe(inbox, "", first);
        send(&client, subject, None, payload).await?;
        answer.await.map_err(|_| CLOSED.to_owned())
    }

    fn client(&self) -> Result<Client, String> {
        let session = self.0.session.load();
        let session = session.as_ref().ok_or_else(|| CLOSED.to_owned())?;
        session
            .connections
            .client(Role::Streams)
            .cloned()
            .ok_or_else(|| DISCONNECTED.to_owned())
    }
}

/// Takes the payload of the first message, and nothing of others.
struct First(Mutex<Option<oneshot::Sender<Bytes>>>);

impl Inbox for First {
    fn take(&self, messages: &mut Vec<Message>) {
        if let (Some(message), Some(waiting)) = (messages.first(), self.0.lock().take()) {
            // A caller that timed out has dropped its receiver.
            let _ = waiting.send(Bytes::copy_from_slice(&message.payload));
        }
    }
}

async fn send(
    client: &Client,
    subject: &str,
    reply: Option<&str>,
    payload: Bytes,
) -> Result<(), String> {
    if !subject::is_publish_subject(subject)
        || reply.is_some_and(|reply| !subject::is_publish_subject(reply))
    {
        return Err(BAD_SUBJECT.to_owned());
    }
    let message = Publish {
        subject,
        reply: reply.unwrap_or_default(),
        headers: &[],
        payload: &payload,
    };
    client.publish(message).await.map_err(|error| {
        match error {
            SendError::Disconnected => DISCONNECTED,
            SendError::TooLarge => TOO_LARGE,
        }
        .to_owned()
    })
}
