//! Ids, time, positions, and what the metadata says of one partition.
use std::collections::{BTreeMap, BTreeSet};

/// A broker. The caller gives each broker id of the metadata a number that stays the same for its own run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub u64);

/// Milliseconds of a clock that continues while the machine sleeps (`CLOCK_BOOTTIME`). Never the time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant64(pub u64);

impl Instant64 {
    /// Milliseconds since `earlier`; 0 if that is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This many milliseconds later, at most the end of time.
    #[must_use]
    pub fn plus(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

/// The end of a log: epoch and link of its last batch, and the offset after it (exclusive). Ordered by epoch, then end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Leader epoch of the last batch; 0 for a log that never held one.
    pub epoch: u64,
    /// Log end: the offset that the next record gets.
    pub end: u64,
    /// Link of the last batch, which commits to the whole history before it.
    pub link: u32,
}

/// A leader epoch and its end (exclusive) in one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochEnd {
    /// The epoch.
    pub epoch: u64,
    /// The start of the next epoch of that log, or its log end.
    pub end: u64,
}

/// What a log finds where a batch should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// A batch ends here, and has this link; at the first stored offset, the chain with which the log begins.
    Link(u32),
    /// An intact batch covers the offset; the boundary below it.
    Inside {
        /// Base offset of that batch.
        below: u64,
    },
    /// The batch cannot be read. This proves nothing: no answer that makes a follower truncate rests on it (W29).
    Damaged,
    /// The offset is beyond the log end, or below the first stored offset.
    Outside,
}

/// Which end of a member the leader counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The durable end.
    Disk,
    /// The log end.
    Memory,
}

/// A replica as the metadata has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of the metadata, each set and cleared on its own"
)]
pub struct Replica {
    /// The last registered run of the broker.
    pub boot_epoch: u64,
    /// That run is confirmed, and not fenced.
    pub confirmed: bool,
    /// It may lack what was counted of it.
    pub unclean: bool,
    /// It reported that it cannot lead now.
    pub unable: bool,
    /// Its recovery truncated a torn tail.
    pub cut: bool,
    /// It resigned since the high watermark last moved.
    pub tried: bool,
}

/// A branch point at which committed records may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// The leader epoch that begins with the loss.
    pub epoch: u64,
    /// First offset (inclusive) that may be missing.
    pub start: u64,
}

/// What an applied entry says of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The leader, if there is one.
    pub leader: Option<BrokerId>,
    /// Index of the entry that named the leader; ≥ 1.
    pub leader_epoch: u64,
    /// Index of the last entry that changed the partition, or refused a change of it; ≥ `leader_epoch`.
    pub partition_epoch: u64,
    /// The replicas and their flags.
    pub replicas: BTreeMap<BrokerId, Replica>,
    /// The committed ISR.
    pub isr: BTreeSet<BrokerId>,
    /// The members that hold everything committed.
    pub eligible: BTreeSet<BrokerId>,
    /// The high watermark stands still while the ISR is smaller; ≥ 1.
    pub min_isr: usize,
    /// What is counted of a member.
    pub class: Class,
    /// Compaction is on, or was at any time.
    pub compacted: bool,
    /// Recorded losses, oldest first.
    pub losses: Vec<Loss>,
}

impl Config {
    /// Whether an applied entry could name this broker: confirmed, clean, able, eligible, not cut.
    pub fn can_lead(&self, broker: BrokerId) -> bool {
        self.eligible.contains(&broker)
            && self.replicas.get(&broker).is_some_and(|replica| {
                replica.confirmed && !replica.unclean && !replica.unable && !replica.cut
            })
    }

    /// Whether an applied entry could name one of the other brokers.
    pub fn another_can_lead(&self, than: BrokerId) -> bool {
        let mut others = self.eligible.iter().filter(|&&other| other != than);
        others.any(|&other| self.can_lead(other))
    }

    /// Whether the broker has not resigned since the high watermark last moved.
    pub fn is_untried(&self, broker: BrokerId) -> bool {
        self.replicas
            .get(&broker)
            .is_some_and(|replica| !replica.tried)
    }

    /// Whether the broker's replica is flagged as unclean.
    pub fn is_unclean(&self, broker: BrokerId) -> bool {
        self.replicas
            .get(&broker)
            .is_some_and(|replica| replica.unclean)
    }
}
