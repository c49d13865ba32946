//! The search: breadth first over all orders of moves, each state once.
use crate::moves::{Move, successors};
use crate::state::State;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How a search ended.
pub struct Found {
    /// States visited.
    pub states: usize,
    /// Every state within the bounds was visited.
    pub complete: bool,
    /// The first state that breaks an invariant: which one, and the moves that lead to it.
    pub violation: Option<(&'static str, Vec<Move>)>,
    /// The names of the moves taken, without their brokers: a bound that forbids one shows here.
    pub kinds: HashSet<&'static str>,
}

fn digest(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Searches from the states given, at most so many states, with at most `frames` frames under way.
pub fn search(starts: Vec<State>, limit: usize, frames: usize) -> Found {
    let mut seen: HashSet<u64> = starts.iter().map(digest).collect();
    // The moves as a tree: place of the state before, and the move.
    let start = (usize::MAX, ("start", crate::common::A, crate::common::A));
    let mut moves: Vec<(usize, Move)> = starts.iter().map(|_| start).collect();
    let mut queue: VecDeque<(usize, State)> = starts.into_iter().enumerate().collect();
    let mut found = Found {
        states: queue.len(),
        complete: true,
        violation: None,
        kinds: HashSet::new(),
    };
    while let Some((place, state)) = queue.pop_front() {
        for (name, next) in successors(&state, frames) {
            if !seen.insert(digest(&next)) {
                continue;
            }
            found.states += 1;
            found.kinds.insert(name.0);
            moves.push((place, name));
            let own = moves.len() - 1;
            if let Some(violation) = next.violation() {
                found.violation = Some((violation, trace(&moves, own)));
                return found;
            }
            if found.states >= limit {
                found.complete = false;
                return found;
            }
            queue.push_back((own, next));
        }
    }
    found
}

fn trace(moves: &[(usize, Move)], mut place: usize) -> Vec<Move> {
    let mut names = Vec::new();
    while let Some(&(before, name)) = moves.get(place) {
        names.push(name);
        place = before;
    }
    names.reverse();
    names
}
