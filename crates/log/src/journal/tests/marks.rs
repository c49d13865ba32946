//! The marks at the end of a journal file: what they tell of frames of which nothing else is left, and what they cost.
use super::super::mark::{Mark, TAIL_BYTES};
use super::damaged::home::{Home, destroy};
use super::*;
use crate::JournalPlace;

fn places(coordinator: &Coordinator) -> Vec<(JournalPlace, u64, bool)> {
    let told = coordinator.journal_damages().into_iter();
    told.map(|damage| (damage.place, damage.position, damage.was_acked))
        .collect()
}

#[test]
fn lost_last_rounds_of_the_newest_file_are_told() {
    let home = Home::new();
    for round in 0..5 {
        let from = home.frame(2 * round).start;
        let lost = from..home.frame(9).end;
        let coordinator = home.without(lost, true);
        // That the last round was synced itself nobody has said yet.
        let is_known = round < 4;
        let expected = [(JournalPlace::Frame, from as u64, is_known)];
        assert_eq!(places(&coordinator), expected);
        for (served, damages) in home.open(coordinator) {
            assert_eq!(served, (0..=round as u64).collect::<Vec<_>>());
            assert_eq!(damages, vec![]);
        }
    }
}

#[test]
fn marks_that_do_not_check_are_told_and_cost_nothing() {
    let home = Home::new();
    let tail = home.whole.len() - TAIL_BYTES;
    for at in [tail, tail + 8, tail + 31, tail + 512, tail + 512 + 16] {
        for zeros in [false, true] {
            let coordinator = home.harmed(|bytes| destroy(&mut bytes[at..tail + 600], zeros));
            assert_eq!(
                places(&coordinator),
                [(JournalPlace::Marks, tail as u64, false)]
            );
            assert!(!coordinator.journal_damages()[0].is_loss());
            home.expect_lost(coordinator, &(0..0));
        }
    }
    // What they do not use is nobody's.
    for at in [tail + 32, tail + 511, tail + 544] {
        let coordinator = home.harmed(|bytes| bytes[at] ^= 1);
        assert_eq!(places(&coordinator), []);
    }
}

#[test]
fn a_mark_of_another_use_says_nothing() {
    let home = Home::new();
    let tail = home.whole.len() - TAIL_BYTES;
    let of = format::read_preamble(&home.whole).unwrap();
    let far = Mark {
        synced: 9_000,
        written: 9_000,
    };
    for (sequence, seed, place) in [
        (of.sequence, of.link, JournalPlace::Frame),
        (of.sequence + 1, of.link, JournalPlace::Marks),
        (of.sequence, of.link + 1, JournalPlace::Marks),
    ] {
        let mark = far.to_bytes(sequence, seed);
        let coordinator =
            home.harmed(|bytes| bytes[tail..tail + mark.len()].copy_from_slice(&mark));
        let told = places(&coordinator);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, place);
    }
}

#[test]
fn a_lost_end_and_its_marks_together_are_told() {
    let home = Home::new();
    let end = home.whole.len();
    let from = home.frame(4).start;
    let coordinator = home.harmed(|bytes| bytes[from..end].fill(0));
    assert_eq!(
        places(&coordinator),
        [(JournalPlace::Marks, (end - TAIL_BYTES) as u64, false)]
    );
}

#[test]
fn a_mark_has_the_bytes_of_the_format_page() {
    let of = format::Preamble {
        sequence: 9,
        link: 0x0102_0304,
        ..format::Preamble::default()
    };
    let mark = Mark {
        synced: 500,
        written: 700,
    };
    let bytes = mark.to_bytes(of.sequence, of.link);
    let mut hex = String::new();
    for byte in &bytes {
        write!(hex, "{byte:02x}").unwrap();
    }
    let vector = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/vectors/journal/mark.hex");
    assert_eq!(hex, fs::read_to_string(vector).unwrap().trim());
    assert_eq!(Mark::read(&bytes, &of), Some(mark));
}
