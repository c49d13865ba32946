//! The leader of a partition: compares followers, counts what they hold, moves the high watermark, proposes ISR changes.
//!
//! One [`Leader`] lives for one leader epoch. It never truncates, and an ended one commits, answers and proposes nothing.
//! Its rules are those of reliability §2 (4 to 8 and 12); replication §3.1 has them as pseudo code.
mod compare;
mod isr;
mod messages;
mod watermark;

pub use compare::{Stored, compare};
pub use isr::{DAMAGE_MS, LAG_MS, Proposal, REPEAT_MS, STANDSTILL_MS, STUCK_CALL_MS, Standstill};
pub use messages::{
    AckPolicy, Action, Actions, Event, Fetch, Found, Health, IsrChange, Outcome, Reason, Refusal,
    Resignation,
};
pub use watermark::PendingAcks;

use crate::types::{Boundary, BrokerId, Class, Config, Instant64};
use bascule_record::planted_bug::{self, PlantedBug};
use std::collections::{BTreeMap, BTreeSet};

/// A fetch of a newer leader epoch waits this long for the role.
pub const PARK_MS: u64 = 500;

/// What a leader does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Asks the other members for what it lacks; answers nobody.
    TakingOver,
    /// Appends, counts, acknowledges.
    Serving,
    /// Its lease has run out: holds answers, the high watermark and reads.
    Suspended,
    /// It resigned, or was stopped for a resignation; it resumes only when a newer entry of the same leader epoch is applied.
    Stopped,
    /// An entry ended the role.
    Ended,
}

/// What the leader knows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The run that reported.
    pub boot_epoch: u64,
    /// The session of the last fetch; 0 = none.
    pub session: u64,
    /// Log end with a link that fits.
    pub end: Option<u64>,
    /// Durable end with a link that fits.
    pub durable: Option<u64>,
    /// What is counted: never past damage.
    pub counted: Option<u64>,
    /// The most that was ever counted in this leader epoch, of any run (N65).
    pub most_counted: u64,
    /// First offset that the member cannot read.
    pub damaged: Option<u64>,
    /// It holds all sealed pieces.
    pub has_pieces: bool,
    /// When its counted end had last reached the log end of that time.
    pub reached: Instant64,
    /// The log end to reach next, and when it was the log end.
    pub goal: (u64, Instant64),
    /// It was reported as unclean then, and no entry has settled that.
    pub reported: Option<Instant64>,
}

impl Member {
    fn new(boot_epoch: u64, now: Instant64) -> Self {
        Self {
            boot_epoch,
            session: 0,
            end: None,
            durable: None,
            counted: None,
            most_counted: 0,
            damaged: None,
            has_pieces: false,
            reached: now,
            goal: (0, now),
            reported: None,
        }
    }

    fn forget_counts(&mut self) {
        (self.session, self.end, self.durable, self.counted) = (0, None, None, None);
    }
}

/// The leader of a partition in one leader epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    id: BrokerId,
    config: Config,
    phase: Phase,
    epoch_start: u64,
    high_watermark: u64,
    log_end: u64,
    durable: u64,
    stored: Stored,
    lease: Instant64,
    members: BTreeMap<BrokerId, Member>,
    proposed: BTreeSet<BrokerId>,
    growth: Option<Proposal>,
    shrink: Option<Proposal>,
    leaving: BTreeSet<BrokerId>,
    solo: bool,
    solo_ends: bool,
    standstill: Standstill,
    resignation: Option<(Resignation, Instant64)>,
    /// Partition epoch that the last resignation from outside names: with no older one the role may resume.
    halted_at: u64,
    pending: PendingAcks,
}

/// What the log holds when a role begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Log end (exclusive).
    pub log: u64,
    /// Durable end, at most `log`.
    pub durable: u64,
    /// High watermark, at most `log`.
    pub high_watermark: u64,
    /// Its beginning.
    pub stored: Stored,
}

