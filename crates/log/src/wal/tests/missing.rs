//! Files of the journal that are gone, emptied or older ones, and frames of which nothing is left: that it is told.
use super::super::forget;
use super::super::format::Reached;
use super::super::head::{Facts, Head, parse_slot};
use super::super::mark::tail_bytes;
use super::super::replay;
use super::super::witness::Claim;
use super::*;
use crate::io::storage::{OpenMode, Storage, StorageFile, StorageOver};
use crate::{JournalDamage, JournalPlace};
use std::io;

/// No segment can be opened again, so that none is synced later.
#[derive(Debug)]
struct Scarce;

impl StorageOver for Scarce {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let is_segment = path.extension().is_some_and(|name| name == "seg");
        if is_segment && mode == OpenMode::ReadWrite {
            return Err(rustix::io::Errno::MFILE.into());
        }
        OsStorage.open(path, mode)
    }
}

/// A home with two logs that filled three files, of which segments have nothing, and the journal as it was in between.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    let options = options(at);
    let committer = GroupCommitter::stepped_journaled(Arc::new(Scarce), options).unwrap();
    let mut logs = [1, 2].map(|i| create(at, i, &committer));
    assert_eq!(round(&mut logs, 0, &committer), 2);
    copy_tree(&at.join("partitions"), &at.join("copy"));
    let mut value = 1;
    while journal_files(at) < 3 || files(at).iter().any(|path| sequence(path) == 0) {
        assert_eq!(round(&mut logs, value, &committer), 2);
        if value == 20 {
            copy_journal(at, &at.join("earlier"));
        }
        value += 1;
    }
    for value in value..value + 20 {
        assert_eq!(round(&mut logs, value, &committer), 2);
    }
    drop((logs, committer));
    restore(&at.join("copy"), at);
    copy_journal(at, &at.join("whole"));
    home
}

fn copy_journal(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to.join("journal"));
    copy_tree(&from.join("journal"), &to.join("journal"));
    fs::copy(from.join("journal.head"), to.join("journal.head")).unwrap();
}

/// The files of the journal, by the use that they are in.
fn files(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.join("journal")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort_by_key(|path| sequence(path));
    paths
}

fn sequence(path: &Path) -> u64 {
    format::read_preamble(&fs::read(path).unwrap()).map_or(0, |of| of.sequence)
}

/// What a start tells of the journal that `harm` was done to; and that the start after it tells nothing.
fn told(home: &tempfile::TempDir, harm: impl FnOnce(&Path)) -> Vec<JournalDamage> {
    let at = home.path();
    restore(&at.join("copy"), at);
    copy_journal(&at.join("whole"), at);
    harm(at);
    let first = committer(at);
    let told = first.journal_damages();
    for i in 1..=2 {
        open(at, i, &first);
    }
    drop(first);
    assert_eq!(committer(at).journal_damages(), vec![]);
    told
}

fn places(told: &[JournalDamage]) -> Vec<(JournalPlace, bool)> {
    let places = told.iter().map(|damage| (damage.place, damage.was_acked));
    places.collect()
}

#[test]
fn what_is_lost_is_told_again_until_somebody_was_told() {
    let home = home();
    let at = home.path();
    let harms: [(&dyn Fn(), JournalPlace); 3] = [
        (
            &|| fs::remove_file(&files(at)[2]).unwrap(),
            JournalPlace::Lost,
        ),
        (
            &|| fs::remove_file(&files(at)[0]).unwrap(),
            JournalPlace::Lost,
        ),
        (
            &|| {
                let path = &files(at)[1];
                let mut bytes = fs::read(path).unwrap();
                let copy = bytes.len() - 64;
                bytes[..64].fill(1);
                bytes[copy..].fill(1);
                fs::write(path, bytes).unwrap();
            },
            JournalPlace::File,
        ),
    ];
    for (harm, place) in harms {
        restore(&at.join("copy"), at);
        copy_journal(&at.join("whole"), at);
        harm();
        // Lives that end before anybody has heard, and that write, and settle.
        for life in 0..3 {
            let committer = silent_committer(at);
            assert_eq!(
                places(&committer.journal_damages()),
                [(place, true)],
                "life {life}"
            );
            let mut logs = [1, 2].map(|i| open(at, i, &committer).0);
            for value in 0..40 * life {
                round(&mut logs, value, &committer);
            }
        }
        let first = committer(at);
        assert_eq!(places(&first.journal_damages()), [(place, true)]);
        drop(first);
        assert_eq!(committer(at).journal_damages(), vec![]);
    }
}

