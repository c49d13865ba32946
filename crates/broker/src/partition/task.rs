//! The task that owns a log's tail.
use super::commit::{InFlight, Waiting, now_ns, settle};
use super::{
    AppendError, EndReason, IncomingRecord, Partition, PartitionSpec, Payload, RejectReason,
    Rejected,
};
use crate::nats::NatsCopy;
use bascule_log::{Error, Log};
use bascule_record::{BatchBuilder, BuildError, HeaderEntry, RecordRef, SealedBatch};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Messages taken from the queue at once; what they hold is bounded by admission.
const GROUP: usize = 1024;
/// How long a changed checkpoint may wait.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// Kinds of Liftbridge headers (storage specification §1).
const STRING_KIND: u8 = 2;
const RAW_KIND: u8 = 1;

/// What the handle tells the task, in order.
#[derive(Debug)]
pub(super) enum Message {
    Append(Queued),
    Lead(u64),
    Configure(Box<PartitionSpec>),
    Close(EndReason, oneshot::Sender<()>),
}

/// An append that was admitted.
pub(super) struct Queued {
    pub payload: Payload,
    pub copy: bool,
    pub waiting: Waiting,
}
impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queued")
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// Starts the task, and one that watches for its panic.
pub(super) fn spawn(
    partition: Partition,
    log: Log,
    spec: PartitionSpec,
    inbox: mpsc::UnboundedReceiver<Message>,
) {
    let watched = partition.clone();
    let writer = Writer {
        builder: BatchBuilder::new(spec.batch_limits()),
        partition,
        log,
        spec,
        epoch: None,
        timestamp: 0,
        group: Vec::new(),
        broken: None,
        full: false,
        dirty: false,
    };
    let running = tokio::spawn(writer.run(inbox));
    tokio::spawn(async move {
        if let Err(failure) = running.await
            && failure.is_panic()
        {
            watched.fail("its task failed; restart the broker to recover it");
        }
        watched.ended(EndReason::Closed);
    });
}

struct Writer {
    partition: Partition,
    log: Log,
    spec: PartitionSpec,
    builder: BatchBuilder,
    /// Leader epoch, while leading.
    epoch: Option<u64>,
    /// Receipt time of the group being taken.
    timestamp: i64,
    /// Appended or gathered, not yet handed to the committer.
    group: Vec<InFlight>,
    /// Why the rest of this group cannot be appended.
    broken: Option<AppendError>,
    /// The disk was full at the last append.
    full: bool,
    /// Something was appended since the last checkpoint.
    dirty: bool,
}

