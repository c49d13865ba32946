//! A follower of a partition with several replicas.
use super::links::{Links, epoch_end, position};
use super::messages::{AnswerMessage, SlotState};
use super::received::Received;
use super::table::{ReplicaReport, WantedLog};
use super::{Site, lease, now};
use crate::clock::cautious_now_ns;
use crate::events::PartitionChange;
use bascule_log::{Error, Start};
use bascule_replica::follower::{Action, Actions, Answer, Event, Follower, Own};
use bascule_replica::leader::Outcome;
use bascule_replica::types::{Boundary, BrokerId, Config, Instant64};

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

/// What a follower has to know of the role before it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::partition) struct Before {
    /// Number of the last fetch: those of the follower come after it.
    pub attempt: u64,
    /// The high watermark was learned from a leader in this run, or moved as the leader.
    pub has_learned: bool,
}

impl FollowerRole {
    /// Begins to compare its log with the leader's. `config` has a leader.
    pub fn begin(id: u64, config: Config, before: Before, site: &mut Site<'_>) -> Self {
        let leader = config.leader.map_or(0, |leader| leader.0);
        let high_watermark = site.log.reader().high_watermark();
        let (id, learned) = (BrokerId(id), before.has_learned);
        let machine = Follower::new(id, config, high_watermark, learned, lease(site));
        let mut role = Self {
            machine,
            leader,
            links: Links::default(),
            durable: 0,
            attempt: before.attempt,
            held_until: None,
        };
        role.step(Event::Tick, site);
        role
    }

    /// The leader epoch.
    pub fn epoch(&self) -> u64 {
        self.machine.leader_epoch()
    }

    /// End (exclusive) of what every replica has durably; 0 = not known.
    pub fn replicated_to(&self) -> u64 {
        self.machine.replicated_to()
    }

    /// Number of the leader's broker.
    pub fn leader(&self) -> u64 {
        self.leader
    }

    /// What the role after this one has to know.
    pub fn before(&self) -> Before {
        Before {
            attempt: self.attempt,
            has_learned: self.machine.has_learned(),
        }
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
        let received = match message.outcome {
            Outcome::Reset { start } => {
                let read = Start::read(&message.body, site.log_id());
                Received::reset(read.filter(|read| read.offset == start))
            }
            _ => Received::new(message.body),
        };
        let own = own(&message.outcome, site);
        let answer = Answer {
            leader_epoch: message.leader_epoch,
            attempt: self.machine.attempt(),
            outcome: message.outcome,
            batches: received.batches.clone(),
        };
        self.step_with(Event::Answered(answer, own), &received, site);
    }

    fn step(&mut self, event: Event, site: &mut Site<'_>) {
        self.step_with(event, &Received::default(), site);
    }

    fn step_with(&mut self, event: Event, received: &Received, site: &mut Site<'_>) {
        let now = now();
        let mut actions = self.machine.step(Event::Lease(lease(site)), now);
        actions.extend(self.machine.step(event, now));
        self.perform(actions, received, site);
        site.partition.reads_until(self.machine.reads_until());
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
                    let wanted = WantedLog::Truncated {
                        to: end,
                        keeps: keep,
                    };
                    change_log(site, leader_epoch, wanted);
                }
                Action::Reset { keep: false, .. } => match &received.start {
                    Some(start) => change_log(site, leader_epoch, WantedLog::Begun(start.clone())),
                    None => to.disconnect(self.leader),
                },
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
        let bytes = received.first(count);
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
            Ok(_) => site.partition.context().disk_full.stored(),
            Err(error) if error.is_transient() => {
                if matches!(error, Error::Full { .. }) {
                    site.partition.context().disk_full.refused();
                }
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

fn change_log(site: &Site<'_>, leader_epoch: u64, wanted: WantedLog) {
    let replicas = &site.partition.context().replicas;
    replicas.change_log(site.partition, leader_epoch, wanted);
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
