//! Damaged ranges of a log, and what is wrong with them.
use std::fmt;
use std::path::PathBuf;

/// The kind of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The checksum of a header does not match, so its length cannot be trusted either.
    Header,
    /// The checksum of a payload does not match.
    Payload,
    /// A valid batch of another log, another offset or another history.
    Misplaced,
    /// The file ends, or holds zeros, where batches should be.
    Short,
    /// The disk cannot read the bytes.
    Unreadable,
    /// The file is missing.
    Missing,
    /// The preamble of the file is invalid.
    Preamble,
    /// A WAL frame whose batches no segment had yet is invalid.
    Wal,
}

impl Fault {
    /// All kinds, by their number on disk.
    pub(crate) const ALL: [Self; 8] = [
        Self::Header,
        Self::Payload,
        Self::Misplaced,
        Self::Short,
        Self::Unreadable,
        Self::Missing,
        Self::Preamble,
        Self::Wal,
    ];

    /// A stable name of one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Payload => "payload",
            Self::Misplaced => "misplaced",
            Self::Short => "short",
            Self::Unreadable => "unreadable",
            Self::Missing => "missing",
            Self::Preamble => "preamble",
            Self::Wal => "journal",
        }
    }

    /// The number on disk.
    pub(crate) fn to_number(self) -> u32 {
        Self::ALL
            .iter()
            .position(|fault| *fault == self)
            .map_or(0, |at| at as u32)
    }

    /// The kind of a number; an unknown number, of a later version, is [`Fault::Header`].
    pub(crate) fn of_number(number: u32) -> Self {
        Self::ALL
            .get(number as usize)
            .copied()
            .unwrap_or(Self::Header)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "the checksum of a batch header does not match",
            Self::Payload => "the checksum of a payload does not match",
            Self::Misplaced => "a batch of another place is stored here",
            Self::Short => "the file ends or is empty where batches should be",
            Self::Unreadable => "the disk cannot read the bytes",
            Self::Missing => "the file is missing",
            Self::Preamble => "the preamble of the file is invalid",
            Self::Wal => "a frame of the journal fails its checksum",
        })
    }
}

/// A range of offsets that is not served because its bytes are damaged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Damage {
    /// First damaged offset.
    pub start: u64,
    /// First offset after the damage; reading can continue here.
    pub end: u64,
    /// The segment that holds the range or should hold it, or the WAL file.
    pub path: PathBuf,
    /// Position of the damage in the file, bytes.
    pub position: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "offsets [{}, {}) are damaged on disk: {} at position {} of {}",
            self.start,
            self.end,
            self.fault,
            self.position,
            self.path.display()
        )
    }
}
