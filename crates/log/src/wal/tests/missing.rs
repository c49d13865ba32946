//! Reports of journal files that are gone, emptied or stale, and of frames of which nothing is left.
use super::super::end_marker::tail_bytes;
use super::super::extent::ExpectedExtent;
use super::super::format::WalPosition;
use super::super::manifest::{ManifestState, WalManifest, parse_slot};
use super::super::replay;
use super::*;
use crate::io::storage::{OpenMode, Storage, StorageFile, StorageWrapper};
use crate::{Error, WalDamage, WalFault};
use std::io;

/// No segment can be opened again, so that none is synced later.
#[derive(Debug)]
struct Scarce;

impl StorageWrapper for Scarce {
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
    let committer = GroupCommitter::stepped_with_wal(Arc::new(Scarce), options).unwrap();
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
    format::read_preamble(&fs::read(path).unwrap()).map_or(0, |of| of.number)
}

/// The damage that a start reports after `harm` was done to the journal. The start after it reports none.
fn reported(home: &tempfile::TempDir, harm: impl FnOnce(&Path)) -> Vec<WalDamage> {
    let at = home.path();
    restore(&at.join("copy"), at);
    copy_journal(&at.join("whole"), at);
    harm(at);
    let first = committer(at);
    let damages = first.wal_damages();
    for i in 1..=2 {
        open(at, i, &first);
    }
    drop(first);
    assert_eq!(committer(at).wal_damages(), vec![]);
    damages
}

fn places(damages: &[WalDamage]) -> Vec<(WalFault, bool)> {
    let places = damages
        .iter()
        .map(|damage| (damage.fault, damage.was_acked));
    places.collect()
}

