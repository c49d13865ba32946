//! The small model: three replicas, every order of appends, syncs, frames, ISR changes, elections and a crash, with the
//! structs that a broker will run (replication §10.1).
//!
//! A broker is one process here; leases, take-over's questions, damage and compaction are not part of it. A fenced leader
//! stays active until it applies its end: what it commits must be right without a lease.
#[path = "../common/mod.rs"]
mod common;

mod apply;
mod moves;
mod search;
mod state;

use common::{A, B, C};
use search::search;
use state::{Budget, State};

/// All three in the ISR; and C outside, so that it joins.
fn starts(budget: Budget) -> Vec<State> {
    vec![State::new(&[A, B, C], budget), State::new(&[A, B], budget)]
}

const ONE: Budget = Budget {
    records: 1,
    elections: 1,
    crashes: 0,
    losses: 0,
    shrinks: 0,
};
const TWO: Budget = Budget { records: 2, ..ONE };
#[cfg(not(feature = "planted"))]
const WIDE: Budget = Budget {
    records: 2,
    elections: 2,
    crashes: 1,
    losses: 1,
    shrinks: 1,
};

/// `ONE` ends before this; of the other two searches these are the first states.
const STATES: usize = 700_000;

#[test]
#[cfg(not(feature = "planted"))]
#[cfg_attr(debug_assertions, ignore = "needs an optimised build: make test-rust")]
fn no_order_of_moves_loses_a_committed_record() {
    let mut visited = 0;
    for (budget, limit, frames) in [(ONE, STATES, 2), (TWO, STATES, 2), (WIDE, STATES / 2, 3)] {
        let found = search(starts(budget), limit, frames);
        println!(
            "{budget:?}: {} states, complete: {}, moves: {:?}",
            found.states, found.complete, found.kinds
        );
        assert_eq!(found.violation, None);
        assert!(
            found.complete || budget != ONE,
            "{budget:?} has more than {} states",
            found.states
        );
        let small = [
            "append",
            "fetch",
            "deliver",
            "apply",
            "elect",
            "register",
            "change_isr",
        ];
        let wide = ["sync", "lose", "shrink", "crash", "fence"];
        for kind in small.iter().chain(wide.iter().filter(|_| budget == WIDE)) {
            assert!(
                found.kinds.contains(kind),
                "{budget:?} never took the move {kind}"
            );
        }
        visited += found.states;
    }
    println!("{visited} states");
}

/// One test, for one bug can be active in a process. Each is found within the states that the test above visits.
#[test]
#[cfg(feature = "planted")]
#[cfg_attr(debug_assertions, ignore = "needs an optimised build: make test-rust")]
fn each_guard_is_needed() {
    use bascule_record::planted_bug::{self, PlantedBug};
    for (bug, budget) in [
        (PlantedBug::TruncationToHighWatermark, ONE),
        (PlantedBug::FetchEpochIgnored, TWO),
        (PlantedBug::HighWatermarkOverCommittedIsr, ONE),
        (PlantedBug::GrowthWithoutEpochStart, ONE),
    ] {
        planted_bug::set(bug as u32);
        let found = search(starts(budget), STATES, 2);
        planted_bug::set(0);
        println!("{bug:?}: {} states, {:?}", found.states, found.violation);
        assert!(
            found.violation.is_some(),
            "{bug:?} was not found in {} states",
            found.states
        );
    }
}
