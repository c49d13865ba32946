//! Damage in the journal: the cost of one flipped byte, and its report.
pub mod home;

use super::super::end_marker::{self, EndMarker};
use super::super::format::{Kind, WalPosition};
use super::super::manifest::{ManifestState, WalManifest};
use super::super::replay;
use super::*;
use crate::WalFault;
use crate::integrity::{Damage, Fault};
use crate::io::storage::OpenMode;
use crate::state::checkpoint::{CHECKPOINT, parse_slot};
use home::{Home, destroy, served};

/// Records of each log; all but the first of each are in the journal alone.
const RECORDS: u64 = 6;

#[test]
fn a_changed_byte_costs_the_frame_that_it_is_in_and_no_more() {
    let home = Home::new();
    let mut costly = 0;
    for at in (0..home.written).step_by(23) {
        let committer = home.harmed(|bytes| bytes[at] ^= 0x55);
        let damages = committer.wal_damages();
        assert_eq!(damages.len(), 1, "byte {at}: {damages:?}");
        assert!(
            (0..=at as u64).contains(&damages[0].position),
            "byte {at}: {damages:?}"
        );
        let found = home.open(committer);
        let gone: usize = found
            .iter()
            .map(|(served, _)| RECORDS as usize - served.len())
            .sum();
        assert!(gone <= 1, "byte {at}: {found:?}");
        let refused: Vec<&Damage> = found.iter().flat_map(|(_, damages)| damages).collect();
        // Whether the last round was acknowledged is unknown. Its logs prove that it began.
        let last = home.frame(2 * (RECORDS as usize - 2)).start;
        assert!(refused.len() == gone || at >= last, "byte {at}: {found:?}");
        let is_proven = at >= 64 && at < last - home.frame(0).len();
        assert!(damages[0].was_acked || !is_proven, "byte {at}: {damages:?}");
        for damage in refused {
            assert_eq!((damage.end - damage.start, damage.fault), (1, Fault::Wal));
            assert_eq!(
                (&damage.path, damage.position),
                (&damages[0].path, damages[0].position)
            );
            costly += 1;
        }
    }
    assert!(costly > 5, "{costly}");
}

#[test]
fn a_changed_byte_in_the_last_frame_of_a_log_costs_no_other_frame() {
    let home = tempfile::tempdir().unwrap();
    let (committer, mut logs) = logs_with_rounds_in_wal_after_copy(home.path(), 2, 3);
    let written = || committer.statistics().wal_bytes as usize;
    let begin = written();
    logs[1].append(batch(3), 1, 0).unwrap();
    round(&mut logs[1..], 4, &committer);
    let frame = begin..written();
    for value in 3..RECORDS {
        round(&mut logs[..1], value, &committer);
    }
    assert_eq!(committer.statistics().wal_rounds, 6);
    drop(logs);
    let home = Home::of(home, &committer);
    let len = (frame.len() - format::FRAME_BYTES) / 2;
    let second = frame.start + format::FRAME_BYTES + len;
    for at in frame.clone().step_by(7) {
        let committer = home.harmed(|bytes| bytes[at] ^= 0x55);
        let damages = committer.wal_damages();
        let places = damages
            .iter()
            .map(|damage| (damage.position, damage.was_acked));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [(frame.start as u64, true)],
            "byte {at}"
        );
        let [first, (served, damages)] = home.open(committer);
        assert_eq!(first, ((0..RECORDS).collect(), vec![]));
        let refused: Vec<u64> = damages.iter().flat_map(|d| d.start..d.end).collect();
        // Offsets are known as far as headers are intact.
        let is_payload = |begin: usize| (begin + 128..begin + len).contains(&at);
        let expected: (&[u64], &[u64]) = if is_payload(second) {
            (&[0, 1, 2, 3], &[4])
        } else if at >= second {
            (&[0, 1, 2, 3], &[])
        } else if is_payload(second - len) {
            (&[0, 1, 2, 4], &[3])
        } else {
            (&[0, 1, 2], &[])
        };
        assert_eq!((&*served, &*refused), expected, "byte {at}: {damages:?}");
    }
}

#[test]
fn a_lost_frame_is_known_from_later_frames() {
    let home = Home::new();
    for number in 2..=5 {
        let committer = home.harmed(|bytes| bytes[home.frame(number)].fill(0));
        let lost = (number / 2 + 1) as u64;
        let found = home.open(committer);
        let (served, damages) = &found[number % 2];
        let expected: Vec<u64> = (0..RECORDS).filter(|offset| *offset != lost).collect();
        assert_eq!(*served, expected);
        assert_eq!((damages[0].start, damages[0].end), (lost, lost + 1));
        assert_eq!(found[1 - number % 2], ((0..RECORDS).collect(), vec![]));
    }
}

#[test]
fn a_log_with_a_gap_has_its_checkpoint_in_both_slots() {
    let home = Home::new();
    let committer = home.harmed(|bytes| bytes[home.frame(2)].fill(0));
    let (log, _) = open(home.root.path(), 1, &committer);
    let bytes = fs::read(directory(home.root.path(), 1).join(CHECKPOINT)).unwrap();
    let slot = |at| parse_slot(&bytes[at..at + 64], log.shared.identity).unwrap();
    let [(first, known), (second, again)] = [0, 4096].map(slot);
    assert_eq!((first.abs_diff(second), known), (1, again));
    assert_eq!(known.durable, RECORDS);
}

