//! What a run did, written down at once and outside the faulted filesystem.
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
//! | 20 | u32 | life |
//! | 24 | u64 | counter |
//! | 32 | u64 | extra |
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The kind of an entry. The numbers are those of the file.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A batch is about to be appended: expected offset, count, life, counter.
    Intent = 1,
    /// Everything below the offset is acked.
    Acked = 2,
    /// The batch of this life and counter was refused and must never be seen.
    Refused = 3,
    /// The append of this life and counter failed for good: it may be there or not.
    Uncertain = 4,
    /// A log was recovered: offset = log start, counter = log end, extra = bytes cut, count = damaged ranges. The list of
    /// its batches follows (`Found`, `Wrong`), closed by `Listed` or `Unread`.
    Recovered = 5,
    /// A batch found by recovery: offset, count of offsets, life, counter, extra = records that are left of it.
    Found = 6,
    /// All logs were recovered, and everything found is written down.
    Ready = 7,
    /// A commit was answered with an error.
    CommitFailed = 8,
    /// Bytes in a recovered log that no run ever wrote, or that cannot be read: offset.
    Wrong = 9,
    /// While writes were refused, everything below the offset was read; what could not be is `Wrong` or `Unread` before.
    ReadWhileRefused = 10,
    /// The run came to its end by itself.
    Ended = 11,
    /// After refusals an append succeeded again: offset.
    Resumed = 12,
    /// A recovery failed with an error; the run ends.
    RecoveryFailed = 13,
    /// A recovered log could not be read from this offset on, for reasons of the operating system; the run ends.
    Unread = 14,
    /// A log is about to be deleted.
    Deleting = 15,
    /// It was, durably; what follows is about its successor.
    Deleted = 16,
    /// The list of what a recovered log holds is whole.
    Listed = 17,
    /// The data directory has failed, and no commit is acked any more.
    Failed = 18,
    /// The compaction of a log was asked for: of records with one key only the latest is kept from now on.
    Compacting = 19,
}

/// One line of the ledger; fields that a kind does not use are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// Which log.
    pub partition: u32,
    /// See [`Kind`].
    pub offset: u64,
    /// Records.
    pub count: u32,
    /// Which run wrote the batch.
    pub life: u32,
    /// Which batch of that run.
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
            bytes.extend_from_slice(&entry.life.to_le_bytes());
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
