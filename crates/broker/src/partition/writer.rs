//! From groups of appends to few batches in the log: checks of single records, coalescing, duplicates, failures.
use super::commit::{AppendReply, InFlight, settle};
use super::jetstream::Ids;
use super::replica::Role;
use super::task::{Flush, Queued};
use super::{
    AckLevel, AppendError, IncomingRecord, NatsAcks, NatsCopy, Partition, PartitionSpec, Payload,
    RejectReason, Rejected, maintenance,
};
use crate::clock::now_ns;
use crate::events::PartitionChange;
use bascule_log::{Appended, Error, Log};
use bascule_record::{BatchBuilder, BuildError, HeaderEntry, RecordRef, SealedBatch};
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Kinds of Liftbridge headers (storage §1).
const STRING_KIND: u8 = 2;
const RAW_KIND: u8 = 1;
/// For so long no append may have failed for want of space before it is said that there is some: on a disk that is nearly
/// full small appends pass between large ones that do not.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// The writing half of a partition's task: owns the log and the group being taken.
pub(super) struct Writer {
    pub(super) partition: Partition,
    pub log: Log,
    pub spec: PartitionSpec,
    pub(super) builder: BatchBuilder,
    /// Leader epoch, while leading.
    pub epoch: Option<u64>,
    /// Role among several replicas.
    pub(super) role: Role,
    /// Receipt time of the group being taken.
    pub(super) timestamp: i64,
    /// Appended or gathered, not yet handed to the committer.
    pub(super) group: Vec<InFlight>,
    /// Why the rest of this group cannot be appended.
    pub(super) broken: Option<AppendError>,
    /// When the disk was last full, until a report that there is space again.
    pub(super) full: Option<Instant>,
    /// Why nothing can be encrypted that has to be.
    key_unavailable: Option<String>,
    /// Ids of messages.
    pub(super) ids: Ids,
    /// What was given as the archive's end and cannot be.
    pub(super) void_archive: Option<u64>,
    /// When the log was opened, or began to be led with records; queries may not have reported since.
    pub(super) unreported_since: Option<Instant>,
    /// Bytes appended since the task last asked.
    pub(super) appended_bytes: u64,
}

impl Writer {
    pub fn new(partition: Partition, log: Log, spec: PartitionSpec, ids: Ids) -> Self {
        let mut writer = Self {
            builder: BatchBuilder::new(spec.batch_limits()),
            partition,
            log,
            spec,
            epoch: None,
            role: Role::Idle,
            timestamp: 0,
            group: Vec::new(),
            broken: None,
            full: None,
            key_unavailable: None,
            ids,
            void_archive: None,
            unreported_since: Some(Instant::now()),
            appended_bytes: 0,
        };
        writer.check_sealing();
        writer.check_archived();
        writer
    }

    /// Says once when appends cannot be encrypted that have to be.
    fn check_sealing(&mut self) {
        let key_unavailable = self
            .log
            .check_sealing()
            .err()
            .map(|error| error.to_string());
        if let Some(reason) = key_unavailable
            .as_ref()
            .filter(|_| key_unavailable != self.key_unavailable)
        {
            self.partition.report(
                PartitionChange::KeyUnavailable,
                &format!("appends are refused: {reason}"),
            );
        }
        self.key_unavailable = key_unavailable;
    }

    /// Takes over settings, between groups.
    pub fn configure(&mut self, spec: PartitionSpec) {
        self.builder = BatchBuilder::new(spec.batch_limits());
        let master_keys = &self.partition.0.context.master_keys;
        self.log.set_options(spec.log_options(master_keys));
        self.check_sealing();
        self.partition.set_readonly(spec.readonly);
        self.partition.set_jetstream(spec.nats_acks);
        if spec.nats_acks == NatsAcks::Off {
            self.ids = Ids::Off;
        }
        self.spec = spec;
        self.check_archived();
    }

    /// One receipt time for all that waited, never below the last one stored.
    pub fn begin_group(&mut self) {
        self.timestamp = now_ns().max(self.partition.0.reader.last_timestamp().unwrap_or(0));
        self.ids.begin_group();
    }

    fn next_offset(&self) -> u64 {
        self.partition.0.reader.log_end() + self.builder.len() as u64
    }

