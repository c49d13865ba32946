//! Older copies of a journal file under other files' names.
use super::super::mark::tail_bytes;
use super::super::replay::JournalDamage;
use super::*;
use crate::wal::ring;

/// The journal of a life of two logs: its file with the first three rounds, and with all six.
fn grown(home: &Path) -> [Vec<u8>; 2] {
    let (committer, mut logs) = journaled_behind_a_copy(home, 2, 4);
    let file = home.join("journal").join(ring::name(0));
    let earlier = fs::read(&file).unwrap();
    for value in 4..7 {
        assert_eq!(round(&mut logs, value, &committer), 2);
    }
    [earlier, fs::read(&file).unwrap()]
}

#[test]
fn an_older_copy_beside_a_file_takes_nothing_from_its_logs() {
    let home = tempfile::tempdir().unwrap();
    let [earlier, whole] = grown(home.path());
    assert_ne!(earlier, whole);
    for order in [[&earlier, &whole], [&whole, &earlier]] {
        restore(&home.path().join("copy"), home.path());
        for (number, bytes) in order.into_iter().enumerate() {
            let path = home.path().join("journal").join(ring::name(number as u64));
            fs::write(path, bytes).unwrap();
        }
        let committer = committer(home.path());
        assert_eq!(committer.journal_damages(), []);
        for incarnation in [1, 2] {
            let (log, _) = open(home.path(), incarnation, &committer);
            assert_eq!(values(&log), (0..7).collect::<Vec<_>>());
        }
        drop(committer);
        fs::remove_dir_all(home.path().join("journal")).unwrap();
        fs::create_dir(home.path().join("journal")).unwrap();
    }
}

#[test]
fn a_file_that_lost_its_end_is_not_silent_beside_an_older_copy() {
    let home = tempfile::tempdir().unwrap();
    let [earlier, whole] = grown(home.path());
    let changed = |at: &usize| earlier[*at] != whole[*at];
    let from = (0..whole.len()).find(changed).unwrap();
    let frames = (whole.len() - tail_bytes(FILE_BYTES) as usize).min(whole.len());
    let mut zeroed = whole.clone();
    zeroed[from..frames].fill(0);
    for harmed in [zeroed, whole[..from].to_vec()] {
        for order in [[&earlier, &harmed], [&harmed, &earlier]] {
            restore(&home.path().join("copy"), home.path());
            for (number, bytes) in order.into_iter().enumerate() {
                let path = home.path().join("journal").join(ring::name(number as u64));
                fs::write(path, bytes).unwrap();
            }
            let told = committer(home.path()).journal_damages();
            assert!(told.iter().any(JournalDamage::is_loss), "{told:?}");
            fs::remove_dir_all(home.path().join("journal")).unwrap();
            fs::create_dir(home.path().join("journal")).unwrap();
        }
    }
}