#[test]
fn of_two_concurrent_releases_both_apply() {
    let reached = |number| WalPosition {
        number,
        ..WalPosition::default()
    };
    let facts = |first_needed, closed: &[u64]| ManifestState {
        newest: reached(9),
        first_needed,
        closed: closed.iter().copied().map(reached).collect(),
        data_dir_id: 7,
    };
    for (one, other) in [
        (facts(3, &[]), facts(6, &[4, 5])),
        (facts(6, &[2, 4]), facts(3, &[2])),
        (facts(8, &[1, 2, 3]), facts(8, &[2, 3, 4])),
    ] {
        for (one, other) in [(&one, &other), (&other, &one)] {
            let mut both = one.clone();
            both.release(other);
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

const LOST: [(WalFault, bool); 1] = [(WalFault::Lost, true)];

#[test]
fn an_intact_journal_has_no_damage() {
    assert_eq!(reported(&home(), |_| ()), vec![]);
}

#[test]
fn a_file_that_is_gone_or_emptied_is_reported_once() {
    let home = home();
    for number in 0..3 {
        let at = |home: &Path| files(home)[number].clone();
        let faults = |harm: &dyn Fn(&Path)| places(&reported(&home, |home| harm(&at(home))));
        assert_eq!(faults(&|path| fs::remove_file(path).unwrap()), LOST);
        assert_eq!(faults(&|path| fs::write(path, []).unwrap()), LOST);
        assert_eq!(
            faults(&|path| fs::write(path, vec![0; FILE_BYTES as usize]).unwrap()),
            LOST
        );
    }
    let found = reported(&home, |home| {
        fs::remove_dir_all(home.join("journal")).unwrap();
    });
    assert_eq!(places(&found), [LOST[0]; 3]);
    assert_eq!(found[0].path, home.path().join("journal"));
}

#[test]
fn a_file_or_manifest_of_another_directory_is_refused_and_touches_nothing() {
    let (home, other) = (home(), home());
    let at = home.path();
    let strays = [0, 1, 2].map(|number| {
        (
            files(other.path())[number].clone(),
            files(at)[number].clone(),
        )
    });
    let manifest = ["journal.head"; 2].map(PathBuf::from);
    let manifest = (other.path().join(&manifest[0]), at.join(&manifest[1]));
    for (foreign, target) in strays.into_iter().chain([manifest]) {
        restore(&at.join("copy"), at);
        copy_journal(&at.join("whole"), at);
        fs::copy(&foreign, &target).unwrap();
        let refused = GroupCommitter::stepped_with_wal(Arc::new(OsStorage), options(at));
        let Err(Error::Stray { path, beside }) = refused else {
            panic!("{}: {refused:?}", target.display());
        };
        assert_ne!(path, beside);
        assert_eq!(fs::read(&foreign).unwrap(), fs::read(&target).unwrap());
    }
}

#[test]
fn lost_last_frames_are_reported_with_their_position() {
    let home = home();
    for number in 0..2 {
        let found = reported(&home, |home| {
            let path = &files(home)[number];
            let mut bytes = fs::read(path).unwrap();
            let end = FILE_BYTES - tail_bytes(FILE_BYTES);
            bytes[FILE_BYTES as usize / 2..end as usize].fill(0);
            fs::write(path, bytes).unwrap();
        });
        assert_eq!(places(&found), [(WalFault::Frame, true)]);
        assert!(found[0].position <= FILE_BYTES / 2);
        assert!(found[0].position > FILE_BYTES / 2 - 1_000);
    }
    // Of the last file with its markers: the manifest names the end of its first round.
    let found = reported(&home, |home| {
        let path = files(home).pop().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 64;
        bytes[64..end].fill(0);
        fs::write(path, bytes).unwrap();
    });
    let both = [(WalFault::End, true)];
    assert_eq!(places(&found), both);
    assert_eq!(found[0].position, 64);
}

#[test]
fn a_truncated_newest_file_is_reported() {
    let home = home();
    let at = home.path();
    let path = files(at).pop().unwrap();
    let newest = replay::files(&OsStorage, &at.join("journal"), OpenMode::Read).unwrap();
    let newest = newest.last().unwrap();
    let end = replay::read_file(newest, ExpectedExtent::default())
        .unwrap()
        .end;
    let cut_to = |len: u64| {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(len).unwrap();
    };
    for len in (64..end + 200)
        .rev()
        .chain([FILE_BYTES - 1, FILE_BYTES - 700])
    {
        cut_to(len);
        let found = replay::scan(&OsStorage, &options(at), OpenMode::Read).unwrap();
        let is_cut =
            |damage: &WalDamage| damage.is_loss() && damage.path == path && damage.position <= len;
        let is_reported = found.damages.iter().any(is_cut);
        assert!(is_reported, "{len} of {end}: {:?}", found.damages);
    }
}

#[test]
fn an_older_copy_of_a_file_is_reported() {
    let home = home();
    let older = files(&home.path().join("earlier"));
    let found = reported(&home, |home| {
        fs::copy(&older[0], &files(home)[0]).unwrap();
    });
    assert_eq!(places(&found), [(WalFault::Frame, true)]);
}

#[test]
fn an_invalid_manifest_is_reported_and_rebuilt() {
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
        let found = reported(&home, |home| harm(&head(home)));
        assert_eq!(places(&found), [(WalFault::Manifest, false)]);
    }
}

#[test]
fn after_a_clean_end_the_journal_is_not_needed() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    let (first, logs) = logs_with_rounds_in_wal_after_copy(at, 2, 20);
    for log in logs {
        log.close().unwrap();
    }
    first.flush_wal();
    drop(first);
    fs::remove_dir_all(at.join("journal")).unwrap();
    let second = committer(at);
    assert_eq!(second.wal_damages(), vec![]);
    let (log, replayed) = open(at, 1, &second);
    assert_eq!((replayed, log.reader().log_end()), (0, 20));
}

#[test]
fn the_manifest_has_the_bytes_of_the_format_page() {
    let home = tempfile::tempdir().unwrap();
    let journal = home.path().join("journal");
    let reached = |number, end, seed| WalPosition { number, seed, end };
    let facts = ManifestState {
        newest: reached(9, 500, 0x0102_0304),
        first_needed: 8,
        closed: vec![reached(5, 600, 0x0506_0708), reached(6, 700, 9)],
        data_dir_id: 0x0A0B_0C0D_0E0F_1011,
    };
    let mut head = WalManifest::open(&OsStorage, &journal, OpenMode::ReadWrite).unwrap();
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
