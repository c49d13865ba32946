//! What a person is told about damage.
use std::fmt;
use std::path::PathBuf;

/// What is wrong with bytes that should be a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The header's checksum does not match: its length cannot be believed either.
    Header,
    /// The payload's checksum does not match.
    Payload,
    /// A sound batch that belongs elsewhere: another log's, another offset's, or of another history.
    Misplaced,
    /// The file ends, or there are zeros, where batches should be.
    Short,
    /// The disk does not give the bytes.
    Unreadable,
    /// The file is not there.
    Missing,
    /// The file's own first bytes do not check.
    Preamble,
    /// A frame of the journal that held what was not in a segment yet does not check.
    Wal,
}

impl Fault {
    /// All of them, by the number that stands for each on disk.
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

    /// One word, stable.
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

    /// The number that stands for it on disk.
    pub(crate) fn to_number(self) -> u32 {
        Self::ALL
            .iter()
            .position(|fault| *fault == self)
            .map_or(0, |at| at as u32)
    }

    /// The fault of a number; those of a later version are taken as [`Fault::Header`], the one that says least.
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
            Self::Misplaced => "a batch lies here that belongs elsewhere",
            Self::Short => "the file ends or is empty where batches should be",
            Self::Unreadable => "the disk does not give the bytes",
            Self::Missing => "the file is missing",
            Self::Preamble => "the beginning of the file does not check",
            Self::Wal => "a frame of the journal does not check",
        })
    }
}

/// Offsets that are not served because the bytes that held them are damaged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Damage {
    /// First damaged offset.
    pub start: u64,
    /// First offset after them; reading can go on here.
    pub end: u64,
    /// The segment that holds them, or should, or the file of the journal.
    pub path: PathBuf,
    /// Position in the file where the damage was met, bytes.
    pub position: u64,
    /// What is wrong there.
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
