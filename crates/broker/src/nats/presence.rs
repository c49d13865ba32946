//! Notices other brokers of the namespace on the same NATS: brokers do not form a cluster, so each serves alone.
//!
//! A broker announces itself on `<namespace>.brokers` whenever it has connected, and once more when it hears of another one
//! for the first time, so that both report it. Whoever may publish there may announce anything: what is no announcement is
//! ignored, and only [`MOST_KNOWN`] brokers are reported.
use crate::events::Level;
use crate::nats::client::{Inbox, Message, Publish};
use crate::nats::session::Session;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Announcements that may wait; those beyond are dropped.
pub(crate) const QUEUE: usize = 16;
/// Longest announcement, bytes.
const MOST_BYTES: usize = 1024;
/// Brokers that are reported in one session.
const MOST_KNOWN: usize = 64;

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
            if message.payload.len() <= MOST_BYTES {
                // Copied, so that it keeps nothing of what was read with it. A full queue drops it.
                let _ = self.0.try_send(Bytes::copy_from_slice(&message.payload));
            }
        }
    }
}

/// Announces this broker and reports others, until the session closes.
pub(crate) async fn run(session: Arc<Session>, mut heard: mpsc::Receiver<Bytes>) {
    let mut closing = session.closing();
    let own = Announcement {
        broker: session.shared.broker_id.clone(),
        session: session.inbox.clone(),
    };
    let mut known = HashSet::new();
    loop {
        tokio::select! {
            () = session.ingest_connected() => announce(&session, &own).await,
            Some(payload) = heard.recv() => {
                if let Some(other) = news(&payload, &own, &mut known) {
                    report(&session, &other.broker);
                    announce(&session, &own).await;
                }
            }
            _ = closing.changed() => return,
        }
    }
}

/// The announcement of a broker that is not known yet.
fn news(
    payload: &[u8],
    own: &Announcement,
    known: &mut HashSet<Announcement>,
) -> Option<Announcement> {
    let other: Announcement = serde_json::from_slice(payload).ok()?;
    let is_new = other != *own && known.len() < MOST_KNOWN && known.insert(other.clone());
    is_new.then_some(other)
}

async fn announce(session: &Session, own: &Announcement) {
    let payload = json!(own).to_string();
    let message = Publish {
        subject: &subject(&session.shared.namespace),
        reply: "",
        headers: &[],
        payload: payload.as_bytes(),
    };
    // When the connection was lost it is announced after the next one.
    let _ = session.ingest.any_client().publish(message).await;
}

fn report(session: &Session, other: &str) {
    let namespace = &session.shared.namespace;
    let text = format!(
        "broker {other:?} of the same namespace {namespace:?} is on the same NATS: brokers do not form a cluster, each has \
         streams of its own; stop one of them, or set another broker.namespace"
    );
    let fields = json!({"broker": other, "namespace": namespace});
    let events = &session.shared.events;
    events.log(Level::Warning, "nats.presence", text, fields);
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
    fn each_other_broker_is_news_once_and_what_is_no_announcement_never() {
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
        for number in 2..MOST_KNOWN {
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
