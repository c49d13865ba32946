//! The copies of one partition on their way out.
use super::context::RepublishContext;
use super::format::{CopyWriter, as_received};
use super::interest::{Answer, Step, SubscriberInterest};
use super::job::RepublishJob;
use super::marks::probe::probe_name;
use crate::ingest::nats::{Feed, Group};
use crate::nats::client::{Client, Publish};
use crate::partition::NatsCopy;
use crate::partition::{IncomingRecord, Partition};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Copies are encoded in buffers of about this size.
const ENCODE_BYTES: usize = 128 << 10;
/// Records that are read, and handed to a local subscriber, at once.
const CHUNK_RECORDS: usize = 1024;

/// See the module.
pub(crate) struct RepublishQueue {
    pub(crate) partition: Partition,
    /// Subject of every message: the partition's own.
    subject: Arc<str>,
    writer: CopyWriter,
    interest: SubscriberInterest,
    /// Behind a probe that is under way.
    covered: VecDeque<Copies>,
    /// Committed after that probe.
    pub(crate) waiting: VecDeque<Copies>,
    /// When the republisher will look again.
    pub(crate) planned: Option<Instant>,
    /// Local listeners on the partition's own subject, once they were looked up.
    pub(crate) listeners: Option<Vec<Arc<Feed>>>,
}

/// A copy in a buffer.
struct EncodedCopy {
    headers: Range<usize>,
    payload: Range<usize>,
}

/// The unpublished rest of a job: its records from `start` on.
pub(crate) struct Copies {
    pub(crate) job: RepublishJob,
    pub(crate) start: usize,
}

impl Copies {
    fn left(&self) -> u64 {
        self.job.count().saturating_sub(self.start) as u64
    }
}

impl RepublishQueue {
    pub(crate) fn new(partition: &Partition, context: &RepublishContext) -> Self {
        let identity = partition.identity();
        Self {
            partition: partition.clone(),
            subject: Arc::from(identity.subject.as_str()),
            writer: CopyWriter::new(identity, &context.ingest.cluster_id, &context.ingest.seal),
            interest: SubscriberInterest::new(),
            covered: VecDeque::new(),
            waiting: VecDeque::new(),
            planned: None,
            listeners: None,
        }
    }

    /// Copies that are neither published nor given up.
    pub(crate) fn left(&self) -> u64 {
        self.covered
            .iter()
            .chain(&self.waiting)
            .map(Copies::left)
            .sum()
    }

    /// Whether neither this broker nor NATS has a listener that is known.
    pub(crate) fn has_no_subscriber(&self) -> bool {
        self.left() > 0 && self.listeners.as_ref().is_none_or(Vec::is_empty)
    }

