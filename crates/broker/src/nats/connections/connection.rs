//! One connection to NATS: a client on a thread of its own, watched and reported.
use super::report::Reporter;
use super::state::States;
use super::thread::NatsThread;
use crate::events::NatsChange;
use crate::nats::client::{Buffers, Client, Failure, NatsSettings, Observer, Options};
use parking_lot::Mutex;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long [`Client::round_trip`] may take after a subscription.
pub(crate) const SYNC_LIMIT: Duration = Duration::from_secs(5);

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Subscriptions without a queue group, copies out; no echo.
    Ingest,
    /// Subscriptions with a queue group, acks and publishes.
    Streams,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Streams => "streams",
        }
    }
}

/// One of the session's connections.
pub(crate) struct Connection {
    role: Role,
    thread: NatsThread,
    client: Client,
    pub(crate) buffers: Arc<Buffers>,
}

impl Connection {
    /// Starts its thread. Slices of messages may keep about `held_bytes` of what was read before they are copied.
    ///
    /// # Errors
    /// Those of [`NatsThread::start`].
    pub(crate) fn new(role: Role, watch: &Arc<Watch>, held_bytes: usize) -> io::Result<Self> {
        let buffers = Buffers::new(held_bytes);
        let watch = watch.clone();
        Ok(Self {
            role,
            thread: NatsThread::start(&format!("nats-{}", role.name()))?,
            client: Client::new(Arc::new(Watched { role, watch }), buffers.clone()),
            buffers,
        })
    }

    /// Connects, for ever.
    pub(crate) fn start(&self, settings: &NatsSettings, watch: &Arc<Watch>) {
        let base = settings
            .name
            .clone()
            .unwrap_or_else(|| format!("bascule.{}", watch.broker_id));
        let name = format!("{base}.{}", self.role.name());
        match Options::new(settings, name, self.role != Role::Ingest) {
            Ok(options) => drop(self.thread.handle().spawn(self.client.clone().run(options))),
            Err(failure) => watch.on_failure(self.role, "", &failure, false),
        }
    }

    /// Ends the connection and everything on its thread.
    pub(crate) fn end(&self) {
        self.thread.stop();
        self.client.forget();
    }

    /// The client; subscriptions may be made at any time, publishes only while it is connected.
    pub(crate) fn any_client(&self) -> &Client {
        &self.client
    }

    /// The client when the connection is up now.
    pub(crate) fn client(&self) -> Option<&Client> {
        Some(&self.client).filter(|client| client.is_connected())
    }

    /// Writes out what was published, at most for `limit`.
    pub(crate) async fn flush(&self, limit: Duration) {
        // Closing continues whether or not it could be written.
        let _flushed = tokio::time::timeout(limit, self.client.flush()).await;
    }
}

/// One connection as its client sees it.
struct Watched {
    role: Role,
    watch: Arc<Watch>,
}

impl Observer for Watched {
    fn on_connected(&self, _server: &str) {
        self.watch.states.connected(self.role);
        self.watch.change(self.role, true);
        if self.role == Role::Ingest {
            self.watch.ingest_connected.notify_one();
        }
    }

    fn on_failure(&self, server: &str, failure: &Failure, was_connected: bool) {
        self.watch
            .on_failure(self.role, server, failure, was_connected);
    }

    fn on_error(&self, text: &str) {
        let reporter = &self.watch.reporter;
        reporter.error(self.role.name(), format!("NATS reports: {text}"));
    }

    fn on_lame_duck(&self, server: &str) {
        let text = format!("the NATS server at {server} is about to stop");
        self.watch.reporter.error(self.role.name(), text);
    }
}

/// Turns what happens on the connections into events: *connected* when both are up, *disconnected* when one is lost.
pub(crate) struct Watch {
    broker_id: String,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) states: States,
    state: Mutex<Up>,
    /// Wakes who waits for the next connect of the ingest connection.
    pub(crate) ingest_connected: Notify,
}

#[derive(Default)]
struct Up {
    ingest: bool,
    streams: bool,
    /// Since when one of them has been lost.
    lost: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(broker_id: String, reporter: Arc<Reporter>) -> Self {
        Self {
            broker_id,
            reporter,
            states: States::new(),
            state: Mutex::default(),
            ingest_connected: Notify::new(),
        }
    }

    fn on_failure(&self, role: Role, server: &str, failure: &Failure, was_connected: bool) {
        let Failure { reason, text } = failure;
        if text.to_ascii_lowercase().contains("slow consumer") {
            self.reporter.statistics.nats_slow_consumer.add(1);
        }
        let place = if server.is_empty() {
            String::new()
        } else {
            format!(" at {server}")
        };
        if was_connected {
            let text = format!("lost the connection to NATS{place}: {text}");
            self.states.failed(role, *reason, text);
            self.change(role, false);
        } else {
            let text = format!("cannot connect to NATS{place}: {text}");
            self.states.failed(role, *reason, text.clone());
            self.reporter.error(role.name(), text);
        }
    }

    fn change(&self, role: Role, up: bool) {
        let mut state = self.state.lock();
        let before = state.ingest && state.streams;
        match role {
            Role::Ingest => state.ingest = up,
            Role::Streams => state.streams = up,
        }
        let after = state.ingest && state.streams;
        let gap = match (before, after) {
            (false, true) => state.lost.take().map(|since| since.elapsed()),
            (true, false) => {
                state.lost = Some(Instant::now());
                None
            }
            _ => None,
        };
        drop(state);
        let mut detail = json!({ "connection": role.name() });
        if after && !before {
            self.reporter.recovered();
            self.report_connected(gap, detail);
        } else if before && !after {
            let state = self.states.summary();
            detail["reason"] = json!(state.reason);
            let text = format!("{}; trying again", state.text);
            self.reporter.event(NatsChange::Disconnected, text, detail);
        }
    }

    /// Reports that both are up, and counts the gap when they were before.
    fn report_connected(&self, gap: Option<Duration>, mut detail: serde_json::Value) {
        let mut text = "connected to NATS".to_owned();
        if let Some(gap) = gap {
            let millis = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
            let statistics = &self.reporter.statistics;
            statistics.nats_gaps.add(1);
            statistics
                .nats_gap_nanos
                .add(u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX));
            detail["gap_ms"] = millis.into();
            text = format!(
                "connected to NATS again after {millis} ms; what was published meanwhile without an ack is not stored"
            );
        }
        self.reporter.event(NatsChange::Connected, text, detail);
    }
}
