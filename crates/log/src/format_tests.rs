//! The bytes on disk, against vectors made by another program from the tables in `specs/formats/segment.md`.
use crate::LogId;
use crate::io::storage::OsStorage;
use crate::segment::epochs::EpochTable;
use crate::segment::index::{self, IndexEntry, SparseIndex, Summary};
use crate::segment::preamble::{FORMAT_VERSION, Preamble};
use crate::state::checkpoint::{Checkpoint, CheckpointFile};
use crate::state::producers::{KEPT_NS, MAX_PRODUCERS, Producers};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, Header, Producer, RecordRef, Stamp};
use std::fs;

const IDENTITY: LogId = LogId {
    incarnation: 0x1122_3344_5566_7788,
    partition: 5,
};
const PREAMBLE: &str = concat!(
    "4253435301000000887766554433221105000000d4c3b2a1900100000000000001002a36fe9c9717",
    "00002a36fe9c9717090000000000000000000000337e41b3",
);
const CHECKPOINT: &str = concat!(
    "42534343010000000300000000000000887766554433221105000000010000008601000000000000",
    "6400000000000000900100000000000000000000bfcd2ccd",
);
const EPOCH: &str = "0900000000000000900100000000000088776655dcf77378";
const INDEX: &str = concat!(
    "4253434901000000887766554433221105000000d4c3b2a19001000000000000cc01000000000000",
    "70110100000000003c00000000000000e8030000000000006c070000000000000900000000000000",
    "02000000000000000000000040000000000000000000000032000000d00101002003000000000000",
    "b3b1d1fb",
);
const PRODUCERS: &str = concat!(
    "42534350010000008877665544332211050000000100000090010000000000004d00000000000000",
    "020000000200000000000000030000008601000000000000e8030000000000000300000004000000",
    "89010000000000004c0400000000000047dd2aff",
);

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Every single changed bit is noticed.
fn no_change_passes<T>(good: &[u8], read: impl Fn(&[u8]) -> Option<T>) {
    assert!(read(good).is_some());
    for bit in 0..good.len() * 8 {
        let mut damaged = good.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&damaged).is_none(), "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(read(&good[..len]).is_none(), "{len} bytes");
    }
}

#[test]
fn preamble() {
    let preamble = Preamble {
        version: FORMAT_VERSION,
        identity: IDENTITY,
        chain: 0xa1b2_c3d4,
        base_offset: 400,
        created: 1_700_000_000_000_000_001,
        last_timestamp: 1_700_000_000_000_000_000,
        epoch: 9,
    };
    assert_eq!(hex(&preamble.to_bytes()), PREAMBLE);
    assert_eq!(Preamble::read(&bytes(PREAMBLE)), Some(preamble));
    no_change_passes(&bytes(PREAMBLE), Preamble::read);
}

#[test]
fn checkpoint_slots_are_written_in_turn_and_the_newer_valid_one_counts() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("checkpoint");
    let third = Checkpoint {
        high_watermark: 390,
        log_start: 100,
        durable: 400,
        clean: true,
    };
    let states = [1, 2].map(|durable| Checkpoint {
        durable,
        ..Checkpoint::default()
    });
    let mut file = CheckpointFile::open(&OsStorage, home.path(), IDENTITY).unwrap();
    assert_eq!(file.last(), None);
    for state in [states[0], states[1], third, third] {
        file.write(&OsStorage, state).unwrap();
        file.sync(&OsStorage).unwrap();
    }
    let written = fs::read(&path).unwrap();
    assert_eq!(hex(&written[4096..4160]), CHECKPOINT);
    let read = || {
        CheckpointFile::open(&OsStorage, home.path(), IDENTITY)
            .unwrap()
            .last()
    };
    assert_eq!(read(), Some(third));
    let foreign = LogId {
        partition: 6,
        ..IDENTITY
    };
    assert_eq!(
        CheckpointFile::open(&OsStorage, home.path(), foreign)
            .unwrap()
            .last(),
        None
    );
    // The newer slot is damaged: the other one counts; both: none.
    let mut damaged = written.clone();
    damaged[4096 + 40] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert_eq!(read(), Some(states[1]));
    damaged[40] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert_eq!(read(), None);
    fs::write(&path, &written[..4100]).unwrap();
    assert_eq!(read(), Some(states[1]));
}

