//! What goes into the leader's step function and what comes out of it.
use crate::types::{Boundary, BrokerId, Config, EpochEnd, Instant64, Position};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The actions of one step, in the order in which they have to happen.
pub type Actions = SmallVec<[Action; 2]>;

/// What a follower reports with each fetch, and between fetches as progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fetch {
    /// The follower.
    pub from: BrokerId,
    /// The run of its broker; ≥ 1.
    pub boot_epoch: u64,
    /// The leader epoch that it follows; ≥ 1.
    pub leader_epoch: u64,
    /// The session of its connection; ≥ 1. The first fetch of a session is compared in any case.
    pub session: u64,
    /// The end of its log.
    pub position: Position,
    /// Its durable end, at most `position.end`.
    pub durable: u64,
    /// Link of the batch that ends at `durable`.
    pub durable_link: u32,
    /// First offset that it cannot read; `None` if all is intact.
    pub damaged: Option<u64>,
    /// It holds all sealed pieces of this leader epoch and session.
    pub has_pieces: bool,
}

impl Fetch {
    /// Whether every id and epoch is there, and the ends fit each other. A zero is an error, never a wildcard.
    pub fn is_valid(&self) -> bool {
        let empty = self.position.end == 0;
        self.boot_epoch > 0
            && self.leader_epoch > 0
            && self.session > 0
            && self.durable <= self.position.end
            && (empty || self.position.epoch > 0)
            && self.position.epoch <= self.leader_epoch
    }
}

/// What the leader's log finds for one fetch, looked up in the same turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// At the follower's log end.
    pub at_end: Boundary,
    /// At the follower's durable end.
    pub at_durable: Boundary,
    /// The last own epoch ≤ the epoch of the follower's last batch, and its end.
    pub epoch_end: Option<EpochEnd>,
    /// A lost range (start inclusive, end exclusive) near the follower's end.
    pub lost_range: Option<(u64, u64)>,
}

/// When the answer to a publish is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckPolicy {
    /// When the high watermark has reached the end of the records.
    All,
    /// When the leader's own counted end has.
    Leader,
}

/// Why a publish is refused before it is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The role was ended, resigned, or has not begun.
    NotLeader,
    /// The lease has run out.
    Suspended,
    /// `AckPolicy::All`, and the ISR is smaller than min-in-sync.
    NotEnoughReplicas,
}

/// The state of the leader's own disk and log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Health {
    /// Age of the oldest disk call, or turn of the partition's task, that has not ended.
    pub oldest_call_ms: u64,
    /// A write or a sync of the directory failed.
    pub directory_failed: bool,
    /// The disk is full.
    pub disk_full: bool,
    /// How long own damage is known and not repaired.
    pub damaged_ms: Option<u64>,
}

/// What happens to a leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An applied entry concerns the partition. An older one than that known is ignored.
    Role(Config),
    /// The take-over has ended with this log end: the leader epoch begins here.
    Opened {
        /// First offset of the epoch.
        epoch_start: u64,
    },
    /// The broker's lease lasts until then (exclusive).
    Lease(Instant64),
    /// Records were appended.
    Appended {
        /// The new log end.
        end: u64,
    },
    /// Everything below is synced.
    Durable {
        /// The new durable end.
        end: u64,
    },
    /// The log start or the first stored offset moved.
    Stored(crate::leader::Stored),
    /// A publish, or the repetition of one, waits for its answer.
    Wait {
        /// Names the answer; unique.
        ticket: u64,
        /// The end of its records (exclusive); of a repetition, that of the original.
        end: u64,
        /// When it is answered.
        policy: AckPolicy,
    },
    /// A fetch or progress of a follower.
    Fetch(Fetch, Found),
    /// The role was stopped from outside, and a resignation sent: the caller found that the task does not run. It resumes only with a
    /// newer partition epoch than that resignation names.
    Halted {
        /// Of the resignation.
        partition_epoch: u64,
    },
    /// A member said that it stops: no need to wait for the lag.
    Leaving(BrokerId),
    /// A round of group commit has ended since [`Action::EndSolo`].
    SoloEnded,
    /// Time passes; at least every 200 ms.
    Tick(Health),
}

