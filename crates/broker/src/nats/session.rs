//! One session, from a `connect` to the next: its two connections, its outgoing queues and their tasks.
use super::client::{NatsSettings, Subscription};
use super::connections::{ConnectionPair, NatsContext, Reporter, Role};
use super::presence::{self, Presence};
use crate::budget::{Budget, StallBudget};
use crate::ingest::nats::{
    AckQueue, AckSender, IngestContext, PublishAckQueue, PublishAckSender, Router,
};
use crate::republish::marks::probe::probe_inbox;
use crate::republish::marks::seal::Seal;
use crate::republish::{self, ProbeAnswers, RepublishContext, RepublishJobs};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The part of `pending_bytes` that messages may keep of one connection's read buffers before they are copied.
const HELD_SHARE: usize = 4;
/// How long closing waits for what is queued.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// See [`NatsSettings::pause_ms`].
const PAUSE: Duration = Duration::from_millis(250);

/// One session. [`Session::close`] or [`Session::abandon`] ends its tasks: those of each connection, which run on the
/// connection's thread, and the outgoing ones on the runtime that started it.
pub(super) struct Session {
    pub(super) settings: Arc<NatsSettings>,
    pub(super) connections: Arc<ConnectionPair>,
    pub(super) ingest: Arc<IngestContext>,
    pub(super) republish: RepublishJobs,
    closing: watch::Sender<bool>,
    outgoing: Mutex<Vec<JoinHandle<()>>>,
    /// To the answers to probes and to the announcements of brokers.
    own_subscriptions: Mutex<Vec<Subscription>>,
}

impl Session {
    /// Starts connecting; acks and republished records are encoded on the current runtime.
    ///
    /// # Errors
    /// When the system gives no threads for the connections, or no random bytes.
    pub(super) fn start(
        context: &NatsContext,
        settings: NatsSettings,
        router: &Arc<Router>,
    ) -> io::Result<Self> {
        let settings = Arc::new(settings);
        let statistics = context.statistics.clone();
        let reporter = Reporter::new(
            context.events.clone(),
            statistics.clone(),
            Handle::current(),
        );
        let reporter = Arc::new(reporter);
        let pending_bytes = settings.pending_bytes.unwrap_or(context.pending_bytes);
        let connections = ConnectionPair::new(context, &reporter, pending_bytes / HELD_SHARE)?;
        let connections = Arc::new(connections);
        let (acks, ack_jobs) = AckQueue::new(statistics.clone());
        let (publish_acks, publish_ack_jobs) = PublishAckQueue::new(statistics.clone());
        let (republish, republish_jobs) = RepublishJobs::new(pending_bytes, statistics.clone());
        let pause = settings.pause_ms.map_or(PAUSE, Duration::from_millis);
        let ingest = Arc::new(IngestContext {
            connections: connections.clone(),
            statistics: statistics.clone(),
            reporter,
            cluster_id: context.cluster_id.clone(),
            seal: Arc::new(Seal::new()?),
            pending: Arc::new(Budget::new(pending_bytes)),
            stall_budget: StallBudget::new(pause),
            acks,
            publish_acks,
        });
        let probe_inbox = probe_inbox()?;
        let (probe_answers, unanswered) = ProbeAnswers::new();
        let (announcements, announced) = mpsc::channel(presence::QUEUE);
        let announcements = presence::Announcements(announcements);
        let client = connections.any_client(Role::Ingest);
        let own_subscriptions = vec![
            client.subscribe(&format!("{probe_inbox}.*"), "", Arc::new(probe_answers)),
            client.subscribe(
                &presence::subject(&context.namespace),
                "",
                Arc::new(announcements),
            ),
        ];
        router.subscribe_all(&ingest);
        connections.connect(&settings);
        let closing = watch::Sender::new(false);
        let ack_sender = AckSender {
            connections: connections.clone(),
            statistics: statistics.clone(),
            settings: settings.clone(),
            namespace: context.namespace.clone(),
        };
        let publish_ack_sender = PublishAckSender {
            connections: connections.clone(),
            statistics,
            settings: settings.clone(),
        };
        let presence = Presence {
            context: context.clone(),
            connections: connections.clone(),
            session: probe_inbox.clone(),
        };
        let to_republish = RepublishContext {
            ingest: ingest.clone(),
            router: router.clone(),
            probe_inbox,
        };
        let end = || closing.subscribe();
        let outgoing = vec![
            tokio::spawn(ack_sender.run(ack_jobs, end())),
            tokio::spawn(publish_ack_sender.run(publish_ack_jobs, end())),
            tokio::spawn(republish::run(
                to_republish,
                republish_jobs,
                unanswered,
                end(),
            )),
            tokio::spawn(presence.run(announced, end())),
        ];
        Ok(Self {
            settings,
            connections,
            ingest,
            republish,
            closing,
            outgoing: Mutex::new(outgoing),
            own_subscriptions: Mutex::new(own_subscriptions),
        })
    }

    /// Sends the queued acks and republished records, at most for one second, and ends the session.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        let mut outgoing = std::mem::take(&mut *self.outgoing.lock());
        let drained = async {
            for task in &mut outgoing {
                // One that panicked has nothing left to send.
                let _ended = task.await;
            }
            self.connections.flush(CLOSE_LIMIT).await;
        };
        // Entries that are still queued after that second are dropped: acks and republished records are best effort.
        let _in_time = tokio::time::timeout(CLOSE_LIMIT, drained).await;
        outgoing.iter().for_each(JoinHandle::abort);
        self.abandon();
    }

    /// Ends the session at once.
    pub(super) fn abandon(&self) {
        for task in self.outgoing.lock().drain(..) {
            task.abort();
        }
        self.own_subscriptions.lock().clear();
        self.connections.end();
    }
}