impl Writer {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        let mut messages = Vec::with_capacity(GROUP);
        let mut next_clean = Instant::now() + self.spec.cleaner_interval();
        let mut next_checkpoint = Instant::now() + CHECKPOINT_INTERVAL;
        loop {
            let timer = if self.dirty {
                next_checkpoint.min(next_clean)
            } else {
                next_clean
            };
            tokio::select! {
                biased;
                count = inbox.recv_many(&mut messages, GROUP) => if count == 0 { break },
                () = tokio::time::sleep_until(timer) => {
                    self.maintain(timer >= next_clean);
                    next_checkpoint = Instant::now() + CHECKPOINT_INTERVAL;
                    next_clean = next_clean.max(Instant::now()).min(Instant::now() + self.spec.cleaner_interval());
                    if timer >= next_clean {
                        next_clean = Instant::now() + self.spec.cleaner_interval();
                    }
                    continue;
                }
            }
            self.begin_group();
            for message in messages.drain(..) {
                match message {
                    Message::Append(queued) => self.take(queued),
                    Message::Lead(epoch) => {
                        self.finish_group();
                        self.epoch = Some(epoch);
                    }
                    Message::Configure(spec) => {
                        self.finish_group();
                        self.configure(*spec);
                    }
                    Message::Close(reason, closed) => {
                        self.finish_group();
                        self.close(reason);
                        let _ = closed.send(());
                        return;
                    }
                }
            }
            self.finish_group();
        }
        self.close(EndReason::Closed);
    }

    fn configure(&mut self, spec: PartitionSpec) {
        self.builder = BatchBuilder::new(spec.batch_limits());
        self.log.set_options(spec.log_options());
        self.spec = spec;
    }

    /// One receipt time for all that waited, never below the last one stored.
    fn begin_group(&mut self) {
        self.timestamp = now_ns().max(self.partition.0.reader.last_timestamp().unwrap_or(0));
    }

    fn next_offset(&self) -> u64 {
        self.partition.0.reader.log_end() + self.builder.len() as u64
    }

    fn take(&mut self, queued: Queued) {
        let inner = &self.partition.0;
        if inner.failed.load(Ordering::Acquire) {
            let reason = "an earlier write or sync failed".to_owned();
            return queued.waiting.answer(Err(AppendError::Storage(reason)));
        }
        if self.epoch.is_none() {
            return queued.waiting.answer(Err(AppendError::NotLeader));
        }
        if let Some(error) = &self.broken {
            return queued.waiting.answer(Err(error.clone()));
        }
        let _ = inner.first_received.compare_exchange(
            0,
            self.timestamp,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        inner.last_received.store(self.timestamp, Ordering::Relaxed);
        let copy = if queued.copy {
            self.spec.nats_copy
        } else {
            NatsCopy::None
        };
        match queued.payload {
            Payload::Records(records) => self.take_records(records, queued.waiting, copy),
            Payload::Sealed(batch) => self.take_sealed(batch, queued.waiting),
        }
    }

    fn take_records(&mut self, records: Vec<IncomingRecord>, waiting: Waiting, copy: NatsCopy) {
        let base_offset = self.next_offset();
        let mut rejected = Vec::new();
        for (index, record) in records.iter().enumerate() {
            if let Err(reason) = self.push(record) {
                rejected.push(Rejected {
                    index: index as u32,
                    reason,
                });
            }
        }
        let count = (records.len() - rejected.len()) as u32;
        self.group.push(InFlight {
            waiting,
            base_offset,
            timestamp: self.timestamp,
            count,
            records,
            rejected,
            duplicate: false,
            copy,
        });
    }

    fn push(&mut self, record: &IncomingRecord) -> Result<(), RejectReason> {
        if record.received_bytes > self.spec.max_record_bytes {
            return Err(RejectReason::TooLarge);
        }
        let expected = record.expected_offset;
        if self.spec.concurrency_control
            && expected != -1
            && u64::try_from(expected) != Ok(self.next_offset())
        {
            return Err(RejectReason::IncorrectOffset);
        }
        let headers: Vec<HeaderEntry<'_>> = record
            .headers
            .iter()
            .map(|(key, value)| HeaderEntry {
                key_kind: STRING_KIND,
                key,
                value_kind: RAW_KIND,
                value,
            })
            .collect();
        let subject = std::str::from_utf8(&record.subject).unwrap_or_default();
        let entry = RecordRef {
            timestamp: self.timestamp,
            origin_time: None,
            id: record.id,
            key: Some(&record.key[..]).filter(|key| !key.is_empty()),
            value: record.value.as_deref(),
            headers: &headers,
            subject: Some(subject)
                .filter(|subject| !subject.is_empty() && *subject != self.spec.subject),
            reply: std::str::from_utf8(&record.reply).unwrap_or_default(),
        };
        match self.builder.push(&entry) {
            Err(BuildError::Full) => {
                self.seal();
                self.builder
                    .push(&entry)
                    .map_err(|_| RejectReason::TooLarge)
            }
            other => other.map_err(|_| RejectReason::TooLarge),
        }
    }

    fn take_sealed(&mut self, batch: SealedBatch, waiting: Waiting) {
        self.seal();
        let count = batch.count();
        let known = batch
            .producer()
            .and_then(|producer| self.log.find_duplicate(producer, count));
        let (appended, duplicate) = match known {
            Some(Err(error)) => {
                return waiting.answer(Err(AppendError::Sequence(error.to_string())));
            }
            Some(Ok(appended)) => (Some(appended), true),
            None => (self.append(batch), false),
        };
        let Some(appended) = appended else {
            return waiting.answer(Err(self.broken.clone().unwrap_or(AppendError::Closed)));
        };
        self.timestamp = self
            .timestamp
            .max(self.partition.0.reader.last_timestamp().unwrap_or(0));
        self.group.push(InFlight {
            waiting,
            base_offset: appended.base_offset,
            timestamp: appended.base_timestamp,
            count,
            records: Vec::new(),
            rejected: Vec::new(),
            duplicate,
            copy: NatsCopy::None,
        });
    }

    /// Closes the batch being gathered and appends it.
    fn seal(&mut self) {
        if let Some(batch) = self
            .builder
            .seal(self.spec.codec(), None, Some(&self.spec.subject))
        {
            self.append(batch);
        }
    }

    /// After a failure the rest of the group is refused: `broken` says why.
    fn append(&mut self, batch: SealedBatch) -> Option<bascule_log::Appended> {
        if self.broken.is_some() {
            return None;
        }
        let (records, bytes) = (u64::from(batch.count()), batch.batch_bytes() as u64);
        match self
            .log
            .append(batch, self.epoch.unwrap_or_default(), self.timestamp)
        {
            Ok(appended) => {
                let statistics = &self.partition.0.shared.statistics;
                statistics.records_appended.add(records);
                statistics.bytes_appended.add(bytes);
                self.dirty = true;
                if std::mem::take(&mut self.full) {
                    self.partition
                        .report("writable", "there is space again".into());
                }
                Some(appended)
            }
            Err(error) => {
                self.partition.0.shared.statistics.append_errors.add(1);
                self.broken = Some(self.refuse(&error));
                None
            }
        }
    }

    fn refuse(&mut self, error: &Error) -> AppendError {
        if let Error::Full { .. } = error {
            if !std::mem::replace(&mut self.full, true) {
                self.partition.report("full", error.to_string());
            }
            return AppendError::Full;
        }
        self.partition.fail(&error.to_string());
        AppendError::Storage(error.to_string())
    }

    /// Hands the group to the committer; appends that did not reach the log whole are refused.
    fn finish_group(&mut self) {
        self.seal();
        let mut group = std::mem::take(&mut self.group);
        if let Some(error) = self.broken.take() {
            let end = self.partition.0.reader.log_end();
            let (whole, cut) = group.into_iter().partition(|append| append.end() <= end);
            group = whole;
            for append in Vec::<InFlight>::from_iter(cut) {
                append.waiting.answer(Err(error.clone()));
            }
        }
        if !group.is_empty() {
            let partition = self.partition.clone();
            self.log
                .commit(Box::new(move |outcome| settle(&partition, outcome, group)));
        }
    }

    /// Retention (when `clean`) and the checkpoint. Waits for the disk, off the runtime's other tasks.
    fn maintain(&mut self, clean: bool) {
        let retention = self.spec.retention();
        let done = tokio::task::block_in_place(|| {
            if clean {
                self.log.maintain(&retention, now_ns())?;
            }
            self.dirty = false;
            self.log.checkpoint()
        });
        match done {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(error) => self.partition.fail(&error.to_string()),
        }
    }

    fn close(self, reason: EndReason) {
        self.partition.ended(reason);
        let closed = tokio::task::block_in_place(|| match reason {
            EndReason::Deleted => self.log.delete(),
            _ => self.log.close(),
        });
        if let Err(error) = closed {
            self.partition
                .report("failed", format!("it did not close cleanly: {error}"));
        }
    }
}
