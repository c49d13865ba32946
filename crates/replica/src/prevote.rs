//! Pre-votes: a broker asks whether it could win before it begins an election, so that a cut link moves no office (N50).
use crate::types::{BrokerId, Instant64};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// A pre-vote is refused after a leader was heard within this time.
pub const LEADER_HEARD_MS: u64 = 300;
/// The shortest wait before a round; the caller draws each one up to twice that.
pub const ROUND_MS: u64 = 300;

/// Term and index of the last entry of a metadata log. Ordered by term, then index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// Term.
    pub term: u64,
    /// Index.
    pub index: u64,
}

/// What happens to a voter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A frame of the leader of the present or a newer term arrived.
    LeaderHeard,
    /// The voters, without this broker, or its own log changed.
    Group {
        /// The other voters.
        others: BTreeSet<BrokerId>,
        /// This broker is a voter and its vote is readable.
        votes: bool,
        /// The end of the own log.
        last: LogId,
    },
    /// Another voter asks.
    Asked {
        /// Who asks.
        from: BrokerId,
        /// The end of its log.
        last: LogId,
    },
    /// A voter answered.
    Answered {
        /// Who answered.
        from: BrokerId,
        /// The round that it answers.
        round: u64,
        /// Whether it would vote for this broker.
        granted: bool,
    },
    /// Time passes. `draw_ms` is the caller's random wait for the next round, [`ROUND_MS`] to twice that.
    Tick {
        /// Used only when a round begins.
        draw_ms: u64,
    },
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ask this voter.
    Ask(BrokerId, u64),
    /// Answer the one that asked. The state of votes is not touched.
    Answer(BrokerId, bool),
    /// A majority would vote for this broker: begin an election.
    Elect,
}

/// One broker's side of pre-votes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PreVote {
    others: BTreeSet<BrokerId>,
    votes: bool,
    last: LogId,
    heard: Option<Instant64>,
    next: Instant64,
    round: u64,
    granted: Option<BTreeSet<BrokerId>>,
}

impl PreVote {
    /// Takes one event.
    pub fn step(&mut self, event: Event, now: Instant64) -> SmallVec<[Action; 4]> {
        let mut out = SmallVec::new();
        match event {
            Event::LeaderHeard => (self.heard, self.granted) = (Some(now), None),
            Event::Group {
                others,
                votes,
                last,
            } => (self.others, self.votes, self.last) = (others, votes, last),
            Event::Asked { from, last } => {
                let granted = self.votes
                    && self.others.contains(&from)
                    && !self.has_leader(now)
                    && last >= self.last;
                out.push(Action::Answer(from, granted));
            }
            Event::Answered {
                from,
                round,
                granted,
            } => {
                if granted
                    && round == self.round
                    && self.others.contains(&from)
                    && !self.has_leader(now)
                {
                    if let Some(granted) = &mut self.granted {
                        granted.insert(from);
                    }
                    self.count(&mut out);
                }
            }
            Event::Tick { draw_ms } if self.votes && !self.has_leader(now) && now >= self.next => {
                self.next = now.plus(draw_ms.clamp(ROUND_MS, 2 * ROUND_MS));
                self.round = self.round.saturating_add(1);
                self.granted = Some(BTreeSet::new());
                out.extend(
                    self.others
                        .iter()
                        .map(|&other| Action::Ask(other, self.round)),
                );
                self.count(&mut out);
            }
            Event::Tick { .. } => {}
        }
        out
    }

    fn has_leader(&self, now: Instant64) -> bool {
        self.heard
            .is_some_and(|heard| now.since(heard) < LEADER_HEARD_MS)
    }

    /// A round wins once: the own vote and those granted are more than half.
    fn count(&mut self, out: &mut SmallVec<[Action; 4]>) {
        let voters = self.others.len() + 1;
        if self
            .granted
            .as_ref()
            .is_some_and(|granted| (granted.len() + 1) * 2 > voters)
        {
            self.granted = None;
            out.push(Action::Elect);
        }
    }
}
