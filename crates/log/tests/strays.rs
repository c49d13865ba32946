//! Copies from elsewhere and batches of earlier runs in the files of a log: never taken for it, and nothing beside them is
//! lost for them.
#![allow(clippy::unwrap_used)] // a test fails by a panic
mod harmed;
mod support;

use bascule_log::OsStorage;
use bascule_log::integrity::{FindingKind, verify};
use bascule_record::{Header, Stamp};
use harmed::*;
use std::fs;
use std::path::Path;
use support::*;

/// A batch that was cut since: it says that it begins at `base_offset` and follows `chain`.
fn stale(base_offset: u64, chain: u32) -> Vec<u8> {
    stale_of(b"of an earlier run", base_offset, chain)
}

fn stale_of(value: &[u8], base_offset: u64, chain: u32) -> Vec<u8> {
    let stamp = Stamp {
        incarnation: IDENTITY.incarnation,
        partition: IDENTITY.partition,
        leader_epoch: 1,
        base_offset,
        chain,
        not_before: 0,
    };
    batch(value, 1).stamp(&stamp).to_vec()
}

/// Offsets [start, end).
type Ranges = &'static [(u64, u64)];

/// Something over batches 4 to 10.
struct Harm {
    lay: fn(&Path),
    /// The ranges that recovery reports.
    reported: Ranges,
    /// What readers are refused.
    lost: Ranges,
}

const HARMS: [Harm; 2] = [
    Harm {
        lay: lay_copies,
        reported: &[(5, 11)],
        lost: &[(4, 5), (5, 11)],
    },
    Harm {
        lay: lay_earlier,
        reported: &[],
        lost: &[(5, 6)],
    },
];

/// Batches 2 to 6 and the header of 7 over batches 4 to 10, so that the copy of 7 claims the beginning of 11. One that follows
/// by its chain is not the way on: it may be what an earlier run wrote.
fn lay_copies(path: &Path) {
    let at = positions(path);
    let (to, shift) = (at[5] - 100, at[8] - at[5] + 60);
    let end = copy_over(path, to - shift..at[7] + 140, to);
    assert!(end <= at[11] && at[8] + shift > at[11] && at[8] + shift < at[12]);
}

/// The first bytes of a batch of an earlier run over those of batch 5, whose place it had; it claims 6 and 7.
fn lay_earlier(path: &Path) {
    let (bytes, at) = (fs::read(path).unwrap(), positions(path));
    let before = Header::read(&bytes[at[4] as usize..]).unwrap();
    let stale = stale_of(&[1; 650], 5, before.link());
    assert!((at[7]..at[8]).contains(&(at[5] + stale.len() as u64)));
    overwrite(path, at[5], &stale[..200]);
}

#[test]
fn acked_batches_behind_a_copy_that_claims_their_place_are_found() {
    for Harm {
        lay,
        reported,
        lost,
    } in HARMS
    {
        let home = closed(12, WIDE);
        let (mut log, _) = home.open(small(WIDE));
        append(&mut log, 12..15);
        settle(&mut log);
        let home = crashed(&home);
        lay(&home.segments()[0]);
        for _ in 0..2 {
            let (log, recovery) = home.open(small(WIDE));
            assert_eq!((&*recovery.damaged, recovery.cut_bytes), (reported, 0));
            expect_exactly(&log, 15, lost);
        }
    }
}

#[test]
fn a_reader_finds_the_batches_behind_a_copy_that_claims_their_place() {
    for Harm { lay, lost, .. } in HARMS {
        let home = closed(15, WIDE);
        let (log, _) = home.open(small(WIDE));
        lay(&home.segments()[0]);
        expect_exactly(&log, 15, lost);
    }
}

#[test]
fn a_copy_that_claims_other_offsets_costs_only_what_it_overwrote() {
    for Harm { lay, lost, .. } in HARMS {
        let home = closed(15, WIDE);
        lay(&home.segments()[0]);
        let found = verify(&OsStorage, &home.path(), IDENTITY).unwrap().findings;
        let reported = found.iter().filter(|it| it.kind == FindingKind::Damage);
        assert_eq!(reported.map(|it| it.offsets).collect::<Vec<_>>(), lost);
    }
}

