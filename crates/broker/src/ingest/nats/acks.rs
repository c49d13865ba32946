//! Acks of enveloped publishes, after commit (liftbridge §3.12, §4.6).
//!
//! A committer only queues; one task encodes and publishes, in the order of commits, so acks of a partition go out in
//! offset order. Whatever cannot go out is counted: the publisher sees a timeout and may publish again.
use crate::nats::client::{NatsSettings, Publish};
use crate::nats::connections::{ConnectionPair, Role};
use crate::partition::{Committed, Partition, RejectReason, Rejected};
use crate::statistics::Statistics;
use bascule_record::planted_bug::{self, PlantedBug};
use bascule_wire::envelope::{self, MessageType};
use bascule_wire::liftbridge::acks::{AckFields, AckTemplate};
use bascule_wire::subject::is_publish_subject;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Most appends whose acks wait to be sent.
const ACK_QUEUE: usize = 4096;
const LEADER: i32 = 0;
const ALL: i32 = 1;
const OK: i32 = 0;
const UNKNOWN: i32 = 1;
const INCORRECT_OFFSET: i32 = 2;
const TOO_LARGE: i32 = 3;
const ENCRYPTION: i32 = 4;

/// A record whose publisher named an ack inbox.
#[derive(Clone, Debug)]
pub(crate) struct PendingAck {
    /// Index of the record in its append.
    pub(crate) index: u32,
    /// NATS subject it arrived on.
    pub(crate) subject: Bytes,
    pub(crate) inbox: Bytes,
    pub(crate) correlation_id: Bytes,
    pub(crate) policy: i32,
}

/// The acks of one committed append.
pub(crate) struct AckJob {
    partition: Partition,
    base_offset: u64,
    timestamp: i64,
    commit_timestamp: i64,
    rejected: Vec<Rejected>,
    acks: Vec<PendingAck>,
}

impl AckJob {
    pub(crate) fn new(partition: Partition, committed: &Committed, acks: Vec<PendingAck>) -> Self {
        let Committed {
            base_offset,
            timestamp,
            commit_timestamp,
            ..
        } = *committed;
        Self {
            partition,
            base_offset,
            timestamp,
            commit_timestamp,
            rejected: committed.rejected.clone(),
            acks,
        }
    }

    /// The acks that are to be sent, in order, with what differs between them.
    fn outcomes(&self) -> impl Iterator<Item = (&PendingAck, AckFields<'_>)> {
        let mut rejected = self.rejected.iter().peekable();
        let mut rejected_before = 0;
        self.acks.iter().filter_map(move |ack| {
            while rejected
                .next_if(|reject| reject.index < ack.index)
                .is_some()
            {
                rejected_before += 1;
            }
            let reason = rejected
                .peek()
                .filter(|reject| reject.index == ack.index)
                .map(|reject| &reject.reason);
            let offset = match reason {
                Some(RejectReason::Duplicate(original)) => *original,
                _ => self.base_offset + u64::from(ack.index) - rejected_before,
            };
            let (offset, commit_timestamp, ack_error) = match reason {
                None | Some(RejectReason::Duplicate(_))
                    if ack.policy == LEADER || ack.policy == ALL =>
                {
                    (offset, self.commit_timestamp, OK)
                }
                None | Some(RejectReason::Duplicate(_)) => return None,
                Some(RejectReason::TooLarge) => (0, 0, TOO_LARGE),
                // Messages from NATS have no producer batch.
                Some(RejectReason::Batch | RejectReason::Refused(_)) => (0, 0, UNKNOWN),
                Some(RejectReason::Encryption) => (0, 0, ENCRYPTION),
                Some(RejectReason::IncorrectOffset) => (0, self.commit_timestamp, INCORRECT_OFFSET),
            };
            let fields = AckFields {
                offset: offset as i64,
                ack_inbox: &ack.inbox,
                correlation_id: &ack.correlation_id,
                ack_policy: ack.policy,
                reception_timestamp: self.timestamp,
                commit_timestamp,
                ack_error,
            };
            Some((ack, fields))
        })
    }
}

