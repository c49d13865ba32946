//! The task that owns a partition's log.
//!
//! It works until its shutdown or a panic; after a panic it is poisoned (rejects writes, reads continue); at the
//! end it commits what is in the log, answers what is left in the queue, and closes or deletes the files.
use super::commit::AppendReply;
use super::jetstream::Ids;
use super::link::LinkRequest;
use super::message_id_file::MessageIdFile;
use super::replica::{ReplicaMessage, Role, RoleSpec, RoleTicket, TICK_MS, Turns};
use super::writer::Writer;
use super::{AckLevel, EndReason, NatsAcks, Partition, PartitionSpec, Payload, maintenance};
use crate::events::PartitionChange;
use bascule_log::{Error, Log};
use bascule_record::Producer;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, sleep};

/// Messages taken from the queue at once; what they hold is bounded by the append budget.
const GROUP: usize = 1024;
/// Up to so many messages it is worth looking for more while a sync runs.
const FEW: usize = 64;
/// How long a changed checkpoint may wait.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// Messages from the handle to the task, in order. Small, for a queue begins with room for 32, which was a third of the memory of
/// an idle partition.
#[derive(Debug)]
pub(super) enum Message {
    Append(Box<Queued>),
    Lead(u64),
    /// Number of this broker, the role, and what is dropped once it is taken over.
    Role(Box<(u64, Arc<RoleSpec>, RoleTicket)>),
    Replica(Box<ReplicaMessage>),
    /// A sync of a partition with several replicas has ended.
    Durable(Result<u64, Arc<Error>>),
    Configure(Box<PartitionSpec>),
    Flush(Flush),
    Link(Box<LinkRequest>),
    Close(EndReason, oneshot::Sender<()>),
}

const _: () = assert!(size_of::<Message>() <= 32);

/// Answered once every append queued before it is in the log, or was refused.
#[derive(Debug)]
pub(super) struct Flush {
    /// Wait until they are committed, too, or cannot be any more; with several replicas nobody waits here.
    pub committed: bool,
    pub done: oneshot::Sender<()>,
}

/// An append that was admitted.
pub(super) struct Queued {
    pub payload: Payload,
    pub producer: Option<Producer>,
    pub republish: bool,
    pub ack: AckLevel,
    pub reply: AppendReply,
}
impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queued")
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// Why the task ends, and who waits for it.
type Shutdown = (EndReason, Option<oneshot::Sender<()>>);

pub(super) struct Task {
    pub(super) partition: Partition,
    pub(super) writer: Writer,
    pub(super) directory: PathBuf,
    pub(super) id_file: MessageIdFile,
    inbox: mpsc::UnboundedReceiver<Message>,
    messages: Vec<Message>,
    cleaner: Interval,
    /// Set while something may have to be noted: a partition at rest has no timer but the cleaner's.
    checkpoint: Option<Pin<Box<Sleep>>>,
    /// High watermark and log start of the last checkpoint.
    checkpointed: (u64, u64),
    /// While it has a role among several replicas.
    tick: Option<Interval>,
}

