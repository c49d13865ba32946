//! From a stream and partition number to the place an append goes, with the checks before it in their order.
use super::call::SHOWN;
use super::context::LiftbridgeContext;
use super::refusal::Refusal;
use crate::access::{self, AccessTable, Action};
use crate::forward;
use crate::names::{DEFAULT_NAMESPACE, is_internal};
use crate::partition::{AckLevel, IncomingRecord};
use crate::tls::Peer;
use crate::view::View;
use bascule_wire::liftbridge::acks::AckTemplate;
use bascule_wire::liftbridge::messages::AckPolicy;
use bascule_wire::liftbridge::publish::PublishView;
use bascule_wire::subject::is_publish_subject;
use bytes::Bytes;
use std::sync::{Arc, Weak};

/// Most partitions remembered for one call; beyond it all are forgotten.
const REMEMBERED: usize = 1024;

/// Bytes of the name of a stream that does not exist that a refusal shows.
const SHOWN_BYTES: usize = 1024;

/// Where accepted publishes of one partition go, and how their acks begin.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) number: i32,
    pub(super) place: forward::Destination,
    pub(super) template: AckTemplate,
}

/// One partition as publishes see it under one view. Looked up once, then asked for every message.
#[derive(Debug)]
pub(super) struct Route {
    stream: Bytes,
    number: i32,
    /// Steps up to and including *read-only*, which hold for every message alike.
    refusal: Option<Refusal>,
    concurrency_control: bool,
    /// Partitions have to be resumed before a publish: this one, or others that this publish wakes.
    resumes: bool,
    /// The leader and its address, when that is another broker and nothing has to be resumed.
    elsewhere: Option<(String, String)>,
    /// `None`: paused, or led elsewhere while this broker knows no other.
    destination: Option<Arc<Destination>>,
}
impl Route {
    /// Looks a partition up. `stream` is valid UTF-8 (checked by the codec). A route to a stream that does not exist keeps no more
    /// than a name's length of it.
    pub(super) fn find(
        view: &View,
        context: &LiftbridgeContext,
        stream: &[u8],
        number: i32,
    ) -> Self {
        let mut route = Self {
            stream: Bytes::new(),
            number,
            refusal: None,
            concurrency_control: false,
            resumes: false,
            elsewhere: None,
            destination: None,
        };
        let name = String::from_utf8_lossy(stream);
        let Some(stream_view) = view.stream(DEFAULT_NAMESPACE, &name) else {
            let shown = &name[..name.floor_char_boundary(SHOWN_BYTES)];
            route.refusal = Some(Refusal::NoSuchStream(shown.to_owned()));
            return route;
        };
        route.stream = Bytes::copy_from_slice(stream);
        if is_internal(&name) {
            route.refusal = Some(Refusal::Internal);
            return route;
        }
        let Some(partition) = stream_view.partition(number) else {
            route.refusal = Some(Refusal::NoSuchPartition(number));
            return route;
        };
        if partition.readonly {
            route.refusal = Some(Refusal::Readonly(number));
            return route;
        }
        route.concurrency_control = stream_view.concurrency_control;
        route.resumes = partition.paused || stream_view.wakes_on_publish();
        let place = forward::Destination::find(&context.forwarder, stream_view, partition);
        if let Some(place) = place {
            let subject = stream_view.partition_subject(partition.number);
            let (name, base) = (&stream_view.name, &stream_view.subject);
            route.destination = Some(Arc::new(Destination {
                number,
                place,
                template: AckTemplate::new(name, base, &subject),
            }));
        } else if partition.leader != context.broker_id
            && !partition.leader.is_empty()
            && !route.resumes
        {
            let (leader, address) = (&partition.leader, view.address(&partition.leader));
            route.elsewhere = Some((leader.clone(), address.to_owned()));
        }
        route
    }

    /// The same for `peer`, who may not publish to every stream.
    fn permitted(mut self, stream: &[u8], context: &LiftbridgeContext, peer: &Peer) -> Self {
        let stream = String::from_utf8_lossy(stream);
        if let Err(denied) = context.access.check(peer, Action::Publish, &stream) {
            self.refusal = Some(denied.into());
        }
        self
    }

    /// Whether this is the route of a message's stream and partition. Never of a stream that does not exist.
    pub(super) fn is_for(&self, stream: &[u8], number: i32) -> bool {
        self.number == number && !stream.is_empty() && self.stream == stream
    }

    /// The checks of liftbridge §3.7 and §3.8 in their order, and of the subjects that the records are to be stored
    /// with.
    ///
    /// # Errors
    /// The first that fails; [`Refusal::Paused`] after all others: resume, look the route up again and check again.
    pub(super) fn check<'a>(
        &self,
        ack_policy: i32,
        subjects: impl IntoIterator<Item = &'a Bytes>,
    ) -> Result<&Arc<Destination>, Refusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        subjects.into_iter().try_for_each(check_subject)?;
        if AckPolicy::try_from(ack_policy).is_err() {
            return Err(Refusal::PolicyUnknown(ack_policy));
        }
        if self.concurrency_control && ack_policy == AckPolicy::None as i32 {
            return Err(Refusal::PolicyMissing);
        }
        if self.resumes {
            return Err(Refusal::Paused(self.number));
        }
        self.destination.as_ref().ok_or_else(|| {
            let number = self.number;
            match self.elsewhere.clone() {
                Some((leader, address)) => Refusal::NotLeader {
                    number,
                    leader,
                    address,
                },
                None => Refusal::NotOpen(number),
            }
        })
    }
}

