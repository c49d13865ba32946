//! Recovery of single logs: images of batches in records, newer versions, lost files and blocks, copies of a directory.
#![allow(clippy::unwrap_used)]
mod reread;
mod support;
use bascule_log::LogOptions;
use reread::{overwrite, read_all, read_around};
use std::fs;
use support::*;

#[test]
fn a_batch_stored_inside_a_record_is_never_taken_for_one() {
    let home = Home::new();
    let mut log = home.create(small(1 << 20));
    fill(&mut log, [b"first".to_vec()]);
    // A batch for offset 1, stored as the value of the record at offset 1, which is then damaged. It ends where the
    // real one ends, so the next real batch follows it; only the link gives it away.
    let stamp = bascule_record::Stamp {
        incarnation: IDENTITY.incarnation,
        partition: IDENTITY.partition,
        leader_epoch: 1,
        base_offset: 1,
        chain: 0,
        not_before: 0,
    };
    let forged = batch(b"forged", 1002).stamp(&stamp).to_vec();
    let at = fs::metadata(&home.segments()[0]).unwrap().len();
    fill(&mut log, [forged, b"third".to_vec(), b"fourth".to_vec()]);
    log.close().unwrap();
    assert!(at > 0);
    let path = home.segments().remove(0);
    let bytes = fs::read(&path).unwrap();
    let second = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, window)| window == b"BSC1")
        .nth(1)
        .unwrap()
        .0;
    overwrite(&path, second as u64 + 50, &[0xee]);
    let (log, _) = home.open(small(1 << 20));
    let (records, refused) = read_around(&log.reader());
    assert_eq!(
        values(&records),
        [b"first".to_vec(), b"third".to_vec(), b"fourth".to_vec()]
    );
    assert_eq!(refused, [(1, 2)]);
}

#[test]
fn a_directory_copied_while_it_is_written_recovers_everything_acked_before() {
    let home = Home::new();
    let mut log = home.create(small(8_000));
    for round in 0..25_usize {
        let from = log.reader().log_end() as usize;
        fill(
            &mut log,
            (from..from + 7).map(|i| format!("record {i} {}", "x".repeat(i % 97)).into_bytes()),
        );
        let acked = log.reader().durable_end();
        let snapshot = Home::new();
        copy(&home.path(), &snapshot.path());
        let (copied, recovery) = snapshot.open(small(8_000));
        assert_eq!(recovery.damaged, [], "round {round}");
        assert_eq!(copied.reader().log_end(), acked);
        let all = read_all(&copied);
        assert!(
            all.iter()
                .enumerate()
                .all(|(i, value)| value.starts_with(format!("record {i} ").as_bytes()))
        );
    }
}

#[test]
fn a_batch_of_a_newer_version_is_left_alone() {
    let home = Home::new();
    let mut log = home.create(small(1 << 20));
    fill(&mut log, [b"old".to_vec(), b"new".to_vec()]);
    settle(&mut log);
    drop(log);
    let path = home.segments().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let second = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, window)| window == b"BSC1")
        .nth(1)
        .unwrap()
        .0;
    // The last batch, above the durable point, gets the next format version and is otherwise valid.
    bytes[second + 4] = 2;
    let crc = crc32c::crc32c(&bytes[second..second + 124]);
    bytes[second + 124..second + 128].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let refused = home.try_open(small(1 << 20)).map(|(_, report)| report);
    assert!(
        matches!(
            refused,
            Err(bascule_log::Error::NewerBatch { offset: 1, .. })
        ),
        "{refused:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes, "not cut");
}

/// A filesystem may keep, in the file's last block, bytes of a batch whose length was lost with the power.
#[test]
fn the_rest_of_the_last_block_is_overwritten_before_the_log_continues() {
    let home = Home::new();
    let bare = || LogOptions {
        preallocate_bytes: 0,
        ..small(1 << 20)
    };
    let mut log = home.create(bare());
    fill(&mut log, [b"kept".to_vec()]);
    drop(log);
    let path = &home.segments()[0];
    let end = fs::metadata(path).unwrap().len();
    assert_ne!(end % 4096, 0, "the last block has room");
    let (log, found) = home.open(bare());
    assert_eq!(found.cut_bytes, 0);
    let bytes = fs::read(path).unwrap();
    assert_eq!(
        bytes.len() % (64 << 10),
        0,
        "whole blocks, whatever their size"
    );
    assert!(bytes.iter().skip(end as usize).all(|byte| *byte == 0));
    drop(log);
    let (mut log, found) = home.open(bare());
    assert_eq!((found.cut_bytes, log.reader().log_end()), (0, 1));
    fill(&mut log, [b"next".to_vec()]);
    log.close().unwrap();
    assert_eq!(home.open(bare()).0.reader().log_end(), 2);
}

#[test]
fn a_log_that_lost_its_segments_does_not_begin_at_0_again() {
    let home = Home::new();
    let mut log = home.create(small(1 << 20));
    fill(&mut log, (0..5).map(|i| vec![i; 10]));
    log.close().unwrap();
    for path in home.segments() {
        fs::remove_file(path).unwrap();
    }
    let (mut log, recovery) = home.open(small(1 << 20));
    assert_eq!(recovery.damaged, [(0, 5)]);
    log.append(batch(b"new", 9000), 9, 0).unwrap();
    settle(&mut log);
    let (records, refused) = read_around(&log.reader());
    assert_eq!(
        (records, refused),
        (vec![(5, b"new".to_vec())], vec![(0, 5)])
    );
}
