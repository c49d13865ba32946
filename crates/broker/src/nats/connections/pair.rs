//! The two connections of a session.
use super::connection::{Connection, Role, Watch};
use super::context::NatsContext;
use super::report::Reporter;
use super::state::NatsState;
use crate::nats::client::{Client, NatsSettings};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Both connections, each on a thread of its own.
pub(crate) struct ConnectionPair {
    ingest: Connection,
    streams: Connection,
    watch: Arc<Watch>,
}

impl ConnectionPair {
    /// Starts the threads. Messages may keep about `held_bytes` of each connection's read buffers before they are copied.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub(crate) fn new(
        context: &NatsContext,
        reporter: &Arc<Reporter>,
        held_bytes: usize,
    ) -> io::Result<Self> {
        let watch = Watch::new(context.broker_id.clone(), reporter.clone());
        let watch = Arc::new(watch);
        Ok(Self {
            ingest: Connection::new(Role::Ingest, &watch, held_bytes)?,
            streams: Connection::new(Role::Streams, &watch, held_bytes)?,
            watch,
        })
    }

    /// Starts connecting; retries until [`ConnectionPair::end`].
    pub(crate) fn connect(&self, settings: &NatsSettings) {
        for connection in [&self.ingest, &self.streams] {
            connection.start(settings, &self.watch);
        }
    }

    fn connection(&self, role: Role) -> &Connection {
        match role {
            Role::Ingest => &self.ingest,
            Role::Streams => &self.streams,
        }
    }

    /// The client of a connection, for subscriptions, which may be made at any time.
    pub(crate) fn any_client(&self, role: Role) -> &Client {
        self.connection(role).any_client()
    }

    /// The client of a connection that is up now.
    pub(crate) fn client(&self, role: Role) -> Option<&Client> {
        self.connection(role).client()
    }

    /// Whether waiting messages keep so much of the read buffers that they have to be copied.
    pub(crate) fn is_pressed(&self) -> bool {
        self.ingest.buffers.is_pressed() || self.streams.buffers.is_pressed()
    }

    /// State of the connections.
    pub(crate) fn state(&self) -> NatsState {
        self.watch.states.summary()
    }

    /// Returns once after each connect of the ingest connection.
    pub(crate) async fn ingest_connected(&self) {
        self.watch.ingest_connected.notified().await;
    }

    /// Writes out what was published, at most for `limit` a connection.
    pub(crate) async fn flush(&self, limit: Duration) {
        self.streams.flush(limit).await;
        self.ingest.flush(limit).await;
    }

    /// Ends both connections and everything on their threads.
    pub(crate) fn end(&self) {
        self.ingest.end();
        self.streams.end();
    }
}
