//! A cut of a live log in the WAL: what lies after it never comes back.
use super::damaged::home::destroy;
use super::*;
use crate::io::file_names::journal_name;

/// Two logs whose batches from the first one on are in the WAL alone, ten each; the first log is cut at 4. Returns where frames
/// of the WAL end before the cut and after it.
fn cut(home: &Path) -> (usize, usize) {
    let (committer, logs) = logs_with_rounds_in_wal_after_copy(home, 2, 10);
    let before = committer.statistics().wal_bytes as usize;
    assert!(committer.record_cut(identity(1), 4, 1).unwrap());
    drop((logs, committer));
    restore(&home.join("copy"), home);
    (before, before + format::FRAME_BYTES + format::CUT_BYTES)
}

/// What the two logs serve after a start.
fn served(home: &Path) -> [Vec<u64>; 2] {
    let committer = committer(home);
    [1, 2].map(|i| values(&open(home, i, &committer).0))
}

#[test]
fn replay_brings_nothing_back_from_behind_a_cut() {
    let home = tempfile::tempdir().unwrap();
    cut(home.path());
    for _ in 0..2 {
        assert_eq!(
            served(home.path()),
            [(0..4).collect(), (0..10).collect::<Vec<_>>()]
        );
    }
}

#[test]
fn what_was_appended_since_is_replayed_behind_it() {
    let home = tempfile::tempdir().unwrap();
    cut(home.path());
    let second = committer(home.path());
    let mut logs = [1, 2].map(|i| open(home.path(), i, &second).0);
    let later = home.path().join("later");
    copy_tree(&home.path().join("partitions"), &later);
    assert_eq!(round(&mut logs, 10, &second), 2);
    assert!(second.record_cut(identity(2), 9, 1).unwrap());
    drop((logs, second));
    restore(&later, home.path());
    let [first, other] = served(home.path());
    assert_eq!(first, [0, 1, 2, 3, 10]);
    assert_eq!(other, (0..10).collect::<Vec<_>>(), "the segment has it");
}

#[test]
fn a_cut_behind_damage_is_found() {
    let home = tempfile::tempdir().unwrap();
    let (end, _) = cut(home.path());
    let path = home.path().join("journal").join(journal_name(0));
    let whole = fs::read(&path).unwrap();
    let manifest = fs::read(home.path().join("journal.head")).unwrap();
    for zeros in [false, true] {
        restore(&home.path().join("copy"), home.path());
        let mut bytes = whole.clone();
        destroy(&mut bytes[end - 200..end], zeros);
        fs::write(&path, bytes).unwrap();
        fs::write(home.path().join("journal.head"), &manifest).unwrap();
        let [first, _] = served(home.path());
        assert_eq!(first, (0..4).collect::<Vec<_>>());
    }
}

#[test]
fn a_cut_that_is_damaged_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = cut(home.path());
    let path = home.path().join("journal").join(journal_name(0));
    let whole = fs::read(&path).unwrap();
    let manifest = fs::read(home.path().join("journal.head")).unwrap();
    for at in from..to {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        fs::write(home.path().join("journal.head"), &manifest).unwrap();
        let damages = committer(home.path()).wal_damages();
        assert_eq!(damages.len(), 1, "byte {at}: {damages:?}");
        assert_eq!(damages[0].position, from as u64);
    }
}

#[test]
fn a_cut_beside_an_older_file_that_a_log_waits_for_makes_no_file_missing() {
    let home = tempfile::tempdir().unwrap();
    drop(logs_with_rounds_in_wal_after_copy(home.path(), 2, 10));
    restore(&home.path().join("copy"), home.path());
    // The first log is not opened: its file stays. The next file is flushed, and nothing needs it.
    let second = committer(home.path());
    let mut logs = [
        open(home.path(), 2, &second).0,
        create(home.path(), 3, &second),
    ];
    for value in 10..13 {
        assert_eq!(round(&mut logs, value, &second), 2);
    }
    assert!(second.statistics().wal_rounds > 0);
    second.flush_wal();
    drop((logs, second));
    let asked = RepairOptions {
        cut_at: Some(1),
        wal: Some(options(home.path())),
        ..RepairOptions::default()
    };
    let at = directory(home.path(), 1);
    let (done, _) = repair(&OsStorage, &at, identity(1), &asked).unwrap();
    assert!(
        done.iter()
            .any(|action| action.path == options(home.path()).directory)
    );
    let third = committer(home.path());
    assert_eq!(third.wal_damages(), []);
    assert_eq!(values(&open(home.path(), 1, &third).0), [0]);
}