#[test]
fn the_checkpoint_slot_synced_last_is_never_written() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("checkpoint");
    let at = |durable| Checkpoint {
        durable,
        ..Checkpoint::default()
    };
    let open = || CheckpointFile::open(&OsStorage, home.path(), IDENTITY).unwrap();
    let slots = || {
        let bytes = fs::read(&path).unwrap();
        [bytes[..64].to_vec(), bytes[4096..4160].to_vec()]
    };
    let mut file = open();
    file.write(&OsStorage, at(1)).unwrap();
    file.sync(&OsStorage).unwrap();
    for (synced, first) in [(1, 2), (0, 10), (1, 20)] {
        let before = slots()[synced].clone();
        for durable in first..first + 3 {
            file.write(&OsStorage, at(durable)).unwrap();
            assert_eq!(slots()[synced], before, "{durable}");
        }
        if synced == 0 {
            // Another run: the slot that it finds is synced, and it writes the other one.
            file = open();
            assert_eq!(file.last(), Some(at(12)));
        } else {
            file.sync(&OsStorage).unwrap();
        }
    }
    // What does not check was never the synced one.
    let mut torn = fs::read(&path).unwrap();
    file.write(&OsStorage, at(30)).unwrap();
    torn[4096 + 8..4096 + 32].fill(7);
    fs::write(&path, &torn).unwrap();
    assert_eq!(open().last(), Some(at(22)));
}

#[test]
fn epochs_end_at_the_first_invalid_entry() {
    let home = tempfile::tempdir().unwrap();
    let mut table = EpochTable::open(&OsStorage, home.path(), IDENTITY, Vec::new()).unwrap();
    table.begin(&OsStorage, 9, 400).unwrap();
    let path = home.path().join("epochs");
    assert_eq!(hex(&fs::read(&path).unwrap()), EPOCH);
    table.begin(&OsStorage, 11, 500).unwrap();
    assert_eq!(
        EpochTable::read(&OsStorage, home.path(), IDENTITY),
        [(9, 400), (11, 500)]
    );
    let mut torn = fs::read(&path).unwrap();
    torn.truncate(47);
    fs::write(&path, &torn).unwrap();
    assert_eq!(
        EpochTable::read(&OsStorage, home.path(), IDENTITY),
        [(9, 400)]
    );
    drop(EpochTable::open(&OsStorage, home.path(), IDENTITY, vec![(9, 400)]).unwrap());
    assert_eq!(
        hex(&fs::read(&path).unwrap()),
        EPOCH,
        "invalid entries are gone"
    );
}

#[test]
fn index_with_summary() {
    let summary = Summary {
        chain: 0xa1b2_c3d4,
        base_offset: 400,
        next_offset: 460,
        end: 70_000,
        records: 60,
        first_timestamp: 1_000,
        last_timestamp: 1_900,
        epoch: 9,
    };
    let index = SparseIndex::with_room(100 << 10);
    let entries = [
        IndexEntry {
            offset: 400,
            position: 64,
            time_before: 1_000,
        },
        IndexEntry {
            offset: 450,
            position: 66_000,
            time_before: 1_800,
        },
    ];
    for entry in entries {
        index.push(entry);
    }
    assert_eq!(hex(&index::to_bytes(IDENTITY, &summary, &index)), INDEX);
    let (read, index) = index::read(&bytes(INDEX), IDENTITY, 400).unwrap();
    assert_eq!((read, index.len()), (summary, 2));
    assert_eq!(
        (index.floor(399), index.floor(449), index.floor(450)),
        (None, Some(entries[0]), Some(entries[1]))
    );
    assert_eq!(
        (
            index.floor_time(1_000),
            index.floor_time(1_800),
            index.floor_time(1_801)
        ),
        (None, Some(entries[0]), Some(entries[1]))
    );
    no_change_passes(&bytes(INDEX), |bytes| index::read(bytes, IDENTITY, 400));
    assert!(index::read(&bytes(INDEX), IDENTITY, 401).is_none());
}

