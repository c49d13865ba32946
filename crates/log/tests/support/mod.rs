//! A log in a temporary directory, and small batches for it.
#![allow(dead_code)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test fails by a panic
use bascule_log::{
    Durability, Error, GroupCommitter, Log, LogId, LogOptions, LogReader, ReadError, ReadMode,
    Recovery, Storage,
};
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Batches, Codec, Producer, RecordRef, SealedBatch,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

pub const IDENTITY: LogId = LogId {
    incarnation: 7,
    partition: 2,
};

/// The only partition of that incarnation.
pub fn identity(incarnation: u64) -> LogId {
    LogId {
        incarnation,
        partition: 0,
    }
}

/// Where a log may live for one test.
pub struct Home {
    pub root: tempfile::TempDir,
    pub committer: Arc<GroupCommitter>,
}

impl Home {
    pub fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            committer: GroupCommitter::start(),
        }
    }

    /// One on another storage.
    pub fn on(storage: Arc<dyn Storage>) -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            committer: GroupCommitter::start_on(storage),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.root.path().join("7")
    }

    pub fn create(&self, options: LogOptions) -> Log {
        Log::create(&self.path(), IDENTITY, options, &self.committer).unwrap()
    }

    pub fn open(&self, options: LogOptions) -> (Log, Recovery) {
        self.try_open(options).unwrap()
    }

    pub fn try_open(&self, options: LogOptions) -> Result<(Log, Recovery), Error> {
        Log::open(&self.path(), IDENTITY, options, &self.committer)
    }

    /// The segment files, oldest first.
    pub fn segments(&self) -> Vec<PathBuf> {
        files(&self.path(), "seg")
    }
}

pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    paths.sort();
    paths
}

/// Small segments and small steps, so that tests see rolls.
pub fn small(segment_bytes: u64) -> LogOptions {
    LogOptions {
        segment_bytes,
        preallocate_bytes: 64 << 10,
        ..LogOptions::default()
    }
}

pub fn memory(segment_bytes: u64) -> LogOptions {
    LogOptions {
        durability: Durability::Memory,
        ..small(segment_bytes)
    }
}

/// A batch of these values, with timestamps from `time` on, 1 ns apart.
pub fn batch_of(values: &[&[u8]], time: i64, producer: Option<Producer>) -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for (i, value) in values.iter().enumerate() {
        let record = RecordRef {
            timestamp: time + i as i64,
            value: Some(value),
            ..RecordRef::default()
        };
        builder.push(&record).unwrap();
    }
    builder.seal(Codec::None, producer, None).unwrap()
}

pub fn batch(value: &[u8], time: i64) -> SealedBatch {
    batch_of(&[value], time, None)
}

/// Appends one record per value under epoch 1, committed and shown to readers.
pub fn fill(log: &mut Log, values: impl IntoIterator<Item = Vec<u8>>) {
    for value in values {
        let time = 1_000 + log.reader().log_end() as i64;
        log.append(batch(&value, time), 1, time).unwrap();
    }
    settle(log);
}

/// Commits and shows everything to readers.
pub fn settle(log: &mut Log) {
    let end = commit(log).unwrap();
    assert_eq!(end, log.reader().log_end());
    log.set_high_watermark(end);
}

pub fn commit(log: &mut Log) -> Result<u64, Arc<Error>> {
    let (done, result) = mpsc::channel();
    log.commit(Box::new(move |outcome| done.send(outcome).unwrap()));
    result.recv().unwrap()
}

/// Offsets and values.
pub type Records = Vec<(u64, Vec<u8>)>;

/// Everything a reader gets from `offset` on: (offset, value) of each record.
pub fn read_from(reader: &LogReader, offset: u64) -> Result<Records, ReadError> {
    let mut cursor = reader.cursor(offset);
    let mut records = Vec::new();
    while let Some(bytes) = cursor.next(u64::MAX, 4096, ReadMode::Blocking)? {
        for bytes in Batches::new(bytes) {
            let batch = Batch::read(&bytes.unwrap()).unwrap();
            for i in batch.seek(offset)..batch.len() {
                records.push((batch.offset(i), batch.value(i).unwrap_or_default().to_vec()));
            }
        }
    }
    Ok(records)
}

pub fn values(records: &[(u64, Vec<u8>)]) -> Vec<Vec<u8>> {
    records.iter().map(|(_, value)| value.clone()).collect()
}

/// Copies a directory as it is at this moment, file by file.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        // A temporary file may be gone by now.
        let _ = fs::copy(&path, to.join(path.file_name().unwrap()));
    }
}
