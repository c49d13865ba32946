//! Growth and shrinkage of the ISR, reports of lost data, resignation.
use crate::leader::{Action, Actions, Health, IsrChange, Leader, Phase, Reason, Resignation};
use crate::types::{BrokerId, Instant64};
use bascule_record::planted_bug::{self, PlantedBug};
use std::collections::BTreeSet;

/// A member whose counted end has not reached for this long what the log end was then leaves the ISR.
pub const LAG_MS: u64 = 3_000;
/// The leader resigns when the high watermark stands still for this long.
pub const STANDSTILL_MS: u64 = 5_000;
/// What was sent to the controller is repeated after this time.
pub const REPEAT_MS: u64 = 500;
/// A disk call or a turn of the task may take this long.
pub const STUCK_CALL_MS: u64 = 1_400;
/// Own damage may stay unrepaired for this long while another member is intact.
pub const DAMAGE_MS: u64 = 1_000;
const TRIES_MS: [u64; 5] = [5_000, 10_000, 20_000, 40_000, 60_000];

/// A proposal that no applied entry has settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// The members that it adds, verifies or removes.
    pub about: BTreeSet<BrokerId>,
    /// As it was sent last.
    pub change: IsrChange,
    /// When it was sent last.
    pub sent: Instant64,
}

/// How long the high watermark has stood still, and what was done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standstill {
    since: Option<Instant64>,
    moved: bool,
    tries: usize,
    next: Instant64,
}

impl Standstill {
    pub(super) fn moved(&mut self, now: Instant64) {
        *self = Self {
            since: self.since.map(|_| now),
            moved: true,
            ..Self::default()
        };
    }

    /// Counts from the moment when the high watermark fell behind the log end, not from its last move (N35).
    pub(super) fn watch(&mut self, caught_up: bool, now: Instant64) {
        self.since = if caught_up {
            None
        } else {
            self.since.or(Some(now))
        };
    }

    fn is_over(&self, now: Instant64) -> bool {
        now >= self.next
            && self
                .since
                .is_some_and(|since| now.since(since) >= STANDSTILL_MS)
    }

    fn tried(&mut self, now: Instant64) {
        let wait = TRIES_MS
            .get(self.tries)
            .or(TRIES_MS.last())
            .copied()
            .unwrap_or(STANDSTILL_MS);
        self.next = now.plus(wait);
        self.tries = (self.tries + 1).min(TRIES_MS.len());
    }
}

impl Leader {
    /// Proposes the member for the ISR, or clears its flag *cut*, when it holds everything that may be committed.
    pub(super) fn maybe_grow(&mut self, member: BrokerId, now: Instant64, out: &mut Actions) {
        if self.growth.is_some() || self.phase != Phase::Serving || !self.may_join(member) {
            return;
        }
        if self.solo {
            if !self.solo_ends {
                self.solo_ends = true;
                out.push(Action::EndSolo(self.high_watermark));
            }
            return;
        }
        let Some(known) = self.members.get(&member) else {
            return;
        };
        let mut change = self.change(self.config.isr.clone());
        change.isr.insert(member);
        change.verified.push((member, known.boot_epoch));
        self.proposed.insert(member);
        self.growth = Some(Proposal {
            about: BTreeSet::from([member]),
            change: change.clone(),
            sent: now,
        });
        out.push(Action::ProposeIsr(change));
    }

    fn may_join(&self, member: BrokerId) -> bool {
        let (Some(replica), Some(known)) =
            (self.config.replicas.get(&member), self.members.get(&member))
        else {
            return false;
        };
        let without_start = planted_bug::is_active(PlantedBug::GrowthWithoutEpochStart);
        let needed = if without_start {
            self.high_watermark
        } else {
            self.high_watermark.max(self.epoch_start)
        };
        (!self.config.isr.contains(&member) || replica.cut)
            && replica.confirmed
            && known.has_pieces
            && known.reported.is_none()
            && known.counted.is_some_and(|counted| counted >= needed)
    }

    /// Members of the ISR whose counted end has not reached for [`LAG_MS`] what the log end was then.
    pub fn lagging(&self, now: Instant64) -> BTreeSet<BrokerId> {
        let late = |member: &BrokerId| {
            *member != self.id
                && self
                    .members
                    .get(member)
                    .is_none_or(|known| now.since(known.reached) >= LAG_MS)
        };
        self.config.isr.iter().copied().filter(late).collect()
    }