#[test]
fn an_index_without_room_keeps_what_it_has() {
    let index = SparseIndex::with_room(0);
    for i in 0..200 {
        index.push(IndexEntry {
            offset: i,
            position: i,
            time_before: 0,
        });
    }
    assert_eq!((index.len(), index.floor(1_000).unwrap().offset), (64, 63));
}

fn send(
    producers: &mut Producers,
    id: u64,
    epoch: u32,
    base_sequence: u32,
    count: u32,
    offset: u64,
) {
    producers.add(
        Producer {
            id,
            epoch,
            base_sequence,
        },
        count,
        offset,
        1_000,
    );
}

#[test]
fn producers_snapshot() {
    let mut producers = Producers::default();
    producers.add(
        Producer {
            id: 77,
            epoch: 2,
            base_sequence: 0,
        },
        3,
        390,
        1_000,
    );
    producers.add(
        Producer {
            id: 77,
            epoch: 2,
            base_sequence: 3,
        },
        4,
        393,
        1_100,
    );
    assert_eq!(hex(&producers.to_bytes(IDENTITY, 400)), PRODUCERS);
    assert_eq!(
        Producers::read(&bytes(PRODUCERS), IDENTITY),
        Some((producers, 400))
    );
    no_change_passes(&bytes(PRODUCERS), |bytes| Producers::read(bytes, IDENTITY));
}

#[test]
fn a_producers_file_that_says_what_is_never_written_is_not_read() {
    let good = [(7, &[390, 393][..]), (8, &[400][..])];
    let read = |producers: &[(u64, &[u64])]| {
        Producers::read(&producers_file(producers), IDENTITY).is_some()
    };
    assert!(read(&good));
    let bad: [&[(u64, &[u64])]; 9] = [
        &[(7, &[])],
        &[(7, &[1, 2, 3, 4, 5, 6])],
        &[(7, &[393, 393])],
        &[(7, &[394, 393])],
        &[(7, &[390]), (7, &[400])],
        &[(7, &[400]), (8, &[390])],
        &[(7, &[390]), (8, &[390, 400])],
        &[(7, &[390, 500])],
        &[(7, &[390, u64::MAX])],
    ];
    for producers in bad {
        assert!(!read(producers), "{producers:?}");
    }
}

/// A file with a good checksum: ids with the offsets of their batches.
fn producers_file(producers: &[(u64, &[u64])]) -> Vec<u8> {
    let mut out = Producers::default().to_bytes(IDENTITY, 500);
    out.truncate(out.len() - 4);
    out[20..24].copy_from_slice(&(producers.len() as u32).to_le_bytes());
    for (id, offsets) in producers {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&(offsets.len() as u32).to_le_bytes());
        for (number, offset) in offsets.iter().enumerate() {
            out.extend_from_slice(&(number as u32).to_le_bytes());
            out.extend_from_slice(&1u32.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&1_000i64.to_le_bytes());
        }
    }
    crate::io::fields::seal(&mut out);
    out
}

#[test]
fn sequences_wrap_and_new_epochs_begin_with_zero() {
    let mut producers = Producers::default();
    let find = |producers: &Producers, epoch, base_sequence, count| {
        producers.find(
            Producer {
                id: 1,
                epoch,
                base_sequence,
            },
            count,
            1_000,
        )
    };
    send(&mut producers, 1, 3, u32::MAX - 1, 4, 0);
    assert_eq!(
        find(&producers, 3, 2, 1),
        None,
        "the next one, after the wrap"
    );
    assert!(matches!(
        find(&producers, 3, 3, 1),
        Some(Err(crate::SequenceError::Gap {
            expected: 2,
            got: 3
        }))
    ));
    assert!(matches!(
        find(&producers, 2, 2, 1),
        Some(Err(crate::SequenceError::Fenced { current: 3, got: 2 }))
    ));
    assert_eq!(find(&producers, 4, 0, 1), None);
    assert!(matches!(
        find(&producers, 4, 2, 1),
        Some(Err(crate::SequenceError::Gap {
            expected: 0,
            got: 2
        }))
    ));
    assert!(
        matches!(find(&producers, 3, u32::MAX - 1, 3), Some(Err(_))),
        "same start, other length"
    );
    send(&mut producers, 1, 4, 0, 1, 4);
    assert!(
        matches!(find(&producers, 4, u32::MAX - 1, 4), Some(Err(_))),
        "what an older epoch sent is not known"
    );
}