/// Acks that wait to be sent.
pub(crate) struct AckQueue {
    jobs: mpsc::Sender<AckJob>,
    statistics: Arc<Statistics>,
}

impl AckQueue {
    /// An empty queue, and its end for [`AckSender::run`].
    pub(crate) fn new(statistics: Arc<Statistics>) -> (Self, mpsc::Receiver<AckJob>) {
        let (jobs, receiver) = mpsc::channel(ACK_QUEUE);
        (Self { jobs, statistics }, receiver)
    }

    /// Queues acks; those that do not fit are counted as withheld. Never blocks.
    pub(crate) fn push(&self, job: AckJob) {
        if let Err(error) = self.jobs.try_send(job) {
            let withheld = error.into_inner().acks.len() as u64;
            self.statistics.nats_acks_withheld.add(withheld);
        }
    }
}

/// Publishes acks.
pub(crate) struct AckSender {
    pub(crate) connections: Arc<ConnectionPair>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) settings: Arc<NatsSettings>,
    /// Prefix of internal NATS subjects.
    pub(crate) namespace: String,
}

impl AckSender {
    /// Sends acks until the session closes, then those that are still queued.
    pub(crate) async fn run(
        self,
        mut jobs: mpsc::Receiver<AckJob>,
        mut closing: watch::Receiver<bool>,
    ) {
        let mut templates = Templates::default();
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => self.send(&mut templates, &job).await,
                    None => return,
                },
                // Also when the session was dropped.
                _ = closing.changed() => jobs.close(),
            }
        }
    }

    async fn send(&self, templates: &mut Templates, job: &AckJob) {
        let statistics = &self.statistics;
        let mut encoded = Vec::new();
        let mut message = Vec::new();
        let mut ends = Vec::with_capacity(job.acks.len());
        for (ack, fields) in job.outcomes() {
            let Some(inbox) = self.allowed_inbox(&ack.inbox) else {
                statistics.nats_acks_withheld.add(1);
                continue;
            };
            message.clear();
            templates
                .of(&job.partition, &ack.subject)
                .put_ack(&mut message, &fields);
            envelope::put(&mut encoded, MessageType::Ack, &message, false);
            ends.push((inbox, encoded.len()));
        }
        let mut start = 0;
        for (inbox, end) in ends {
            let sent = match self.connections.client(Role::Streams) {
                Some(client) => {
                    let message = Publish {
                        subject: inbox,
                        payload: encoded.get(start..end).unwrap_or_default(),
                        ..Publish::default()
                    };
                    client.publish(message).await.is_ok()
                }
                None => false,
            };
            if sent {
                statistics.nats_acks_sent.add(1);
            } else {
                statistics.nats_acks_withheld.add(1);
            }
            start = end;
        }
    }

    /// The inbox as a subject when an ack may go there.
    fn allowed_inbox<'a>(&self, inbox: &'a Bytes) -> Option<&'a str> {
        let subject = std::str::from_utf8(inbox).ok()?;
        let allowed =
            is_publish_subject(subject) && self.settings.is_ack_inbox(&self.namespace, subject);
        (allowed || planted_bug::is_active(PlantedBug::AckToOtherInbox)).then_some(subject)
    }
}

/// The template for the partition and subject seen last: consecutive acks nearly always share it.
#[derive(Default)]
struct Templates {
    last: Option<(u64, Bytes, AckTemplate)>,
}

impl Templates {
    fn of(&mut self, partition: &Partition, subject: &Bytes) -> &AckTemplate {
        let identity = partition.identity();
        let is_same = |(incarnation, other, _): &(u64, Bytes, AckTemplate)| {
            *incarnation == identity.incarnation && other == subject
        };
        if !self.last.as_ref().is_some_and(is_same) {
            self.last = None;
        }
        let (_, _, template) = self.last.get_or_insert_with(|| {
            let template = AckTemplate::new(
                &identity.stream,
                &identity.base_subject,
                &String::from_utf8_lossy(subject),
            );
            (identity.incarnation, subject.clone(), template)
        });
        template
    }
}
