//! Streams, topics and partitions of requests: by number or name, and open here.
use super::context::IggyContext;
use super::refused::Refused;
use crate::client_requests::{Answered, Asked, PATIENCE, Question, Unanswered};
use crate::forward::Destination;
use crate::names::{DEFAULT_NAMESPACE, is_internal};
use crate::partition::Partition;
use crate::resume::{RESUMES, resume};
use crate::user_caller::UserCaller;
use crate::user_rights::UserAction;
use crate::view::{PartitionView, StreamView, View};
use bascule_wire::iggy::Status;
use bascule_wire::iggy::v1::Identifier;
use std::sync::Arc;
use tokio::time::Instant;

/// The stream that the namespace `default` is shown as: the last number.
const DEFAULT_NUMBER: u32 = u32::MAX;

/// The number from 1 that a namespace of this id is shown with.
pub(super) fn stream_number(id: u64) -> u32 {
    match u32::try_from(id) {
        Ok(0) | Err(_) => DEFAULT_NUMBER,
        Ok(number) => number,
    }
}

/// What a request names, a stream and a topic of it, and what its caller wants to do there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    pub(super) stream: Identifier<'a>,
    pub(super) topic: Identifier<'a>,
    pub(super) caller: UserCaller<'a>,
    pub(super) action: UserAction,
}

impl Path<'_> {
    /// The status of something that is `missing`: who may not look there does not learn that it is.
    fn missing(&self, missing: Status, stream: Option<u64>) -> Status {
        if self.caller.may(self.action, stream) {
            missing
        } else {
            Status::Unauthorized
        }
    }
}

/// A partition of a topic, here or wherever it is led.
#[derive(Debug)]
pub(super) struct Opened {
    /// Number of its namespace, 0-based.
    pub(super) namespace: u64,
    pub(super) topic: Arc<StreamView>,
    /// Its number, 0-based.
    pub(super) number: u32,
    pub(super) incarnation: u64,
    /// As it is open on this broker, if it is.
    pub(super) handle: Option<Partition>,
    pub(super) destination: Destination,
}

impl Opened {
    /// The partition, if this broker leads it and may show what it has.
    pub(super) fn readable(&self) -> Option<&Partition> {
        self.destination.here().filter(|here| here.may_read())
    }

    /// What `caller` asks of it.
    pub(super) fn asked(&self, caller: UserCaller<'_>, question: Question) -> Asked {
        let address = caller.peer.address.map(|address| address.to_string());
        Asked {
            user: caller.user,
            address: address.unwrap_or_default(),
            namespace: self.topic.namespace.clone(),
            stream: self.topic.name.clone(),
            ids: (self.namespace, self.topic.id),
            partition: self.number,
            incarnation: self.incarnation,
            leader_epoch: 0,
            deadline_ms: 0,
            question,
        }
    }
}

/// Has something carried out by whoever leads a partition.
///
/// # Errors
/// 5 for one that another broker leads that cannot be asked; 3007 for one that is gone; 58 when nobody leads it, or it is not
/// carried out, within [`PATIENCE`].
pub(super) async fn ask(
    context: &IggyContext,
    destination: &Destination,
    asked: Asked,
) -> Result<Answered, Refused> {
    let requests = &context.requests;
    let Some(target) = destination.target() else {
        let here = destination.here().ok_or(Status::FeatureUnavailable)?;
        return match requests.server().attempt(here, &asked, PATIENCE).await {
            Answered::Later | Answered::Unknown => Err(Status::TransientNotAccepted.into()),
            answered => Ok(answered),
        };
    };
    let answered = requests
        .ask(target, asked, Instant::now() + PATIENCE)
        .await
        .map_err(|unanswered| match unanswered {
            Unanswered::Gone => Status::PartitionNotFound,
            Unanswered::Late => Status::TransientNotAccepted,
        })?;
    Ok(answered)
}

/// The namespace that a stream is.
fn namespace<'a>(view: &'a View, stream: Identifier<'a>) -> Result<&'a str, Status> {
    match stream {
        Identifier::Number(number) => {
            let id = if number == DEFAULT_NUMBER {
                0
            } else {
                u64::from(number)
            };
            view.numbers.name(id).ok_or(Status::StreamIdNotFound)
        }
        Identifier::Name(name) if view.numbers.id(name).is_some() => Ok(name),
        Identifier::Name(_) => Err(Status::StreamNameNotFound),
    }
}

/// The topic of a request, where its caller may do what is asked. The broker's own streams are none.
///
/// # Errors
/// 1009, 1010, 2010, 2011, 41.
pub(super) fn topic(view: &View, path: Path<'_>) -> Result<Arc<StreamView>, Status> {
    let namespace = namespace(view, path.stream).map_err(|missing| path.missing(missing, None))?;
    let number = view.numbers.id(namespace);
    let streams = view.namespaces.get(namespace);
    let (found, missing) = match path.topic {
        Identifier::Name(name) => (
            streams.and_then(|streams| streams.get(name)),
            Status::TopicNameNotFound,
        ),
        Identifier::Number(number) => {
            let mut all = streams.into_iter().flat_map(|streams| streams.values());
            let id = u64::from(number) - 1;
            (all.find(|stream| stream.id == id), Status::TopicIdNotFound)
        }
    };
    let is_own = |stream: &StreamView| namespace == DEFAULT_NAMESPACE && is_internal(&stream.name);
    let found = found.filter(|stream| !is_own(stream));
    let found = found.ok_or_else(|| path.missing(missing, number))?;
    if !path.caller.may_with(path.action, number, found) {
        return Err(Status::Unauthorized);
    }
    Ok(found.clone())
}

/// The partition of a topic that `choose` names by its number from 1; resumed when it is paused.
///
/// # Errors
/// As [`topic`]; 3007 and 3008; without other brokers 1 for one that is not open.
pub(super) async fn open(
    context: &IggyContext,
    path: Path<'_>,
    choose: impl Fn(&StreamView) -> Result<u32, Status>,
) -> Result<Opened, Refused> {
    for _ in 0..RESUMES {
        let (topic, namespace) = {
            let view = context.view.load();
            let topic = topic(&view, path)?;
            let namespace = view.numbers.id(&topic.namespace).unwrap_or_default();
            (topic, namespace)
        };
        let number = choose(&topic)?.checked_sub(1);
        let number = number.and_then(|number| i32::try_from(number).ok());
        let partition = number.and_then(|number| topic.partition(number));
        let (Some(number), Some(partition)) = (number, partition) else {
            return Err(Status::PartitionNotFound.into());
        };
        if !partition.paused && !topic.wakes_on_publish() {
            let destination = find(context, &topic, partition)?;
            return Ok(Opened {
                namespace,
                number: partition.number,
                incarnation: partition.incarnation,
                handle: partition.handle.clone(),
                destination,
                topic: topic.clone(),
            });
        }
        let events = &context.listener.events;
        resume(events, (&topic.namespace, &topic.name), number, None).await?;
    }
    Err(Status::Error.into())
}

/// Where a partition that is not paused is led.
///
/// # Errors
/// Without other brokers 5 for one that another one leads, 1 for one that is not open.
pub(super) fn find(
    context: &IggyContext,
    stream: &StreamView,
    partition: &PartitionView,
) -> Result<Destination, Status> {
    let found = Destination::find(context.requests.forwarder(), stream, partition);
    found.ok_or(if partition.leader == context.broker_id {
        Status::Error
    } else {
        Status::FeatureUnavailable
    })
}