    /// Proposes the ISR without these members. They are counted until the entry is applied.
    pub(super) fn shrink(
        &mut self,
        members: &BTreeSet<BrokerId>,
        now: Instant64,
        out: &mut Actions,
    ) {
        let members: BTreeSet<_> = members.intersection(&self.config.isr).copied().collect();
        let known = self
            .shrink
            .as_ref()
            .is_some_and(|proposal| proposal.about.is_superset(&members));
        if members.is_empty() || known || members.contains(&self.id) {
            return;
        }
        let change = self.change(self.config.isr.difference(&members).copied().collect());
        self.shrink = Some(Proposal {
            about: members,
            change: change.clone(),
            sent: now,
        });
        out.push(Action::ProposeIsr(change));
    }

    fn change(&self, isr: BTreeSet<BrokerId>) -> IsrChange {
        let (leader_epoch, partition_epoch) =
            (self.config.leader_epoch, self.config.partition_epoch);
        IsrChange {
            leader_epoch,
            partition_epoch,
            isr,
            verified: Vec::new(),
        }
    }

    /// Sends again what no entry has settled. A proposal that is no longer wanted becomes the ISR as it is: one of the two
    /// is applied, and either ends the other (N5).
    pub(super) fn repeat(&mut self, now: Instant64, out: &mut Actions) {
        let lagging = self.lagging(now);
        let unwanted = self.change(self.config.isr.clone());
        let lost = |member: &BrokerId| {
            self.counted(*member).is_none()
                || self.members.get(member).is_some_and(|known| {
                    known.reported.is_some() || now.since(known.reached) >= LAG_MS
                })
        };
        let growth_lost = self
            .growth
            .as_ref()
            .is_some_and(|growth| growth.about.iter().any(lost));
        let wanted = [(!growth_lost, &mut self.growth)].into_iter();
        let still = self.shrink.as_ref().is_some_and(|shrink| {
            !shrink.about.is_disjoint(&lagging)
                || shrink
                    .about
                    .iter()
                    .any(|member| self.leaving.contains(member))
        });
        for (wanted, slot) in wanted.chain([(still, &mut self.shrink)]) {
            let Some(proposal) = slot
                .as_mut()
                .filter(|proposal| now.since(proposal.sent) >= REPEAT_MS)
            else {
                continue;
            };
            if !wanted {
                proposal.change = unwanted.clone();
            }
            proposal.sent = now;
            out.push(Action::ProposeIsr(proposal.change.clone()));
        }
        for (&member, known) in &mut self.members {
            if known
                .reported
                .is_some_and(|sent| now.since(sent) >= REPEAT_MS)
            {
                known.reported = Some(now);
                out.push(Action::ReportUnclean(member, known.boot_epoch));
            }
        }
        if let Some((resignation, sent)) = self
            .resignation
            .as_mut()
            .filter(|(_, sent)| now.since(*sent) >= REPEAT_MS)
        {
            *sent = now;
            out.push(Action::Resign(*resignation));
        }
    }

    /// Resigns if the leader cannot do its work, and another member can: without one, nothing is gained, and reads would end (N39).
    pub(super) fn maybe_resign(&mut self, health: Health, now: Instant64, out: &mut Actions) {
        if !matches!(self.phase, Phase::Serving | Phase::Suspended) {
            return;
        }
        if !self.config.another_can_lead(self.id) {
            return;
        }
        let is_untried = |member: &BrokerId| {
            *member != self.id && self.config.can_lead(*member) && self.config.is_untried(*member)
        };
        let intact = |member: &BrokerId| {
            *member != self.id
                && self
                    .members
                    .get(member)
                    .is_some_and(|known| known.counted.is_some() && known.damaged.is_none())
        };
        let reason = if health.directory_failed {
            Reason::DirectoryFailed
        } else if health.oldest_call_ms > STUCK_CALL_MS {
            Reason::StuckCall
        } else if health.disk_full && now >= self.standstill.next {
            Reason::DiskFull
        } else if health.damaged_ms.is_some_and(|age| age >= DAMAGE_MS)
            && self.config.isr.iter().any(intact)
        {
            Reason::Damage
        } else if self.phase == Phase::Serving
            && self.standstill.is_over(now)
            && self.config.eligible.iter().any(is_untried)
        {
            Reason::Standstill
        } else {
            return;
        };
        self.phase = Phase::Stopped;
        let (leader_epoch, partition_epoch) =
            (self.config.leader_epoch, self.config.partition_epoch);
        let resignation = Resignation {
            leader_epoch,
            partition_epoch,
            reason,
            hw_moved: self.standstill.moved,
        };
        self.standstill.moved = false;
        self.standstill.tried(now);
        self.resignation = Some((resignation, now));
        out.push(Action::Stop);
        out.push(Action::Resign(resignation));
    }
}
