//! Elections of the metadata group: pre-votes before an election, and a leader that hears no majority goes silent.
//!
//! The library's own elections are off: it has no pre-vote, and draws its timeout once for each process.
use super::log_store::LogStore;
use super::network::{Kind, PreVoteRequest, Transport, decode, encode};
use super::types::Types;
use crate::clock::since_boot;
use bascule_replica::prevote::{Action, Event, LogId, PreVote, ROUND_MS};
use bascule_replica::types::{BrokerId, Instant64};
use openraft::{Raft, ServerState};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two looks at the time.
const TICK: Duration = Duration::from_millis(20);
/// How long an answer to a pre-vote is waited for.
const PRE_VOTE_TIMEOUT: Duration = Duration::from_millis(300);
/// Between two authority rounds.
const AUTHORITY_PAUSE: Duration = Duration::from_millis(100);
/// How long a round is waited for.
const AUTHORITY_TIMEOUT: Duration = Duration::from_millis(500);
/// A leader that no majority has answered for this long sends nothing any more, so that others may elect over a one-way link.
pub(super) const SILENCE_MS: u64 = 700;
/// A leader that gives its office away is silent for so long: others elect after 300 ms of silence, and up to 600 ms more.
const HAND_OVER_MS: u64 = 1_500;

/// Pre-votes and the authority of one voter.
pub(super) struct Elections {
    id: u64,
    raft: Raft<Types>,
    store: LogStore,
    transport: Arc<dyn Transport>,
    random: SystemRandom,
    /// Whether the network sends nothing as a leader.
    is_silent: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    prevote: PreVote,
    /// The term that this broker leads.
    office: Option<u64>,
    /// The begin of the last authority round that a majority answered, in the present office.
    authority: Instant64,
    /// Until when this broker gives its office away.
    hands_over_until: Instant64,
}