impl Leader {
    /// A leader that is taking over. `config.leader` is `id`; a lease in the past means that there is none.
    pub fn new(id: BrokerId, config: Config, ends: Ends, lease: Instant64, now: Instant64) -> Self {
        let solo = config.min_isr <= 1 && config.isr.iter().all(|&member| member == id);
        let mut leader = Self {
            id,
            config,
            phase: Phase::TakingOver,
            epoch_start: ends.log,
            high_watermark: ends.high_watermark.min(ends.log),
            log_end: ends.log,
            durable: ends.durable.min(ends.log),
            stored: ends.stored,
            lease,
            members: BTreeMap::new(),
            proposed: BTreeSet::new(),
            growth: None,
            shrink: None,
            leaving: BTreeSet::new(),
            solo,
            solo_ends: false,
            standstill: Standstill::default(),
            resignation: None,
            halted_at: 0,
            pending: PendingAcks::default(),
        };
        leader.match_members(now);
        leader
    }

    /// What the leader does now.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Everything below is committed (exclusive).
    pub fn high_watermark(&self) -> u64 {
        self.high_watermark
    }

    /// First offset of the leader epoch.
    pub fn epoch_start(&self) -> u64 {
        self.epoch_start
    }

    /// The last applied configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What is known of a member; `None` for the leader itself and for brokers without a replica.
    pub fn member(&self, member: BrokerId) -> Option<&Member> {
        self.members.get(&member)
    }

    /// Whether the leader may answer what is committed: under its lease, and not before it holds all of earlier epochs.
    pub fn may_answer_end(&self, now: Instant64) -> bool {
        self.phase == Phase::Serving
            && self.has_lease(now)
            && self.high_watermark >= self.epoch_start
    }

    /// Whether a publish may be appended.
    ///
    /// # Errors
    /// [`Refusal`] names what forbids it.
    pub fn admit(&self, policy: AckPolicy, now: Instant64) -> Result<(), Refusal> {
        match self.phase {
            Phase::Serving if !self.has_lease(now) => Err(Refusal::Suspended),
            Phase::Serving
                if policy == AckPolicy::All && self.config.isr.len() < self.config.min_isr =>
            {
                Err(Refusal::NotEnoughReplicas)
            }
            Phase::Serving => Ok(()),
            Phase::Suspended => Err(Refusal::Suspended),
            Phase::TakingOver | Phase::Stopped | Phase::Ended => Err(Refusal::NotLeader),
        }
    }

    /// Takes one event. An event that does not fit the phase changes nothing but what it reports.
    pub fn step(&mut self, event: Event, now: Instant64) -> Actions {
        let mut out = Actions::new();
        if self.phase == Phase::Ended {
            self.refuse_ended(&event, &mut out);
            return out;
        }
        if let Event::Lease(until) = event {
            self.lease = self.lease.max(until);
        }
        self.follow_lease(now);
        match event {
            Event::Role(config) => self.role(config, now, &mut out),
            Event::Opened { epoch_start } if self.phase == Phase::TakingOver => {
                self.open(epoch_start, now);
            }
            Event::Opened { .. } | Event::Lease(_) => {}
            Event::Appended { end } => {
                self.log_end = self.log_end.max(end);
                out.push(Action::Wake);
            }
            Event::Durable { end } => self.durable = self.durable.max(end).min(self.log_end),
            Event::Stored(stored) => self.stored = stored,
            Event::Wait {
                ticket,
                end,
                policy,
            } => self.pending.add(ticket, end, policy),
            Event::Fetch(fetch, found) => self.fetch(&fetch, &found, now, &mut out),
            Event::Halted { partition_epoch } => self.halt(partition_epoch, &mut out),
            Event::Leaving(member) => {
                self.leaving.insert(member);
                self.shrink(&BTreeSet::from([member]), now, &mut out);
            }
            Event::SoloEnded => (self.solo, self.solo_ends) = (self.solo && !self.solo_ends, false),
            Event::Tick(health) => self.tick(health, now, &mut out),
        }
        self.advance(now, &mut out);
        out
    }