#[test]
fn a_misplaced_copy_of_a_frame_costs_the_frames_that_it_overwrites() {
    let home = Home::new();
    let len = home.frame(0).len();
    // Of an earlier frame, over the second half of one and the head of the next.
    let committer = home.harmed(|bytes| {
        bytes.copy_within(home.frame(0), home.frame(4).start + len / 2);
    });
    home.expect_lost(committer, &(3..4));
    // Of the beginning of a later one: by its length it would hold the beginning of the frame that lies after it, too.
    let from = home.frame(7).start + format::FRAME_BYTES + bascule_record::HEADER_BYTES - len;
    let committer = home.harmed(|bytes| {
        bytes.copy_within(from..from + len, home.frame(5).start);
    });
    let [first, (served, damages)] = home.open(committer);
    assert_eq!(first, ((0..RECORDS).collect(), vec![]));
    assert_eq!(served, [0, 1, 2, 4, 5]);
    assert_eq!((damages[0].start, damages[0].end), (3, 4));
}

#[test]
fn offsets_that_were_acknowledged_and_lost_are_not_used_again() {
    let home = Home::new();
    let last = 2 * (RECORDS as usize - 1) - 1;
    // Of the second log everything but its last frame, and that of the first log after it.
    let committer = home.harmed(|bytes| {
        for number in (1..last).step_by(2) {
            let end = home.frame(number).end;
            bytes[end - 1] ^= 1;
        }
    });
    let mut logs = [1, 2].map(|i| open(home.root.path(), i, &committer).0);
    assert_eq!(
        logs.each_ref().map(|log| log.reader().log_end()),
        [RECORDS; 2]
    );
    assert_eq!(round(&mut logs, RECORDS, &committer), 2);
    for log in &logs {
        log.set_high_watermark(RECORDS + 1);
    }
    let (values, damages) = served(&logs[1]);
    assert_eq!(values, [0, RECORDS - 1, RECORDS]);
    assert_eq!(
        (damages[0].start, damages.last().unwrap().end),
        (1, RECORDS - 1)
    );
}

#[test]
fn an_unacknowledged_round_at_the_end_is_not_damage() {
    let home = Home::new();
    let last = 2 * (RECORDS as usize - 1) - 1;
    // The last round in any state that a power cut may leave: no ack was given for it.
    for (first, second) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let committer = home.harmed(|bytes| {
            for (number, kept) in [(last - 1, first), (last, second)] {
                if kept == 0 {
                    bytes[home.frame(number)].fill(0);
                }
            }
        });
        for (i, (served, damages)) in home.open(committer).into_iter().enumerate() {
            let kept = [first, second][i];
            assert_eq!(served, (0..RECORDS - 1 + kept).collect::<Vec<_>>());
            assert_eq!(damages, vec![]);
        }
    }
}

#[test]
fn a_recycled_file_ends_before_the_frames_of_its_earlier_log_number() {
    let home = tempfile::tempdir().unwrap();
    let first = committer(home.path());
    let mut logs: Vec<Log> = (1..=3).map(|i| create(home.path(), i, &first)).collect();
    for value in 0..300 {
        round(&mut logs, value, &first);
        if value % 7 == 0 {
            let result = replay::scan(&OsStorage, &options(home.path()), OpenMode::Read);
            assert_eq!(result.unwrap().damages, vec![], "round {value}");
        }
    }
    assert!(first.statistics().wal_bytes > 6 * FILE_BYTES);
}

#[test]
fn a_hole_in_all_logs_costs_its_frames_and_is_reported() {
    let home = Home::new();
    // Of five rounds all holes but those that the last round is in.
    for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (1, 4), (0, 4)] {
        for zeros in [false, true] {
            let committer = home.without(home.frames(2 * from..2 * to), zeros);
            let damages = committer.wal_damages();
            let position = home.frame(2 * from).start as u64;
            assert_eq!(damages.len(), 1, "{damages:?}");
            // If only one round follows, its end marker says that the hole was synced.
            assert_eq!(
                (damages[0].position, damages[0].was_acked),
                (position, true)
            );
            home.expect_lost(committer, &(from as u64 + 1..to as u64 + 1));
        }
    }
}

#[test]
fn the_first_frame_is_lost_alone() {
    let home = Home::new();
    for zeros in [false, true] {
        let committer = home.without(home.frame(0), zeros);
        assert_eq!(committer.wal_damages().len(), 1);
        let [first, second] = home.open(committer);
        assert_eq!(first.0, [0, 2, 3, 4, 5]);
        assert_eq!((first.1[0].start, first.1[0].end), (1, 2));
        assert_eq!(second, ((0..RECORDS).collect(), vec![]));
    }
}

