//! Publishes copies of direct publishes after commit, best effort, for subscribers of the subject.
//!
//! A committer only queues; one task does the rest. The broker's own listeners are fed without NATS, since the *ingest*
//! connection has no echo; NATS gets a copy only while somebody else listens ([`crate::republish::interest`]), which it is asked with
//! the first copy of a wave. Copies of one partition go out in offset order. A copy never gets a copy.
use super::context::RepublishContext;
use super::interest::Step;
use super::job::RepublishJob;
use super::marks::probe::parse_probe;
use super::queue::{Copies, RepublishQueue};
use crate::nats::connections::Role;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Jobs taken at once.
const WAVE: usize = 256;
/// How long new copies may wait while nobody is known to listen: every look at them wakes this task's thread, and under
/// load that costs more than all the rest.
const REST: Duration = Duration::from_millis(5);
/// When nothing is planned.
const IDLE: Duration = Duration::from_hours(1);

/// Sends copies until the session closes, then those that are still queued.
pub(crate) async fn run(
    context: RepublishContext,
    mut jobs: mpsc::UnboundedReceiver<RepublishJob>,
    mut nobody: mpsc::Receiver<Bytes>,
    mut closing: watch::Receiver<bool>,
) {
    let mut republisher = Republisher {
        context,
        version: 0,
        queues: HashMap::new(),
        timers: BinaryHeap::new(),
    };
    let mut wave = Vec::with_capacity(WAVE);
    let mut rest: Option<Instant> = None;
    loop {
        let next = republisher
            .timers
            .peek()
            .map_or_else(|| Instant::now() + IDLE, |Reverse((at, _))| *at);
        tokio::select! {
            biased;
            Some(answer) = nobody.recv() => republisher.on_nobody(&answer).await,
            taken = jobs.recv_many(&mut wave, WAVE), if rest.is_none() => {
                if taken == 0 {
                    return republisher.finish().await;
                }
                let has_no_subscriber = republisher.take(&mut wave).await;
                rest = (has_no_subscriber && !jobs.is_closed()).then(|| Instant::now() + REST);
            }
            () = tokio::time::sleep_until(rest.unwrap_or(next).into()), if rest.is_some() => {
                rest = None;
            }
            () = tokio::time::sleep_until(next.into()) => republisher.on_time().await,
            _ = closing.changed() => {
                jobs.close();
                rest = None;
            }
        }
    }
}

struct Republisher {
    context: RepublishContext,
    /// Of the router, when the queues' local listeners were looked up.
    version: u64,
    /// By incarnation.
    queues: HashMap<u64, RepublishQueue>,
    /// When to look at a queue again: what `RepublishQueue::planned` says, and entries that are out of date.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Republisher {
    /// Takes a wave in; true when all of it waits because nobody is known to listen.
    async fn take(&mut self, wave: &mut Vec<RepublishJob>) -> bool {
        self.notice_changes();
        let mut touched = Vec::new();
        for job in wave.drain(..) {
            let incarnation = job.partition.identity().incarnation;
            let queue = self
                .queues
                .entry(incarnation)
                .or_insert_with(|| RepublishQueue::new(&job.partition, &self.context));
            queue.feed_local(&self.context, &job).await;
            queue.waiting.push_back(Copies { job, start: 0 });
            if touched.last() != Some(&incarnation) {
                touched.push(incarnation);
            }
        }
        let mut has_no_subscriber = true;
        for incarnation in touched {
            self.advance(incarnation).await;
            has_no_subscriber &= self
                .queues
                .get(&incarnation)
                .is_some_and(RepublishQueue::has_no_subscriber);
        }
        has_no_subscriber
    }

    /// Forgets what changed since partitions started or stopped listening.
    fn notice_changes(&mut self) {
        let version = self.context.router.version();
        if self.version != version {
            self.version = version;
            self.queues
                .retain(|_, queue| queue.partition.is_leading() || queue.left() > 0);
            self.queues
                .values_mut()
                .for_each(|queue| queue.listeners = None);
        }
    }

    async fn on_nobody(&mut self, answer: &[u8]) {
        let Some((incarnation, token)) = parse_probe(answer) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(&incarnation) {
            queue.on_nobody(&self.context, token);
            self.advance(incarnation).await;
        }
    }

    async fn on_time(&mut self) {
        while let Some(Reverse((at, incarnation))) = self.timers.peek().copied() {
            if at > Instant::now() {
                return;
            }
            self.timers.pop();
            if let Some(queue) = self
                .queues
                .get_mut(&incarnation)
                .filter(|queue| queue.planned == Some(at))
            {
                queue.planned = None;
                self.advance(incarnation).await;
            }
        }
    }

    /// Does what there is to do for one partition, and plans when to look again.
    async fn advance(&mut self, incarnation: u64) {
        let Some(queue) = self.queues.get_mut(&incarnation) else {
            return;
        };
        let Some(client) = self.context.ingest.connections.client(Role::Ingest) else {
            return queue.drop_all(&self.context);
        };
        let mut step = queue.step(Instant::now());
        if let Some(Step::Probe(token)) = step {
            queue.publish_probe(&self.context, client, token).await;
            // It is under way: this says how long to be patient.
            step = queue.step(Instant::now());
        }
        queue.partition.set_subscribed(queue.is_subscribed());
        match step {
            Some(Step::Publish(token)) => queue.publish_all(&self.context, client, token).await,
            Some(Step::Wait(until)) if queue.planned != Some(until) => {
                queue.planned = Some(until);
                self.timers.push(Reverse((until, incarnation)));
            }
            _ => {}
        }
    }

    /// Sends what waits for an answer without waiting for it.
    async fn finish(mut self) {
        for queue in self.queues.values_mut() {
            match self.context.ingest.connections.client(Role::Ingest) {
                Some(client) => queue.publish_all(&self.context, client, None).await,
                None => queue.drop_all(&self.context),
            }
        }
    }
}
