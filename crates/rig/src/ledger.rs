//! The ledger of a run: its actions, written at once to a file outside the faulted filesystem.
//!
//! A file of entries of 40 bytes, little-endian. Related entries are appended with one write. A reader may see only a part of
//! it while it is written or after the writer was killed: a list counts once it is closed.
//! `tests/torture/ledger.py` reads it.
//!
//! | Position | Type | Field |
//! |---|---|---|
//! | 0 | u32 | kind |
//! | 4 | u32 | partition |
//! | 8 | u64 | offset |
//! | 16 | u32 | count |
//! | 20 | u32 | `run_id` |
//! | 24 | u64 | counter |
//! | 32 | u64 | extra |
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The kind of an entry. The numbers are those of the file.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A batch is about to be appended: expected offset, count, `run_id`, counter.
    Intent = 1,
    /// Everything below the offset is acked.
    Acked = 2,
    /// The batch of this `run_id` and counter was refused and must never be seen.
    Refused = 3,
    /// The append of this `run_id` and counter failed permanently: the batch may be in the log or not.
    Uncertain = 4,
    /// A log was recovered: offset = log start, counter = log end, extra = bytes cut, count = damaged ranges. The list of
    /// its batches follows (`Found`, `Wrong`), closed by `Listed` or `Unread`.
    Recovered = 5,
    /// A batch found by recovery: offset, count of offsets, `run_id`, counter, extra = records that are left of it.
    Found = 6,
    /// All logs were recovered, and all their batches are in the ledger.
    Ready = 7,
    /// A commit was answered with an error.
    CommitFailed = 8,
    /// Bytes in a recovered log that no run ever wrote, or that cannot be read: offset.
    Wrong = 9,
    /// While writes were refused, the log was read up to this offset (exclusive). `Wrong` and `Unread` entries before this one name
    /// the batches that could not be read.
    ReadWhileRefused = 10,
    /// The run ended normally.
    Ended = 11,
    /// After refusals an append succeeded again: offset.
    Resumed = 12,
    /// A recovery failed with an error; the run ends.
    RecoveryFailed = 13,
    /// A recovered log could not be read from this offset on, for reasons of the operating system; the run ends.
    Unread = 14,
    /// A log is about to be deleted.
    Deleting = 15,
    /// The log was deleted durably; later entries are about its successor.
    Deleted = 16,
    /// The list of the batches of a recovered log is complete.
    Listed = 17,
    /// The data directory has failed, and no commit is acked any more.
    Failed = 18,
    /// The compaction of a log was requested: from now on only the latest record of each key must be there.
    Compacting = 19,
}

/// One line of the ledger; fields that a kind does not use are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// Number of the log.
    pub partition: u32,
    /// See [`Kind`].
    pub offset: u64,
    /// Records.
    pub count: u32,
    /// Number of the run that wrote the batch.
    pub run_id: u32,
    /// Number of the batch in that run.
    pub counter: u64,
    /// See [`Kind`].
    pub extra: u64,
}

/// The file, open for appending.
#[derive(Debug)]
pub struct Ledger(File);

impl Ledger {
    /// Opens or creates it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self(file))
    }

    /// Appends entries with one write. A ledger that cannot be written makes the run worthless: it ends the process.
    pub fn write(&self, entries: &[(Kind, Entry)]) {
        let mut bytes = Vec::with_capacity(entries.len() * 40);
        for (kind, entry) in entries {
            bytes.extend_from_slice(&(*kind as u32).to_le_bytes());
            bytes.extend_from_slice(&entry.partition.to_le_bytes());
            bytes.extend_from_slice(&entry.offset.to_le_bytes());
            bytes.extend_from_slice(&entry.count.to_le_bytes());
            bytes.extend_from_slice(&entry.run_id.to_le_bytes());
            bytes.extend_from_slice(&entry.counter.to_le_bytes());
            bytes.extend_from_slice(&entry.extra.to_le_bytes());
        }
        if let Err(error) = (&self.0).write_all(&bytes) {
            eprintln!("the ledger cannot be written: {error}");
            std::process::exit(3);
        }
    }

    /// Appends one entry.
    pub fn note(&self, kind: Kind, entry: Entry) {
        self.write(&[(kind, entry)]);
    }
}
