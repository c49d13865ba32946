//! Reading everything that a log still has after damage to its files.
#![allow(dead_code)] // each test program uses a part
use super::support::{Records, values};
use bascule_log::{Log, LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// All records a reader is given, and the ranges it is refused.
pub fn read_around(reader: &LogReader) -> (Records, Vec<(u64, u64)>) {
    let (mut records, mut refused) = (Vec::new(), Vec::new());
    let mut cursor = reader.cursor(0);
    loop {
        match cursor.next(u64::MAX, 3000, ReadMode::Blocking) {
            Ok(None) => return (records, refused),
            Ok(Some(bytes)) => {
                for bytes in Batches::new(bytes) {
                    // A damaged payload is found here, by the consumer.
                    if let Ok(batch) = Batch::read(&bytes.unwrap()) {
                        records.extend(
                            (0..batch.len())
                                .map(|i| (batch.offset(i), batch.value(i).unwrap().to_vec())),
                        );
                    }
                }
            }
            Err(ReadError::Damaged(damage)) => {
                let (start, end) = (damage.start, damage.end);
                assert!(start < end);
                refused.push((start, end));
                cursor.skip_to(end);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// All records of a log without damage.
pub fn read_all(log: &Log) -> Vec<Vec<u8>> {
    log.set_high_watermark(u64::MAX);
    let (records, refused) = read_around(&log.reader());
    assert_eq!(refused, []);
    let offsets: Vec<u64> = records.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(
        offsets,
        (0..offsets.len() as u64).collect::<Vec<_>>(),
        "offsets are gap-free"
    );
    values(&records)
}

/// Writes over bytes of a file.
pub fn overwrite(path: &Path, position: u64, bytes: &[u8]) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, position)
        .unwrap();
}
