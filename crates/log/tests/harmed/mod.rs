//! A log of numbered records, its files harmed, and what a reader then gets of it.
#![allow(dead_code)] // each test program uses its part
#![allow(clippy::unwrap_used)] // a test fails by a panic
use super::support::{Home, Records, batch, settle, small};
use bascule_log::integrity::Damage;
use bascule_log::{GroupCommitter, Log, LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches, Header};
use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a segment that is never full.
pub const WIDE: u64 = 1 << 20;

/// The value of the record at this offset.
pub fn value(offset: u64) -> Vec<u8> {
    format!("record {offset} ").repeat(20).into_bytes()
}

/// Appends a batch for each offset.
pub fn append(log: &mut Log, offsets: Range<u64>) {
    for offset in offsets {
        let time = 1_000 + offset as i64;
        log.append(batch(&value(offset), time), 1, time).unwrap();
    }
}

/// A closed log of `count` records.
pub fn closed(count: u64, segment_bytes: u64) -> Home {
    let home = Home::new();
    let mut log = home.create(small(segment_bytes));
    append(&mut log, 0..count);
    settle(&mut log);
    log.close().unwrap();
    home
}

/// What a reader gets from `offset` on: records, and the damage it is refused.
pub fn read_around(reader: &LogReader, offset: u64) -> (Records, Vec<Damage>) {
    let (mut records, mut refused) = (Vec::new(), Vec::new());
    let mut cursor = reader.cursor(offset);
    loop {
        match cursor.next(u64::MAX, 3000, ReadMode::Blocking) {
            Ok(None) => return (records, refused),
            Ok(Some(bytes)) => {
                for bytes in Batches::new(bytes) {
                    let bytes = bytes.unwrap();
                    match Batch::read(&bytes) {
                        Ok(batch) => records.extend(
                            (batch.seek(offset)..batch.len())
                                .map(|i| (batch.offset(i), batch.value(i).unwrap().to_vec())),
                        ),
                        Err(_) => match reader.damaged(&Header::read(&bytes).unwrap()) {
                            ReadError::Damaged(damage) => refused.push(*damage),
                            error => panic!("{error}"),
                        },
                    }
                }
            }
            Err(ReadError::Damaged(damage)) => {
                assert!(damage.start < damage.end);
                cursor.skip_to(damage.end);
                refused.push(*damage);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The offsets of damages, [start, end) each.
pub fn ranges(damages: &[Damage]) -> Vec<(u64, u64)> {
    damages
        .iter()
        .map(|damage| (damage.start, damage.end))
        .collect()
}

/// Every offset below `end`, which is the log's, is either served with its value or refused, and the refused ones are reported.
pub fn expect_exactly(log: &Log, end: u64, lost: &[(u64, u64)]) {
    log.set_high_watermark(u64::MAX);
    let (records, refused) = read_around(&log.reader(), 0);
    assert_eq!(ranges(&refused), lost);
    let expected: Records = (0..end)
        .filter(|offset| !lost.iter().any(|(a, b)| (*a..*b).contains(offset)))
        .map(|offset| (offset, value(offset)))
        .collect();
    let offsets = |records: &Records| records.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!(offsets(&records), offsets(&expected));
    assert!(records == expected, "a value is another one");
    assert_eq!(log.reader().log_end(), end);
}

/// Positions of the batches of a segment, and of its end.
pub fn positions(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    let mut at = vec![64];
    while let Ok(header) = Header::read(&bytes[*at.last().unwrap() as usize..]) {
        at.push(at.last().unwrap() + header.batch_bytes() as u64);
    }
    at
}

pub fn overwrite(path: &Path, position: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, position).unwrap();
}

/// A misdirected write: lays bytes of the file over others of it. Returns the end of what it wrote.
pub fn copy_over(path: &Path, from: Range<u64>, position: u64) -> u64 {
    let bytes = &fs::read(path).unwrap()[from.start as usize..from.end as usize];
    overwrite(path, position, bytes);
    position + bytes.len() as u64
}

pub fn zero(path: &Path, range: Range<u64>) {
    overwrite(
        path,
        range.start,
        &vec![0; (range.end - range.start) as usize],
    );
}

/// Cuts the file off.
pub fn cut(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

pub fn flip(path: &Path, position: u64) {
    let byte = fs::read(path).unwrap()[position as usize];
    overwrite(path, position, &[byte ^ 0x10]);
}

/// Takes the index of a segment away.
pub fn forget_index(path: &Path) {
    fs::remove_file(path.with_extension("idx")).unwrap();
}

/// The directory as a crash at this moment leaves it, when everything written so far is on the disk.
pub fn crashed(from: &Home) -> Home {
    let home = Home::new();
    super::support::copy(&from.path(), &home.path());
    home
}

/// Commits, by the hand of a stepped group committer.
pub fn stepped_commit(log: &mut Log, committer: &GroupCommitter) {
    log.commit(Box::new(|outcome| {
        outcome.unwrap();
    }));
    while committer.step() {}
}

/// Appends one record and commits it so.
pub fn one_step(log: &mut Log, committer: &GroupCommitter, offset: u64) {
    append(log, offset..offset + 1);
    stepped_commit(log, committer);
}