/// Starts the task.
pub(super) fn spawn(
    partition: Partition,
    log: Log,
    spec: PartitionSpec,
    ids: Ids,
    directory: &Path,
    inbox: mpsc::UnboundedReceiver<Message>,
) {
    let task = Box::new(Task {
        directory: directory.to_owned(),
        id_file: MessageIdFile::new(directory, &spec),
        cleaner: every(spec.cleaner_interval()),
        // What recovery found.
        checkpoint: Some(Box::pin(sleep(CHECKPOINT_INTERVAL))),
        checkpointed: (0, 0),
        tick: None,
        writer: Writer::new(partition.clone(), log, spec, ids),
        partition,
        inbox,
        // Grows with the load: at its full size it would be most of what an idle partition takes.
        messages: Vec::new(),
    });
    tokio::spawn(task.live());
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// When the timer, if there is one, has run out.
async fn passed(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

/// When the interval, if there is one, has a tick.
async fn ticked(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

impl Task {
    async fn live(mut self: Box<Self>) {
        self.trim().await;
        let shutdown = match AssertUnwindSafe(self.work()).catch_unwind().await {
            Ok(shutdown) => shutdown,
            Err(_) => self.poisoned().await,
        };
        let (reason, closed) = shutdown;
        self.end(reason).await;
        if let Some(closed) = closed {
            // Whoever asked may have gone.
            let _ = closed.send(());
        }
    }

    /// Until the shutdown. The branches are polled in random order, so that a queue that is never empty holds up neither
    /// retention nor the checkpoint.
    async fn work(&mut self) -> Shutdown {
        loop {
            tokio::select! {
                count = self.inbox.recv_many(&mut self.messages, GROUP) => {
                    if count == 0 {
                        return (EndReason::Closed, None);
                    }
                    self.look_again(count).await;
                    self.turns().pass();
                    let shutdown = self.handle().await;
                    self.turns().pass();
                    if let Some(shutdown) = shutdown {
                        return shutdown;
                    }
                    self.expect_checkpoint();
                }
                _ = self.cleaner.tick() => {
                    self.turns().pass();
                    self.maintain().await;
                    self.turns().pass();
                    self.expect_checkpoint();
                }
                () = ticked(&mut self.tick) => {
                    self.turns().pass();
                    self.writer.tick();
                    self.turns().pass();
                }
                () = passed(&mut self.checkpoint) => {
                    self.checkpoint = None;
                    self.turns().pass();
                    self.write_checkpoint();
                    self.save_ids_when_due().await;
                    self.turns().pass();
                }
            }
        }
    }

    /// Those of this task: a turn that does not end shows that it hangs.
    fn turns(&self) -> &Turns {
        &self.partition.0.read_role.turns
    }

    /// Something may have changed: the checkpoint is checked within its interval.
    fn expect_checkpoint(&mut self) {
        self.checkpoint
            .get_or_insert_with(|| Box::pin(sleep(CHECKPOINT_INTERVAL)));
    }

    /// While a sync runs nothing is gained by being first: lets the other tasks of this thread queue theirs, so that
    /// many single records become one batch.
    async fn look_again(&mut self, count: usize) {
        if count > FEW || self.partition.0.outstanding.load(Ordering::Acquire) == 0 {
            return;
        }
        tokio::task::yield_now().await;
        while self.messages.len() < GROUP {
            match self.inbox.try_recv() {
                Ok(message) => self.messages.push(message),
                Err(_) => break,
            }
        }
    }

    /// Handles what was taken; messages behind the end are dropped, and answer for themselves.
    async fn handle(&mut self) -> Option<Shutdown> {
        let mut messages = std::mem::take(&mut self.messages);
        let mut shutdown = None;
        self.writer.begin_group();
        let now = Instant::now().into_std();
        for message in messages.drain(..) {
            match message {
                Message::Append(queued) => {
                    let statistics = &self.partition.0.context.statistics;
                    statistics.queue_wait.record(queued.reply.waited(now));
                    self.writer.take(*queued);
                }
                Message::Lead(epoch) => {
                    self.writer.finish_group();
                    self.writer.epoch = Some(epoch);
                    self.writer.expect_reports(epoch, now);
                }
                Message::Role(role) => {
                    self.writer.finish_group();
                    let (own, spec, ticket) = *role;
                    self.writer.set_role(own, &spec);
                    drop(ticket);
                    self.writer.begin_group();
                    let has_role = !matches!(self.writer.role, Role::Idle);
                    let tick = || every(Duration::from_millis(TICK_MS));
                    self.tick = has_role.then(|| self.tick.take().unwrap_or_else(tick));
                }
                Message::Replica(message) => self.writer.take_replica_message(*message),
                Message::Durable(outcome) => self.writer.take_durable(outcome),
                Message::Configure(spec) => {
                    self.writer.finish_group();
                    self.cleaner = every(spec.cleaner_interval());
                    self.configure(*spec).await;
                }
                Message::Flush(flush) => self.writer.flush(flush),
                Message::Link(request) => {
                    let done = self.writer.link(*request);
                    self.check(done);
                    // What follows is not older than what was linked.
                    self.writer.begin_group();
                }
                Message::Close(reason, closed) => {
                    shutdown = Some((reason, Some(closed)));
                    break;
                }
            }
        }
        self.writer.finish_group();
        self.messages = messages;
        shutdown
    }

    async fn configure(&mut self, spec: PartitionSpec) {
        let before = std::mem::replace(&mut self.writer.spec.nats_acks, spec.nats_acks);
        let begins = before == NatsAcks::Off && spec.nats_acks == NatsAcks::Jetstream;
        self.writer.configure(spec);
        if begins {
            self.load_ids().await;
        }
        self.trim().await;
        // What waited meanwhile is taken from now on.
        self.writer.begin_group();
    }

    /// Hides what was trimmed on request.
    async fn trim(&mut self) {
        if !self.writer.may_remove() {
            return;
        }
        if self.partition.0.reader.log_start() < self.writer.spec.trimmed_to {
            self.save_ids().await;
        }
        let done = maintenance::trim(&mut self.writer);
        self.check(done);
    }

    /// Retention and compaction. The log does on threads of its own what waits for the disk.
    async fn maintain(&mut self) {
        if self.may_remove_known_ids() {
            self.save_ids().await;
        }
        let done = maintenance::maintain(&self.partition, &mut self.writer);
        self.check(done);
    }

    /// Writes what is new, until all that was appended is committed and noted.
    fn write_checkpoint(&mut self) {
        self.id_file.appended += std::mem::take(&mut self.writer.appended_bytes);
        let reader = &self.partition.0.reader;
        let ends = (reader.high_watermark(), reader.log_start());
        let (is_new, commits) = (ends != self.checkpointed, ends.0 < reader.log_end());
        let notes = is_new || self.writer.log.has_more_to_snapshot();
        if notes {
            self.checkpointed = ends;
            let done = self.writer.log.checkpoint();
            self.check(done);
        }
        if (notes || commits) && self.partition.failure().is_none() {
            self.expect_checkpoint();
        }
    }

    /// Appends report a lack of space or descriptors; every other error ends writing.
    fn check(&self, done: Result<(), Error>) {
        match done {
            Ok(()) => {}
            Err(error) if error.is_transient() => {}
            Err(error) => self.partition.fail(&error.to_string()),
        }
    }

    /// After a panic: rejects writes until the shutdown.
    async fn poisoned(&mut self) -> Shutdown {
        self.partition
            .fail("its task failed; restart the broker to recover it");
        self.writer.abandon();
        self.messages.clear();
        while let Some(message) = self.inbox.recv().await {
            match message {
                Message::Append(queued) => self.writer.take(*queued),
                Message::Close(reason, closed) => return (reason, Some(closed)),
                Message::Lead(_)
                | Message::Role(_)
                | Message::Replica(_)
                | Message::Durable(_)
                | Message::Configure(_)
                | Message::Flush(_)
                | Message::Link(_) => {}
            }
        }
        (EndReason::Closed, None)
    }

    async fn end(mut self: Box<Self>, reason: EndReason) {
        self.settled().await;
        self.writer.leave_role();
        if reason != EndReason::Deleted {
            self.save_ids().await;
        }
        self.partition.ended(reason);
        self.inbox.close();
        // Dropped messages answer for themselves.
        while self.inbox.try_recv().is_ok() {}
        let log = self.writer.log;
        let closed = tokio::task::spawn_blocking(move || match reason {
            EndReason::Deleted => log.delete(),
            _ => log.close(),
        });
        let failure = match closed.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.partition.report(
            PartitionChange::Failed,
            &format!("it did not close cleanly: {failure}"),
        );
    }

    /// Waits until every commit asked for was settled: callbacks of one log run in the order of their requests.
    pub(super) async fn settled(&mut self) {
        let (done, settled) = oneshot::channel();
        self.writer.log.commit(Box::new(move |outcome| {
            // The receiver waits below.
            let _ = done.send(outcome.is_ok());
        }));
        // Every append has already received the failure.
        let _ = settled.await;
    }
}
