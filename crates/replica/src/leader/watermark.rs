//! Counted ends, the high watermark, and the answers that wait for it.
use crate::leader::{AckPolicy, Action, Actions, Leader, Phase};
use crate::types::{BrokerId, Class, Instant64};
use bascule_record::planted_bug::{self, PlantedBug};
use std::collections::BTreeSet;

/// Publishes that wait for their answer, by the end of their records, then by ticket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PendingAcks {
    all: BTreeSet<(u64, u64)>,
    leader: BTreeSet<(u64, u64)>,
}

impl PendingAcks {
    /// Adds one.
    pub fn add(&mut self, ticket: u64, end: u64, policy: AckPolicy) {
        match policy {
            AckPolicy::All => self.all.insert((end, ticket)),
            AckPolicy::Leader => self.leader.insert((end, ticket)),
        };
    }

    fn release(&mut self, committed: u64, own: u64, out: &mut Actions) {
        for (waiting, reached) in [(&mut self.all, committed), (&mut self.leader, own)] {
            while let Some((_, ticket)) =
                waiting.first().copied().filter(|&(end, _)| end <= reached)
            {
                waiting.pop_first();
                out.push(Action::Ack(ticket));
            }
        }
    }

    /// Answers all as unknown, in the order of their ends.
    pub fn give_up(&mut self, out: &mut Actions) {
        for waiting in [&mut self.all, &mut self.leader] {
            out.extend(
                std::mem::take(waiting)
                    .into_iter()
                    .map(|(_, ticket)| Action::OutcomeUnknown(ticket)),
            );
        }
    }
}

impl Leader {
    /// The end that the leader counts of itself (exclusive). Own damage does not lower it.
    pub fn own_counted(&self) -> u64 {
        match self.config.class {
            Class::Disk => self.durable,
            Class::Memory => self.log_end,
        }
    }

    /// What is counted of a member in this leader epoch and from its present run; `None` if it has not reported.
    pub fn counted(&self, member: BrokerId) -> Option<u64> {
        if member == self.id {
            return Some(self.own_counted());
        }
        self.members.get(&member).and_then(|known| known.counted)
    }

    /// End (exclusive) of the committed records that every replica has durably, in the ISR or not, by what it reported in this
    /// leader epoch; 0 while one has not. Below, no replica compares its log with the leader's any more, so each may compact.
    pub fn replicated_to(&self) -> u64 {
        let durable = |&id: &BrokerId| match self.members.get(&id) {
            _ if id == self.id => Some(self.durable),
            Some(known) => {
                let intact = known.damaged.unwrap_or(u64::MAX);
                known.durable.map(|end| end.min(intact))
            }
            None => None,
        };
        let least = self.config.replicas.keys().map(durable).min().flatten();
        least.map_or(0, |end| end.min(self.high_watermark))
    }

    /// The members that must hold a record before it is committed: the committed ISR and every proposed member.
    pub fn maximal_isr(&self) -> BTreeSet<BrokerId> {
        let mut members = self.config.isr.clone();
        if !planted_bug::is_active(PlantedBug::HighWatermarkOverCommittedIsr) {
            members.extend(&self.proposed);
        }
        members.insert(self.id);
        members
    }

    /// Moves the high watermark if it may move, and releases the answers that waited for it.
    pub(super) fn advance(&mut self, now: Instant64, out: &mut Actions) {
        if self.phase == Phase::Serving && self.config.isr.len() >= self.config.min_isr {
            let counted = self
                .maximal_isr()
                .into_iter()
                .map(|member| self.counted(member))
                .min()
                .flatten();
            if let Some(end) = counted.filter(|&end| end > self.high_watermark) {
                self.high_watermark = end;
                self.standstill.moved(now);
                out.push(Action::RaiseHighWatermark(end));
            }
        }
        // Without a lease it is not this leader's followers that are missing.
        let counts = self.phase != Phase::Suspended && self.high_watermark < self.log_end;
        self.standstill.watch(!counts, now);
        if self.phase == Phase::Serving {
            let own = self.own_counted();
            self.pending.release(self.high_watermark, own, out);
        }
    }
}
