//! Turns the messages of a subscription into groups of records and passes them to all listening partitions.
use super::acks::PendingAck;
use super::context::IngestContext;
use super::group::Group;
use super::losses::Loss;
use super::route::Route;
use crate::nats::client::headers;
use crate::nats::client::{Inbox, Message};
use crate::nats::connections::Role;
use crate::nats::connections::Unstored;
use crate::partition::{IncomingRecord, message_id};
use crate::republish::marks::origin;
use crate::republish::marks::probe::is_probe;
use bascule_wire::envelope::{self, Recognised};
use bascule_wire::liftbridge::publish::MAX_HEADERS;
use bytes::Bytes;
use std::sync::Arc;

/// Bytes of a name that an event shows.
const SHOWN: usize = 128;

/// Feeds the partitions of a route from its subscription.
pub(crate) struct RouteInbox {
    context: Arc<IngestContext>,
    route: Arc<Route>,
}

impl RouteInbox {
    pub(crate) fn new(context: &Arc<IngestContext>, route: &Arc<Route>) -> Self {
        Self {
            context: context.clone(),
            route: route.clone(),
        }
    }
}

impl Inbox for RouteInbox {
    fn take(&self, messages: &mut Vec<Message>) {
        deliver(&self.context, &self.route, messages);
    }

    fn on_denied(&self, text: &str) {
        self.route.set_denied(Some(text.to_owned()));
        let names = self.route.names().join(", ");
        let subject = self.route.subject();
        let text = format!(
            "NATS does not permit the broker to subscribe to {subject:?}, so {names} gets nothing from NATS: allow it to the broker's user ({text})"
        );
        let reporter = &self.context.reporter;
        reporter.error(Role::Ingest.name(), text);
    }

    fn on_granted(&self) {
        self.route.set_denied(None);
    }
}

fn deliver(context: &Arc<IngestContext>, route: &Route, messages: &mut Vec<Message>) {
    let received = Received::read(context, route, messages);
    for absent in route.absent().iter() {
        let subjects = received.group.records.iter();
        absent.miss(context, subjects.map(|record| &record.subject[..]));
    }
    let feeds = route.feeds();
    let Some((last, others)) = feeds.split_last() else {
        return;
    };
    if received.refused > 0 {
        feeds
            .iter()
            .for_each(|feed| feed.lost(context, Loss::Invalid, received.refused));
    }
    if received.group.records.is_empty() {
        return;
    }
    context.hold_back(received.group.waiting_bytes() * feeds.len());
    for feed in others {
        let group = received.group_for(feed.incarnation(), context);
        if !group.records.is_empty() {
            feed.push(context, group);
        }
    }
    let group = received.into_group_for(last.incarnation(), context);
    if !group.records.is_empty() {
        last.push(context, group);
    }
}

/// Messages as records, before it is known for whom.
struct Received<'a> {
    context: &'a IngestContext,
    /// The route's subject when all messages have it.
    subject: Option<&'a str>,
    group: Group,
    /// Index and incarnation of those that are copies from a partition of this cluster.
    copies: Vec<(u32, u64)>,
    enveloped: u64,
    /// Those that begin as an envelope and are not a valid one.
    malformed: u64,
    /// Lines of header blocks that cannot be stored.
    unusable: u64,
    /// Messages that cannot be stored.
    refused: u64,
}