    fn refuse_ended(&mut self, event: &Event, out: &mut Actions) {
        match event {
            Event::Fetch(fetch, _) => {
                out.push(Action::Answer(
                    fetch.from,
                    Outcome::WrongEpoch {
                        current: self.config.leader_epoch,
                    },
                ));
            }
            Event::Wait { ticket, .. } => out.push(Action::OutcomeUnknown(*ticket)),
            _ => {}
        }
    }

    fn has_lease(&self, now: Instant64) -> bool {
        now < self.lease
    }

    fn follow_lease(&mut self, now: Instant64) {
        self.phase = match (self.phase, self.has_lease(now)) {
            (Phase::Serving, false) => Phase::Suspended,
            (Phase::Suspended, true) => Phase::Serving,
            (phase, _) => phase,
        };
    }

    fn open(&mut self, epoch_start: u64, now: Instant64) {
        self.epoch_start = epoch_start;
        self.log_end = self.log_end.max(epoch_start);
        for member in self.members.values_mut() {
            (member.reached, member.goal) = (now, (epoch_start, now));
        }
        self.phase = Phase::Suspended;
        self.follow_lease(now);
    }

    fn role(&mut self, new: Config, now: Instant64, out: &mut Actions) {
        let known = (self.config.leader_epoch, self.config.partition_epoch);
        let epochs = (new.leader_epoch, new.partition_epoch);
        if epochs == known {
            // A broker has registered or confirmed a run, which does not change the partition.
            self.config.replicas = new.replicas;
            self.match_members(now);
            return;
        }
        if epochs < known {
            return;
        }
        let ended = new.leader != Some(self.id) || new.leader_epoch != self.config.leader_epoch;
        self.config = new;
        (self.growth, self.shrink, self.resignation) = (None, None, None);
        self.proposed.clear();
        if ended {
            self.phase = Phase::Ended;
            out.push(Action::Stop);
            self.pending.give_up(out);
            return;
        }
        self.match_members(now);
        if self.phase == Phase::Stopped && self.config.partition_epoch > self.halted_at {
            self.phase = Phase::Suspended;
            self.follow_lease(now);
        }
    }

    /// A resignation that names an older partition epoch is void already.
    fn halt(&mut self, partition_epoch: u64, out: &mut Actions) {
        if partition_epoch < self.config.partition_epoch {
            return;
        }
        self.halted_at = self.halted_at.max(partition_epoch);
        if matches!(self.phase, Phase::Serving | Phase::Suspended) {
            self.phase = Phase::Stopped;
            out.push(Action::Stop);
        }
    }

    /// Follows the replicas of the configuration: a newer run of a member begins with nothing counted.
    fn match_members(&mut self, now: Instant64) {
        self.members
            .retain(|member, _| self.config.replicas.contains_key(member));
        self.leaving
            .retain(|member| self.config.isr.contains(member));
        for (&member, replica) in self
            .config
            .replicas
            .iter()
            .filter(|&(&member, _)| member != self.id)
        {
            let known = self
                .members
                .entry(member)
                .or_insert_with(|| Member::new(replica.boot_epoch, now));
            if replica.boot_epoch > known.boot_epoch {
                known.boot_epoch = replica.boot_epoch;
                known.reported = None;
                known.forget_counts();
            }
            if replica.unclean {
                (known.most_counted, known.reported) = (0, None);
            }
        }
    }