    /// Takes one append into the group, or refuses it at once.
    pub fn take(&mut self, queued: Queued) {
        let mut reply = queued.reply;
        if let Some(reason) = self.partition.0.failure.get() {
            return reply.answer(Err(AppendError::Storage(reason.clone())));
        }
        if self.epoch.is_none() || self.partition.has_stopped() {
            return reply.answer(Err(AppendError::NotLeader));
        }
        if let Role::Leader(role) = &self.role {
            if let Err(error) = role.admit(queued.ack) {
                return reply.answer(Err(error));
            }
        } else if self.spec.in_sync < self.spec.min_isr {
            return reply.answer(Err(AppendError::TooFewReplicas {
                in_sync: self.spec.in_sync,
                required: self.spec.min_isr,
            }));
        }
        if self.spec.readonly {
            return reply.answer(Err(AppendError::Readonly));
        }
        self.finish_pending_trim();
        if let Some(error) = &self.broken {
            return reply.answer(Err(error.clone()));
        }
        reply.otherwise(AppendError::Storage("the outcome is unknown".to_owned()));
        self.partition.0.received(self.timestamp);
        let taken = self.group.len();
        let mode = if queued.republish {
            self.spec.nats_copy
        } else {
            NatsCopy::None
        };
        let ack = queued.ack;
        match queued.payload {
            Payload::Records(records) => match queued.producer {
                None => self.take_records(records, reply, mode),
                Some(producer) => self.take_produced(records, producer, reply, mode),
            },
            Payload::Sealed(batch) => self.take_sealed(batch, reply, mode),
        }
        if self.group.len() > taken
            && let Some(last) = self.group.last_mut()
        {
            last.ack = ack;
        }
    }

    /// A trim beyond the log end that found no space or descriptor comes first: what is appended below it would be hidden.
    pub(super) fn finish_pending_trim(&mut self) {
        if !self.may_remove()
            || self.broken.is_some()
            || self.partition.0.reader.log_end() >= self.spec.trimmed_to
        {
            return;
        }
        if let Err(error) = maintenance::trim(self) {
            self.broken = Some(self.refuse(&error));
        }
    }

    fn take_records(&mut self, records: Vec<IncomingRecord>, reply: AppendReply, mode: NatsCopy) {
        let base_offset = self.next_offset();
        let mut refers_to = 0;
        let mut rejected = Vec::new();
        let mut headers = Vec::new();
        for (index, record) in records.iter().enumerate() {
            if let Err(reason) = self.push(record, &mut headers) {
                refers_to = refers_to.max(match &reason {
                    RejectReason::Duplicate(original) => original + 1,
                    RejectReason::Refused(_) => self.next_offset(),
                    _ => 0,
                });
                rejected.push(Rejected {
                    index: index as u32,
                    reason,
                });
            }
        }
        let count = (records.len() - rejected.len()) as u32;
        let records = self
            .partition
            .0
            .subscriber_hint
            .keep(mode, records, &rejected);
        self.group.push(InFlight {
            reply,
            ack: AckLevel::All,
            base_offset,
            timestamp: self.timestamp,
            count,
            records,
            rejected,
            duplicate: false,
            refers_to,
            mode,
        });
    }

