//! The controller's table of who is heard: heartbeats, authority, sticky expiry (replication §3.5).
use crate::lease::{EXPIRY_MS, HeartbeatAnswer, LEASE_MS};
use crate::types::{BrokerId, Instant64};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// An expired broker without an applied entry for this long: the office goes to another controller (N9).
pub const HAND_OVER_MS: u64 = 3_000;
/// A broker that has not applied an entry about its roles for this long does not count as heard (N27).
pub const ROLES_BEHIND_MS: u64 = 5_000;

/// The actions of one step.
pub type Actions = SmallVec<[Action; 2]>;

/// A heartbeat of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The broker.
    pub from: BrokerId,
    /// Its run.
    pub boot_epoch: u64,
    /// Its own time of sending: given back in the answer.
    pub token: Instant64,
    /// The last of its tokens that was answered.
    pub answered: Option<Instant64>,
    /// Index of the last entry whose ended roles have stopped, and whose new ones are known.
    pub applied: u64,
}

/// What happens to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A round of Raft heartbeats, begun then, was acknowledged by a majority, and the own first entry is applied.
    Authority {
        /// Begin of the round.
        begun: Instant64,
    },
    /// The office is lost.
    OfficeLost,
    /// An applied entry registered this run, or fenced it.
    Settled {
        /// The broker.
        broker: BrokerId,
        /// Its last registered run.
        boot_epoch: u64,
        /// The run is fenced.
        fenced: bool,
    },
    /// An applied entry concerns roles of this broker; the controller's own data plane has applied it now.
    RolesApplied {
        /// The broker.
        broker: BrokerId,
        /// Index of the entry.
        index: u64,
        /// The entry ended a role of the broker.
        ends: bool,
    },
    /// A heartbeat arrived.
    Heartbeat(Heartbeat),
    /// Time passes; after the frames that wait in sockets were read.
    Tick,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Answer the heartbeat.
    Answer(BrokerId, HeartbeatAnswer),
    /// Refuse the heartbeat: that run is over.
    Refuse(BrokerId, u64),
    /// Propose a fence of this run.
    Expired(BrokerId, u64),
    /// Propose that this run has stopped the roles of the entries up to the index.
    Stopped(BrokerId, u64, u64),
    /// Give the office to another controller.
    HandOver,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    boot_epoch: u64,
    fenced: bool,
    heard: Instant64,
    /// Any heartbeat within [`EXPIRY_MS`] of this counts: office, regained authority or registration.
    grace: Instant64,
    /// Tokens received, with the time of receipt, oldest first.
    received: SmallVec<[(Instant64, Instant64); 10]>,
    expired: Option<Instant64>,
    /// Entries about its roles that it has not applied: index, when the controller had applied it, whether it ends a role.
    behind: BTreeMap<u64, (Instant64, bool)>,
}

/// The controller's table. It belongs to one term of office.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Liveness {
    authority: Option<Instant64>,
    had_authority: bool,
    runs: BTreeMap<BrokerId, Run>,
}

impl Liveness {
    /// Age of the authority, while there is any: the last acknowledged round began less than [`LEASE_MS`] ago.
    pub fn authority_age(&self, now: Instant64) -> Option<u64> {
        self.authority
            .map(|begun| now.since(begun))
            .filter(|&age| age < LEASE_MS)
    }

    /// The brokers that are candidates of a choice: not fenced, not expired.
    pub fn live(&self) -> BTreeSet<BrokerId> {
        self.runs
            .iter()
            .filter(|(_, run)| !run.fenced && run.expired.is_none())
            .map(|(&broker, _)| broker)
            .collect()
    }

    /// Takes one event.
    pub fn step(&mut self, event: Event, now: Instant64) -> Actions {
        let mut out = Actions::new();
        self.notice_lost_authority(now);
        match event {
            Event::Authority { begun } => self.renew(begun, now),
            Event::OfficeLost => *self = Self::default(),
            Event::Settled {
                broker,
                boot_epoch,
                fenced,
            } => self.settle(broker, boot_epoch, fenced, now),
            Event::RolesApplied {
                broker,
                index,
                ends,
            } => {
                if let Some(run) = self.runs.get_mut(&broker).filter(|run| !run.fenced) {
                    run.behind.insert(index, (now, ends));
                }
            }
            Event::Heartbeat(heartbeat) => self.heartbeat(&heartbeat, now, &mut out),
            Event::Tick => self.tick(now, &mut out),
        }
        out
    }