#[test]
fn a_lost_preamble_is_read_from_its_copy() {
    let home = Home::new();
    for zeros in [false, true] {
        let committer = home.without(0..64, zeros);
        let damages = committer.wal_damages();
        assert_eq!(damages.len(), 1, "{damages:?}");
        assert_eq!(
            (damages[0].position, damages[0].fault),
            (0, WalFault::Preamble)
        );
        home.expect_lost(committer, &(0..0));
        let first_round = home.frame(1).end;
        for to in [first_round, 512.max(first_round), home.frame(3).end] {
            let committer = home.without(0..to, zeros);
            let places = committer
                .wal_damages()
                .into_iter()
                .map(|damage| damage.fault);
            assert_eq!(
                places.collect::<Vec<_>>(),
                [WalFault::Preamble, WalFault::Frame]
            );
            let rounds = (to - 64).div_ceil(home.frame(0).len()).div_ceil(2) as u64;
            let found = home.open(committer);
            assert!(
                found
                    .iter()
                    .all(|(served, _)| served.last() == Some(&(RECORDS - 1)))
            );
            let least = (RECORDS - rounds) as usize;
            assert!(
                found.iter().all(|(served, _)| served.len() >= least),
                "{found:?}"
            );
        }
    }
}

#[test]
fn a_file_without_a_valid_preamble_is_reported_and_quarantined() {
    let home = Home::new();
    for zeros in [false, true] {
        let harmed = |bytes: &mut [u8]| {
            let copy = bytes.len() - 64;
            destroy(&mut bytes[..64], zeros);
            destroy(&mut bytes[copy..], zeros);
        };
        let committer = home.harmed(harmed);
        let damages = committer.wal_damages();
        assert_eq!(damages.len(), 1, "{damages:?}");
        assert_eq!((damages[0].position, damages[0].fault), (0, WalFault::File));
        assert!(!home.file.exists());
        let aside = fs::read(home.file.with_file_name("damaged")).unwrap();
        assert_eq!(aside[64..home.written], home.whole[64..home.written]);
        drop(committer);
        let again = super::committer(home.root.path());
        assert_eq!(again.wal_damages(), vec![]);
    }
}

#[test]
fn frames_of_an_earlier_log_number_are_never_replayed() {
    let mut home = Home::new();
    // The first two rounds in a new use, sealed for it; after them, and a hole, the frames of the one before.
    let second = format::Preamble {
        version: format::VERSION,
        number: 2,
        run: 2,
        salt: 3,
        file_bytes: FILE_BYTES as u32,
        ..format::Preamble::default()
    };
    let mut head = WalManifest::open(
        &OsStorage,
        &home.root.path().join("journal"),
        OpenMode::ReadWrite,
    );
    let newest = WalPosition {
        number: 2,
        seed: format::preamble(&second).1.link,
        end: 64,
    };
    let facts = ManifestState {
        newest,
        first_needed: 2,
        ..ManifestState::default()
    };
    head.as_mut().unwrap().set(&OsStorage, facts).unwrap();
    home.head = fs::read(home.head_path()).unwrap();
    for zeros in [false, true] {
        let committer = home.harmed(|bytes| {
            let (preamble, of) = format::preamble(&second);
            bytes[..64].copy_from_slice(&preamble);
            let marks = [0, 1].map(|round| {
                let mark = EndMarker {
                    synced: home.frame(2 * round).start as u32,
                    written: home.frame(2 * round + 1).end as u32,
                };
                mark.to_bytes(&of)
            });
            let tail = end_marker::first_tail(&marks[0], &marks[1], &preamble, FILE_BYTES);
            let at = bytes.len() - tail.len();
            bytes[at..].copy_from_slice(&tail);
            let mut link = of.link;
            for number in 0..4 {
                let (head, content) = bytes[home.frame(number)].split_at_mut(format::FRAME_BYTES);
                link = format::frame(head, Kind::Batches, content, link, of.link);
            }
            destroy(&mut bytes[home.frame(4)], zeros);
        });
        assert_eq!(committer.wal_damages(), vec![]);
        for (served, damages) in home.open(committer) {
            assert_eq!((served, damages), (vec![0, 1, 2], vec![]));
        }
    }
}

#[test]
fn a_file_of_an_older_version_is_refused_by_name_while_segments_may_lack_its_batches() {
    let home = Home::new();
    let mut bytes = home.whole.clone();
    bytes[4] = 3;
    let seal = crc32c::crc32c(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&seal);
    fs::write(&home.file, &bytes).unwrap();
    fs::remove_file(home.head_path()).unwrap();
    let refused = GroupCommitter::stepped_with_wal(Arc::new(OsStorage), options(home.root.path()));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("has format 3, but this version reads format 4"),
        "{text}"
    );
    assert_eq!(fs::read(&home.file).unwrap(), bytes);
    // A manifest that does not name it says that segments have it all.
    fs::write(home.head_path(), &home.head).unwrap();
    let needs_none = ManifestState {
        first_needed: 2,
        ..ManifestState::default()
    };
    let journal = home.root.path().join("journal");
    let manifest = WalManifest::open(&OsStorage, &journal, OpenMode::ReadWrite);
    manifest.unwrap().set(&OsStorage, needs_none).unwrap();
    assert_eq!(committer(home.root.path()).wal_damages(), []);
}