    fn fetch(&mut self, fetch: &Fetch, found: &Found, now: Instant64, out: &mut Actions) {
        if let Some(action) = self.refuse(fetch, now) {
            out.push(action);
            return;
        }
        let in_isr = self.config.isr.contains(&fetch.from);
        let must_hold = in_isr || self.config.eligible.contains(&fetch.from);
        let high_watermark = self.high_watermark;
        let unchecked = planted_bug::is_active(PlantedBug::FetchEpochIgnored);
        let Some(known) = self.members.get_mut(&fetch.from) else {
            return;
        };
        let lost = fetch.position.end < known.most_counted
            || (must_hold && fetch.position.end < high_watermark);
        if lost && known.reported.is_none() && !self.config.is_unclean(fetch.from) {
            known.reported = Some(now);
            known.forget_counts();
            out.push(Action::ReportUnclean(fetch.from, fetch.boot_epoch));
        }
        let first = known.session != fetch.session;
        let fits = found.at_end == Boundary::Link(fetch.position.link);
        if (first || !fits)
            && !unchecked
            && let Some(outcome) = compare(fetch, found, self.stored)
        {
            out.push(Action::Answer(fetch.from, outcome));
            return;
        }
        known.session = fetch.session;
        if known.reported.is_none() {
            self.count(fetch, found, now);
            self.advance(now, out);
            self.maybe_grow(fetch.from, now, out);
        }
        let outcome = Outcome::Ok {
            high_watermark: self.high_watermark,
            lease_ms: self.lease.since(now),
            log_start: self.stored.log_start,
            replicated_to: self.replicated_to(),
            catching_up: !in_isr,
        };
        out.push(Action::Answer(fetch.from, outcome));
    }

    /// The answer to a fetch that says nothing about the member's log.
    fn refuse(&self, fetch: &Fetch, now: Instant64) -> Option<Action> {
        let answer = |outcome| Some(Action::Answer(fetch.from, outcome));
        if !fetch.is_valid() {
            return answer(Outcome::Invalid);
        }
        let current = self.config.leader_epoch;
        let wrong = answer(Outcome::WrongEpoch { current });
        if !planted_bug::is_active(PlantedBug::FetchEpochIgnored) {
            if fetch.leader_epoch > current {
                return Some(Action::Park(fetch.from, now.plus(PARK_MS)));
            }
            if fetch.leader_epoch < current {
                return wrong;
            }
        }
        if !matches!(self.phase, Phase::Serving | Phase::Suspended) {
            return answer(Outcome::Busy { repair_below: None });
        }
        let replica = self
            .config
            .replicas
            .get(&fetch.from)
            .filter(|_| fetch.from != self.id);
        if replica
            .is_some_and(|replica| replica.confirmed && replica.boot_epoch == fetch.boot_epoch)
        {
            return None;
        }
        wrong
    }

    fn count(&mut self, fetch: &Fetch, found: &Found, now: Instant64) {
        let unchecked = planted_bug::is_active(PlantedBug::FetchEpochIgnored);
        let (class, log_end) = (self.config.class, self.log_end);
        let Some(known) = self.members.get_mut(&fetch.from) else {
            return;
        };
        if unchecked || found.at_end == Boundary::Link(fetch.position.link) {
            known.end = Some(fetch.position.end);
        }
        if unchecked || fetch.durable == 0 || found.at_durable == Boundary::Link(fetch.durable_link)
        {
            known.durable = Some(fetch.durable);
        }
        (known.damaged, known.has_pieces) = (fetch.damaged, fetch.has_pieces);
        let reported = if class == Class::Disk {
            known.durable
        } else {
            known.end
        };
        let Some(counted) =
            reported.map(|end| end.min(fetch.damaged.unwrap_or(u64::MAX)).min(log_end))
        else {
            return;
        };
        known.counted = Some(counted);
        known.most_counted = known.most_counted.max(counted);
        if counted >= known.goal.0 {
            known.reached = known.reached.max(known.goal.1);
            known.goal = (log_end, now);
        }
        if counted >= log_end {
            known.reached = now;
        }
    }

    fn tick(&mut self, health: Health, now: Instant64, out: &mut Actions) {
        if matches!(self.phase, Phase::Serving | Phase::Suspended) {
            self.shrink(&self.lagging(now), now, out);
        }
        self.maybe_resign(health, now, out);
        self.repeat(now, out);
    }
}
