//! Notices other brokers of the namespace on the same NATS: brokers do not form a cluster, so each serves alone.
//!
//! A broker announces itself on `<namespace>.brokers` whenever it has connected, and once more when it hears of another one
//! for the first time, so that both report it. Whoever may publish there may announce anything: invalid announcements are
//! ignored, and only [`MAX_KNOWN`] brokers are reported.
use super::client::{Inbox, Message, Publish};
use super::connections::{ConnectionPair, NatsContext, Role};
use crate::events::Level;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Announcements that may wait; those beyond are dropped.
pub(crate) const QUEUE: usize = 16;
/// Longest announcement, bytes.
const MAX_BYTES: usize = 1024;
/// Brokers that are reported in one session.
const MAX_KNOWN: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Announcement {
    broker: String,
    /// Random, one for each session.
    session: String,
}

/// Where announcements are published.
pub(crate) fn subject(namespace: &str) -> String {
    format!("{namespace}.brokers")
}

/// Passes on what others announce.
pub(crate) struct Announcements(pub(crate) mpsc::Sender<Bytes>);

impl Inbox for Announcements {
    fn take(&self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            if message.payload.len() <= MAX_BYTES {
                // Copied, so that it keeps nothing of what was read with it. A full queue drops it.
                let _ = self.0.try_send(Bytes::copy_from_slice(&message.payload));
            }
        }
    }
}

/// Announces this broker and reports others.
pub(super) struct Presence {
    pub(super) context: NatsContext,
    pub(super) connections: Arc<ConnectionPair>,
    /// Random, one for each session.
    pub(super) session: String,
}

impl Presence {
    /// Runs until the session closes.
    pub(super) async fn run(
        self,
        mut announced: mpsc::Receiver<Bytes>,
        mut closing: watch::Receiver<bool>,
    ) {
        let own = Announcement {
            broker: self.context.broker_id.clone(),
            session: self.session.clone(),
        };
        let mut known = HashSet::new();
        loop {
            tokio::select! {
                () = self.connections.ingest_connected() => self.announce(&own).await,
                Some(payload) = announced.recv() => {
                    if let Some(other) = news(&payload, &own, &mut known) {
                        self.report(&other.broker);
                        self.announce(&own).await;
                    }
                }
                _ = closing.changed() => return,
            }
        }
    }

    async fn announce(&self, own: &Announcement) {
        let payload = json!(own).to_string();
        let message = Publish {
            subject: &subject(&self.context.namespace),
            reply: "",
            headers: &[],
            payload: payload.as_bytes(),
        };
        // When the connection was lost, the next one announces it.
        let client = self.connections.any_client(Role::Ingest);
        let _ = client.publish(message).await;
    }

    fn report(&self, other: &str) {
        let namespace = &self.context.namespace;
        let text = format!(
            "broker {other:?} of the same namespace {namespace:?} is on the same NATS: brokers do not form a cluster, each has \
             streams of its own; stop one of them, or set another broker.namespace"
        );
        let fields = json!({"broker": other, "namespace": namespace});
        let events = &self.context.events;
        events.log(Level::Warning, "nats.presence", text, fields);
    }
}

/// The announcement of a broker that is not known yet.
fn news(
    payload: &[u8],
    own: &Announcement,
    known: &mut HashSet<Announcement>,
) -> Option<Announcement> {
    let other: Announcement = serde_json::from_slice(payload).ok()?;
    let is_new = other != *own && known.len() < MAX_KNOWN && known.insert(other.clone());
    is_new.then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(broker: &str, session: &str) -> Announcement {
        Announcement {
            broker: broker.to_owned(),
            session: session.to_owned(),
        }
    }

    #[test]
    fn each_other_broker_is_reported_once_and_invalid_announcements_never() {
        let (own, mut known) = (announcement("a", "1"), HashSet::new());
        let mut is_news = |payload: &str| news(payload.as_bytes(), &own, &mut known).is_some();
        assert!(!is_news(&json!(own).to_string()));
        for junk in [
            "",
            "{}",
            "null",
            "{\"broker\": 1, \"session\": \"2\"}",
            "\u{0}",
        ] {
            assert!(!is_news(junk), "{junk:?}");
        }
        // Another one with the same id is another one.
        for broker in ["a", "b"] {
            let payload = json!(announcement(broker, "2")).to_string();
            assert!(is_news(&payload));
            assert!(!is_news(&payload));
        }
        for number in 2..MAX_KNOWN {
            assert!(is_news(
                &json!(announcement("c", &number.to_string())).to_string()
            ));
        }
        assert!(
            !is_news(&json!(announcement("d", "d")).to_string()),
            "bounded"
        );
    }
}
