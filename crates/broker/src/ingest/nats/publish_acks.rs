//! Acks for JetStream publishers, after commit or refusal, to the reply subject of a plain message
//! (`docs/decisions/jetstream-acks.md`).
//!
//! As with Liftbridge's acks, a committer only queues, and what cannot go out is counted: the publisher sees a timeout.
use crate::nats::client::{NatsSettings, Publish};
use crate::nats::connections::{ConnectionPair, Role};
use crate::partition::{AppendError, Committed, IncomingRecord, Partition, RejectReason, Rejected};
use crate::statistics::Statistics;
use bascule_wire::jetstream::{AckTemplate, Refusal};
use bascule_wire::subject::is_publish_subject;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Most appends whose acks wait to be sent.
const ACK_QUEUE: usize = 4096;

/// A record of an append whose publisher waits at a reply subject.
#[derive(Clone, Debug)]
struct Reply {
    /// Index in the append.
    index: u32,
    subject: Bytes,
}

/// The publishers that wait for the outcome of one append.
#[derive(Debug)]
pub(crate) struct PublishAcks {
    partition: Partition,
    replies: Vec<Reply>,
}

/// The answer to a publish.
pub(crate) struct PublishAckJob {
    acks: PublishAcks,
    outcome: Result<Stored, Refusal>,
}

struct Stored {
    base_offset: u64,
    rejected: Vec<Rejected>,
}

impl PublishAcks {
    /// Those of plain messages, when the stream acknowledges them; empty otherwise.
    pub(crate) fn of(partition: &Partition, records: &[IncomingRecord]) -> Self {
        let mut replies = Vec::new();
        if partition.acknowledges_jetstream() {
            let waiting = (0_u32..).zip(records);
            let waiting =
                waiting.filter(|(_, record)| record.is_plain_nats && !record.reply.is_empty());
            replies.extend(waiting.map(|(index, record)| Reply {
                index,
                subject: record.reply.clone(),
            }));
        }
        Self {
            partition: partition.clone(),
            replies,
        }
    }

    /// Queues the outcome of the append for its publishers. Counts rejected messages that named no reply subject.
    pub(crate) fn answer(self, queue: &PublishAckQueue, outcome: &Result<Committed, AppendError>) {
        let outcome = match outcome {
            Ok(committed) => {
                self.count(&queue.statistics, &committed.rejected);
                Ok(Stored {
                    base_offset: committed.base_offset,
                    rejected: committed.rejected.clone(),
                })
            }
            Err(error) => Err(refusal(error)),
        };
        queue.push(PublishAckJob {
            acks: self,
            outcome,
        });
    }

    fn count(&self, statistics: &Statistics, rejected: &[Rejected]) {
        let (mut duplicates, mut refused, mut unnotified) = (0, 0, 0);
        for one in rejected {
            match one.reason {
                RejectReason::Duplicate(_) => duplicates += 1,
                RejectReason::Refused(_) => {
                    refused += 1;
                    let waits = |reply: &Reply| reply.index.cmp(&one.index);
                    unnotified += u64::from(self.replies.binary_search_by(waits).is_err());
                }
                _ => {}
            }
        }
        statistics.jetstream_duplicates.add(duplicates);
        statistics.jetstream_refused.add(refused);
        if unnotified > 0 {
            statistics.nats_dropped.add(unnotified);
            self.partition.count_nats_dropped(unnotified);
        }
    }
}

/// Acks that wait to be sent.
pub(crate) struct PublishAckQueue {
    jobs: mpsc::Sender<PublishAckJob>,
    statistics: Arc<Statistics>,
}

impl PublishAckQueue {
    /// An empty queue, and its end for [`PublishAckSender::run`].
    pub(crate) fn new(statistics: Arc<Statistics>) -> (Self, mpsc::Receiver<PublishAckJob>) {
        let (jobs, receiver) = mpsc::channel(ACK_QUEUE);
        (Self { jobs, statistics }, receiver)
    }

    /// Queues acks; those that do not fit are counted as withheld. Never blocks.
    fn push(&self, job: PublishAckJob) {
        if job.acks.replies.is_empty() {
            return;
        }
        if let Err(error) = self.jobs.try_send(job) {
            let withheld = error.into_inner().acks.replies.len() as u64;
            self.statistics.nats_acks_withheld.add(withheld);
        }
    }
}