    fn notice_lost_authority(&mut self, now: Instant64) {
        if self.authority_age(now).is_none() {
            self.had_authority = false;
        }
    }

    /// Regained authority restarts all timers at the new round (N3).
    fn renew(&mut self, begun: Instant64, now: Instant64) {
        let begun = begun.min(now);
        if self.authority.is_some_and(|known| begun <= known) {
            return;
        }
        self.authority = Some(begun);
        if !self.had_authority && self.authority_age(now).is_some() {
            self.had_authority = true;
            for run in self.runs.values_mut() {
                (run.heard, run.grace) = (run.heard.max(begun), begun);
            }
        }
    }

    fn settle(&mut self, broker: BrokerId, boot_epoch: u64, fenced: bool, now: Instant64) {
        let known = self.runs.get_mut(&broker);
        match known {
            Some(run) if run.boot_epoch > boot_epoch => {}
            Some(run) if run.boot_epoch == boot_epoch => {
                run.fenced |= fenced;
                if fenced {
                    run.expired = None;
                }
            }
            _ => {
                let run = Run {
                    boot_epoch,
                    fenced,
                    heard: now,
                    grace: now,
                    received: SmallVec::new(),
                    expired: None,
                    behind: BTreeMap::new(),
                };
                self.runs.insert(broker, run);
            }
        }
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Instant64, out: &mut Actions) {
        let Some(age_ms) = self.authority_age(now) else {
            return;
        };
        let slow = self.too_slow(now);
        let Some(run) = self.runs.get_mut(&heartbeat.from) else {
            return;
        };
        if heartbeat.boot_epoch != run.boot_epoch || run.fenced {
            out.push(Action::Refuse(heartbeat.from, run.boot_epoch));
            return;
        }
        if run.expired.is_some() {
            return;
        }
        let echoed = heartbeat.answered.is_some_and(|answered| {
            run.received
                .iter()
                .any(|&(token, received)| token == answered && now.since(received) < EXPIRY_MS)
        });
        let heard_of_us = echoed || now.since(run.grace) < EXPIRY_MS;
        run.received
            .retain(|&mut (_, received)| now.since(received) < EXPIRY_MS);
        run.received.push((heartbeat.token, now));
        let counts = heard_of_us && slow != Some(heartbeat.from);
        if counts {
            run.heard = now;
        }
        let waiting = run.behind.split_off(&heartbeat.applied.saturating_add(1));
        if let Some((&index, _)) = run.behind.iter().rfind(|(_, (_, ends))| *ends) {
            out.push(Action::Stopped(heartbeat.from, run.boot_epoch, index));
        }
        run.behind = waiting;
        out.push(Action::Answer(
            heartbeat.from,
            HeartbeatAnswer {
                token: heartbeat.token,
                lease: counts,
                age_ms,
            },
        ));
    }

    /// The one broker that is furthest behind with its roles, while fewer than half of all are behind (N51).
    fn too_slow(&self, now: Instant64) -> Option<BrokerId> {
        let since = |run: &Run| run.behind.values().map(|&(applied, _)| applied).min();
        let late = |run: &Run| since(run).filter(|&applied| now.since(applied) > ROLES_BEHIND_MS);
        let active = || self.runs.iter().filter(|(_, run)| !run.fenced);
        let behind: Vec<_> = active()
            .filter_map(|(&broker, run)| Some((late(run)?, broker)))
            .collect();
        (behind.len() * 2 < active().count())
            .then(|| behind.iter().min().map(|&(_, broker)| broker))
            .flatten()
    }

    fn tick(&mut self, now: Instant64, out: &mut Actions) {
        if self.authority_age(now).is_none() {
            return;
        }
        for (&broker, run) in self.runs.iter_mut().filter(|(_, run)| !run.fenced) {
            match run.expired {
                None if now.since(run.heard) > EXPIRY_MS => {
                    run.expired = Some(now);
                    out.push(Action::Expired(broker, run.boot_epoch));
                }
                Some(expired)
                    if now.since(expired) >= HAND_OVER_MS && !out.contains(&Action::HandOver) =>
                {
                    out.push(Action::HandOver);
                }
                _ => {}
            }
        }
    }
}