#[test]
fn of_two_who_say_what_is_not_needed_both_are_right() {
    let reached = |sequence| Reached {
        sequence,
        ..Reached::default()
    };
    let facts = |first_needed, kept: &[u64]| Facts {
        newest: reached(9),
        first_needed,
        kept: kept.iter().copied().map(reached).collect(),
        home: 7,
    };
    for (one, other) in [
        (facts(3, &[]), facts(6, &[4, 5])),
        (facts(6, &[2, 4]), facts(3, &[2])),
        (facts(8, &[1, 2, 3]), facts(8, &[2, 3, 4])),
    ] {
        for (one, other) in [(&one, &other), (&other, &one)] {
            let mut both = one.clone();
            both.need_no_more_than(other);
            for sequence in 1..12 {
                let is_needed = one.needs(sequence) && other.needs(sequence);
                assert_eq!(
                    both.needs(sequence),
                    is_needed,
                    "{sequence}: {one:?}, {other:?}"
                );
            }
        }
    }
}

const LOST: [(JournalPlace, bool); 1] = [(JournalPlace::Lost, true)];

#[test]
fn a_journal_as_it_was_is_no_damage() {
    assert_eq!(told(&home(), |_| ()), vec![]);
}

#[test]
fn a_file_that_is_gone_or_emptied_or_of_another_directory_is_told_once() {
    let (home, other) = (home(), home());
    let foreign = files(other.path());
    for (number, foreign) in foreign.iter().enumerate() {
        let at = |home: &Path| files(home)[number].clone();
        let told = |harm: &dyn Fn(&Path)| places(&told(&home, |home| harm(&at(home))));
        assert_eq!(told(&|path| fs::remove_file(path).unwrap()), LOST);
        assert_eq!(told(&|path| fs::write(path, []).unwrap()), LOST);
        assert_eq!(
            told(&|path| fs::write(path, vec![0; FILE_BYTES as usize]).unwrap()),
            LOST
        );
        let found = told(&|path| {
            fs::copy(foreign, path).unwrap();
        });
        assert_eq!(found, [(JournalPlace::File, true)]);
    }
    let found = told(&home, |home| {
        fs::remove_dir_all(home.join("journal")).unwrap();
    });
    assert_eq!(places(&found), LOST);
    assert_eq!(found[0].path, home.path().join("journal"));
}

#[test]
fn a_file_of_a_directory_that_has_used_more_of_them_is_told() {
    let (home, other) = (home(), tempfile::tempdir().unwrap());
    let options = JournalOptions {
        lazy_rounds: 5,
        ..options(other.path())
    };
    let committer = GroupCommitter::stepped_journaled(Arc::new(OsStorage), options).unwrap();
    let mut logs = [3, 4].map(|i| create(other.path(), i, &committer));
    for value in 0..400 {
        round(&mut logs, value, &committer);
    }
    let foreign = files(other.path()).pop().unwrap();
    assert!(sequence(&foreign) > 6, "{}", sequence(&foreign));
    for number in 0..3 {
        let found = told(&home, |home| {
            fs::copy(&foreign, &files(home)[number]).unwrap();
        });
        assert_eq!(
            places(&found),
            [(JournalPlace::File, true)],
            "file {number}"
        );
    }
}

#[test]
fn a_head_of_another_directory_costs_nothing() {
    let (home, other) = (home(), home());
    let foreign = other.path().join("journal.head");
    let found = told(&home, |home| {
        fs::copy(&foreign, home.join("journal.head")).unwrap();
    });
    assert_eq!(places(&found), [(JournalPlace::Head, false)]);
    let committer = committer(home.path());
    for i in 1..=2 {
        let (log, _) = open(home.path(), i, &committer);
        assert_eq!(log.reader().log_end(), open_end(&other, i));
    }
}

/// Where a log of a home ends that nothing was done to.
fn open_end(home: &tempfile::TempDir, incarnation: u64) -> u64 {
    let committer = committer(home.path());
    let (log, _) = open(home.path(), incarnation, &committer);
    log.reader().log_end()
}

#[test]
fn of_one_file_and_a_head_either_may_be_of_another_directory() {
    let make = || {
        let home = tempfile::tempdir().unwrap();
        drop(journaled_behind_a_copy(home.path(), 2, 20));
        restore(&home.path().join("copy"), home.path());
        home
    };
    let (home, other) = (make(), make());
    fs::copy(
        other.path().join("journal.head"),
        home.path().join("journal.head"),
    )
    .unwrap();
    let committer = committer(home.path());
    let told = places(&committer.journal_damages());
    assert_eq!(
        told,
        [(JournalPlace::Head, false), (JournalPlace::Lost, true)]
    );
    let (log, _) = open(home.path(), 1, &committer);
    assert_eq!(log.reader().log_end(), 20);
}

#[test]
fn lost_last_frames_are_told_where_they_were() {
    let home = home();
    for number in 0..2 {
        let found = told(&home, |home| {
            let path = &files(home)[number];
            let mut bytes = fs::read(path).unwrap();
            let end = FILE_BYTES - tail_bytes(FILE_BYTES);
            bytes[FILE_BYTES as usize / 2..end as usize].fill(0);
            fs::write(path, bytes).unwrap();
        });
        assert_eq!(places(&found), [(JournalPlace::Frame, true)]);
        assert!(found[0].position <= FILE_BYTES / 2);
        assert!(found[0].position > FILE_BYTES / 2 - 1_000);
    }
    // Of the last file with its marks: the head knows how far its first round reached.
    let found = told(&home, |home| {
        let path = files(home).pop().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 64;
        bytes[64..end].fill(0);
        fs::write(path, bytes).unwrap();
    });
    let both = [(JournalPlace::End, true)];
    assert_eq!(places(&found), both);
    assert_eq!(found[0].position, 64);
}

