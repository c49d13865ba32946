//! The state of the connections to NATS, with the reason when one is down (`specs/formats/seam.md`).
use super::connection::Role;
use crate::nats::client::Reason;
use parking_lot::Mutex;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// State of one connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionState {
    /// `ingest` or `streams`.
    pub name: &'static str,
    /// Whether it is up.
    pub connected: bool,
    /// Why not; `None` when it is.
    pub reason: Option<Reason>,
    /// The same as a sentence for people; empty when it is up.
    pub text: String,
    /// Since when it has been up, or down, ms since 1970.
    pub since_ms: u64,
}

impl ConnectionState {
    fn starting(role: Role) -> Self {
        Self {
            name: role.name(),
            connected: false,
            reason: Some(Reason::Starting),
            text: "the first attempt to connect is under way".to_owned(),
            since_ms: now_ms(),
        }
    }
}

/// State of NATS as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct NatsState {
    /// `off` before [`crate::nats::NatsLink::connect`], `connected` when all connections are up, otherwise `connecting`.
    pub state: &'static str,
    /// Reason of the first connection that is not up.
    pub reason: Option<Reason>,
    /// The same as a sentence for people; empty when `connected` or `off`.
    pub text: String,
    /// Since when this has been the state, ms since 1970; 0 when `off`.
    pub since_ms: u64,
    /// Each connection.
    pub connections: Vec<ConnectionState>,
}

impl NatsState {
    /// Before [`crate::nats::NatsLink::connect`] and after [`crate::nats::NatsLink::close`].
    pub(crate) fn off() -> Self {
        Self {
            state: "off",
            reason: None,
            text: String::new(),
            since_ms: 0,
            connections: Vec::new(),
        }
    }
}

/// The states of a session's connections.
#[derive(Debug)]
pub(crate) struct States(Mutex<[ConnectionState; 2]>);

impl States {
    /// Nothing was tried yet.
    pub(crate) fn new() -> Self {
        let starting = [Role::Ingest, Role::Streams].map(ConnectionState::starting);
        Self(Mutex::new(starting))
    }

    /// The connection is up.
    pub(crate) fn connected(&self, role: Role) {
        self.change(role, true, None, String::new());
    }

    /// The connection is down; the time since when is kept while it stays down.
    pub(crate) fn failed(&self, role: Role, reason: Reason, text: String) {
        self.change(role, false, Some(reason), text);
    }

    fn change(&self, role: Role, connected: bool, reason: Option<Reason>, text: String) {
        let mut states = self.0.lock();
        let state = states.iter_mut().find(|state| state.name == role.name());
        if let Some(state) = state {
            if state.connected != connected {
                state.since_ms = now_ms();
            }
            (state.connected, state.reason, state.text) = (connected, reason, text);
        }
    }

    /// All together.
    pub(crate) fn summary(&self) -> NatsState {
        let connections = self.0.lock().to_vec();
        let down = connections.iter().find(|state| !state.connected);
        let since = |connected| {
            let changed = connections
                .iter()
                .filter(|state| state.connected == connected)
                .map(|state| state.since_ms);
            if connected {
                changed.max()
            } else {
                changed.min()
            }
        };
        NatsState {
            state: if down.is_some() {
                "connecting"
            } else {
                "connected"
            },
            reason: down.and_then(|state| state.reason),
            text: down.map(|state| state.text.clone()).unwrap_or_default(),
            since_ms: since(down.is_none()).unwrap_or_default(),
            connections,
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_gives_the_reason_of_a_connection_that_is_down() {
        let states = States::new();
        assert_eq!(states.summary().reason, Some(Reason::Starting));
        states.connected(Role::Ingest);
        states.failed(Role::Streams, Reason::LoginRefused, "refused".to_owned());
        let summary = states.summary();
        assert_eq!(
            (summary.state, summary.reason),
            ("connecting", Some(Reason::LoginRefused))
        );
        assert_eq!(summary.text, "refused");
        states.connected(Role::Streams);
        let summary = states.summary();
        assert_eq!(
            (summary.state, summary.reason, &summary.text[..]),
            ("connected", None, "")
        );
        let json = serde_json::to_value(Reason::LoginRefused).unwrap();
        assert_eq!(json, "login_refused");
    }
}