/// Why nothing of an append was stored, or why that is unknown.
fn refusal(error: &AppendError) -> Refusal {
    match error {
        AppendError::NotLeader
        | AppendError::Closed
        | AppendError::Unreachable(_)
        | AppendError::TooFewReplicas { .. } => Refusal::Unavailable(error.to_string()),
        AppendError::Busy => Refusal::Busy,
        AppendError::Readonly => Refusal::ReadOnly,
        AppendError::Full => Refusal::DiskFull,
        AppendError::NoDescriptor
        | AppendError::Encryption(_)
        | AppendError::Denied(_)
        | AppendError::Invalid(_)
        | AppendError::Sequence(_) => Refusal::NotStored(error.to_string()),
        AppendError::Storage(_) | AppendError::LeaderChanged | AppendError::Unknown(_) => {
            Refusal::Unknown(error.to_string())
        }
    }
}

/// Why one record was not stored.
fn record_refusal(reason: &RejectReason) -> Refusal {
    match reason {
        RejectReason::TooLarge => Refusal::TooLarge,
        RejectReason::Refused(refusal) => refusal.clone(),
        RejectReason::Encryption => {
            Refusal::NotStored("the stream is encrypted and its data key is not there".to_owned())
        }
        RejectReason::IncorrectOffset => {
            Refusal::NotStored("the expected offset is not the next one".to_owned())
        }
        RejectReason::Batch | RejectReason::Duplicate(_) => {
            Refusal::NotStored("another record of its batch was refused".to_owned())
        }
    }
}

impl PublishAckJob {
    /// Appends each ack to `out`; the reply subjects with the ends of their acks.
    fn encode(&self, out: &mut Vec<u8>) -> Vec<(Bytes, usize)> {
        let template = AckTemplate::new(&self.acks.partition.identity().stream);
        let mut ends = Vec::with_capacity(self.acks.replies.len());
        let mut rejected = match &self.outcome {
            Ok(stored) => stored.rejected.iter().peekable(),
            Err(_) => [].iter().peekable(),
        };
        let mut rejected_before = 0;
        for reply in &self.acks.replies {
            while rejected.next_if(|one| one.index < reply.index).is_some() {
                rejected_before += 1;
            }
            let reason = rejected
                .peek()
                .filter(|one| one.index == reply.index)
                .map(|one| &one.reason);
            match (&self.outcome, reason) {
                (Err(refusal), _) => template.put_refused(out, refusal),
                (Ok(_), Some(RejectReason::Duplicate(original))) => {
                    template.put_stored(out, original + 1, true);
                }
                (Ok(_), Some(reason)) => template.put_refused(out, &record_refusal(reason)),
                (Ok(stored), None) => {
                    let offset = stored.base_offset + u64::from(reply.index) - rejected_before;
                    template.put_stored(out, offset + 1, false);
                }
            }
            ends.push((reply.subject.clone(), out.len()));
        }
        ends
    }
}

/// Publishes acks.
pub(crate) struct PublishAckSender {
    pub(crate) connections: Arc<ConnectionPair>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) settings: Arc<NatsSettings>,
}

impl PublishAckSender {
    /// Sends acks until the session closes, then those that are still queued.
    pub(crate) async fn run(
        self,
        mut jobs: mpsc::Receiver<PublishAckJob>,
        mut closing: watch::Receiver<bool>,
    ) {
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => self.send(&job).await,
                    None => return,
                },
                // Also when the session was dropped.
                _ = closing.changed() => jobs.close(),
            }
        }
    }

    async fn send(&self, job: &PublishAckJob) {
        let statistics = &self.statistics;
        let mut encoded = Vec::new();
        let ends = job.encode(&mut encoded);
        let mut start = 0;
        for (reply, end) in ends {
            let payload = encoded.get(start..end).unwrap_or_default();
            start = end;
            let subject = self.allowed(&reply);
            let sent = match (subject, self.connections.client(Role::Streams)) {
                (Some(subject), Some(client)) => {
                    let ack = Publish {
                        subject,
                        payload,
                        ..Publish::default()
                    };
                    client.publish(ack).await.is_ok()
                }
                _ => false,
            };
            if sent {
                statistics.jetstream_acks_sent.add(1);
            } else {
                statistics.nats_acks_withheld.add(1);
            }
        }
    }

    /// The reply subject when an ack may go there.
    fn allowed<'a>(&self, reply: &'a Bytes) -> Option<&'a str> {
        let subject = std::str::from_utf8(reply).ok()?;
        let allowed = is_publish_subject(subject) && self.settings.is_jetstream_reply(subject);
        allowed.then_some(subject)
    }
}