#[test]
fn a_newest_file_that_was_cut_off_is_told() {
    let home = home();
    let at = home.path();
    let path = files(at).pop().unwrap();
    let source = replay::open(&OsStorage, &path, OpenMode::Read).unwrap();
    let end = replay::read_file(&source, Claim::default()).unwrap().end;
    let cut_to = |len: u64| {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(len).unwrap();
    };
    for len in (64..end + 200)
        .rev()
        .chain([FILE_BYTES - 1, FILE_BYTES - 700])
    {
        cut_to(len);
        let found = replay::look(&OsStorage, &options(at), OpenMode::Read).unwrap();
        let is_cut = |damage: &JournalDamage| {
            damage.place == JournalPlace::Cut && damage.path == path && damage.position <= len
        };
        let is_told = found.damages.iter().any(is_cut);
        assert!(is_told, "{len} of {end}: {:?}", found.damages);
    }
    // It is put aside, and was told.
    for (len, position) in [(end + 20, end), (end - 20, end - 160)] {
        let found = told(&home, |_| cut_to(len));
        assert_eq!(places(&found), [(JournalPlace::Cut, false)]);
        assert_eq!(found[0].position, position);
    }
    // A file that a cut of one log replaces does not say that all is well.
    copy_journal(&at.join("whole"), at);
    cut_to(end - 20);
    forget::take_out(&OsStorage, &path, identity(1)).unwrap();
    let found = replay::look(&OsStorage, &options(at), OpenMode::Read).unwrap();
    assert!(places(&found.damages).contains(&(JournalPlace::Cut, false)));
}

#[test]
fn an_older_copy_of_a_file_is_told() {
    let home = home();
    let older = files(&home.path().join("earlier"));
    let found = told(&home, |home| {
        fs::copy(&older[0], &files(home)[0]).unwrap();
    });
    assert_eq!(places(&found), [(JournalPlace::Frame, true)]);
}

#[test]
fn a_head_that_does_not_check_is_told_and_made_again() {
    let home = home();
    let head = |home: &Path| home.join("journal.head");
    let harms: [&dyn Fn(&Path); 4] = [
        &|path| fs::remove_file(path).unwrap(),
        &|path| fs::write(path, []).unwrap(),
        &|path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[17] ^= 1;
            fs::write(path, bytes).unwrap();
        },
        &|path| {
            let earlier = path.with_file_name("earlier").join("journal.head");
            fs::copy(earlier, path).unwrap();
        },
    ];
    for harm in harms {
        let found = told(&home, |home| harm(&head(home)));
        assert_eq!(places(&found), [(JournalPlace::Head, false)]);
    }
}

#[test]
fn after_a_clean_end_the_journal_is_not_missed() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    let (first, logs) = journaled_behind_a_copy(at, 2, 20);
    for log in logs {
        log.close().unwrap();
    }
    first.settle_journal();
    drop(first);
    fs::remove_dir_all(at.join("journal")).unwrap();
    let second = committer(at);
    assert_eq!(second.journal_damages(), vec![]);
    let (log, replayed) = open(at, 1, &second);
    assert_eq!((replayed, log.reader().log_end()), (0, 20));
}

#[test]
fn frames_that_were_taken_out_are_not_missed() {
    let home = home();
    let found = told(&home, |home| {
        for path in files(home) {
            super::super::forget::take_out(&OsStorage, &path, identity(1)).unwrap();
        }
    });
    assert_eq!(found, vec![]);
}

#[test]
fn the_head_has_the_bytes_of_the_format_page() {
    let home = tempfile::tempdir().unwrap();
    let journal = home.path().join("journal");
    let reached = |sequence, end, seed| Reached {
        sequence,
        seed,
        end,
    };
    let facts = Facts {
        newest: reached(9, 500, 0x0102_0304),
        first_needed: 8,
        kept: vec![reached(5, 600, 0x0506_0708), reached(6, 700, 9)],
        home: 0x0A0B_0C0D_0E0F_1011,
    };
    let mut head = Head::look(&OsStorage, &journal, OpenMode::ReadWrite).unwrap();
    head.set(&OsStorage, facts.clone()).unwrap();
    let bytes = fs::read(home.path().join("journal.head")).unwrap();
    assert!(bytes[..4096].iter().all(|byte| *byte == 0));
    let slot = &bytes[4096..];
    assert_eq!(parse_slot(slot), Some((1, facts)));
    let mut hex = String::new();
    for byte in slot {
        write!(hex, "{byte:02x}").unwrap();
    }
    let vector = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/vectors/journal/head.hex");
    assert_eq!(hex, fs::read_to_string(vector).unwrap().trim());
}
