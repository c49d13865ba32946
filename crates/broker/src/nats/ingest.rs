//! From a subscription to groups of records: drained at once, recognised, handed to everyone who listens.
use super::acks::PendingAck;
use super::feed::Group;
use super::origin;
use super::router::Route;
use super::session::Session;
use crate::partition::IncomingRecord;
use async_nats::header::HeaderValue;
use async_nats::{HeaderMap, Message, Subscriber};
use bascule_wire::envelope::{self, Recognised};
use bytes::Bytes;
use futures_util::StreamExt;
use std::sync::Arc;
use std::task::Poll;

/// A group closes at so many messages …
const GROUP_MESSAGES: usize = 1024;
/// … or so many bytes.
const GROUP_BYTES: usize = 1 << 20;
/// Groups in a row before other tasks get their turn: all that one turn of the connection can have brought, since what
/// is left over would be added to by its next turn ([`super::thread`]).
const GROUPS_AT_ONCE: usize = 1024;

/// Feeds the route's partitions until the subscription ends or the task is aborted.
pub(super) async fn drain(session: Arc<Session>, route: Arc<Route>, mut subscriber: Subscriber) {
    let mut messages = Vec::new();
    let mut groups: usize = 0;
    // Unconstrained, or the runtime's budget would cut groups at 128 messages.
    while tokio::task::unconstrained(collect(&mut subscriber, &mut messages)).await {
        deliver(&session, &route, &mut messages);
        groups += 1;
        if groups.is_multiple_of(GROUPS_AT_ONCE) {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits for messages and takes those that are there, up to a group. False at the end of the subscription.
async fn collect(subscriber: &mut Subscriber, messages: &mut Vec<Message>) -> bool {
    let mut bytes = 0;
    std::future::poll_fn(|context| {
        while messages.len() < GROUP_MESSAGES && bytes < GROUP_BYTES {
            match subscriber.poll_next_unpin(context) {
                Poll::Ready(Some(message)) => {
                    bytes += message.payload.len();
                    messages.push(message);
                }
                Poll::Ready(None) => return Poll::Ready(!messages.is_empty()),
                Poll::Pending if messages.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(true)
    })
    .await
}

fn deliver(session: &Arc<Session>, route: &Route, messages: &mut Vec<Message>) {
    let received = Received::read(session, messages);
    let feeds = route.feeds();
    let Some((last, others)) = feeds.split_last() else {
        return;
    };
    session.hold_back(received.group.waiting_bytes() * feeds.len());
    for feed in others {
        let group = received.group_for(feed.incarnation(), session);
        if !group.records.is_empty() {
            feed.push(session, group);
        }
    }
    let group = received.into_group_for(last.incarnation(), session);
    if !group.records.is_empty() {
        last.push(session, group);
    }
}

/// Messages as records, before it is known for whom.
struct Received {
    group: Group,
    /// Index and incarnation of those that are copies from a partition of this cluster.
    copies: Vec<(u32, u64)>,
    /// Those that begin as an envelope and are none.
    malformed: u64,
}

impl Received {
    fn read(session: &Session, messages: &mut Vec<Message>) -> Self {
        let statistics = &session.shared.statistics;
        let mut received = Self {
            group: Group {
                records: Vec::with_capacity(messages.len()),
                ..Group::default()
            },
            copies: Vec::new(),
            malformed: 0,
        };
        let mut enveloped = 0;
        statistics.nats_messages.add(messages.len() as u64);
        for message in messages.drain(..) {
            enveloped += u64::from(received.take(message, &session.shared.cluster_id));
        }
        if enveloped > 0 {
            statistics.nats_enveloped.add(enveloped);
        }
        if received.malformed > 0 {
            statistics.nats_malformed.add(received.malformed);
        }
        received
    }

    /// Adds one message; true when it was enveloped.
    fn take(&mut self, message: Message, cluster: &str) -> bool {
        let Message {
            subject,
            reply,
            payload,
            headers,
            ..
        } = message;
        let index = self.group.records.len() as u32;
        let headers = pairs(headers);
        let header_bytes: usize = headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let received_bytes = payload.len() + header_bytes;
        self.group.bytes += received_bytes;
        let mut record = IncomingRecord {
            // Both are owned buffers of exactly this size: moved, not copied.
            subject: Bytes::from(subject.into_string()),
            reply: reply
                .map(|reply| Bytes::from(reply.into_string()))
                .unwrap_or_default(),
            received_bytes: u32::try_from(received_bytes).unwrap_or(u32::MAX),
            headers,
            ..IncomingRecord::default()
        };
        self.take_headers(&mut record, index, cluster);
        let recognised = envelope::recognise(&payload);
        let is_enveloped = matches!(recognised, Recognised::Publish(_));
        match recognised {
            Recognised::Plain => {
                self.malformed += u64::from(payload.starts_with(&envelope::MAGIC));
                record.value = Some(payload);
                record.is_plain_nats = true;
            }
            Recognised::Publish(mut publish) => {
                if !publish.ack_inbox.is_empty() {
                    self.group.acks.push(PendingAck {
                        index,
                        subject: record.subject.clone(),
                        inbox: publish.ack_inbox,
                        correlation_id: publish.correlation_id,
                        policy: publish.ack_policy,
                    });
                }
                record.key = publish.key;
                record.value = Some(publish.value);
                // Those of the envelope first, those of NATS behind them.
                publish.headers.append(&mut record.headers);
                record.headers = publish.headers;
                record.expected_offset = publish.expected_offset;
            }
        }
        self.group.records.push(record);
        is_enveloped
    }

    /// What the NATS headers of a record mean to the broker.
    fn take_headers(&mut self, record: &mut IncomingRecord, index: u32, cluster: &str) {
        if record.headers.is_empty() {
            return;
        }
        record.id = origin::message_id(&record.headers);
        let Some(copied) = origin::origin(&record.headers) else {
            return;
        };
        if copied.cluster == cluster {
            self.copies.push((index, copied.incarnation));
        }
        // A copy asks for no reply: what it carries is its publisher's question whether anyone listens.
        record.reply = Bytes::new();
        // The mark of a copy is not content.
        record
            .headers
            .retain(|(name, _)| &name[..] != origin::ORIGIN_HEADER.as_bytes());
    }

    fn group_for(&self, incarnation: u64, session: &Session) -> Group {
        if self.is_own(incarnation) {
            self.group
                .clone()
                .without(&self.copies, incarnation, session)
        } else {
            self.group.clone()
        }
    }

    fn into_group_for(self, incarnation: u64, session: &Session) -> Group {
        if self.is_own(incarnation) {
            self.group.without(&self.copies, incarnation, session)
        } else {
            self.group
        }
    }

    fn is_own(&self, incarnation: u64) -> bool {
        let mut copies = self.copies.iter();
        copies.any(|(_, from)| origin::is_same_stream(*from, incarnation))
    }
}

/// Names and values of a message's headers.
fn pairs(headers: Option<HeaderMap>) -> Vec<(Bytes, Bytes)> {
    let headers = headers.unwrap_or_default();
    let all = headers.iter().flat_map(|(name, values)| {
        let pair = move |value: &HeaderValue| {
            let (name, value): (&[u8], &[u8]) = (name.as_ref(), value.as_ref());
            (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value))
        };
        values.iter().map(pair)
    });
    all.collect()
}

impl Group {
    /// Leaves out the copies that came from the stream of `incarnation` itself: it has those records already.
    fn without(mut self, copies: &[(u32, u64)], incarnation: u64, session: &Session) -> Self {
        let before = self.records.len();
        let mut index = 0_u32;
        self.keep(|_| {
            let copy = copies.binary_search_by_key(&index, |(index, _)| *index);
            let from = copy.ok().and_then(|at| copies.get(at));
            index += 1;
            !from.is_some_and(|(_, from)| origin::is_same_stream(*from, incarnation))
        });
        let dropped = before - self.records.len();
        let statistics = &session.shared.statistics;
        statistics.nats_own_copies_dropped.add(dropped as u64);
        self
    }
}
