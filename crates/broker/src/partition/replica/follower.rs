//! A follower of a partition with several replicas.
use super::links::{Links, epoch_end, position};
use super::messages::{AnswerMessage, SlotState};
use super::table::ReplicaReport;
use super::{LEASE, Site, now};
use crate::clock::cautious_now_ns;
use crate::events::PartitionChange;
use bascule_log::Error;
use bascule_record::{Batches, Header};
use bascule_replica::follower::{Action, Actions, Answer, Batch, Event, Follower, Own};
use bascule_replica::leader::Outcome;
use bascule_replica::types::{Boundary, BrokerId, Config, Instant64};
use bytes::Bytes;

/// After an append that found no space or descriptor.
const FULL_PAUSE_MS: u64 = 1_000;

/// Follows one leader in one leader epoch.
#[derive(Debug)]
pub(in crate::partition) struct FollowerRole {
    machine: Follower,
    leader: u64,
    links: Links,
    durable: u64,
    /// Number of the last fetch; one more for each.
    attempt: u64,
    /// A fetch is due, and is not sent before this.
    held_until: Option<Instant64>,
}

impl FollowerRole {
    /// Begins to compare its log with the leader's. `config` has a leader. `attempt`: a number that no earlier fetch had.
    pub fn begin(id: u64, config: Config, attempt: u64, site: &mut Site<'_>) -> Self {
        let leader = config.leader.map_or(0, |leader| leader.0);
        let high_watermark = site.log.reader().high_watermark();
        let machine = Follower::new(BrokerId(id), config, high_watermark, false, LEASE);
        let mut role = Self {
            machine,
            leader,
            links: Links::default(),
            durable: 0,
            attempt,
            held_until: None,
        };
        role.step(Event::Tick, site);
        role
    }

    /// The leader epoch.
    pub fn epoch(&self) -> u64 {
        self.machine.leader_epoch()
    }

    /// Number of the leader's broker.
    pub fn leader(&self) -> u64 {
        self.leader
    }

    /// Number of the last fetch.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// An entry concerns the partition, and its leader is the same.
    pub fn role(&mut self, config: Config, site: &mut Site<'_>) {
        self.step(Event::Role(config), site);
    }

    /// Everything below `end` is synced.
    pub fn durable(&mut self, end: u64, site: &mut Site<'_>) {
        self.durable = self.durable.max(end).min(site.log.reader().log_end());
        self.step(Event::Durable, site);
    }

    /// Time has passed.
    pub fn tick(&mut self, site: &mut Site<'_>) {
        if self.held_until.is_some_and(|until| now() >= until) {
            self.held_until = None;
            self.send_fetch(site);
        }
        self.step(Event::Tick, site);
    }

    /// The connection to the leader ended.
    pub fn disconnected(&mut self, site: &mut Site<'_>) {
        self.step(Event::Disconnected, site);
    }

    /// An answer of the leader.
    pub fn answered(&mut self, message: AnswerMessage, site: &mut Site<'_>) {
        if message.attempt != self.attempt || message.from != self.leader {
            return;
        }
        let (batches, ends) = headers(&message.batches);
        let own = own(&message.outcome, site);
        let known = batches.clone();
        let answer = Answer {
            leader_epoch: message.leader_epoch,
            attempt: self.machine.attempt(),
            outcome: message.outcome,
            batches,
        };
        let event = Event::Answered(answer, own);
        let actions = self.machine.step(event, now());
        let received = Received {
            bytes: message.batches,
            batches: known,
            ends,
        };
        self.perform(actions, &received, site);
    }

    fn step(&mut self, event: Event, site: &mut Site<'_>) {
        let actions = self.machine.step(event, now());
        self.perform(actions, &Received::default(), site);
    }

    fn perform(&mut self, actions: Actions, received: &Received, site: &mut Site<'_>) {
        let incarnation = site.partition.identity().incarnation;
        let Some(to) = site.partition.to_brokers().cloned() else {
            return;
        };
        let leader_epoch = self.epoch();
        for action in actions {
            match action {
                Action::Fetch { .. } => {
                    self.attempt += 1;
                    self.send_fetch(site);
                }
                Action::Progress => self.send_fetch(site),
                Action::Append { batches } => self.append(received, batches, site),
                Action::RaiseHighWatermark(end) => {
                    let end = end.min(site.log.reader().log_end());
                    site.partition.raise_high_watermark(end);
                }
                Action::FollowStart(start) => {
                    if start > site.log.reader().log_start()
                        && let Err(error) = site.log.follow(start, cautious_now_ns())
                        && !error.is_transient()
                    {
                        site.partition.fail(&error.to_string());
                    }
                }
                Action::Truncate { to: end, keep } => {
                    let replicas = &site.partition.context().replicas;
                    replicas.truncate(site.partition, end, leader_epoch, keep);
                }
                Action::Reset { .. } | Action::Skip { .. } => Self::give_up(&action, site),
                Action::ReportLeader { high_watermark, .. } => {
                    let own = position(site.log);
                    let report = ReplicaReport::Leader {
                        leader_epoch,
                        last_epoch: own.epoch,
                        end: own.end,
                        high_watermark,
                    };
                    to.report(incarnation, report);
                }
                Action::ReportSelfUnclean => {
                    to.report(incarnation, ReplicaReport::OwnUnclean { leader_epoch });
                }
                Action::Disconnect => to.disconnect(self.leader),
            }
        }
    }

