//! One connection to NATS: made for ever, watched, told about.
use super::report::{Kind, Reporter};
use super::settings::{NatsSettings, shown};
use super::state::{Reason, States};
use super::thread::NatsThread;
use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, connection::State,
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Wait between two attempts to connect, for ever.
const RETRY: Duration = Duration::from_millis(250);
/// How long [`Connection::sync`] waits for the round trip.
pub(super) const SYNC_LIMIT: Duration = Duration::from_secs(5);
/// A server that does not answer is given up after two to three of these.
const PING: Duration = Duration::from_secs(10);
/// Messages that the library holds per subscription before it drops: more than it can read in one turn, even of the
/// smallest, and it has no second turn before they are taken ([`super::thread`]). Takes memory only when it is used.
const SUBSCRIPTION_CAPACITY: usize = 1 << 20;
/// Messages that wait to be written.
const OUTGOING_CAPACITY: usize = 4096;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Subscriptions without a queue group, copies out; no echo.
    Ingest,
    /// Subscriptions with a queue group, acks and publishes.
    Streams,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Streams => "streams",
        }
    }
}

/// One of the session's connections; there is a client once it was connected for the first time.
pub(super) struct Connection {
    pub(super) role: Role,
    thread: NatsThread,
    client: OnceLock<Client>,
}

impl Connection {
    /// Starts its thread.
    ///
    /// # Errors
    /// Those of [`NatsThread::start`].
    pub(super) fn new(role: Role) -> io::Result<Self> {
        Ok(Self {
            role,
            thread: NatsThread::start(&format!("nats-{}", role.name()))?,
            client: OnceLock::new(),
        })
    }

