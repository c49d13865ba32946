//! Take-over: before its first record a new leader fetches what another eligible member has and it lacks (rule 11).
use crate::follower::{Batch, fitting};
use crate::types::{BrokerId, Config, Instant64, Position};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// How long a take-over lasts at most.
pub const TAKE_OVER_MS: u64 = 500;
/// How long one try of a fetch lasts at most.
pub const TRY_MS: u64 = 100;

/// The actions of one step, in the order in which they have to happen.
pub type Actions = SmallVec<[Action; 3]>;

/// What happens to a take-over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A member that has applied this leader epoch answered with its position.
    Position {
        /// The member.
        from: BrokerId,
        /// The leader epoch of the answer.
        leader_epoch: u64,
        /// The end of its log.
        position: Position,
    },
    /// A range arrived.
    Range {
        /// The member.
        from: BrokerId,
        /// The try that it answers.
        attempt: u64,
        /// The batches from the own end on.
        batches: Vec<Batch>,
    },
    /// Time passes.
    Tick,
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ask the member for its position. It answers only once it has applied this leader epoch, and from then on refuses
    /// older ones.
    Ask(BrokerId),
    /// Fetch the batches behind the own position, under the new leader epoch.
    Fetch {
        /// The member that has most.
        from: BrokerId,
        /// Names the try.
        attempt: u64,
        /// The own end.
        position: Position,
    },
    /// Append the first so many batches of the range.
    Append {
        /// At least 1.
        batches: usize,
    },
    /// The leader epoch begins here (`leader::Event::Opened`). Nothing follows.
    Open {
        /// The log end.
        epoch_start: u64,
    },
}

/// A take-over in one leader epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakeOver {
    leader_epoch: u64,
    deadline: Instant64,
    own: Position,
    /// The members asked, and their answers.
    asked: BTreeMap<BrokerId, Option<Position>>,
    attempt: u64,
    fetching: Option<(BrokerId, Instant64)>,
    open: bool,
}

impl TakeOver {
    /// Begins: asks every other live, clean, eligible member. Without one the epoch begins at once.
    pub fn begin(id: BrokerId, config: &Config, own: Position, now: Instant64) -> (Self, Actions) {
        let may_know = |member: &BrokerId| {
            *member != id
                && config
                    .replicas
                    .get(member)
                    .is_some_and(|replica| replica.confirmed && !replica.unclean)
        };
        let asked: BTreeMap<_, _> = config
            .eligible
            .iter()
            .copied()
            .filter(may_know)
            .map(|member| (member, None))
            .collect();
        let mut out: Actions = asked.keys().copied().map(Action::Ask).collect();
        let deadline = now.plus(TAKE_OVER_MS);
        let leader_epoch = config.leader_epoch;
        let mut take_over = Self {
            leader_epoch,
            deadline,
            own,
            asked,
            attempt: 0,
            fetching: None,
            open: false,
        };
        take_over.proceed(now, &mut out);
        (take_over, out)
    }

    /// Whether the epoch has begun: what arrives now is ignored.
    pub fn is_over(&self) -> bool {
        self.open
    }

    /// Takes one event.
    pub fn step(&mut self, event: Event, now: Instant64) -> Actions {
        let mut out = Actions::new();
        if self.open {
            return out;
        }
        match event {
            Event::Position {
                from,
                leader_epoch,
                position,
            } if leader_epoch == self.leader_epoch => {
                if let Some(answer) = self.asked.get_mut(&from) {
                    *answer = Some(position);
                }
            }
            Event::Range {
                from,
                attempt,
                batches,
            } if attempt == self.attempt && now < self.deadline => {
                if self
                    .fetching
                    .take_if(|(member, _)| *member == from)
                    .is_some()
                {
                    self.append(from, &batches, &mut out);
                }
            }
            Event::Position { .. } | Event::Range { .. } | Event::Tick => {}
        }
        if let Some((member, _)) = self
            .fetching
            .take_if(|(_, sent)| now.since(*sent) >= TRY_MS)
        {
            self.asked.remove(&member);
        }
        self.proceed(now, &mut out);
        out
    }

    fn append(&mut self, from: BrokerId, batches: &[Batch], out: &mut Actions) {
        let (count, position) = fitting(batches, self.own, self.leader_epoch);
        if count > 0 {
            self.own = position;
            out.push(Action::Append { batches: count });
        }
        // A range that does not continue the own log, or holds nothing, ends the tries with this member.
        if count < batches.len() || count == 0 {
            self.asked.remove(&from);
        }
    }

    fn proceed(&mut self, now: Instant64, out: &mut Actions) {
        let complete = self.asked.values().all(Option::is_some);
        if self.fetching.is_some() && now < self.deadline {
            return;
        }
        if now < self.deadline && !complete {
            return;
        }
        let ahead = self
            .asked
            .iter()
            .filter_map(|(&member, answer)| Some((answer.as_ref()?, member)));
        let most = ahead.max_by_key(|(position, _)| (position.epoch, position.end));
        match most {
            Some((position, from))
                if (position.epoch, position.end) > (self.own.epoch, self.own.end)
                    && now < self.deadline =>
            {
                self.attempt = self.attempt.saturating_add(1);
                self.fetching = Some((from, now));
                out.push(Action::Fetch {
                    from,
                    attempt: self.attempt,
                    position: self.own,
                });
            }
            _ => {
                self.open = true;
                out.push(Action::Open {
                    epoch_start: self.own.end,
                });
            }
        }
    }
}