    /// Whether this broker or NATS has a listener that is known.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.interest.is_subscribed() || self.listeners.as_ref().is_some_and(|all| !all.is_empty())
    }

    /// The next step; `None` when the queue is empty.
    pub(crate) fn step(&mut self, now: Instant) -> Option<Step> {
        match self.left() {
            0 => None,
            left => Some(self.interest.step(now, left)),
        }
    }

    /// Nobody received the probe with this token: those that it stands for are wanted by nobody.
    pub(crate) fn on_nobody(&mut self, context: &RepublishContext, token: u64) {
        if self.interest.on_nobody(Instant::now(), token) == Answer::Skip {
            let skipped = self.covered.drain(..).map(|copies| copies.left()).sum();
            context.ingest.statistics.nats_copies_skipped.add(skipped);
        }
    }

    /// Gives up everything: NATS is away.
    pub(crate) fn drop_all(&mut self, context: &RepublishContext) {
        context
            .ingest
            .statistics
            .nats_copies_dropped
            .add(self.left());
        self.covered.clear();
        self.waiting.clear();
    }

    /// Hands the copies to this broker's other listeners.
    pub(crate) async fn feed_local(&mut self, context: &RepublishContext, job: &RepublishJob) {
        let incarnation = self.partition.identity().incarnation;
        let listeners = self
            .listeners
            .get_or_insert_with(|| context.router.listeners(&self.subject, incarnation));
        if listeners.is_empty() {
            return;
        }
        for chunk in chunks(0..job.count()) {
            let records = job.records(chunk).await;
            push_to(context, listeners, &self.subject, job, &records);
        }
    }

    /// Publishes all that waits; the first as a probe when there is a token.
    pub(crate) async fn publish_all(
        &mut self,
        context: &RepublishContext,
        client: &Client,
        mut token: Option<u64>,
    ) {
        while let Some(Copies { job, mut start }) = self
            .covered
            .pop_front()
            .or_else(|| self.waiting.pop_front())
        {
            if let Some(token) = token.take() {
                self.publish(context, client, &job, start..start + 1, Some(token))
                    .await;
                start += 1;
            }
            self.publish(context, client, &job, start..job.count(), None)
                .await;
        }
    }

    /// Publishes the first that waits as a probe, for all that wait now.
    pub(crate) async fn publish_probe(
        &mut self,
        context: &RepublishContext,
        client: &Client,
        token: u64,
    ) {
        self.covered.append(&mut self.waiting);
        let Some(mut copies) = self.covered.pop_front() else {
            return;
        };
        self.publish(
            context,
            client,
            &copies.job,
            copies.start..copies.start + 1,
            Some(token),
        )
        .await;
        copies.start += 1;
        if copies.left() > 0 {
            self.covered.push_front(copies);
        }
    }

    /// Publishes some records of a job; with a token as a probe.
    async fn publish(
        &mut self,
        context: &RepublishContext,
        client: &Client,
        job: &RepublishJob,
        range: Range<usize>,
        token: Option<u64>,
    ) {
        let statistics = &context.ingest.statistics;
        let incarnation = self.partition.identity().incarnation;
        let probe = token.map(|token| probe_name(incarnation, token));
        let reply = probe.map(|name| format!("{}.{name}", context.probe_inbox));
        let reply = reply.as_deref().unwrap_or_default();
        let mut buffer = Vec::new();
        for chunk in chunks(range) {
            let records = job.records(chunk.clone()).await;
            let mut dropped = (chunk.len() - records.len()) as u64;
            let mut sent = 0;
            let mut rest = &records[..];
            while !rest.is_empty() {
                let first = job.base_offset + (chunk.start + records.len() - rest.len()) as u64;
                for copy in self.encode(job.mode, first, &mut rest, &mut buffer) {
                    let message = Publish {
                        subject: &self.subject,
                        reply,
                        headers: buffer.get(copy.headers).unwrap_or_default(),
                        payload: buffer.get(copy.payload).unwrap_or_default(),
                    };
                    // One that is too large for NATS, or that finds the connection closed, is dropped.
                    match client.publish(message).await {
                        Ok(()) => sent += 1,
                        Err(_) => dropped += 1,
                    }
                }
            }
            statistics.nats_copies_sent.add(sent);
            statistics.nats_copies_dropped.add(dropped);
        }
        let left_out = self.writer.take_left_out();
        if left_out > 0 {
            statistics.nats_copy_headers_left_out.add(left_out);
        }
    }

    /// Encodes records, which it takes off the start of `records`, until the buffer is full. `first`: offset of the first.
    fn encode(
        &mut self,
        mode: NatsCopy,
        first: u64,
        records: &mut &[IncomingRecord],
        buffer: &mut Vec<u8>,
    ) -> Vec<EncodedCopy> {
        buffer.clear();
        let mut copies = Vec::with_capacity(records.len());
        let mut offset = first;
        while buffer.len() < ENCODE_BYTES
            && let Some((record, rest)) = records.split_first()
        {
            let headers_at = buffer.len();
            let payload_at = self.writer.put(buffer, mode, &self.subject, offset, record);
            copies.push(EncodedCopy {
                headers: headers_at..payload_at,
                payload: payload_at..buffer.len(),
            });
            offset += 1;
            *records = rest;
        }
        copies
    }
}

/// A range in pieces of at most [`CHUNK_RECORDS`].
fn chunks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(CHUNK_RECORDS)
        .map(move |start| start..end.min(start + CHUNK_RECORDS))
}

/// Gives listeners what they would have received of the copies of 1 to [`CHUNK_RECORDS`] records. Those that came after
/// the commit do not listen to the past: a stream that was deleted leaves nothing in its successor.
fn push_to(
    context: &RepublishContext,
    listeners: &[Arc<Feed>],
    subject: &str,
    job: &RepublishJob,
    records: &[IncomingRecord],
) {
    let listeners: Vec<_> = listeners
        .iter()
        .filter(|listener| listener.started() <= job.queued)
        .collect();
    if listeners.is_empty() || records.is_empty() {
        return;
    }
    let subject = Bytes::copy_from_slice(subject.as_bytes());
    let received = records
        .iter()
        .map(|record| as_received(record, job.mode, &subject));
    let records: Vec<_> = received.collect();
    let bytes = records
        .iter()
        .map(|record| record.received_bytes as usize)
        .sum();
    for listener in listeners {
        let acks = Vec::new();
        listener.push(
            &context.ingest,
            Group {
                records: records.clone(),
                acks,
                bytes,
            },
        );
    }
}
