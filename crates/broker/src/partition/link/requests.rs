//! Appends of rows whose epoch a sink has published, by the partition's task.
//!
//! They are not publishes: read-only, concurrency control, message ids and limits of records do not concern them, and nothing of
//! them is copied to NATS. What delays them is reported to the link, which tries again.
use super::super::handle::Inner;
use super::super::task::Message;
use super::super::writer::Writer;
use super::super::{AppendError, Partition, maintenance};
use bascule_log::Error;
use bascule_record::SealedBatch;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;

/// What a link asks of a partition's task.
#[derive(Debug)]
pub(in crate::partition) enum LinkRequest {
    /// Append batches in this order, and commit them.
    Append(
        Vec<SealedBatch>,
        oneshot::Sender<Result<Linked, AppendError>>,
    ),
    /// Have everything synced that is in the log, and commit it.
    Sync(oneshot::Sender<Result<(), AppendError>>),
    /// The table has changed: what no link needs any more may be removed.
    Release,
}

/// What became of the batches of one request. Those that were appended are committed.
#[derive(Debug)]
pub(crate) struct Linked {
    /// How many were appended, the first ones.
    pub batches: usize,
    /// Offset of the first record; `None` = none was appended.
    pub base_offset: Option<u64>,
    /// Why the next one was not.
    pub refused: Option<AppendError>,
}

/// A partition that may have ended.
#[derive(Debug)]
pub(crate) struct WeakPartition(Weak<Inner>);

impl WeakPartition {
    /// The partition, while someone holds it.
    pub fn upgrade(&self) -> Option<Partition> {
        self.0.upgrade().map(Partition)
    }

    /// Whether it is this one, and not another opening of it.
    pub fn is(&self, partition: &Partition) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&partition.0))
    }
}

impl Partition {
    /// A handle that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakPartition {
        WeakPartition(Arc::downgrade(&self.0))
    }

    /// Offset below which no row of an epoch can lie that is decided after this call: the end of what is committed and synced. The log
    /// end may be higher, and a power cut takes what lies between: the link appends there then.
    pub(crate) fn link_floor(&self) -> u64 {
        let reader = &self.0.reader;
        reader.durable_end().min(reader.high_watermark())
    }

    /// Appends batches of a published epoch and waits until they are committed. Not to be called on a thread of the runtime.
    ///
    /// # Errors
    /// [`AppendError`]: what is in the log is not known.
    pub(crate) fn append_linked(&self, batches: Vec<SealedBatch>) -> Result<Linked, AppendError> {
        self.ask(|done| LinkRequest::Append(batches, done))
    }

    /// Waits until everything in the log is synced and committed, in class `memory` too. Not to be called on a thread of the
    /// runtime.
    ///
    /// # Errors
    /// [`AppendError`].
    pub(crate) fn sync_linked(&self) -> Result<(), AppendError> {
        self.ask(LinkRequest::Sync)
    }

    /// The sink table has changed: the log is held from another offset on.
    pub(crate) fn release_linked(&self) {
        // A partition that is closed holds nothing.
        let _ = self
            .0
            .messages
            .send(Message::Link(Box::new(LinkRequest::Release)));
    }

    fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, AppendError>>) -> LinkRequest,
    ) -> Result<T, AppendError> {
        let (done, answer) = oneshot::channel();
        let request = Message::Link(Box::new(request(done)));
        // A closed channel drops the message, and with it the sender of the answer.
        let _ = self.0.messages.send(request);
        answer.blocking_recv().unwrap_or(Err(AppendError::Closed))
    }
}

impl Writer {
    /// Holds the log as the sink table wants it.
    pub(in crate::partition) fn hold(&self) {
        let identity = self.partition.identity();
        let table = self.partition.0.context.stage.table();
        self.log.hold(table.hold(identity.incarnation));
    }

    /// Takes a request of a link, after everything that came before it.
    pub(in crate::partition) fn link(&mut self, request: LinkRequest) -> Result<(), Error> {
        self.finish_group();
        // Before the append: a compaction that begins from now on leaves the batches as they are.
        self.hold();
        match request {
            LinkRequest::Append(batches, done) => self.append_linked(batches, done),
            LinkRequest::Sync(done) => self.sync_linked(done),
            LinkRequest::Release => return maintenance::trim(self),
        }
        Ok(())
    }

    fn append_linked(
        &mut self,
        batches: Vec<SealedBatch>,
        done: oneshot::Sender<Result<Linked, AppendError>>,
    ) {
        let mut linked = Linked {
            batches: 0,
            base_offset: None,
            refused: self.check_link().err(),
        };
        if linked.refused.is_none() {
            self.partition.0.received(self.timestamp);
            for batch in batches {
                let records = u64::from(batch.count());
                match self.append(batch) {
                    Ok(appended) => {
                        linked.batches += 1;
                        linked.base_offset.get_or_insert(appended.base_offset);
                        self.partition.0.context.statistics.linked_rows.add(records);
                    }
                    Err(error) => {
                        linked.refused = Some(error);
                        break;
                    }
                }
            }
        }
        // It concerns this request alone: the group before it is finished.
        self.broken = None;
        let partition = self.partition.clone();
        partition.0.outstanding.fetch_add(1, Ordering::AcqRel);
        self.log.commit(Box::new(move |outcome| {
            partition.0.outstanding.fetch_sub(1, Ordering::AcqRel);
            let committed = settle(&partition, outcome);
            // The link may have ended.
            let _ = done.send(committed.map(|()| linked));
        }));
    }

    fn sync_linked(&mut self, done: oneshot::Sender<Result<(), AppendError>>) {
        let partition = self.partition.clone();
        self.log.sync(Box::new(move |outcome| {
            // The link may have ended.
            let _ = done.send(settle(&partition, outcome));
        }));
    }

    /// What a link waits for.
    fn check_link(&mut self) -> Result<(), AppendError> {
        if let Some(reason) = self.partition.0.failure.get() {
            return Err(AppendError::Storage(reason.clone()));
        }
        if self.epoch.is_none() {
            return Err(AppendError::NotLeader);
        }
        let (in_sync, required) = (self.spec.in_sync, self.spec.min_isr);
        if in_sync < required {
            return Err(AppendError::TooFewReplicas { in_sync, required });
        }
        self.finish_pending_trim();
        self.broken.take().map_or(Ok(()), Err)
    }
}

/// Shows what was committed to readers.
fn settle(partition: &Partition, outcome: Result<u64, Arc<Error>>) -> Result<(), AppendError> {
    match outcome {
        Ok(end) => {
            partition.raise_high_watermark(end);
            Ok(())
        }
        Err(error) => {
            partition.fail(&error.to_string());
            Err(AppendError::Storage(error.to_string()))
        }
    }
}