fn any_known(producers: &Producers, id: u64, now_ns: i64) -> Option<bool> {
    let producer = Producer {
        id,
        epoch: 0,
        base_sequence: 0,
    };
    match producers.find(producer, 1, now_ns) {
        None => Some(false),
        Some(Ok(_) | Err(crate::SequenceError::Gap { .. })) => Some(true),
        Some(Err(_)) => None,
    }
}

#[test]
fn the_producer_that_was_silent_longest_is_forgotten_but_not_within_15_minutes() {
    let mut producers = Producers::default();
    let most = MAX_PRODUCERS as u64;
    for id in 1..=most {
        send(&mut producers, id, 0, 0, 1, id);
    }
    send(&mut producers, 1, 0, 1, 1, most + 1);
    // All were heard at 1,000 ns.
    let (soon, late) = (1_000 + KEPT_NS - 1, 1_000 + KEPT_NS);
    assert_eq!(any_known(&producers, most + 1, soon), None, "refused");
    assert_eq!(any_known(&producers, most + 1, late), Some(false), "taken");
    for id in 1..=most {
        assert_eq!(any_known(&producers, id, soon), Some(true));
    }
    let newcomer = Producer {
        id: most + 1,
        epoch: 0,
        base_sequence: 0,
    };
    producers.add(newcomer, 1, most + 2, late);
    let known = [1, 2, 3, most + 1].map(|id| any_known(&producers, id, late));
    assert_eq!(known, [true, false, true, true].map(Some));
    let (read, _) = Producers::read(&producers.to_bytes(IDENTITY, most + 3), IDENTITY).unwrap();
    assert_eq!(read, producers);
}

#[test]
fn producers_of_removed_batches_are_forgotten_after_15_minutes() {
    let mut producers = Producers::default();
    send(&mut producers, 1, 0, 0, 1, 10);
    send(&mut producers, 2, 0, 0, 1, 20);
    producers.forget_removed(11, 1_000 + KEPT_NS - 1);
    assert_eq!(any_known(&producers, 1, 1_000), Some(true));
    producers.forget_removed(11, 1_000 + KEPT_NS);
    let known = [1, 2].map(|id| any_known(&producers, id, 1_000));
    assert_eq!(known, [false, true].map(Some), "the batch of 2 is there");
}

#[test]
fn a_compacted_batch_counts_with_what_it_had() {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for _ in 0..3 {
        builder.push(&RecordRef::default()).unwrap();
    }
    let producer = Producer {
        id: 1,
        epoch: 0,
        base_sequence: 0,
    };
    let stamp = Stamp {
        incarnation: 7,
        partition: 2,
        leader_epoch: 1,
        base_offset: 0,
        chain: 0,
        not_before: 0,
    };
    let sealed = builder.seal(Codec::None, Some(producer), None).unwrap();
    let batch = Batch::read(&sealed.stamp(&stamp)).unwrap();
    for kept in [0, 1, 3] {
        let rewritten = batch.rewrite(Codec::None, None, |i| i < kept).unwrap();
        let mut producers = Producers::default();
        producers.note(&Header::read(&rewritten).unwrap());
        assert!(matches!(producers.find(producer, 3, 0), Some(Ok(_))));
        let next = Producer {
            base_sequence: 3,
            ..producer
        };
        assert_eq!(producers.find(next, 1, 0), None);
    }
}

#[test]
fn what_is_kept_of_a_snapshot_lies_below_the_segments() {
    let mut producers = Producers::default();
    send(&mut producers, 1, 0, 0, 1, 10);
    send(&mut producers, 1, 0, 1, 1, 20);
    send(&mut producers, 2, 0, 0, 1, 30);
    let kept = producers.only_below(20);
    let mut expected = Producers::default();
    send(&mut expected, 1, 0, 0, 1, 10);
    assert_eq!(kept, expected);
}
