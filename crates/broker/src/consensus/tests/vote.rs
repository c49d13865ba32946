//! The vote: what a crash, damage or a copy leaves.
use crate::consensus::vote::{HardState, VoteError, VoteFile};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;

const SLOT: u64 = 4096;

fn founded() -> (TempDir, VoteFile) {
    let directory = tempfile::tempdir().unwrap();
    let state = HardState {
        cluster: [7; 16],
        raft_id: 3,
        first_voters: vec![1, 2, 3],
        ..HardState::default()
    };
    let file = VoteFile::create(directory.path(), state).unwrap();
    (directory, file)
}

fn damage(directory: &Path, slot: u64) {
    let file = OpenOptions::new()
        .write(true)
        .open(directory.join("vote"))
        .unwrap();
    file.write_all_at(b"damage", slot * SLOT + 30).unwrap();
}

fn vote_of(directory: &Path) -> (u64, Option<u64>) {
    let file = VoteFile::open(directory).unwrap();
    (file.state().term, file.state().voted_for)
}

#[test]
fn a_vote_is_found_again_with_who_gave_it() {
    let (directory, mut file) = founded();
    file.store(5, Some(2), true).unwrap();
    drop(file);
    let file = VoteFile::open(directory.path()).unwrap();
    let expected = HardState {
        cluster: [7; 16],
        raft_id: 3,
        rescues: 0,
        term: 5,
        voted_for: Some(2),
        is_committed: true,
        first_voters: vec![1, 2, 3],
    };
    assert_eq!(file.state(), &expected);
}

/// W22: one slot is damaged after the vote was answered.
#[test]
fn one_readable_slot_is_never_older_than_what_was_answered() {
    for slot in 0..2 {
        let (directory, mut file) = founded();
        file.store(1, Some(1), false).unwrap();
        file.store(2, Some(3), false).unwrap();
        damage(directory.path(), slot);
        assert_eq!(vote_of(directory.path()), (2, Some(3)), "slot {slot}");
        // It was written again: the other one may be damaged next.
        damage(directory.path(), 1 - slot);
        assert_eq!(vote_of(directory.path()), (2, Some(3)), "slot {slot}");
    }
}

/// W40: the process dies between the slots; the next run answers by the newer one; then that is damaged.
#[test]
fn slots_that_differ_are_made_equal_before_anything_is_answered() {
    for slot in 0..2 {
        let (directory, mut file) = founded();
        file.store(1, Some(1), false).unwrap();
        let path = directory.path().join("vote");
        let older = fs::read(&path).unwrap();
        file.store(2, Some(3), false).unwrap();
        drop(file);
        let other = (1 - slot) * SLOT;
        let bytes = &older[other as usize..][..SLOT as usize];
        let raw = OpenOptions::new().write(true).open(&path).unwrap();
        raw.write_all_at(bytes, other).unwrap();
        assert_eq!(vote_of(directory.path()), (2, Some(3)), "slot {slot}");
        damage(directory.path(), slot);
        assert_eq!(vote_of(directory.path()), (2, Some(3)), "slot {slot}");
    }
}

/// F23.
#[test]
fn a_vote_needs_a_slot() {
    let (directory, file) = founded();
    drop(file);
    damage(directory.path(), 0);
    damage(directory.path(), 1);
    let error = VoteFile::open(directory.path()).unwrap_err();
    assert!(matches!(error, VoteError::Damaged { .. }), "{error}");
    fs::write(directory.path().join("vote"), b"").unwrap();
    let error = VoteFile::open(directory.path()).unwrap_err();
    assert!(matches!(error, VoteError::Damaged { .. }), "{error}");
}

/// W28: the original may have voted since.
#[test]
fn a_copy_does_not_vote() {
    let (directory, mut file) = founded();
    file.store(4, Some(1), false).unwrap();
    let copy = tempfile::tempdir().unwrap();
    fs::copy(directory.path().join("vote"), copy.path().join("vote")).unwrap();
    let error = VoteFile::open(copy.path()).unwrap_err();
    assert!(matches!(error, VoteError::Copied { .. }), "{error}");
    assert!(VoteFile::create(directory.path(), HardState::default()).is_err());
}

#[test]
fn what_does_not_fit_a_slot_is_refused_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let state = HardState {
        first_voters: vec![u64::MAX; 500],
        ..HardState::default()
    };
    let error = VoteFile::create(directory.path(), state).unwrap_err();
    let VoteError::TooLarge { bytes, most } = error else {
        panic!("{error}");
    };
    assert!(bytes > most);
}
