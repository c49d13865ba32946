//! The end markers of a journal file: they prove that last frames are missing, and damage to them is reported.
use super::super::end_marker::{EndMarker, tail_bytes};
use super::damaged::home::Home;
use super::*;
use crate::WalFault;

const TAIL: usize = tail_bytes(FILE_BYTES) as usize;

fn places(committer: &GroupCommitter) -> Vec<(WalFault, u64, bool)> {
    let damages = committer.wal_damages().into_iter();
    damages
        .map(|damage| (damage.fault, damage.position, damage.was_acked))
        .collect()
}

#[test]
fn lost_last_rounds_of_the_newest_file_are_reported() {
    let home = Home::new();
    for round in 0..5 {
        let from = home.frame(2 * round).start;
        let lost = from..home.frame(9).end;
        let committer = home.without(lost, true);
        // No marker says yet that the last round was synced.
        let is_known = round < 4;
        let expected = [(WalFault::Frame, from as u64, is_known)];
        assert_eq!(places(&committer), expected);
        for (served, damages) in home.open(committer) {
            assert_eq!(served, (0..=round as u64).collect::<Vec<_>>());
            assert_eq!(damages, vec![]);
        }
    }
}

#[test]
fn without_one_marker_a_last_round_may_be_missing_and_the_others_are_served() {
    let home = Home::new();
    let tail = home.whole.len() - TAIL;
    let end = home.frame(9).end as u64;
    // The other one may be that of the round before the last.
    for slot in [tail, tail + TAIL / 2] {
        for at in [slot, slot + 8, slot + 31] {
            let committer = home.harmed(|bytes| bytes[at] ^= 1);
            assert_eq!(places(&committer), [(WalFault::Frame, end, false)], "{at}");
            assert!(!committer.wal_damages()[0].is_loss());
            home.expect_lost(committer, &(0..0));
        }
    }
    // Bytes that they do not use are ignored.
    for at in [tail + 32, tail + 511, tail + 544] {
        let committer = home.harmed(|bytes| bytes[at] ^= 1);
        assert_eq!(places(&committer), []);
    }
}

#[test]
fn without_both_markers_missing_frames_are_unknown() {
    let home = Home::new();
    let tail = home.whole.len() - TAIL;
    for lost_from in [2, 5] {
        // The last rounds and the marks together, as one write of zeros takes them, or the marks alone.
        let from = home.frame(2 * lost_from - 1).end;
        let committer = home.harmed(|bytes| bytes[from..tail + 600].fill(0));
        let expected = [(WalFault::End, from as u64, false)];
        assert_eq!(places(&committer), expected);
        assert!(committer.wal_damages()[0].is_loss());
        for (served, damages) in home.open(committer) {
            assert_eq!(served, (0..=lost_from as u64).collect::<Vec<_>>());
            assert_eq!(damages, vec![]);
        }
    }
}

#[test]
fn the_marker_of_a_round_is_synced_with_it_and_keeps_the_one_before() {
    let home = tempfile::tempdir().unwrap();
    let committer = committer(home.path());
    let mut logs = [1, 2].map(|i| create(home.path(), i, &committer));
    round(&mut logs, 0, &committer);
    let file = home
        .path()
        .join("journal")
        .join(crate::io::file_names::journal_name(0));
    let mut before = 0;
    for value in 1..9 {
        assert_eq!(round(&mut logs, value, &committer), 2);
        let bytes = fs::read(&file).unwrap();
        let of = format::read_preamble(&bytes).unwrap();
        let slots = [0, TAIL / 2].map(|slot| {
            let at = bytes.len() - TAIL + slot;
            EndMarker::read(&bytes[at..], &of).unwrap()
        });
        let end = committer.statistics().wal_bytes as u32;
        let (newer, older) = (slots[(value as usize + 1) % 2], slots[value as usize % 2]);
        assert_eq!((newer.synced, newer.written), (before, end));
        assert_eq!(older.written, before, "round {value}");
        before = end;
    }
}

#[test]
fn a_frame_that_holds_an_older_batch_is_damage() {
    let home = Home::new();
    for to in 1..5 {
        // As a power cut in a file that is used again, or a write to the wrong place, leaves it: the head is the frame's.
        let committer = home.harmed(|bytes| {
            let (from, at) = (home.frame(0), home.frame(2 * to));
            let stale = bytes[from.start + format::FRAME_BYTES..from.end].to_vec();
            bytes[at.start + format::FRAME_BYTES..at.end].copy_from_slice(&stale);
        });
        let position = home.frame(2 * to).start as u64;
        assert_eq!(places(&committer), [(WalFault::Frame, position, to < 4)]);
        let [(first, damages), second] = home.open(committer);
        let lost = to as u64 + 1;
        let kept = (0..6).filter(|value| *value != lost);
        assert_eq!(first, kept.collect::<Vec<_>>(), "{damages:?}");
        assert_eq!(second, ((0..6).collect(), vec![]));
    }
}

#[test]
fn a_marker_of_another_log_number_is_ignored() {
    let home = Home::new();
    let tail = home.whole.len() - TAIL;
    let of = format::read_preamble(&home.whole).unwrap();
    let far = EndMarker {
        synced: 9_000,
        written: 9_000,
    };
    let end = home.frame(9).end as u64;
    for (number, link, is_trusted) in [
        (of.number, of.link, true),
        (of.number + 1, of.link, false),
        (of.number, of.link + 1, false),
    ] {
        let mark = far.to_bytes(&format::Preamble { number, link, ..of });
        let committer = home.harmed(|bytes| bytes[tail..tail + mark.len()].copy_from_slice(&mark));
        let expected = [(WalFault::Frame, end, is_trusted)];
        assert_eq!(places(&committer), expected);
    }
}

#[test]
fn a_marker_has_the_bytes_of_the_format_page() {
    let of = format::Preamble {
        number: 9,
        link: 0x0102_0304,
        ..format::Preamble::default()
    };
    let mark = EndMarker {
        synced: 500,
        written: 700,
    };
    let bytes = mark.to_bytes(&of);
    let mut hex = String::new();
    for byte in &bytes {
        write!(hex, "{byte:02x}").unwrap();
    }
    let vector = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/vectors/journal/mark.hex");
    assert_eq!(hex, fs::read_to_string(vector).unwrap().trim());
    assert_eq!(EndMarker::read(&bytes, &of), Some(mark));
}
