//! What an append may hold.
use crate::consensus::network::check_order;
use crate::consensus::types::{Types, log_id};
use openraft::Vote;
use openraft::raft::AppendEntriesRequest;
use openraft::testing::blank_ent;

/// Entries (term, index) behind `previous`, from a leader of term 5.
fn check(previous: Option<(u64, u64)>, entries: &[(u64, u64)]) -> Result<(), String> {
    let request = AppendEntriesRequest::<Types> {
        vote: Vote::new_committed(5, 1),
        prev_log_id: previous.map(|(term, index)| log_id(term, index)),
        entries: entries
            .iter()
            .map(|(term, index)| blank_ent(*term, 0, *index))
            .collect(),
        leader_commit: None,
    };
    check_order(&request).map_err(|error| error.to_string())
}

#[test]
fn entries_that_follow_one_by_one_in_ascending_terms_are_stored() {
    for (previous, entries) in [
        (None, &[][..]),
        (None, &[(0, 0), (1, 1), (5, 2)]),
        (Some((2, 7)), &[(2, 8), (4, 9), (5, 10)]),
        (Some((5, 7)), &[(5, 8)]),
    ] {
        assert_eq!(check(previous, entries), Ok(()));
    }
}

#[test]
fn others_are_refused_and_named() {
    for (previous, entries, named) in [
        (None, &[(1, 1)][..], "entry 2 stands where entry 1 belongs"),
        (
            Some((2, 7)),
            &[(2, 9)],
            "entry 10 stands where entry 9 belongs",
        ),
        (
            Some((2, 7)),
            &[(2, 8), (2, 8)],
            "entry 9 stands where entry 10 belongs",
        ),
        // Of a leader that came later, or of an older one than the entry before it has.
        (Some((2, 7)), &[(6, 8)], "entry 9 is of term 6"),
        (Some((4, 7)), &[(3, 8)], "entry 9 is of term 3"),
        (Some((2, 7)), &[(4, 8), (3, 9)], "entry 10 is of term 3"),
    ] {
        let refused = check(previous, entries).unwrap_err();
        assert!(refused.contains(named), "{refused}");
    }
}