impl Debug for Elections {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Elections")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Elections {
    pub fn new(
        id: u64,
        raft: Raft<Types>,
        store: LogStore,
        transport: Arc<dyn Transport>,
        is_silent: Arc<AtomicBool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            raft,
            store,
            transport,
            random: SystemRandom::new(),
            is_silent,
            state: Mutex::default(),
        })
    }

    /// Runs until the voter is dropped or its Raft ends.
    pub async fn run(this: Weak<Self>) {
        let mut pause = tokio::time::interval(TICK);
        pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            pause.tick().await;
            match this.upgrade() {
                Some(elections) if elections.is_running() => elections.tick(),
                _ => return,
            }
        }
    }

    /// Renews the authority of a leader, until the voter is dropped or its Raft ends.
    pub async fn hold_office(this: Weak<Self>) {
        loop {
            tokio::time::sleep(AUTHORITY_PAUSE).await;
            match this.upgrade() {
                Some(elections) if elections.is_running() => elections.authority_round().await,
                _ => return,
            }
        }
    }

    /// A frame of the present leader, or of one of a newer term, arrived.
    pub fn leader_heard(&self) {
        let now = since_boot();
        self.state.lock().prevote.step(Event::LeaderHeard, now);
    }

    /// Whether this voter would vote for the one that asks.
    pub fn would_vote(&self, from: u64, request: PreVoteRequest) -> bool {
        let last = LogId {
            term: request.last_term,
            index: request.last_index,
        };
        let now = since_boot();
        let mut state = self.state.lock();
        self.set_group(&mut state, Some(from), now);
        let from = BrokerId(from);
        let actions = state.prevote.step(Event::Asked { from, last }, now);
        actions.contains(&Action::Answer(from, true))
    }

    /// The term that this broker leads, if a majority answered it within the last [`SILENCE_MS`].
    pub fn office(&self) -> Option<u64> {
        let (state, now) = (self.state.lock(), since_boot());
        let is_fresh = now.since(state.authority) < SILENCE_MS && now >= state.hands_over_until;
        state.office.filter(|_| is_fresh)
    }

    /// The term that this broker leads, and when the last round began that a majority answered: `None` = it does not lead.
    pub fn authority(&self) -> Option<(u64, Instant64)> {
        let state = self.state.lock();
        Some((state.office?, state.authority))
    }

    /// Has another voter elected: this one sends nothing, and does not ask for votes.
    pub fn hand_over(&self) {
        self.state.lock().hands_over_until = since_boot().plus(HAND_OVER_MS);
    }

    fn is_running(&self) -> bool {
        self.raft.metrics().borrow().running_state.is_ok()
    }

    fn tick(self: &Arc<Self>) {
        let (leads, term) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.state == ServerState::Leader, metrics.current_term)
        };
        let now = since_boot();
        let actions = {
            let mut state = self.state.lock();
            if leads && state.office != Some(term) {
                // A majority has just voted for it.
                (state.office, state.authority) = (Some(term), now);
                self.set_silent(false);
            } else if !leads {
                state.office = None;
                self.set_silent(false);
            }
            let hands_over = now < state.hands_over_until;
            if hands_over {
                self.set_silent(leads);
            } else if leads && now.since(state.authority) < SILENCE_MS {
                state.prevote.step(Event::LeaderHeard, now);
            } else if leads {
                self.set_silent(true);
            }
            self.set_group(&mut state, None, now);
            if hands_over {
                // It agrees to the pre-votes of the others, and begins none.
                return;
            }
            let draw_ms = self.draw();
            state.prevote.step(Event::Tick { draw_ms }, now)
        };
        self.act(actions);
    }

    fn act(self: &Arc<Self>, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            match action {
                Action::Ask(voter, round) => {
                    tokio::spawn(Self::ask(self.clone(), voter, round));
                }
                Action::Elect => {
                    tokio::spawn(Self::elect(self.clone()));
                }
                // Answers are given by `would_vote`.
                Action::Answer(..) => {}
            }
        }
    }

    async fn ask(self: Arc<Self>, voter: BrokerId, round: u64) {
        let (last_term, last_index) = self.store.last();
        let request = PreVoteRequest {
            last_term,
            last_index,
        };
        let Ok(body) = encode(&request) else { return };
        let asked = self
            .transport
            .ask(voter.0, Kind::PreVote, body, PRE_VOTE_TIMEOUT);
        let answer = tokio::time::timeout(PRE_VOTE_TIMEOUT, asked).await;
        // Without an answer there is no vote.
        let granted = matches!(&answer, Ok(Ok(body)) if decode(body).unwrap_or(false));
        let event = Event::Answered {
            from: voter,
            round,
            granted,
        };
        let now = since_boot();
        let actions = self.state.lock().prevote.step(event, now);
        self.act(actions);
    }

    /// A majority would vote for this broker. One that leads already is heard again: it sends again, since its log may be the
    /// only one that could win.
    async fn elect(self: Arc<Self>) {
        let now = since_boot();
        {
            let mut state = self.state.lock();
            if now < state.hands_over_until {
                return;
            }
            if state.office.is_some() {
                state.authority = now;
                return self.set_silent(false);
            }
        }
        // Its Raft has ended, and so do the elections.
        let _ended = self.raft.trigger().elect().await;
    }

    async fn authority_round(&self) {
        let is_silent = self.is_silent.load(Ordering::Acquire);
        let office = self.state.lock().office.filter(|_| !is_silent);
        let Some(term) = office else { return };
        let begin = since_boot();
        let round = tokio::time::timeout(AUTHORITY_TIMEOUT, self.raft.get_read_log_id()).await;
        let mut state = self.state.lock();
        if matches!(round, Ok(Ok(_))) && state.office == Some(term) {
            state.authority = state.authority.max(begin);
        }
    }

    fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Release);
    }

    /// Before this broker has heard of the group, it agrees to whoever asks, as the library does with votes: a founder whose
    /// first votes were lost would never win otherwise.
    fn set_group(&self, state: &mut State, asks: Option<u64>, now: Instant64) {
        let mut voters: Vec<u64> = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            metrics.membership_config.membership().voter_ids().collect()
        };
        if let (true, Some(asks)) = (voters.is_empty(), asks) {
            voters.extend([self.id, asks]);
        }
        let (term, index) = self.store.last();
        let group = Event::Group {
            others: voters
                .iter()
                .filter(|voter| **voter != self.id)
                .map(|voter| BrokerId(*voter))
                .collect(),
            votes: voters.contains(&self.id),
            last: LogId { term, index },
        };
        state.prevote.step(group, now);
    }

    /// A wait for the next round, [`ROUND_MS`] to twice that, ms.
    fn draw(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without randomness the wait is the middle one: two voters may draw alike for a while.
        match self.random.fill(&mut bytes) {
            Ok(()) => ROUND_MS + u64::from_le_bytes(bytes) % (ROUND_MS + 1),
            Err(_) => ROUND_MS + ROUND_MS / 2,
        }
    }
}
