//! Copies of a WAL file beside it.
use super::*;
use crate::Error;
use crate::io::file_names::journal_name;

/// The WAL of a run of two logs: its file with the first three rounds, and with all six.
fn grown(home: &Path) -> [Vec<u8>; 2] {
    let (committer, mut logs) = logs_with_rounds_in_wal_after_copy(home, 2, 4);
    let file = home.join("journal").join(journal_name(0));
    let earlier = fs::read(&file).unwrap();
    for value in 4..7 {
        assert_eq!(round(&mut logs, value, &committer), 2);
    }
    [earlier, fs::read(&file).unwrap()]
}

#[test]
fn a_copy_beside_a_file_is_refused_by_name_and_touches_nothing() {
    let home = tempfile::tempdir().unwrap();
    let [earlier, whole] = grown(home.path());
    assert_ne!(earlier, whole);
    let manifest = fs::read(home.path().join("journal.head")).unwrap();
    for order in [[&earlier, &whole], [&whole, &earlier]] {
        restore(&home.path().join("copy"), home.path());
        fs::write(home.path().join("journal.head"), &manifest).unwrap();
        let paths = [0, 1].map(|number| home.path().join("journal").join(journal_name(number)));
        for (path, bytes) in paths.iter().zip(order) {
            fs::write(path, bytes).unwrap();
        }
        let refused = GroupCommitter::stepped_with_wal(Arc::new(OsStorage), options(home.path()));
        let Err(Error::Stray { path, beside }) = refused else {
            panic!("{refused:?}");
        };
        assert!(paths.contains(&path) && paths.contains(&beside) && path != beside);
        for (path, bytes) in paths.iter().zip(order) {
            assert_eq!(&fs::read(path).unwrap(), bytes);
        }
        // Without the copy all is there.
        let stale = paths
            .iter()
            .zip(order)
            .find(|(_, bytes)| *bytes == &earlier);
        fs::remove_file(stale.unwrap().0).unwrap();
        let committer = committer(home.path());
        assert_eq!(committer.wal_damages(), []);
        for incarnation in [1, 2] {
            let (log, _) = open(home.path(), incarnation, &committer);
            assert_eq!(values(&log), (0..7).collect::<Vec<_>>());
        }
        fs::remove_dir_all(home.path().join("journal")).unwrap();
        fs::create_dir(home.path().join("journal")).unwrap();
    }
}