    /// `headers` is room that is used again for every record.
    pub(super) fn push<'a>(
        &mut self,
        record: &'a IncomingRecord,
        headers: &mut Vec<HeaderEntry<'a>>,
    ) -> Result<(), RejectReason> {
        if record.received_bytes > self.spec.max_record_bytes {
            return Err(RejectReason::TooLarge);
        }
        if self.key_unavailable.is_some() {
            return Err(RejectReason::Encryption);
        }
        let offset = self.next_offset();
        let id = self.check_conditions(record, offset)?;
        let expected = record.expected_offset;
        // A JetStream publisher has conditions of its own.
        let is_conditional = !(record.is_plain_nats && self.acknowledges_jetstream());
        if self.spec.concurrency_control
            && is_conditional
            && expected != -1
            && u64::try_from(expected) != Ok(offset)
        {
            return Err(RejectReason::IncorrectOffset);
        }
        headers.clear();
        headers.extend(record.headers.iter().map(|(name, value)| HeaderEntry {
            key_kind: name_kind(name),
            key: name,
            value_kind: RAW_KIND,
            value,
        }));
        // Both were checked where they came in; should they not be UTF-8 all the same, readers still get text.
        let (subject, reply) = (text(&record.subject), text(&record.reply));
        let entry = RecordRef {
            timestamp: self.timestamp,
            origin_time: record.origin_time,
            id: record.id,
            key: Some(&record.key[..]).filter(|key| !key.is_empty()),
            value: record.value.as_deref(),
            headers,
            subject: Some(&*subject)
                .filter(|subject| !subject.is_empty() && *subject != self.spec.subject),
            reply: &reply,
        };
        match self.builder.push(&entry) {
            Err(BuildError::Full) => {
                self.seal();
                self.builder
                    .push(&entry)
                    .map_err(|_| RejectReason::TooLarge)?;
            }
            other => other.map_err(|_| RejectReason::TooLarge)?,
        }
        self.ids.insert(id, offset);
        Ok(())
    }

    fn take_sealed(&mut self, batch: SealedBatch, reply: AppendReply, mode: NatsCopy) {
        self.seal();
        if let Some(error) = &self.broken {
            return reply.answer(Err(error.clone()));
        }
        let count = batch.count();
        let known = batch
            .producer()
            .and_then(|producer| self.log.find_duplicate(producer, count, self.timestamp));
        let (appended, duplicate) = match known {
            Some(Err(error)) => {
                return reply.answer(Err(AppendError::Sequence(error)));
            }
            Some(Ok(appended)) => (appended, true),
            None => match self.append(batch) {
                Ok(appended) => (appended, false),
                Err(error) => return reply.answer(Err(error)),
            },
        };
        self.timestamp = self
            .timestamp
            .max(self.partition.0.reader.last_timestamp().unwrap_or(0));
        self.group.push(InFlight {
            reply,
            ack: AckLevel::All,
            base_offset: appended.base_offset,
            timestamp: appended.base_timestamp,
            count,
            records: Vec::new(),
            rejected: Vec::new(),
            duplicate,
            refers_to: 0,
            mode,
        });
    }

    /// Closes the batch being gathered and appends it. After a failure `broken` says why, and [`Writer::finish_group`]
    /// refuses what it touched.
    pub(super) fn seal(&mut self) {
        let (codec, subject) = (self.spec.codec(), Some(self.spec.subject.as_str()));
        if let Some(batch) = self.builder.seal(codec, None, subject)
            && self.broken.is_none()
        {
            // Kept in `broken`.
            let _ = self.append(batch);
        }
    }

    pub(super) fn append(&mut self, batch: SealedBatch) -> Result<Appended, AppendError> {
        let (records, bytes) = (u64::from(batch.count()), batch.batch_bytes() as u64);
        let epoch = self.epoch.unwrap_or_default();
        let statistics = &self.partition.0.context.statistics;
        match self.log.append(batch, epoch, self.timestamp) {
            Ok(appended) => {
                statistics.records_appended.add(records);
                statistics.batches_appended.add(1);
                statistics.bytes_appended.add(bytes);
                self.appended_bytes += bytes;
                self.partition.0.context.disk_full.stored();
                if self.full.is_some_and(|seen| seen.elapsed() >= FULL_PAUSE) {
                    self.full = None;
                    self.partition
                        .report(PartitionChange::Writable, "there is space again");
                }
                Ok(appended)
            }
            Err(error) => {
                statistics.append_errors.add(1);
                let refusal = self.refuse(&error);
                self.broken = Some(refusal.clone());
                Err(refusal)
            }
        }
    }

    fn refuse(&mut self, error: &Error) -> AppendError {
        match error {
            Error::Full { .. } => {
                self.partition.0.context.disk_full.refused();
                if self.full.replace(Instant::now()).is_none() {
                    self.partition
                        .report(PartitionChange::Full, &error.to_string());
                }
                AppendError::Full
            }
            error if error.is_transient() => AppendError::NoDescriptor,
            Error::Encryption { .. } => AppendError::Encryption(error.to_string()),
            // The log stays usable, only not for this epoch.
            Error::StaleEpoch { .. } => AppendError::NotLeader,
            _ => {
                self.partition.fail(&error.to_string());
                AppendError::Storage(error.to_string())
            }
        }
    }

    /// Gives up the group after a defect: what it holds is answered as unknown, and nothing more is committed.
    pub fn abandon(&mut self) {
        self.builder.clear();
        self.group.clear();
        self.leave_role();
        // They may name records that were never appended.
        self.ids = Ids::Off;
    }

    /// Appends what was gathered, and answers.
    pub fn flush(&mut self, flush: Flush) {
        self.finish_group();
        let reader = &self.partition.0.reader;
        // With several replicas what is acknowledged to all is committed, and nobody waits for the others here.
        let is_alone = matches!(self.role, Role::Idle);
        let waits = flush.committed && is_alone && reader.high_watermark() < reader.log_end();
        let answer = move || {
            // Whoever asked may have gone.
            let _ = flush.done.send(());
        };
        if waits {
            self.log.commit(Box::new(move |_| answer()));
        } else {
            answer();
        }
    }

    /// Hands the group to the committer; appends that did not reach the log whole are refused.
    pub fn finish_group(&mut self) {
        self.seal();
        let mut group = std::mem::take(&mut self.group);
        if let Some(error) = self.broken.take() {
            let end = self.partition.0.reader.log_end();
            self.ids.take_back(end);
            for append in group.extract_if(.., |append| append.rests_on() > end) {
                // A retry of an append of which a part was stored would store that part twice.
                let error = if append.count > 0 && append.base_offset < end {
                    AppendError::Storage(format!("only a part of it was stored: {error}"))
                } else {
                    error.clone()
                };
                append.reply.answer(Err(error));
            }
        }
        if matches!(self.role, Role::Leader(_)) {
            return self.finish_led(group);
        }
        if group.is_empty() {
            return;
        }
        let partition = self.partition.clone();
        partition.0.outstanding.fetch_add(1, Ordering::AcqRel);
        self.log.commit(Box::new(move |outcome| {
            partition.0.outstanding.fetch_sub(1, Ordering::AcqRel);
            settle(&partition, outcome, group);
        }));
    }
}

/// Kind of a header's name: text where it is UTF-8.
fn name_kind(name: &[u8]) -> u8 {
    if std::str::from_utf8(name).is_ok() {
        STRING_KIND
    } else {
        RAW_KIND
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}
