//! The handle of a partition, and what handle, task and committer share.
use super::append_budget::AppendBudget;
use super::commit::AppendReply;
use super::message_id_file::read_ids;
use super::publish_errors::count_publish_errors;
use super::replica::ReadRole;
use super::subscriber_hint::SubscriberHint;
use super::task::{self, Message};
use super::{
    AckLevel, Append, AppendError, Committed, NatsAcks, PartitionContext, PartitionSpec, Payload,
};
use crate::events::{Event, PartitionChange};
use crate::stage::StagePartition;
use bascule_log::{GroupCommitter, HighWatermarkUpdater, Log, LogReader, Recovery};
use bascule_record::Producer;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, OnceLock};
use tokio::sync::{mpsc, oneshot, watch};

/// A cheap, cloneable handle.
#[derive(Clone, Debug)]
pub struct Partition(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) identity: PartitionIdentity,
    pub(super) context: Arc<PartitionContext>,
    pub(super) reader: LogReader,
    pub(super) high_watermark_updater: HighWatermarkUpdater,
    pub(super) append_budget: AppendBudget,
    pub(super) messages: mpsc::UnboundedSender<Message>,
    pub(super) committed: Mutex<Option<watch::Sender<u64>>>,
    pub(super) watch: watch::Receiver<u64>,
    pub(super) leading: AtomicBool,
    pub(super) read_role: ReadRole,
    pub(super) readonly: AtomicBool,
    pub(super) subscribers: AtomicUsize,
    pub(super) max_record_bytes: AtomicU32,
    /// Why writing ended, once it has.
    pub(super) failure: OnceLock<String>,
    pub(super) end: AtomicU8,
    pub(super) first_received: AtomicI64,
    pub(super) last_received: AtomicI64,
    /// Messages from NATS that were not stored.
    pub(super) nats_dropped: AtomicU64,
    pub(super) subscriber_hint: SubscriberHint,
    /// Commits asked for and not yet settled.
    pub(super) outstanding: AtomicUsize,
    /// It acknowledges JetStream publishers.
    pub(super) jetstream: AtomicBool,
}

/// What a partition is, fixed for its life in this process.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PartitionIdentity {
    pub namespace: String,
    pub stream: String,
    pub number: u32,
    pub incarnation: u64,
    /// Subject it listens on, with the partition suffix.
    pub subject: String,
    /// The stream's subject, shown in acks.
    pub base_subject: String,
    pub queue_group: String,
    /// How many partitions share the subject, each taking the NATS messages whose subject hashes to its number; 0 = the
    /// stream is not partitioned by subject.
    pub subject_partitions: u32,
}

/// Why a partition is no longer served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// Still open.
    Open = 0,
    /// The stream was deleted: subscriptions end `NOT_FOUND` `commit log was deleted`.
    Deleted = 1,
    /// Paused: `FAILED_PRECONDITION` `commit log was closed`.
    Paused = 2,
    /// The broker stops: INTERNAL `commit log was closed`.
    Closed = 3,
}

/// Ends and times of a partition, for `Engine.status`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct PartitionStatus {
    pub log_start: u64,
    pub high_watermark: u64,
    pub log_end: u64,
    pub bytes: u64,
    /// When the first and the last record arrived in this life, ns since 1970; 0 = never.
    pub first_received: i64,
    pub last_received: i64,
    /// Readers that wait for new records.
    pub subscribers: u64,
    /// Messages from NATS in this life that were not stored.
    pub nats_dropped: u64,
    /// What of sinks needs it open: staged pieces, calls that stage, epochs to be linked.
    pub held: u64,
    /// Whether the high watermark may be shown to clients ([`Partition::may_read`]).
    pub may_read: bool,
}

