//! A log as a list, and leaders in known states, for the tests of the step functions.
#![allow(dead_code)]
use bascule_replica::leader::{
    Action, Actions, Ends, Event, Fetch, Found, Leader, Outcome, Stored,
};
use bascule_replica::types::{
    Boundary, BrokerId, Class, Config, EpochEnd, Instant64, Position, Replica,
};
use std::collections::BTreeMap;

pub const A: BrokerId = BrokerId(1);
pub const B: BrokerId = BrokerId(2);
pub const C: BrokerId = BrokerId(3);
pub const FOREVER: Instant64 = Instant64(u64::MAX);

pub fn at(milliseconds: u64) -> Instant64 {
    Instant64(milliseconds)
}

/// Replicas A, B, C with runs 1, 2, 3 and min-in-sync 2; A leads epoch 10.
pub fn config(isr: &[BrokerId]) -> Config {
    let replica = |boot_epoch| Replica {
        boot_epoch,
        confirmed: true,
        ..Replica::default()
    };
    Config {
        leader: Some(A),
        leader_epoch: 10,
        partition_epoch: 10,
        replicas: BTreeMap::from([(A, replica(1)), (B, replica(2)), (C, replica(3))]),
        isr: isr.iter().copied().collect(),
        eligible: isr.iter().copied().collect(),
        min_isr: 2,
        class: Class::Disk,
        compacted: false,
        losses: Vec::new(),
    }
}

/// One record a batch; each has an epoch. The link hashes the epochs of all batches up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListLog(pub Vec<u64>);

impl ListLog {
    pub fn link(&self, end: u64) -> u32 {
        self.0
            .iter()
            .take(end as usize)
            .fold(0x811c_9dc5, |link: u32, &epoch| {
                (link ^ epoch as u32).wrapping_mul(0x0100_0193)
            })
    }

    pub fn end(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn position(&self) -> Position {
        Position {
            epoch: self.0.last().copied().unwrap_or(0),
            end: self.end(),
            link: self.link(self.end()),
        }
    }

    pub fn boundary(&self, offset: u64) -> Boundary {
        if offset > self.end() {
            Boundary::Outside
        } else {
            Boundary::Link(self.link(offset))
        }
    }

    pub fn epoch_end(&self, epoch: u64) -> Option<EpochEnd> {
        let end = self.0.partition_point(|&own| own <= epoch) as u64;
        let epoch = *self.0.get(end.checked_sub(1)? as usize)?;
        Some(EpochEnd { epoch, end })
    }

    pub fn found(&self, fetch: &Fetch) -> Found {
        Found {
            at_end: self.boundary(fetch.position.end),
            at_durable: self.boundary(fetch.durable),
            epoch_end: self.epoch_end(fetch.position.epoch),
            lost_range: None,
        }
    }
}

/// The fetch of a follower with this log, all of it durable.
pub fn fetch(from: BrokerId, log: &ListLog) -> Fetch {
    let position = log.position();
    Fetch {
        from,
        boot_epoch: from.0,
        leader_epoch: 10,
        session: 1,
        position,
        durable: position.end,
        durable_link: position.link,
        damaged: None,
        has_pieces: true,
    }
}

/// A leader that serves from time 0, with its log.
pub struct Served {
    pub leader: Leader,
    pub log: ListLog,
}

impl Served {
    /// The log has `old` batches of epoch 1, committed, and the leader's epoch 10 begins behind them.
    pub fn new(config: Config, old: usize) -> Self {
        let log = ListLog(vec![1; old]);
        let end = log.end();
        let ends = Ends {
            log: end,
            durable: end,
            high_watermark: end,
            stored: Stored::default(),
        };
        let mut leader = Leader::new(A, config, ends, FOREVER, at(0));
        leader.step(Event::Opened { epoch_start: end }, at(0));
        Self { leader, log }
    }

    /// Appends batches of the own epoch, and syncs them.
    pub fn append(&mut self, count: usize, now: Instant64) -> Actions {
        self.log.0.extend(std::iter::repeat_n(10, count));
        let end = self.log.end();
        let mut out = self.leader.step(Event::Appended { end }, now);
        out.extend(self.leader.step(Event::Durable { end }, now));
        out
    }

    /// A fetch of a member that has the leader's first `end` batches.
    pub fn fetch(&mut self, from: BrokerId, end: usize, now: Instant64) -> Actions {
        let theirs = ListLog(self.log.0[..end].to_vec());
        self.step(fetch(from, &theirs), now)
    }

    pub fn step(&mut self, fetch: Fetch, now: Instant64) -> Actions {
        let found = self.log.found(&fetch);
        self.leader.step(Event::Fetch(fetch, found), now)
    }
}

/// The answer among the actions.
pub fn answer(actions: &Actions) -> Option<Outcome> {
    actions.iter().find_map(|action| match action {
        Action::Answer(_, outcome) => Some(outcome.clone()),
        _ => None,
    })
}
