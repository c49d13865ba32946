//! The copies of one partition on their way out.
use super::copies::{CopyJob, probe_name};
use super::feed::{Feed, Group};
use super::interest::{Answer, Interest, Step};
use super::origin::ORIGIN_HEADER;
use super::router::Router;
use super::session::Session;
use super::settings::NatsCopy;
use crate::partition::{IncomingRecord, Partition};
use async_nats::{Client, HeaderMap, Subject};
use bascule_wire::liftbridge::publish::{PublishFields, put_envelope_publish};
use bascule_wire::subject::{SubjectFilter, is_publish_subject};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Copies are encoded in buffers of about this size.
const ENCODE_BYTES: usize = 128 << 10;
/// Records that are handed to a local listener at once.
const LOCAL_GROUP: usize = 1024;
/// Ack policy NONE.
const POLICY_NONE: i32 = 2;
/// Whoever stores a copy takes it at any offset.
const ANY_OFFSET: i64 = -1;

/// See the module.
pub(super) struct Channel {
    pub(super) partition: Partition,
    /// The partition's own subject; `None` = it has wildcards.
    subject: Option<Subject>,
    filter: Option<SubjectFilter>,
    /// `cluster/incarnation/partition/`
    origin: String,
    interest: Interest,
    /// Behind a probe that is under way.
    covered: VecDeque<Copies>,
    /// Committed after that probe.
    pub(super) waiting: VecDeque<Copies>,
    /// When the copier will look again.
    pub(super) planned: Option<Instant>,
    /// Local listeners on the partition's own subject, once they were looked up.
    pub(super) listeners: Option<Vec<Arc<Feed>>>,
}

/// What is left to publish of a job: records from `start` on.
pub(super) struct Copies {
    pub(super) job: CopyJob,
    pub(super) start: usize,
}

impl Copies {
    fn left(&self) -> u64 {
        self.job.records.len().saturating_sub(self.start) as u64
    }
}

impl Channel {
    pub(super) fn new(partition: &Partition, cluster: &str) -> Self {
        let identity = partition.identity();
        let is_concrete = is_publish_subject(&identity.subject);
        Self {
            partition: partition.clone(),
            subject: is_concrete.then(|| Subject::from(identity.subject.as_str())),
            filter: SubjectFilter::parse(&identity.subject).ok(),
            origin: format!("{cluster}/{}/{}/", identity.incarnation, identity.number),
            interest: Interest::new(),
            covered: VecDeque::new(),
            waiting: VecDeque::new(),
            planned: None,
            listeners: None,
        }
    }

    /// Copies that are neither published nor given up.
    pub(super) fn left(&self) -> u64 {
        self.covered
            .iter()
            .chain(&self.waiting)
            .map(Copies::left)
            .sum()
    }

    /// What to do now; `None` when nothing waits.
    pub(super) fn step(&mut self, now: Instant) -> Option<Step> {
        let left = self.left();
        // Of subjects that records name themselves nothing is known, and nothing is asked.
        let is_addressed = self
            .covered
            .iter()
            .chain(&self.waiting)
            .any(|copies| copies.job.is_addressed);
        match left {
            0 => None,
            _ if is_addressed => Some(Step::Publish(None)),
            _ => Some(self.interest.step(now, left)),
        }
    }

    /// Nobody received the probe with this token: those that it stands for are wanted by nobody.
    pub(super) fn on_nobody(&mut self, session: &Session, token: u64) {
        if self.interest.on_nobody(Instant::now(), token) == Answer::Skip {
            let skipped = self.covered.drain(..).map(|copies| copies.left()).sum();
            session.shared.statistics.nats_copies_skipped.add(skipped);
        }
    }

    /// Gives up everything: NATS is away.
    pub(super) fn drop_all(&mut self, session: &Session) {
        session
            .shared
            .statistics
            .nats_copies_dropped
            .add(self.left());
        self.covered.clear();
        self.waiting.clear();
    }

    /// Hands the copies to this broker's other listeners.
    pub(super) fn feed_local(&mut self, session: &Arc<Session>, router: &Router, job: &CopyJob) {
        let incarnation = self.partition.identity().incarnation;
        if job.is_addressed {
            for record in &job.records {
                let Some(subject) = self.subject_of(record) else {
                    continue;
                };
                let listeners = router.listeners(&subject, incarnation);
                push_to(
                    session,
                    &listeners,
                    &subject,
                    job.mode,
                    std::slice::from_ref(record),
                );
            }
        } else if let Some(subject) = &self.subject {
            let listeners = self
                .listeners
                .get_or_insert_with(|| router.listeners(subject, incarnation));
            push_to(session, listeners, subject, job.mode, &job.records);
        }
    }

    /// Publishes all that waits; the first as a probe when there is a token.
    pub(super) async fn publish_all(
        &mut self,
        session: &Session,
        client: &Client,
        mut token: Option<u64>,
    ) {
        while let Some(Copies { job, mut start }) = self
            .covered
            .pop_front()
            .or_else(|| self.waiting.pop_front())
        {
            if let Some(token) = token.take() {
                self.publish(session, client, &job, start..start + 1, Some(token))
                    .await;
                start += 1;
            }
            self.publish(session, client, &job, start..job.records.len(), None)
                .await;
        }
    }

