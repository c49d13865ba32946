//! Records with keys, written and read back whole, and compactions that are waited for.
#![allow(dead_code)] // each test program uses its part
#![allow(clippy::unwrap_used)]
use crate::support::settle;
use bascule_log::{Compaction, CompactionReport, Cursor, Log, LogReader, ReadMode};
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Batches, Codec, HEADER_BYTES, Header, Producer, RecordRef,
    SealedBatch,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A record as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub offset: u64,
    pub timestamp: i64,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Key and value.
pub type Record<'a> = (&'a [u8], Option<&'a [u8]>);

/// A batch of these, all at one time.
pub fn keyed_batch(records: &[Record<'_>], time: i64, producer: Option<Producer>) -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for (key, value) in records {
        let record = RecordRef {
            timestamp: time,
            key: Some(key).filter(|key| !key.is_empty()).map(|key| &**key),
            value: *value,
            ..RecordRef::default()
        };
        builder.push(&record).unwrap();
    }
    builder.seal(Codec::Lz4, producer, None).unwrap()
}

/// Appends one batch; time is 1,000 + its first offset.
pub fn put(log: &mut Log, records: &[Record<'_>]) -> Vec<Written> {
    let time = 1_000 + log.reader().log_end() as i64;
    let placed = log.append(keyed_batch(records, time, None), 1, 0).unwrap();
    (placed.base_offset..)
        .zip(records)
        .map(|(offset, (key, value))| Written {
            offset,
            timestamp: time,
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
        })
        .collect()
}

/// Appends each in a batch of its own, commits and shows all.
pub fn put_each(log: &mut Log, records: &[Record<'_>]) -> Vec<Written> {
    let written = records
        .iter()
        .flat_map(|record| put(log, &[*record]))
        .collect();
    settle(log);
    written
}

/// Compacts and waits; `None` when it was not due.
pub fn compact(log: &mut Log, compaction: &Compaction, now_ns: i64) -> Option<CompactionReport> {
    let (done, report) = mpsc::channel();
    let asked = log.compact(
        compaction,
        now_ns,
        Box::new(move |outcome| done.send(outcome).unwrap()),
    );
    asked.unwrap().then(|| report.recv().unwrap().unwrap())
}

/// First offset of the active segment.
pub fn sealed_to(log: &Log) -> u64 {
    log.reader().active_base_offset()
}

fn records_of(bytes: Bytes, from: u64) -> Vec<Written> {
    let mut records = Vec::new();
    for bytes in Batches::new(bytes) {
        let batch = Batch::read(&bytes.unwrap()).unwrap();
        for i in batch.seek(from)..batch.len() {
            records.push(Written {
                offset: batch.offset(i),
                timestamp: batch.timestamp(i),
                key: batch.key(i).unwrap_or_default().to_vec(),
                value: batch.value(i).map(<[u8]>::to_vec),
            });
        }
    }
    records
}

/// What the next read returns.
pub fn next_keyed(cursor: &mut Cursor, max_bytes: usize) -> Vec<Written> {
    let from = cursor.offset();
    let bytes = cursor.next(u64::MAX, max_bytes, ReadMode::Blocking);
    bytes
        .unwrap()
        .map_or(Vec::new(), |bytes| records_of(bytes, from))
}

/// Everything from `offset` on.
pub fn read_keyed(reader: &LogReader, offset: u64) -> Vec<Written> {
    let mut cursor = reader.cursor(offset);
    let mut records = Vec::new();
    loop {
        let from = cursor.offset();
        match cursor.next(u64::MAX, 4096, ReadMode::Blocking).unwrap() {
            Some(bytes) => records.extend(records_of(bytes, from)),
            None => return records,
        }
    }
}

/// Walks all segments: batches tile the offsets, and each carries the link of the one before.
pub fn check_chain(directory: &Path) {
    let (mut next, mut link) = (None, 0);
    for path in crate::support::files(directory, "seg") {
        let bytes = std::fs::read(&path).unwrap();
        let mut at = 64;
        while bytes.len() >= at + HEADER_BYTES && bytes[at..at + 4] != [0; 4] {
            let header = Header::read(&bytes[at..]).unwrap();
            let whole = Bytes::copy_from_slice(&bytes[at..at + header.batch_bytes()]);
            Batch::read(&whole).unwrap();
            if let Some(next) = next {
                assert_eq!((header.base_offset, header.chain), (next, link));
            }
            (next, link) = (Some(header.next_offset()), header.link());
            at += header.batch_bytes();
        }
    }
}

/// Whether each segment has batches and no record.
pub fn vacant(directory: &Path) -> Vec<bool> {
    let segments = crate::support::files(directory, "seg");
    let of_segment = |path| {
        let bytes = Bytes::from(std::fs::read(path).unwrap());
        let (mut at, mut batches, mut records) = (64, 0, 0);
        while bytes.len() >= at + HEADER_BYTES && bytes[at..at + 4] != [0; 4] {
            let header = Header::read(&bytes[at..]).unwrap();
            batches += 1;
            records += header.count;
            at += header.batch_bytes();
        }
        batches > 0 && records == 0
    };
    segments.iter().map(of_segment).collect()
}

/// The bytes of all segments, by name, without the zeros ahead.
pub fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    crate::support::files(directory, "seg")
        .into_iter()
        .map(|path| {
            let mut bytes = std::fs::read(&path).unwrap();
            let end = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            bytes.truncate(end);
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                bytes,
            )
        })
        .collect()
}

/// Changes one bit.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

pub fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}