/// The answer to a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The histories agree; the batches from the follower's end on may follow.
    Ok {
        /// The leader's high watermark.
        high_watermark: u64,
        /// Rest of the leader's lease; 0 = suspended.
        lease_ms: u64,
        /// The leader's log start; 0 = not known.
        log_start: u64,
        /// End (exclusive) of what every replica has durably: see [`crate::leader::Leader::replicated_to`].
        replicated_to: u64,
        /// The member is outside the ISR: its bytes come last and share the bucket of catching up.
        catching_up: bool,
    },
    /// A zero where an id is meant, or ends that contradict each other.
    Invalid,
    /// The follower's leader epoch, its broker, or its run is not that of the applied state.
    WrongEpoch {
        /// The leader's epoch.
        current: u64,
    },
    /// Truncate to the smaller of `end` and the own end of the last own epoch ≤ `epoch`.
    Diverged {
        /// 0: no epoch is shared.
        epoch: u64,
        /// Exclusive.
        end: u64,
    },
    /// Links differ within one epoch: truncate the last batch.
    StepBack,
    /// The follower's end is below the log start: begin again at `start`.
    Reset {
        /// A batch boundary at or below the log start.
        start: u64,
    },
    /// The range is lost here; the follower skips it once it is a recorded loss.
    Damaged {
        /// Inclusive.
        start: u64,
        /// Exclusive.
        end: u64,
    },
    /// Not now: ask again.
    Busy {
        /// The leader lacks what is below and copies it from this follower.
        repair_below: Option<u64>,
    },
}

/// A proposed ISR. It is void once the partition epoch is newer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IsrChange {
    /// Must be current when it is applied.
    pub leader_epoch: u64,
    /// Must be current when it is applied.
    pub partition_epoch: u64,
    /// The ISR as it should be.
    pub isr: BTreeSet<BrokerId>,
    /// Members, and their runs, that have everything: their flags are cleared.
    pub verified: Vec<(BrokerId, u64)>,
}

/// Why a leader resigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The high watermark stands still.
    Standstill,
    /// A disk call or a turn of the task does not end.
    StuckCall,
    /// The directory failed.
    DirectoryFailed,
    /// The disk is full.
    DiskFull,
    /// Own damage is not repaired and another member is intact.
    Damage,
}

/// A resignation. It is void once the partition epoch is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resignation {
    /// Must be current when it is applied.
    pub leader_epoch: u64,
    /// Must be current when it is applied.
    pub partition_epoch: u64,
    /// Why.
    pub reason: Reason,
    /// The high watermark moved since the last resignation: every member may be tried again.
    pub hw_moved: bool,
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Answer the fetch.
    Answer(BrokerId, Outcome),
    /// The follower knows a newer leader epoch: give the fetch again after the next role, or answer it at the time named.
    Park(BrokerId, Instant64),
    /// Answer the fetches that wait for records.
    Wake,
    /// The high watermark is now this (exclusive).
    RaiseHighWatermark(u64),
    /// The publish is acknowledged.
    Ack(u64),
    /// The publish was appended, and nobody knows whether it stays: `outcome_unknown`.
    OutcomeUnknown(u64),
    /// Send to the controller.
    ProposeIsr(IsrChange),
    /// Send to the controller: the member's run has lost data.
    ReportUnclean(BrokerId, u64),
    /// Group commit must not raise the high watermark above this any more; answer with [`Event::SoloEnded`] after a round.
    EndSolo(u64),
    /// Accept nothing more in this role, before anything that follows.
    Stop,
    /// Send to the controller.
    Resign(Resignation),
}