    /// Publishes the first that waits as a probe, for all that wait now.
    pub(super) async fn publish_probe(&mut self, session: &Session, client: &Client, token: u64) {
        self.covered.append(&mut self.waiting);
        let Some(mut copies) = self.covered.pop_front() else {
            return;
        };
        self.publish(
            session,
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
        &self,
        session: &Session,
        client: &Client,
        job: &CopyJob,
        mut range: Range<usize>,
        token: Option<u64>,
    ) {
        let statistics = &session.shared.statistics;
        let incarnation = self.partition.identity().incarnation;
        let probe = token.zip(session.inbox.get());
        let reply = probe.map(|(token, inbox)| {
            Subject::from(format!("{inbox}.{}", probe_name(incarnation, token)))
        });
        while !range.is_empty() {
            let mut sent = 0;
            let copies = self.encode(job, &mut range);
            let total = copies.len() as u64;
            for copy in copies {
                // A copy that is too large for NATS, or that finds the connection closed, is dropped.
                sent += u64::from(copy.send(client, reply.as_ref()).await.is_ok());
            }
            statistics.nats_copies_sent.add(sent);
            statistics.nats_copies_dropped.add(total - sent);
        }
    }

    /// Encodes records from the start of the range, which it moves, until a buffer is full.
    fn encode(&self, job: &CopyJob, range: &mut Range<usize>) -> Vec<EncodedCopy> {
        let mut buffer = Vec::new();
        let mut ends = Vec::with_capacity(range.len());
        while buffer.len() < ENCODE_BYTES {
            let Some(index) = range.next() else { break };
            let Some(record) = job.records.get(index) else {
                continue;
            };
            let Some(subject) = self.subject_of(record) else {
                continue;
            };
            put_copy(
                &mut buffer,
                job.mode,
                &self.partition.identity().stream,
                &subject,
                record,
            );
            ends.push((subject, job.base_offset + index as u64, buffer.len()));
        }
        let buffer = Bytes::from(buffer);
        let mut start = 0;
        let slice = |(subject, offset, end)| {
            let payload = buffer.slice(start..end);
            start = end;
            EncodedCopy {
                subject,
                origin: format!("{}{offset}", self.origin),
                payload,
            }
        };
        ends.into_iter().map(slice).collect()
    }

    /// Subject of a record's copy: the one it names when the partition listens there, otherwise the partition's own.
    fn subject_of(&self, record: &IncomingRecord) -> Option<Subject> {
        if record.subject.is_empty() {
            return self.subject.clone();
        }
        let named = Subject::from_utf8(record.subject.clone()).ok()?;
        let is_ours = is_publish_subject(&named)
            && self
                .filter
                .as_ref()
                .is_some_and(|filter| filter.matches(&named));
        if is_ours {
            Some(named)
        } else {
            self.subject.clone()
        }
    }
}

struct EncodedCopy {
    subject: Subject,
    origin: String,
    payload: Bytes,
}

impl EncodedCopy {
    async fn send(
        self,
        client: &Client,
        reply: Option<&Subject>,
    ) -> Result<(), async_nats::PublishError> {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN_HEADER, self.origin);
        match reply {
            Some(reply) => {
                client
                    .publish_with_reply_and_headers(
                        self.subject,
                        reply.clone(),
                        headers,
                        self.payload,
                    )
                    .await
            }
            None => {
                client
                    .publish_with_headers(self.subject, headers, self.payload)
                    .await
            }
        }
    }
}

fn put_copy(
    out: &mut Vec<u8>,
    mode: NatsCopy,
    stream: &str,
    subject: &str,
    record: &IncomingRecord,
) {
    let value = record.value.as_deref().unwrap_or_default();
    if mode == NatsCopy::Value {
        out.extend_from_slice(value);
        return;
    }
    // Names were checked when the record came in.
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|(name, value)| {
            (
                std::str::from_utf8(name).unwrap_or_default(),
                value.as_ref(),
            )
        })
        .collect();
    let fields = PublishFields {
        key: &record.key,
        value,
        stream,
        headers: &headers,
        ack_policy: POLICY_NONE,
        expected_offset: ANY_OFFSET,
        ..PublishFields::default()
    };
    put_envelope_publish(out, subject, &fields);
}

/// What a listener would have stored of the copies, had they come through NATS.
fn push_to(
    session: &Arc<Session>,
    listeners: &[Arc<Feed>],
    subject: &Subject,
    mode: NatsCopy,
    records: &[IncomingRecord],
) {
    if listeners.is_empty() {
        return;
    }
    let subject = Bytes::copy_from_slice(subject.as_bytes());
    for records in records.chunks(LOCAL_GROUP) {
        let records: Vec<_> = records
            .iter()
            .map(|record| as_received(record, mode, &subject))
            .collect();
        let bytes = records
            .iter()
            .map(|record| record.received_bytes as usize)
            .sum();
        for listener in listeners {
            listener.push(
                session,
                Group {
                    records: records.clone(),
                    acks: Vec::new(),
                    bytes,
                },
            );
        }
    }
}

fn as_received(record: &IncomingRecord, mode: NatsCopy, subject: &Bytes) -> IncomingRecord {
    let value = record.value.clone().unwrap_or_default();
    let is_envelope = mode == NatsCopy::Envelope;
    let headers = if is_envelope {
        record.headers.clone()
    } else {
        Vec::new()
    };
    let header_bytes: usize = headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    IncomingRecord {
        key: if is_envelope {
            record.key.clone()
        } else {
            Bytes::new()
        },
        received_bytes: u32::try_from(value.len() + record.key.len() + header_bytes)
            .unwrap_or(u32::MAX),
        value: Some(value),
        headers,
        subject: subject.clone(),
        reply: Bytes::new(),
        id: 0,
        expected_offset: if is_envelope { ANY_OFFSET } else { 0 },
    }
}