    /// Appends the first `count` batches.
    fn append(&mut self, received: &Received, count: usize, site: &mut Site<'_>) {
        let before = site.log.reader().log_end();
        let last = count
            .checked_sub(1)
            .and_then(|last| received.ends.get(last));
        let bytes = received.bytes.slice(..last.copied().unwrap_or_default());
        let appended = site.log.append_verbatim(bytes, cautious_now_ns());
        let end = site.log.reader().log_end();
        let batches = received.batches.iter().take(count);
        for batch in batches.filter(|batch| batch.end <= end) {
            self.links.add(batch.end, batch.link);
        }
        let records = end.saturating_sub(before);
        site.partition
            .context()
            .statistics
            .records_appended
            .add(records);
        if end > before {
            let partition = site.partition.clone();
            site.log
                .commit(Box::new(move |outcome| partition.send_durable(outcome)));
        }
        match appended {
            Ok(_) => {}
            Err(error) if error.is_transient() => {
                self.held_until = Some(now().plus(FULL_PAUSE_MS));
            }
            // What came is not what the leader has: it is asked for again.
            Err(
                Error::Batch { .. }
                | Error::NotNext { .. }
                | Error::Diverged { .. }
                | Error::StaleEpoch { .. }
                | Error::Foreign { .. },
            ) => {
                if let Some(to) = site.partition.to_brokers() {
                    to.disconnect(self.leader);
                }
            }
            Err(error) => site.partition.fail(&error.to_string()),
        }
    }

    fn send_fetch(&mut self, site: &Site<'_>) {
        if self.held_until.is_some() || site.partition.failure().is_some() {
            return;
        }
        let own = position(site.log);
        let durable_link = match self.links.boundary(site.log, self.durable) {
            Boundary::Link(link) => link,
            // Unknown: the leader does not count it.
            _ => 0,
        };
        let identity = site.partition.identity();
        let slot = SlotState {
            incarnation: identity.incarnation,
            partition: identity.number,
            leader_epoch: self.epoch(),
            end: own.end,
            last_epoch: own.epoch,
            link: own.link,
            durable: self.durable,
            durable_link,
            high_watermark: site.log.reader().high_watermark(),
            attempt: self.attempt,
        };
        if let Some(to) = site.partition.to_brokers() {
            to.fetch(self.leader, site.partition, slot);
        }
    }

    fn give_up(action: &Action, site: &Site<'_>) {
        let text = format!(
            "its log cannot become the leader's by what is available yet ({action:?}): this replica stays out of the ISR, and \
             the others serve the stream"
        );
        site.partition.report(PartitionChange::Failed, &text);
    }
}

/// Batches of an answer.
#[derive(Default)]
struct Received {
    bytes: Bytes,
    batches: Vec<Batch>,
    /// Where each of them ends in `bytes`.
    ends: Vec<usize>,
}

/// The headers of whole batches, and where each ends; up to the first that cannot be read. The log verifies payloads before it
/// takes them.
fn headers(bytes: &Bytes) -> (Vec<Batch>, Vec<usize>) {
    let (mut batches, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
    for batch in Batches::new(bytes.clone()) {
        let Ok(batch) = batch else { break };
        let Ok(header) = Header::read(&batch) else {
            break;
        };
        end += batch.len();
        ends.push(end);
        batches.push(Batch {
            base: header.base_offset,
            end: header.next_offset(),
            epoch: header.leader_epoch,
            chain: header.chain,
            link: header.link(),
        });
    }
    (batches, ends)
}

/// What the follower's log holds, as far as the answer is about it.
fn own(outcome: &Outcome, site: &Site<'_>) -> Own {
    let position = position(site.log);
    let epoch_end = match outcome {
        Outcome::Diverged { epoch, .. } => epoch_end(site.log, *epoch),
        _ => None,
    };
    let last_batch = match outcome {
        Outcome::StepBack => last_batch(site, position.end),
        _ => position.end,
    };
    Own {
        position,
        last_batch,
        epoch_end,
    }
}

/// Base offset of the last batch; the log end if there is none, or it cannot be read.
fn last_batch(site: &Site<'_>, end: u64) -> u64 {
    let Some(last) = end.checked_sub(1) else {
        return end;
    };
    let base = site.log.check_truncation(last, true);
    match base {
        Ok(()) => last,
        Err(Error::NotABoundary { last, .. }) => last,
        Err(_) => end,
    }
}
