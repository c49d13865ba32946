//! The leader of a partition with several replicas.
use super::links::start_of;
use super::links::{Links, epoch_end, position};
use super::messages::{FetchMessage, ReplyBody, TakeOverMessage};
use super::table::ReplicaReport;
use super::take_over::TakingOver;
use super::{Site, lease, now};
use crate::clock::now_ns;
use crate::partition::commit::InFlight;
use crate::partition::observer::CommittedAppend;
use crate::partition::{AckLevel, AppendError};
use bascule_replica::leader::{
    AckPolicy, Action, Actions, Ends, Event, Found, Health, Leader, Outcome, Phase, Refusal, Stored,
};
use bascule_replica::types::{Boundary, BrokerId, Config, Instant64, Position};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// A fetch that waits for records is answered after so long, though there are none; with a tick, within half a second.
const WAIT_MS: u64 = 300;

/// Leads one partition in one leader epoch.
#[derive(Debug)]
pub(in crate::partition) struct LeaderRole {
    machine: Leader,
    /// `None` once the epoch has begun.
    taking_over: Option<TakingOver>,
    links: Links,
    /// Appends by ticket, ascending, until they are answered and republished.
    appends: VecDeque<(u64, InFlight)>,
    last_ticket: u64,
    /// Log end that the step function knows.
    end: u64,
    /// Fetches that wait for records, by follower, and since when.
    fetches: BTreeMap<BrokerId, (Instant64, FetchMessage)>,
}

impl LeaderRole {
    /// Begins to take over: whatever is in the log stays.
    pub fn begin(id: u64, config: Config, site: &mut Site<'_>) -> Self {
        let taking_over = TakingOver::begin(BrokerId(id), &config, site);
        let reader = site.log.reader();
        let ends = Ends {
            log: reader.log_end(),
            // Known when the commit that begins the role has ended.
            durable: 0,
            high_watermark: reader.high_watermark(),
            stored: stored(site),
        };
        let mut role = Self {
            machine: Leader::new(BrokerId(id), config, ends, lease(site), now()),
            taking_over: Some(taking_over),
            links: Links::default(),
            appends: VecDeque::new(),
            last_ticket: 0,
            end: ends.log,
            fetches: BTreeMap::new(),
        };
        role.open_when_over(site);
        role
    }

    /// What came back to the take-over; late answers change nothing.
    pub fn take_over(&mut self, message: TakeOverMessage, site: &mut Site<'_>) {
        if let Some(taking_over) = &mut self.taking_over {
            taking_over.take(message, site);
            self.open_when_over(site);
        }
    }

    /// Begins the epoch at the log end, once the take-over has ended.
    fn open_when_over(&mut self, site: &Site<'_>) {
        if self
            .taking_over
            .take_if(|taking_over| taking_over.is_over())
            .is_some()
        {
            let Position { end, link, .. } = position(site.log);
            self.end = end;
            self.links.add(end, link);
            self.step(Event::Opened { epoch_start: end }, site);
        }
    }

    /// Whether the epoch has begun: records may be appended, under the lease.
    pub fn has_begun(&self) -> bool {
        self.taking_over.is_none()
    }

    /// First offset of the epoch, once that has begun.
    pub fn epoch_start(&self) -> u64 {
        self.machine.epoch_start()
    }

    /// The leader epoch.
    pub fn epoch(&self) -> u64 {
        self.machine.config().leader_epoch
    }

    /// End (exclusive) of what every replica has durably; 0 = not known.
    pub fn replicated_to(&self) -> u64 {
        self.machine.replicated_to()
    }

    /// Takes an event that is not a fetch.
    pub fn step(&mut self, event: Event, site: &Site<'_>) {
        self.step_with(event, None, site);
    }

    fn step_with(&mut self, event: Event, fetch: Option<FetchMessage>, site: &Site<'_>) {
        let (now, gate) = (now(), site.partition.gate());
        let mut actions = Actions::new();
        // First of all: another broker may lead by now.
        if let Some(partition_epoch) = gate.stopped_at(self.epoch()) {
            actions.extend(self.machine.step(Event::Halted { partition_epoch }, now));
        }
        actions.extend(self.machine.step(Event::Lease(lease(site)), now));
        actions.extend(self.machine.step(event, now));
        if self.works() {
            gate.resume(self.epoch(), self.machine.config().partition_epoch);
        }
        self.perform(actions, fetch, site);
        self.release(site);
    }

    fn works(&self) -> bool {
        matches!(self.machine.phase(), Phase::Serving | Phase::Suspended)
    }

