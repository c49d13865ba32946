//! One state of the model: three brokers, what is under way between them, and the metadata log.
use crate::common::{A, B, C, FOREVER, ListLog, at};
use bascule_replica::follower::{self, Answer, Follower};
use bascule_replica::leader::{Ends, Event, Fetch, IsrChange, Leader, Stored};
use bascule_replica::types::{BrokerId, Config, Instant64};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The three brokers.
pub const BROKERS: [BrokerId; 3] = [A, B, C];
/// Everything happens at this time, but what needs a wait.
pub const NOW: Instant64 = Instant64(0);

/// After every wait of a follower.
pub fn later() -> Instant64 {
    at(10_000)
}

/// How much may happen in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Records that leaders append.
    pub records: u8,
    /// Leaders that are fenced, each with a choice of another one.
    pub elections: u8,
    /// Brokers that lose what is not durable.
    pub crashes: u8,
    /// Frames that are lost, with their connection.
    pub losses: u8,
    /// Members that a leader finds lagging.
    pub shrinks: u8,
}

/// What a broker does for the partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Nothing: it is down, its run is over, or there is no leader.
    Idle,
    Leader(Box<Leader>),
    Follower(Box<Follower>),
}

/// One broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub id: BrokerId,
    pub boot_epoch: u64,
    /// Batches as numbers: epoch · 8 + record.
    pub log: ListLog,
    pub durable: u64,
    pub high_watermark: u64,
    pub learned: bool,
    /// Its follower has asked for a fetch, which is not sent yet.
    pub to_send: bool,
    /// The entries that it has applied.
    pub applied: usize,
    pub role: Role,
}

impl Node {
    /// Takes the role that the applied entry gives it.
    pub fn apply(&mut self, config: &Config) {
        let replica = config.replicas.get(&self.id);
        if !replica
            .is_some_and(|replica| replica.confirmed && replica.boot_epoch == self.boot_epoch)
        {
            self.role = Role::Idle;
            return;
        }
        let same = |known: &Config| {
            (known.leader, known.leader_epoch) == (config.leader, config.leader_epoch)
        };
        match &mut self.role {
            Role::Leader(leader) if same(leader.config()) => {
                leader.step(Event::Role(config.clone()), NOW);
                self.note_watermark();
            }
            Role::Follower(follower) if follower.leader_epoch() == config.leader_epoch => {
                follower.step(follower::Event::Role(config.clone()), NOW);
            }
            _ => self.begin(config),
        }
    }

    fn begin(&mut self, config: &Config) {
        self.to_send = false;
        if config.leader == Some(self.id) {
            let end = self.log.end();
            let ends = Ends {
                log: end,
                durable: self.durable,
                high_watermark: self.high_watermark,
                stored: Stored::default(),
            };
            let mut leader = Leader::new(self.id, config.clone(), ends, FOREVER, NOW);
            leader.step(Event::Opened { epoch_start: end }, NOW);
            self.role = Role::Leader(Box::new(leader));
        } else if config.leader.is_some() {
            let follower = Follower::new(
                self.id,
                config.clone(),
                self.high_watermark,
                self.learned,
                FOREVER,
            );
            self.role = Role::Follower(Box::new(follower));
        } else {
            self.role = Role::Idle;
        }
    }

    pub fn note_watermark(&mut self) {
        if let Role::Leader(leader) = &self.role {
            self.high_watermark = self.high_watermark.max(leader.high_watermark());
        }
    }

    pub fn cut(&mut self, to: u64) {
        self.log.0.truncate(to as usize);
        self.durable = self.durable.min(self.log.end());
        self.high_watermark = self.high_watermark.min(self.log.end());
    }
}

/// A frame under way. A connection carries one fetch or its answer at a time: that is what sessions ensure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    Fetch(Fetch),
    Answer(Answer),
}

/// A proposed ISR: who proposes, the ISR, the members verified, leader epoch, partition epoch.
pub type Proposal = (BrokerId, Vec<BrokerId>, Vec<(BrokerId, u64)>, u64, u64);

/// One state.
#[derive(Clone, Debug)]
pub struct State {
    pub nodes: [Node; 3],
    /// The partition after each entry that concerns it. The index of an entry is its place plus 10.
    pub entries: Vec<Arc<Config>>,
    /// Connections by (follower, leader).
    pub frames: BTreeMap<(BrokerId, BrokerId), Frame>,
    /// Proposals that may arrive at any time, more than once, or never.
    pub proposals: BTreeSet<Proposal>,
    pub budget: Budget,
    /// The longest history that a leader has called committed.
    pub committed: Vec<u64>,
    /// What a step found wrong; ends the run.
    pub wrong: Option<&'static str>,
}

impl Hash for State {
    /// Entries that every broker has applied say nothing about what follows.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let applied = self
            .nodes
            .iter()
            .map(|node| node.applied)
            .min()
            .unwrap_or(1);
        (self.entries.len(), &self.entries[applied - 1..]).hash(hasher);
        (
            &self.nodes,
            &self.frames,
            &self.proposals,
            &self.budget,
            &self.committed,
            self.wrong,
        )
            .hash(hasher);
    }
}

impl State {
    /// A leads epoch 10 with this ISR; all logs are empty.
    pub fn new(isr: &[BrokerId], budget: Budget) -> Self {
        let config = Arc::new(crate::common::config(isr));
        let node = |id: BrokerId| {
            let mut node = Node {
                id,
                boot_epoch: id.0,
                log: ListLog::default(),
                durable: 0,
                high_watermark: 0,
                learned: false,
                to_send: false,
                applied: 1,
                role: Role::Idle,
            };
            node.apply(&config);
            node
        };
        Self {
            nodes: BROKERS.map(node),
            entries: vec![config.clone()],
            frames: BTreeMap::new(),
            proposals: BTreeSet::new(),
            budget,
            committed: Vec::new(),
            wrong: None,
        }
    }

    /// The partition after the last entry.
    pub fn config(&self) -> &Config {
        &self.entries[self.entries.len() - 1]
    }

    /// The index of the next entry.
    pub fn next_index(&self) -> u64 {
        self.entries.len() as u64 + 10
    }

    pub fn node(&self, id: BrokerId) -> &Node {
        &self.nodes[id.0 as usize - 1]
    }

    pub fn node_mut(&mut self, id: BrokerId) -> &mut Node {
        &mut self.nodes[id.0 as usize - 1]
    }

    pub fn add_proposal(&mut self, from: BrokerId, change: &IsrChange) {
        let isr = change.isr.iter().copied().collect();
        self.proposals.insert((
            from,
            isr,
            change.verified.clone(),
            change.leader_epoch,
            change.partition_epoch,
        ));
    }

    /// What every state must fulfil: R2 to R6 as far as this model has them.
    pub fn violation(&self) -> Option<&'static str> {
        if self.wrong.is_some() {
            return self.wrong;
        }
        let config = self.config();
        for &member in &config.eligible {
            let node = self.node(member);
            if !node.log.0[..node.durable as usize].starts_with(&self.committed) {
                return Some("R2: an eligible member lacks a committed record");
            }
        }
        for node in &self.nodes {
            let known = &node.log.0[..node.high_watermark as usize];
            if !known.starts_with(&self.committed) && !self.committed.starts_with(known) {
                return Some("R6: below a high watermark two histories differ");
            }
        }
        None
    }
}