    /// Runs a task on the connection's thread.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.thread.handle().spawn(task).abort_handle()
    }

    /// Ends the connection and everything on its thread.
    pub(super) fn end(&self) {
        self.thread.stop();
    }

    /// The client when the connection is up now.
    pub(super) fn client(&self) -> Option<&Client> {
        self.client
            .get()
            .filter(|client| client.connection_state() == State::Connected)
    }

    /// Connects, trying for ever. To be called on the connection's thread.
    pub(super) async fn establish(&self, settings: &NatsSettings, watch: &Arc<Watch>) -> Client {
        loop {
            match connect(self.role, settings, watch).await {
                Ok(client) => return self.client.get_or_init(|| client).clone(),
                Err((reason, error)) => {
                    let servers = settings.shown_servers();
                    let text = format!("cannot connect to NATS at {servers}: {error}");
                    watch.states.failed(self.role, reason, text.clone());
                    watch
                        .reporter
                        .error(self.role.name(), format!("{text}; trying again"));
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until the server has handled everything sent before, by a round trip on this connection: `subject` is
    /// answered by our other connection, or by the server when nobody listens. False when no answer came within [`SYNC_LIMIT`].
    pub(super) async fn sync(&self, subject: String) -> bool {
        let Some(client) = self.client() else {
            return true;
        };
        // What the answer is does not matter: any comes after the subscriptions sent before.
        tokio::time::timeout(SYNC_LIMIT, client.request(subject, Bytes::new()))
            .await
            .is_ok()
    }

    /// Writes out what was published, at most for `limit`.
    pub(super) async fn flush(&self, limit: Duration) {
        if let Some(client) = self.client() {
            // Closing goes on whether or not it could be written.
            let _flushed = tokio::time::timeout(limit, client.flush()).await;
        }
    }
}

async fn connect(
    role: Role,
    settings: &NatsSettings,
    watch: &Arc<Watch>,
) -> Result<Client, (Reason, String)> {
    let servers: Vec<ServerAddr> = settings
        .servers
        .iter()
        .map(|url| {
            url.parse()
                .map_err(|error| format!("{:?} is not a valid URL: {error}", shown(url)))
        })
        .collect::<Result<_, _>>()
        .map_err(unusable)?;
    if servers.is_empty() {
        return Err(unusable("no server is configured".to_owned()));
    }
    options(role, settings, watch)
        .map_err(unusable)?
        .connect(servers)
        .await
        .map_err(|error| (code(&error), reason(&error)))
}

fn unusable(text: String) -> (Reason, String) {
    (Reason::Settings, text)
}

fn code(error: &ConnectError) -> Reason {
    match error.kind() {
        ConnectErrorKind::ServerParse => Reason::Settings,
        ConnectErrorKind::Dns => Reason::AddressUnknown,
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            Reason::LoginRefused
        }
        ConnectErrorKind::TimedOut => Reason::TimedOut,
        ConnectErrorKind::Tls => Reason::TlsFailed,
        _ => Reason::Unreachable,
    }
}

/// What the library says, and what its cause says where that is more.
fn reason(error: &ConnectError) -> String {
    let text = error.to_string();
    match std::error::Error::source(error).map(ToString::to_string) {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        _ => text,
    }
}

fn options(
    role: Role,
    settings: &NatsSettings,
    watch: &Arc<Watch>,
) -> Result<ConnectOptions, String> {
    let base = settings
        .name
        .clone()
        .unwrap_or_else(|| format!("bascule.{}", watch.reporter.shared.broker_id));
    let events = watch.clone();
    let mut options = ConnectOptions::new()
        .name(format!("{base}.{}", role.name()))
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .client_capacity(OUTGOING_CAPACITY)
        .read_buffer_capacity(u16::MAX)
        .ping_interval(PING)
        .max_reconnects(None)
        // The first attempt after a loss is made at once, as the attempt number starts at 1.
        .reconnect_delay_callback(|attempt| if attempt <= 1 { Duration::ZERO } else { RETRY })
        .event_callback(move |event| {
            events.on_event(role, &event);
            std::future::ready(())
        });
    if role == Role::Ingest {
        options = options.no_echo();
    }
    options = authenticated(options, settings)?;
    if let Some(tls) = &settings.tls {
        options = options.require_tls(tls.required);
        if tls.first {
            options = options.tls_first();
        }
        if let Some(ca) = &tls.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
    }
    Ok(options)
}

/// With the one way to say who we are that is configured.
fn authenticated(
    options: ConnectOptions,
    settings: &NatsSettings,
) -> Result<ConnectOptions, String> {
    if let Some(credentials) = &settings.credentials {
        return options
            .credentials(credentials)
            .map_err(|error| format!("the credentials are not usable: {error}"));
    }
    if let Some(user) = &settings.user {
        let password = settings.password.clone().unwrap_or_default();
        return Ok(options.user_and_password(user.clone(), password));
    }
    Ok(match (&settings.token, &settings.nkey) {
        (Some(token), _) => options.token(token.clone()),
        (None, Some(seed)) => options.nkey(seed.clone()),
        (None, None) => options,
    })
}

/// Turns what happens on the connections into events: *connected* when both are up, *disconnected* when one is lost.
pub(super) struct Watch {
    pub(super) reporter: Arc<Reporter>,
    pub(super) states: States,
    state: Mutex<Up>,
    ingest_connected: Notify,
    streams_connected: Notify,
}

#[derive(Default)]
struct Up {
    ingest: bool,
    streams: bool,
    /// Since when one of them has been lost.
    lost: Option<Instant>,
}

impl Watch {
    pub(super) fn new(reporter: Arc<Reporter>) -> Self {
        Self {
            reporter,
            states: States::new(),
            state: Mutex::default(),
            ingest_connected: Notify::new(),
            streams_connected: Notify::new(),
        }
    }

    /// Notified after each connect of one of the two.
    pub(super) fn connected(&self, role: Role) -> &Notify {
        match role {
            Role::Ingest => &self.ingest_connected,
            Role::Streams => &self.streams_connected,
        }
    }

    fn on_event(&self, role: Role, event: &Event) {
        match event {
            Event::Connected => {
                self.states.connected(role);
                self.change(role, true);
                self.connected(role).notify_one();
            }
            Event::Disconnected | Event::Closed => {
                let text = "the connection to NATS was lost".to_owned();
                self.states.failed(role, Reason::Lost, text);
                self.change(role, false);
            }
            Event::SlowConsumer(_) => {
                // The library's own queue was full: one message is lost. It may tell of fewer than there were.
                self.reporter.shared.statistics.nats_slow_consumer.add(1);
                self.reporter.dropped(1, None);
            }
            Event::ServerError(error) => self
                .reporter
                .error(role.name(), format!("NATS says: {error}")),
            Event::ClientError(error) => self
                .reporter
                .error(role.name(), format!("NATS connection: {error}")),
            Event::LameDuckMode => self
                .reporter
                .error(role.name(), "the NATS server is about to stop".to_owned()),
            Event::Draining => {}
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
        let detail = json!({ "connection": role.name() });
        if after && !before {
            self.reporter.recovered();
            self.tell_connected(gap, detail);
        } else if before && !after {
            self.reporter.event(
                Kind::Disconnected,
                "lost the connection to NATS; trying again".to_owned(),
                &detail,
            );
        }
    }

    /// Tells that both are up, and counts the gap when they were before.
    fn tell_connected(&self, gap: Option<Duration>, mut detail: serde_json::Value) {
        let mut text = "connected to NATS".to_owned();
        if let Some(gap) = gap {
            let millis = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
            let statistics = &self.reporter.shared.statistics;
            statistics.nats_gaps.add(1);
            statistics
                .nats_gap_nanos
                .add(u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX));
            detail["gap_ms"] = millis.into();
            text = format!(
                "connected to NATS again after {millis} ms; what was published meanwhile without an ack is not stored"
            );
        }
        self.reporter.event(Kind::Connected, text, &detail);
    }
}