/// The routes of one `PublishAsync` call. A new view or table of rights resolves them again.
#[derive(Debug)]
pub(super) struct Routes {
    context: Arc<LiftbridgeContext>,
    /// Which view the routes come from; weak, so that an idle call keeps no closed partition alive.
    view: Weak<View>,
    /// The publisher, and the table that allowed the routes.
    peer: Peer,
    table: Option<Arc<AccessTable>>,
    found: Vec<Route>,
    last: usize,
}
impl Routes {
    /// Nothing remembered.
    pub(super) fn new(context: &Arc<LiftbridgeContext>, peer: &Peer) -> Self {
        Self {
            context: context.clone(),
            view: Weak::new(),
            peer: peer.clone(),
            table: None,
            found: Vec::new(),
            last: 0,
        }
    }

    /// Forgets everything when the view or the table was swapped. Call before each group of messages, and now and then while idle.
    pub(super) fn refresh(&mut self) {
        let view = self.context.view.load();
        if !std::ptr::eq(self.view.as_ptr(), Arc::as_ptr(&view)) {
            self.view = Arc::downgrade(&view);
            self.found.clear();
        }
        let table = self.context.access.current();
        if !access::same(table.as_ref(), self.table.as_ref()) {
            self.table = table;
            self.found.clear();
        }
    }

    /// The route of a message.
    pub(super) fn find(&mut self, stream: &[u8], number: i32) -> &Route {
        if !self
            .found
            .get(self.last)
            .is_some_and(|route| route.is_for(stream, number))
        {
            self.last = self.position(stream, number);
        }
        &self.found[self.last]
    }

    fn position(&mut self, stream: &[u8], number: i32) -> usize {
        if let Some(position) = self
            .found
            .iter()
            .position(|route| route.is_for(stream, number))
        {
            return position;
        }
        if self.found.len() >= REMEMBERED {
            self.found.clear();
        }
        // Names of streams that do not exist are any bytes that a client likes: only the last one is kept.
        self.found.pop_if(|route| route.stream.is_empty());
        let (context, view) = (&self.context, self.context.view.load());
        let route = Route::find(&view, context, stream, number);
        self.found
            .push(route.permitted(stream, context, &self.peer));
        self.found.len() - 1
    }
}

/// The subject that a record is to be stored with, if it names one.
fn check_subject(subject: &Bytes) -> Result<(), Refusal> {
    let text = String::from_utf8_lossy(subject);
    if text.is_empty() || is_publish_subject(&text) {
        return Ok(());
    }
    Err(Refusal::InvalidSubject(text.chars().take(SHOWN).collect()))
}

/// Content of an ack besides the position of the record.
#[derive(Clone, Debug)]
pub(super) struct AckContext {
    pub(super) correlation_id: Bytes,
    pub(super) policy: i32,
}

/// When an append is acknowledged whose records ask for these: by the one that asks for most.
pub(super) fn ack_level<'a>(acks: impl IntoIterator<Item = &'a AckContext>) -> AckLevel {
    let asks_all = |ack: &AckContext| ack.policy == AckPolicy::All as i32;
    if acks.into_iter().any(asks_all) {
        AckLevel::All
    } else {
        AckLevel::Leader
    }
}

/// Splits a request into what is stored and what its ack needs. `received_bytes` is the length of the message.
pub(super) fn split(mut view: PublishView, received_bytes: usize) -> (IncomingRecord, AckContext) {
    let record = IncomingRecord {
        value: view.record_value(),
        headers: view.take_record_headers(),
        key: view.key,
        subject: view.subject,
        origin_time: view.origin_time,
        expected_offset: view.expected_offset,
        received_bytes: u32::try_from(received_bytes).unwrap_or(u32::MAX),
        ..IncomingRecord::default()
    };
    (
        record,
        AckContext {
            correlation_id: view.correlation_id,
            policy: view.ack_policy,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encryption::MasterKeyStore;
    use crate::engine::parts::Parts;
    use serde_json::json;

    #[test]
    fn names_of_streams_that_do_not_exist_are_not_kept() {
        let settings = json!({
            "data_dir": "", "cluster_id": "c", "broker_id": "b", "runtime_threads": 1, "namespace": "n",
        });
        let settings = serde_json::from_value(settings).unwrap();
        let parts = Parts::new(&settings, MasterKeyStore::default()).unwrap();
        let mut routes = Routes::new(&Arc::new(parts.liftbridge()), &Peer::default());
        routes.refresh();
        for letter in ["a", "b", "\u{fc}", ""] {
            let name = letter.repeat(100_000);
            let Err(refusal) = routes.find(name.as_bytes(), 0).check(0, []) else {
                panic!("there is no such stream");
            };
            assert!(refusal.to_string().len() <= SHOWN_BYTES + 20, "{refusal}");
            let shown = name.chars().take(SHOWN_BYTES / 2).collect::<String>();
            assert!(refusal.to_string().contains(&shown), "{refusal}");
            assert_eq!(routes.found.len(), 1);
            assert!(routes.found[0].stream.is_empty());
        }
    }
}