    /// Whether an append may be taken.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&self, ack: AckLevel) -> Result<(), AppendError> {
        let config = self.machine.config();
        self.machine
            .admit(policy(ack), now())
            .map_err(|refusal| match refusal {
                Refusal::NotLeader | Refusal::Suspended => AppendError::NotLeader,
                Refusal::NotEnoughReplicas => AppendError::TooFewReplicas {
                    in_sync: config.isr.len() as u32,
                    required: config.min_isr as u32,
                },
            })
    }

    /// Notifies followers of batches that were appended since the last call. Returns whether there are any.
    pub fn appended(&mut self, site: &Site<'_>) -> bool {
        let Position { end, link, .. } = position(site.log);
        let is_new = end > self.end;
        if is_new {
            self.end = end;
            self.links.add(end, link);
            self.step(Event::Appended { end }, site);
        }
        is_new
    }

    /// Appends are in the log and wait for their answers.
    pub fn wait(&mut self, group: Vec<InFlight>, site: &Site<'_>) {
        for append in group {
            self.last_ticket += 1;
            let ticket = self.last_ticket;
            let (end, policy) = (append.rests_on(), policy(append.ack));
            self.appends.push_back((ticket, append));
            self.step(
                Event::Wait {
                    ticket,
                    end,
                    policy,
                },
                site,
            );
        }
    }

    /// A follower reports, and asks for records.
    pub fn fetch(&mut self, message: FetchMessage, site: &Site<'_>) {
        let fetch = message.fetch.clone();
        let found = Found {
            at_end: self.links.boundary(site.log, fetch.position.end),
            at_durable: match fetch.durable {
                0 => Boundary::Link(0),
                durable => self.links.boundary(site.log, durable),
            },
            epoch_end: epoch_end(site.log, fetch.position.epoch),
            lost_range: None,
        };
        if let Some((_, waiting)) = self.fetches.get_mut(&fetch.from)
            && message.reply.is_none()
        {
            waiting.high_watermark = message.high_watermark;
        }
        self.step_with(Event::Fetch(fetch, found), Some(message), site);
    }

    /// The log has failed: what was appended is not durable here, and nobody knows whether it stays.
    pub fn fail(&mut self, reason: &str, health: Health, site: &Site<'_>) {
        for (_, append) in &mut self.appends {
            let failed = AppendError::Storage(reason.to_owned());
            append.reply.answer_first(Err(failed));
        }
        self.step(Event::Tick(health), site);
    }

    /// Time has passed.
    pub fn tick(&mut self, health: Health, site: &mut Site<'_>) {
        self.take_over(TakeOverMessage::Tick, site);
        self.step(Event::Stored(stored(site)), site);
        self.step(Event::Tick(health), site);
        let late = |since: Instant64| now().since(since) >= WAIT_MS;
        let late = self.fetches.extract_if(.., |_, (since, _)| late(*since));
        // They fetch again at once: that they are there keeps them in the ISR.
        for (from, (_, mut fetch)) in late.collect::<Vec<_>>() {
            let outcome = self.outcome_for(from, site);
            fetch.answer(self.epoch(), outcome, ReplyBody::Nothing);
        }
    }

    /// What a follower is answered whose history is a part of this log's.
    fn outcome_for(&self, follower: BrokerId, site: &Site<'_>) -> Outcome {
        Outcome::Ok {
            high_watermark: self.machine.high_watermark(),
            lease_ms: lease(site).since(now()),
            log_start: site.log.reader().log_start(),
            replicated_to: self.machine.replicated_to(),
            catching_up: !self.machine.config().isr.contains(&follower),
        }
    }

    fn perform(&mut self, actions: Actions, mut fetch: Option<FetchMessage>, site: &Site<'_>) {
        let incarnation = site.partition.identity().incarnation;
        let report = |report| {
            if let Some(to) = site.partition.to_brokers() {
                to.report(incarnation, report);
            }
        };
        let mut solo_ends = false;
        let mut has_stopped = false;
        for action in actions {
            match action {
                Action::Answer(_, outcome) => {
                    if let Some(fetch) = fetch.take() {
                        self.answer(fetch, outcome, site);
                    }
                }
                // Answered as busy: it asks again, and the role may be applied by then.
                Action::Park(..) => drop(fetch.take()),
                Action::Wake => self.answer_waiting(site),
                Action::RaiseHighWatermark(end) => {
                    site.partition.raise_high_watermark(end);
                    self.answer_waiting(site);
                }
                Action::Ack(ticket) => self.acknowledge(ticket, site),
                Action::OutcomeUnknown(ticket) => {
                    if let Some(append) = self.append_of(ticket) {
                        append.reply.answer_first(Err(AppendError::LeaderChanged));
                    }
                }
                Action::ProposeIsr(change) => report(ReplicaReport::Isr(change)),
                Action::ReportUnclean(broker, boot_epoch) => report(ReplicaReport::Unclean {
                    leader_epoch: self.epoch(),
                    broker: broker.0,
                    boot_epoch,
                }),
                // The committer never moves the high watermark of this partition, so nothing has to be waited for.
                Action::EndSolo(_) => solo_ends = true,
                Action::Stop => {
                    self.stop(site);
                    has_stopped = true;
                }
                Action::Resign(resignation) => {
                    if has_stopped {
                        site.partition.report_resignation(resignation.reason);
                    }
                    report(ReplicaReport::Resign(resignation));
                }
            }
        }
        if solo_ends {
            self.step(Event::SoloEnded, site);
        }
    }

    /// Nothing is taken, acknowledged or shown from here on. A resignation follows, or the role has ended.
    fn stop(&mut self, site: &Site<'_>) {
        self.fetches.clear();
        if self.machine.phase() == Phase::Stopped {
            let partition_epoch = self.machine.config().partition_epoch;
            let gate = site.partition.gate();
            gate.stop(self.epoch(), partition_epoch, false);
        }
    }

    /// Answers a fetch, or keeps it until there is something to say.
    fn answer(&mut self, mut fetch: FetchMessage, outcome: Outcome, site: &Site<'_>) {
        let Outcome::Ok { high_watermark, .. } = outcome else {
            let (outcome, body) = refusal(outcome, site);
            return fetch.answer(self.epoch(), outcome, body);
        };
        if fetch.reply.is_none() {
            return;
        }
        let reader = site.log.reader();
        let from = fetch.fetch.position.end;
        let has_more = from < reader.log_end();
        if has_more || fetch.high_watermark < high_watermark.min(from) {
            let body = if has_more {
                ReplyBody::Batches(reader, from)
            } else {
                ReplyBody::Nothing
            };
            return fetch.answer(self.epoch(), outcome, body);
        }
        self.fetches.insert(fetch.fetch.from, (now(), fetch));
    }

    fn answer_waiting(&mut self, site: &Site<'_>) {
        for (from, (since, mut fetch)) in std::mem::take(&mut self.fetches) {
            let reader = site.log.reader();
            let (end, known) = (fetch.fetch.position.end, fetch.high_watermark);
            let has_more = end < reader.log_end();
            if has_more || known < self.machine.high_watermark().min(end) {
                let body = if has_more {
                    ReplyBody::Batches(reader, end)
                } else {
                    ReplyBody::Nothing
                };
                fetch.answer(self.epoch(), self.outcome_for(from, site), body);
            } else {
                self.fetches.insert(from, (since, fetch));
            }
        }
    }

    fn append_of(&mut self, ticket: u64) -> Option<&mut InFlight> {
        let index = self
            .appends
            .binary_search_by_key(&ticket, |(known, _)| *known);
        self.appends.get_mut(index.ok()?).map(|(_, append)| append)
    }

    fn acknowledge(&mut self, ticket: u64, site: &Site<'_>) {
        if let Some(append) = self.append_of(ticket) {
            let durations = &site.partition.context().statistics.append_duration;
            durations.record(append.reply.waited(Instant::now()));
            append.acknowledge(now_ns());
        }
    }

    /// Forgets appends that are answered, and republishes those of them that are committed, in their order.
    fn release(&mut self, site: &Site<'_>) {
        let high_watermark = self.machine.high_watermark();
        let is_done = |(_, append): &&(u64, InFlight)| {
            let is_committed = append.end() <= high_watermark;
            append.reply.is_answered() && (is_committed || CommittedAppend::of(append).is_none())
        };
        let count = self.appends.iter().take_while(is_done).count();
        if count == 0 {
            return;
        }
        let done: Vec<(u64, InFlight)> = self.appends.drain(..count).collect();
        let mut committed = done.iter().filter_map(|(_, one)| CommittedAppend::of(one));
        let observer = &site.partition.context().observer;
        observer.on_commit(site.partition, &mut committed);
    }
}

/// What a follower is answered whose log does not continue as it is. A reset says all that is needed to begin elsewhere.
fn refusal(outcome: Outcome, site: &Site<'_>) -> (Outcome, ReplyBody) {
    let Outcome::Reset { start } = outcome else {
        return (outcome, ReplyBody::Nothing);
    };
    match start_of(site.log, start) {
        Some(found) => {
            let bytes = found.to_bytes(site.log_id());
            let outcome = Outcome::Reset {
                start: found.offset,
            };
            (outcome, ReplyBody::Start(bytes.into()))
        }
        None => (Outcome::Busy { repair_below: None }, ReplyBody::Nothing),
    }
}

fn policy(ack: AckLevel) -> AckPolicy {
    match ack {
        AckLevel::Leader => AckPolicy::Leader,
        AckLevel::All => AckPolicy::All,
    }
}

/// What the log holds at its beginning. Damage below is found when it is read.
fn stored(site: &Site<'_>) -> Stored {
    let reader = site.log.reader();
    let log_start = reader.log_start();
    Stored {
        log_start,
        first: reader.first_stored().min(log_start),
    }
}