#[test]
fn a_header_that_begins_within_the_lost_one_is_not_what_follows_it() {
    let home = closed(12, WIDE);
    let path = &home.segments()[0];
    let at = positions(path);
    // Its chain value, and that of the batch that it is a copy of, stands where the link of the batch at this place would.
    let end = copy_over(path, at[8] - 16..at[9], at[5]);
    assert!(end > at[6] && end < at[7]);
    forget_index(path);
    let (log, _) = home.open(small(WIDE));
    expect_exactly(&log, 12, &[(5, 7)]);
}

#[test]
fn what_an_earlier_life_wrote_behind_a_damaged_batch_is_never_served() {
    let home = closed(12, WIDE);
    let path = &home.segments()[0];
    let (bytes, at) = (fs::read(path).unwrap(), positions(path));
    // It follows batch 4 as 5 does, but lies within 4 or after its own place.
    let before = Header::read(&bytes[at[4] as usize..]).unwrap();
    let stale = stale(5, before.link());
    for position in [at[4] + 140, at[5] + 40] {
        let home = crashed(&home);
        let path = &home.segments()[0];
        zero(path, at[5]..at[6]);
        overwrite(path, position, &stale);
        let (log, _) = home.open(small(WIDE));
        let within: Ranges = &[(4, 5), (5, 6)];
        let lost = if position < at[5] { within } else { &[(5, 6)] };
        expect_exactly(&log, 12, lost);
    }
}

#[test]
fn a_copy_of_the_end_in_another_place_is_not_the_way_on_though_its_chain_is_right() {
    let home = closed(60, 4_000);
    let path = &home.segments()[0];
    let at = positions(path);
    let last = at.len() - 2;
    // The last batch but one, whole, and the beginning of the last one.
    let end = copy_over(path, at[last - 1]..at[last] + 140, at[2] + 200);
    assert!(end > at[4] && end < at[5]);
    forget_index(path);
    let (log, recovery) = home.open(small(4_000));
    assert_eq!(recovery.damaged, [(3, 5)]);
    expect_exactly(&log, 60, &[(2, 3), (3, 5)]);
}

#[test]
fn a_batch_behind_a_torn_tail_is_not_the_way_on_behind_damage() {
    let home = closed(10, WIDE);
    let (mut log, _) = home.open(small(WIDE));
    append(&mut log, 10..40);
    let home = crashed(&home);
    let path = &home.segments()[0];
    let at = positions(path);
    zero(path, at[4]..at[5]);
    zero(path, at[10]..at[11]); // the power went before this one was written
    let (log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, [(4, 5)]);
    expect_exactly(&log, 10, &[(4, 5)]);
}

#[test]
fn a_batch_that_denies_its_place_is_not_the_way_on_behind_a_damaged_header() {
    let home = closed(10, WIDE);
    let path = &home.segments()[0];
    let at = positions(path);
    overwrite(path, at[10], &stale(10, 0x1234_5678));
    forget_index(path);
    flip(path, at[9] + 40);
    let (log, _) = home.open(small(WIDE));
    expect_exactly(&log, 10, &[(9, 10)]);
}

#[test]
fn headers_damaged_one_after_the_other_cost_their_batches_only() {
    let home = closed(10, WIDE);
    let path = &home.segments()[0];
    let at = positions(path);
    forget_index(path);
    (3..6).for_each(|i| flip(path, at[i] + 30));
    let (log, recovery) = home.open(small(WIDE));
    assert_eq!(recovery.damaged, [(3, 6)]);
    expect_exactly(&log, 10, &[(3, 6)]);
}

#[test]
fn a_misdirected_copy_of_the_end_is_not_taken_for_it() {
    let home = closed(60, 4_000);
    let path = &home.segments()[0];
    let (bytes, at) = (fs::read(path).unwrap(), positions(path));
    let last = at[at.len() - 2] as usize;
    let header = Header::read(&bytes[last..]).unwrap();
    // Over batches 2 and 3: the last one of the segment, and what an earlier run appended after it.
    let stale = stale(header.next_offset(), header.link());
    let copied = copy_over(path, last as u64..at[at.len() - 1], at[2]);
    overwrite(path, copied, &stale);
    let end = copied + stale.len() as u64;
    assert!(end > at[3] && end < at[4]);
    forget_index(path);
    let (log, _) = home.open(small(4_000));
    expect_exactly(&log, 60, &[(2, 4)]);
}