/// A reader of [`Partition::subscribe`].
#[derive(Debug)]
pub struct Subscriber(Partition);
impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.0.subscribers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Partition {
    /// Opens the log in `directory`, or creates it unless it `must_exist`, and starts the task on the current runtime. Blocks for recovery.
    /// With one replica everything that recovery kept is committed; with several, what the last checkpoint says, until a role says more.
    ///
    /// # Errors
    /// Those of [`Log::open`] and [`Log::create`].
    pub fn open(
        context: &Arc<PartitionContext>,
        spec: PartitionSpec,
        directory: &Path,
        committer: &Arc<GroupCommitter>,
        must_exist: bool,
    ) -> Result<(Self, Option<Recovery>), bascule_log::Error> {
        let (identity, options) = (spec.log_identity(), spec.log_options(&context.master_keys));
        let (log, recovery) = match Log::open(directory, identity, options.clone(), committer) {
            Ok((log, recovery)) => (log, Some(recovery)),
            // Also when a crash came between making the directory and its first segment.
            Err(bascule_log::Error::Absent { .. }) if !must_exist => {
                let log = Log::create(directory, identity, options, committer)?;
                (log, None)
            }
            Err(error) => return Err(error),
        };
        let reader = log.reader();
        if spec.replicas <= 1 {
            log.set_high_watermark(reader.log_end());
        }
        let (messages, inbox) = mpsc::unbounded_channel();
        let (committed, watch) = watch::channel(reader.high_watermark());
        let partition = Self(Arc::new(Inner {
            identity: PartitionIdentity {
                namespace: spec.namespace.clone(),
                stream: spec.stream.clone(),
                number: spec.number,
                incarnation: spec.incarnation,
                subject: spec.subject.clone(),
                base_subject: spec.base_subject.clone(),
                queue_group: spec.queue_group.clone(),
                subject_partitions: spec.subject_partitions,
            },
            context: context.clone(),
            reader,
            high_watermark_updater: log.high_watermark_updater(),
            append_budget: AppendBudget::new(&context.limits, context.inflight.clone()),
            messages,
            committed: Mutex::new(Some(committed)),
            watch,
            leading: AtomicBool::new(false),
            read_role: ReadRole::new(spec.replicas),
            readonly: AtomicBool::new(spec.readonly),
            subscribers: AtomicUsize::new(0),
            max_record_bytes: AtomicU32::new(spec.max_record_bytes),
            failure: OnceLock::new(),
            end: AtomicU8::new(EndReason::Open as u8),
            first_received: AtomicI64::new(0),
            last_received: AtomicI64::new(0),
            nats_dropped: AtomicU64::new(0),
            subscriber_hint: SubscriberHint::default(),
            outstanding: AtomicUsize::new(0),
            jetstream: AtomicBool::new(spec.nats_acks == NatsAcks::Jetstream),
        }));
        partition.watch_for_damage();
        let ids = read_ids(&partition, &spec, directory);
        let replicated = (spec.replicas > 1).then(|| spec.clone());
        task::spawn(partition.clone(), log, spec, ids, directory, inbox);
        if let Some(spec) = replicated {
            context.replicas.opened(&partition, spec);
        }
        Ok((partition, recovery))
    }

    /// Largest record it takes. Records that come one by one are checked by the task; whoever seals batches checks them.
    pub fn max_record_bytes(&self) -> usize {
        self.0.max_record_bytes.load(Ordering::Relaxed) as usize
    }

    /// What staging rows for it takes.
    pub(crate) fn stage_partition(&self) -> StagePartition {
        StagePartition {
            number: self.0.identity.number,
            incarnation: self.0.identity.incarnation,
            subject: self.0.identity.subject.clone(),
            max_record_bytes: self.max_record_bytes(),
            reader: self.reader(),
        }
    }

    /// What it is.
    pub fn identity(&self) -> &PartitionIdentity {
        &self.0.identity
    }

    /// Whether a NATS message on `subject` is one of this partition's.
    pub fn takes(&self, subject: &[u8]) -> bool {
        let identity = &self.0.identity;
        identity.subject_partitions < 2
            || crc32c::crc32c(subject) % identity.subject_partitions == identity.number
    }

    /// Queues an append; waits for room in the partition's bounded queue. Order of calls from one task is kept.
    /// `append.done` is always called exactly once, here or later, on any thread; when the future is dropped while it waits,
    /// with [`AppendError::Busy`], and nothing was appended.
    ///
    /// # Errors
    /// Returned through `done` only.
    pub async fn append(&self, append: Append) {
        let cost = self.0.append_budget.cost(&append);
        let reply = AppendReply::new(append.done);
        match self.0.append_budget.reserve(cost).await {
            Ok(reservation) => self.send(
                append.payload,
                append.producer,
                (append.republish, append.ack),
                reply.admitted(reservation),
            ),
            Err(error) => reply.answer(Err(error)),
        }
    }

    /// Queues an append without waiting.
    ///
    /// # Errors
    /// Gives the append back when the queue is full.
    #[allow(clippy::result_large_err)] // it is the caller's own append, given back as it came
    pub fn try_append(&self, append: Append) -> Result<(), Append> {
        match self.0.append_budget.try_reserve(&append) {
            Some(reservation) => {
                let reply = AppendReply::new(append.done).admitted(reservation);
                self.send(
                    append.payload,
                    append.producer,
                    (append.republish, append.ack),
                    reply,
                );
                Ok(())
            }
            None => Err(append),
        }
    }

    fn send(
        &self,
        payload: Payload,
        producer: Option<Producer>,
        (republish, ack): (bool, AckLevel),
        reply: AppendReply,
    ) {
        let queued = task::Queued {
            payload,
            producer,
            republish,
            ack,
            reply,
        };
        // A closed channel drops the message, and a dropped `AppendReply` answers.
        let _ = self.0.messages.send(Message::Append(Box::new(queued)));
    }

    /// Waits until every append queued before this call is in the log or was refused; with `committed`, without other replicas, also until
    /// they are committed, or the log has failed. Returns at once when the partition is closed.
    pub async fn flush(&self, committed: bool) {
        let (done, flushed) = oneshot::channel();
        let message = Message::Flush(task::Flush { committed, done });
        if self.0.messages.send(message).is_ok() {
            // An error means that the partition was closed meanwhile.
            let _ = flushed.await;
        }
    }

    /// Reads the log.
    pub fn reader(&self) -> LogReader {
        self.0.reader.clone()
    }

    /// The high watermark (exclusive) as a watch: changes when records were committed; closed when the partition closes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.watch.clone()
    }

    /// Whether publishes are refused. Set between appends, so that whoever sees it sees all that was taken before.
    pub fn is_readonly(&self) -> bool {
        self.0.readonly.load(Ordering::Acquire)
    }

    /// Wakes whoever waits at the end: a change may end reading there.
    pub(super) fn set_readonly(&self, readonly: bool) {
        if self.0.readonly.swap(readonly, Ordering::AcqRel) != readonly
            && let Some(committed) = &*self.0.committed.lock()
        {
            committed.send_modify(|_| ());
        }
    }

    /// Whether it acknowledges JetStream publishers.
    pub(crate) fn acknowledges_jetstream(&self) -> bool {
        self.0.jetstream.load(Ordering::Acquire)
    }

    pub(super) fn set_jetstream(&self, acks: NatsAcks) {
        let acknowledges = acks == NatsAcks::Jetstream;
        self.0.jetstream.store(acknowledges, Ordering::Release);
    }

    /// Counts a reader that waits for new records, until the guard is dropped.
    pub fn subscribe(&self) -> Subscriber {
        self.0.subscribers.fetch_add(1, Ordering::AcqRel);
        Subscriber(self.clone())
    }

    /// How the partition ended, once [`Partition::watch`] is closed.
    pub fn end(&self) -> EndReason {
        match self.0.end.load(Ordering::Acquire) {
            0 => EndReason::Open,
            1 => EndReason::Deleted,
            2 => EndReason::Paused,
            _ => EndReason::Closed,
        }
    }

    /// Why it refuses writes for good, when it does.
    pub fn failure(&self) -> Option<&str> {
        self.0.failure.get().map(String::as_str)
    }

    /// Restores the times of the first and the last receipt from before a pause.
    pub(crate) fn keep_received(&self, times: (i64, i64)) {
        self.0.keep_received(times);
    }

    /// Ends and times.
    pub fn status(&self) -> PartitionStatus {
        let reader = &self.0.reader;
        PartitionStatus {
            log_start: reader.log_start(),
            high_watermark: reader.high_watermark(),
            log_end: reader.log_end(),
            bytes: reader.bytes(),
            first_received: self.0.first_received.load(Ordering::Relaxed),
            last_received: self.0.last_received.load(Ordering::Relaxed),
            subscribers: self.0.subscribers.load(Ordering::Acquire) as u64,
            nats_dropped: self.0.nats_dropped.load(Ordering::Relaxed),
            held: self.0.context.stage.held(self.0.identity.incarnation),
            may_read: self.may_read(),
        }
    }

    /// Counts the records of an append, `records` of them, that were not stored, by the reason.
    pub(crate) fn count_publish_errors(
        &self,
        outcome: &Result<Committed, AppendError>,
        records: usize,
    ) {
        let errors = &self.0.context.statistics.publish_errors;
        count_publish_errors(errors, outcome, records);
    }

    /// Counts messages from NATS that were meant for it and are not stored.
    pub fn count_nats_dropped(&self, messages: u64) {
        self.0.nats_dropped.fetch_add(messages, Ordering::Relaxed);
    }

    /// Accepts appends under `epoch` from now on.
    pub fn lead(&self, epoch: u64) {
        let _ = self.0.messages.send(Message::Lead(epoch));
        self.0.leading.store(true, Ordering::Release);
        self.0.context.links.lead(self);
    }

    /// Changes settings; identity fields of the spec are ignored.
    pub fn configure(&self, spec: PartitionSpec) {
        self.0
            .max_record_bytes
            .store(spec.max_record_bytes, Ordering::Relaxed);
        let _ = self.0.messages.send(Message::Configure(Box::new(spec)));
    }

    /// Stops taking appends, answers those in the queue, closes the log (or marks its files deleted) and ends the task.
    /// Returns when the files are closed.
    pub async fn close(&self, reason: EndReason) {
        self.0.leading.store(false, Ordering::Release);
        self.0.append_budget.close();
        let (closed, done) = oneshot::channel();
        if self.0.messages.send(Message::Close(reason, closed)).is_ok() {
            let _ = done.await;
        }
    }

    pub(super) fn ended(&self, reason: EndReason) {
        let _ = self.0.end.compare_exchange(
            EndReason::Open as u8,
            reason as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        self.0.leading.store(false, Ordering::Release);
        self.0.append_budget.close();
        self.0.context.links.end(self);
        self.0.context.replicas.closed(self);
        if reason == EndReason::Deleted {
            self.0.context.holds.forget(self.0.identity.incarnation);
        }
        self.0.committed.lock().take();
    }

    pub(super) fn raise_high_watermark(&self, offset: u64) {
        self.0.high_watermark_updater.raise(offset);
        if let Some(committed) = &*self.0.committed.lock() {
            committed.send_if_modified(|shown| {
                let moved = offset > *shown;
                *shown = offset.max(*shown);
                moved
            });
        }
    }

    /// Says what recovery found and did.
    pub(crate) fn report_recovery(&self, recovery: &Recovery) {
        let text = format!(
            "recovered: {} batches in {} bytes scanned, {} bytes of torn tail cut",
            recovery.batches, recovery.scanned_bytes, recovery.cut_bytes
        );
        self.report(PartitionChange::Recovered, &text);
    }

    /// Writes are refused from now on; said once.
    pub(super) fn fail(&self, reason: &str) {
        if self.0.failure.set(reason.to_owned()).is_ok() {
            self.report(
                PartitionChange::Failed,
                &format!("writes are refused: {reason}"),
            );
        }
    }

    pub(super) fn report(&self, change: PartitionChange, text: &str) {
        self.report_with(change, text, serde_json::json!({}));
    }

    /// The same with fields beside the stream's: an object.
    pub(crate) fn report_with(
        &self,
        change: PartitionChange,
        text: &str,
        mut fields: serde_json::Value,
    ) {
        let identity = &self.0.identity;
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("namespace".into(), identity.namespace.clone().into());
            fields.insert("stream".into(), identity.stream.clone().into());
        }
        let message = format!(
            "{}/{} of {}: {text}",
            identity.stream, identity.number, identity.namespace
        );
        self.0.context.events.push(Event::Partition {
            incarnation: identity.incarnation,
            number: identity.number,
            change,
            message,
            fields,
        });
    }
}

impl Inner {
    /// Restores the times of receipt from before a pause.
    pub(crate) fn keep_received(&self, (first, last): (i64, i64)) {
        self.first_received.store(first, Ordering::Relaxed);
        self.last_received.store(last, Ordering::Relaxed);
    }

    /// Remembers a receipt at `now`, ns since 1970. Only the task calls it.
    pub(super) fn received(&self, now: i64) {
        if self.first_received.load(Ordering::Relaxed) == 0 {
            self.first_received.store(now, Ordering::Relaxed);
        }
        self.last_received.store(now, Ordering::Relaxed);
    }
}
