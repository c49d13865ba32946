//! Copies of direct publishes, after commit: best effort, to whoever listens on the subject.
//!
//! A committer only queues; one task does the rest. The broker's own listeners are fed without NATS, since the *ingest*
//! connection has no echo; NATS gets a copy only while somebody else listens ([`crate::republish::interest`]), which it is asked with
//! the first copy of a wave. Copies of one partition go out in offset order. A copy never gets a copy.
use crate::ingest::nats::router::Router;
use crate::nats::session::Session;
use crate::republish::interest::Step;
use crate::republish::job::RepublishJob;
use crate::republish::marks::seal::random_name;
use crate::republish::queue::{Copies, RepublishQueue};
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Jobs taken at once.
const WAVE: usize = 256;
/// How long new copies may wait while nobody is known to listen: every look at them wakes this task's thread, and under
/// load that costs more than all the rest.
const REST: Duration = Duration::from_millis(5);
/// When nothing is planned.
const IDLE: Duration = Duration::from_hours(1);

/// Sends copies until the session closes, then those that are still queued.
pub(crate) async fn run(
    session: Arc<Session>,
    router: Arc<Router>,
    mut jobs: mpsc::UnboundedReceiver<RepublishJob>,
    mut nobody: mpsc::Receiver<Bytes>,
) {
    let mut closing = session.closing();
    let mut republisher = Republisher {
        session,
        router,
        version: 0,
        channels: HashMap::new(),
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
                let is_unheard = republisher.take(&mut wave).await;
                rest = (is_unheard && !jobs.is_closed()).then(|| Instant::now() + REST);
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
    session: Arc<Session>,
    router: Arc<Router>,
    /// Of the router, when the channels' local listeners were looked up.
    version: u64,
    /// By incarnation.
    channels: HashMap<u64, RepublishQueue>,
    /// When to look at a channel again: what `RepublishQueue::planned` says, and entries that are out of date.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Republisher {
    /// Takes a wave in; true when all of it waits because nobody is known to listen.
    async fn take(&mut self, wave: &mut Vec<RepublishJob>) -> bool {
        self.notice_changes();
        let mut touched = Vec::new();
        for job in wave.drain(..) {
            let incarnation = job.partition.identity().incarnation;
            let channel = self
                .channels
                .entry(incarnation)
                .or_insert_with(|| RepublishQueue::new(&job.partition, &self.session));
            channel.feed_local(&self.session, &self.router, &job).await;
            channel.waiting.push_back(Copies { job, start: 0 });
            if touched.last() != Some(&incarnation) {
                touched.push(incarnation);
            }
        }
        let mut is_unheard = true;
        for incarnation in touched {
            self.advance(incarnation).await;
            is_unheard &= self
                .channels
                .get(&incarnation)
                .is_some_and(RepublishQueue::is_unheard);
        }
        is_unheard
    }

    /// Forgets what changed since partitions started or stopped listening.
    fn notice_changes(&mut self) {
        let version = self.router.version();
        if self.version != version {
            self.version = version;
            self.channels
                .retain(|_, channel| channel.partition.is_leading() || channel.left() > 0);
            self.channels
                .values_mut()
                .for_each(|channel| channel.listeners = None);
        }
    }

    async fn on_nobody(&mut self, answer: &[u8]) {
        let Some((incarnation, token)) = parse_probe(answer) else {
            return;
        };
        if let Some(channel) = self.channels.get_mut(&incarnation) {
            channel.on_nobody(&self.session, token);
            self.advance(incarnation).await;
        }
    }

    async fn on_time(&mut self) {
        while let Some(Reverse((at, incarnation))) = self.timers.peek().copied() {
            if at > Instant::now() {
                return;
            }
            self.timers.pop();
            if let Some(channel) = self
                .channels
                .get_mut(&incarnation)
                .filter(|channel| channel.planned == Some(at))
            {
                channel.planned = None;
                self.advance(incarnation).await;
            }
        }
    }

    /// Does what there is to do for one partition, and plans when to look again.
    async fn advance(&mut self, incarnation: u64) {
        let Some(channel) = self.channels.get_mut(&incarnation) else {
            return;
        };
        let Some(client) = self.session.ingest.client() else {
            return channel.drop_all(&self.session);
        };
        let mut step = channel.step(Instant::now());
        if let Some(Step::Probe(token)) = step {
            channel.publish_probe(&self.session, client, token).await;
            // It is under way: this says how long to be patient.
            step = channel.step(Instant::now());
        }
        channel.partition.set_heard(channel.is_heard());
        match step {
            Some(Step::Publish(token)) => channel.publish_all(&self.session, client, token).await,
            Some(Step::Wait(until)) if channel.planned != Some(until) => {
                channel.planned = Some(until);
                self.timers.push(Reverse((until, incarnation)));
            }
            _ => {}
        }
    }

    /// Sends what waits for an answer without waiting for it.
    async fn finish(mut self) {
        for channel in self.channels.values_mut() {
            match self.session.ingest.client() {
                Some(client) => channel.publish_all(&self.session, client, None).await,
                None => channel.drop_all(&self.session),
            }
        }
    }
}

/// Begins the reply subjects of probes.
const PROBES: &str = "_INBOX.bascule.";

/// A prefix for the reply subjects of one session's probes.
///
/// # Errors
/// When the system gives no random bytes.
pub(crate) fn probe_inbox() -> io::Result<String> {
    Ok(format!("{PROBES}{}", random_name()?))
}

/// Whether a reply subject is that of a probe of any broker.
pub(crate) fn is_probe(reply: &[u8]) -> bool {
    reply.starts_with(PROBES.as_bytes())
}

/// Last part of a probe's reply subject.
pub(crate) fn probe_name(incarnation: u64, token: u64) -> String {
    format!("{incarnation}-{token}")
}

/// Incarnation and token of the probe whose reply subject this is.
fn parse_probe(subject: &[u8]) -> Option<(u64, u64)> {
    let (_, name) = std::str::from_utf8(subject).ok()?.rsplit_once('.')?;
    let (incarnation, token) = name.split_once('-')?;
    Some((incarnation.parse().ok()?, token.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_known_by_its_reply_subject() {
        let subject = format!("_INBOX.abc.{}", probe_name(u64::MAX, 7));
        assert_eq!(parse_probe(subject.as_bytes()), Some((u64::MAX, 7)));
        for bad in [
            "",
            "7-7",
            "_INBOX.abc",
            "_INBOX.abc.7",
            "_INBOX.abc.7-",
            "_INBOX.abc.-7",
            "_INBOX.abc.7-x",
        ] {
            assert_eq!(parse_probe(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