impl<'a> Received<'a> {
    fn read(context: &'a IngestContext, route: &'a Route, messages: &mut Vec<Message>) -> Self {
        let statistics = &context.statistics;
        statistics.nats_messages.add(messages.len() as u64);
        let mut received = Self {
            context,
            subject: route.concrete_subject(),
            group: Group {
                records: Vec::with_capacity(messages.len()),
                ..Group::default()
            },
            copies: Vec::new(),
            enveloped: 0,
            malformed: 0,
            unusable: 0,
            refused: 0,
        };
        for message in messages.drain(..) {
            received.take(message);
        }
        for (counter, count) in [
            (&statistics.nats_enveloped, received.enveloped),
            (&statistics.nats_malformed, received.malformed),
            (&statistics.nats_headers_unusable, received.unusable),
            (&statistics.nats_refused, received.refused),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
        received
    }

    /// Adds one message, or refuses it.
    fn take(&mut self, message: Message) {
        match self.record(&message) {
            Ok(record) => self.recognise(record, message),
            Err(why) => {
                self.refused += 1;
                let shown = message.subject.get(..SHOWN).unwrap_or(&message.subject);
                let name = format!("on \"{}\", {why}", shown.escape_ascii());
                let reporter = &self.context.reporter;
                reporter.unstored(Unstored::Refused, 1, name);
            }
        }
    }

    /// Everything of a record but key and value, or why it cannot be one.
    fn record(&mut self, message: &Message) -> Result<IncomingRecord, String> {
        let Message {
            subject,
            reply,
            headers,
            payload,
        } = message;
        let is_own = self
            .subject
            .is_some_and(|own| own.as_bytes() == &subject[..]);
        if !is_own && std::str::from_utf8(subject).is_err() {
            return Err("whose subject is not valid UTF-8".to_owned());
        }
        if std::str::from_utf8(reply).is_err() {
            return Err("whose reply subject is not valid UTF-8".to_owned());
        }
        let received = headers.len() + payload.len();
        let mut record = IncomingRecord {
            // Empty: the partition's own.
            subject: if is_own {
                Bytes::new()
            } else {
                subject.clone()
            },
            reply: reply.clone(),
            received_bytes: u32::try_from(received).unwrap_or(u32::MAX),
            ..IncomingRecord::default()
        };
        if !headers.is_empty() {
            let block = headers::parse(headers, MAX_HEADERS)
                .ok_or_else(|| format!("which has more than {MAX_HEADERS} headers"))?;
            self.unusable += u64::from(block.unusable);
            record.headers = block.headers;
            self.take_headers(&mut record, payload);
        }
        Ok(record)
    }

    /// Interprets the NATS headers of a record that the broker knows.
    fn take_headers(&mut self, record: &mut IncomingRecord, payload: &[u8]) {
        record.id = message_id(&record.headers);
        let Some(copied) = origin::origin(&record.headers) else {
            return;
        };
        // Any publisher can write this header, so a message is skipped as a copy only if its seal is valid.
        let is_ours = copied.cluster == self.context.cluster_id
            && self.context.seal.is_valid(&record.headers, payload);
        if is_ours {
            let index = self.group.records.len() as u32;
            self.copies.push((index, copied.incarnation));
        }
        if is_probe(&record.reply) {
            // The reply subject of a copy is a probe for subscribers, not a request for a reply.
            record.reply = Bytes::new();
        }
        // The marks of a copy are not content.
        record.headers.retain(|(name, _)| !origin::is_mark(name));
    }

    fn recognise(&mut self, mut record: IncomingRecord, message: Message) {
        let Message {
            subject, payload, ..
        } = message;
        self.group.bytes += record.received_bytes as usize;
        match envelope::recognise(&payload) {
            Recognised::Plain => {
                self.malformed += u64::from(payload.starts_with(&envelope::MAGIC));
                record.value = Some(payload);
                record.is_plain_nats = true;
            }
            Recognised::Publish(mut publish) => {
                self.enveloped += 1;
                if !publish.ack_inbox.is_empty() {
                    self.group.acks.push(PendingAck {
                        index: self.group.records.len() as u32,
                        subject,
                        inbox: publish.ack_inbox,
                        correlation_id: publish.correlation_id,
                        policy: publish.ack_policy,
                    });
                }
                record.key = publish.key;
                record.value = publish.value;
                // Those of the envelope first, those of NATS after them.
                publish.headers.append(&mut record.headers);
                record.headers = publish.headers;
                record.expected_offset = publish.expected_offset;
            }
        }
        self.group.records.push(record);
    }

    fn group_for(&self, incarnation: u64, context: &IngestContext) -> Group {
        if self.is_own(incarnation) {
            self.group
                .clone()
                .without(&self.copies, incarnation, context)
        } else {
            self.group.clone()
        }
    }

    fn into_group_for(self, incarnation: u64, context: &IngestContext) -> Group {
        if self.is_own(incarnation) {
            self.group.without(&self.copies, incarnation, context)
        } else {
            self.group
        }
    }

    fn is_own(&self, incarnation: u64) -> bool {
        let mut copies = self.copies.iter();
        copies.any(|(_, from)| origin::is_same_stream(*from, incarnation))
    }
}

impl Group {
    /// Leaves out the copies that came from the stream of `incarnation` itself: it has those records already.
    fn without(mut self, copies: &[(u32, u64)], incarnation: u64, context: &IngestContext) -> Self {
        let before = self.records.len();
        let mut index = 0_u32;
        self.keep(|_| {
            let copy = copies.binary_search_by_key(&index, |(index, _)| *index);
            let from = copy.ok().and_then(|at| copies.get(at));
            index += 1;
            !from.is_some_and(|(_, from)| origin::is_same_stream(*from, incarnation))
        });
        let dropped = before - self.records.len();
        let statistics = &context.statistics;
        statistics.nats_own_copies_dropped.add(dropped as u64);
        self
    }
}
