//! The hard state of a voter: for whom it voted, in which term, and as whom.
//!
//! File `<data>/metadata/vote`, two slots (`specs/formats/data-directory.md`): nothing is answered by a vote before both have it.
use crate::slots::{SlotError, SlotFile};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"BSVT";

/// Why a broker does not vote.
#[derive(Debug, thiserror::Error)]
pub enum VoteError {
    /// The file is there, and neither slot can be read.
    #[error(
        "neither slot of {path} is readable: this broker does not vote. Join it again under an empty `metadata` directory"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file is a copy of another one: the original may have voted since.
    #[error(
        "{path} is a copy (inode {inode} of file system {device} wrote it): this broker does not vote. Join it again under an \
         empty `metadata` directory"
    )]
    Copied {
        /// The file.
        path: PathBuf,
        /// The inode that wrote it.
        inode: u64,
        /// The file system that wrote it.
        device: u64,
    },
    /// An earlier write failed, so what the disk holds is unknown.
    #[error("an earlier write of {path} failed; what it holds is unknown until the next start")]
    Failed {
        /// The file.
        path: PathBuf,
    },
    /// The state does not fit a slot.
    #[error(
        "the hard state takes {bytes} bytes, a slot holds {most}: fewer brokers fit the first membership"
    )]
    TooLarge {
        /// Bytes of the state.
        bytes: usize,
        /// Most that fit.
        most: usize,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What a voter must not forget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardState {
    /// Of the cluster, random, chosen at its founding.
    pub cluster: [u8; 16],
    /// This voter's number in the group of voters.
    pub raft_id: u64,
    /// How many rescues the cluster has gone through.
    pub rescues: u64,
    /// The highest term in which this broker voted or followed; 0 = none.
    pub term: u64,
    /// For whom, by its number; `None` = for nobody yet.
    pub voted_for: Option<u64>,
    /// Whether a majority voted for it.
    pub is_committed: bool,
    /// The first voters, by their numbers; empty = this broker did not found the cluster.
    pub first_voters: Vec<u64>,
}

/// The file, open.
#[derive(Debug)]
pub struct VoteFile {
    slots: SlotFile<HardState>,
    path: PathBuf,
}

impl VoteFile {
    /// The path of the file in this `metadata` directory, if it is there: its broker is a voter, or was one. Blocks.
    ///
    /// # Errors
    /// It is not known whether the file is there.
    pub fn find(directory: &Path) -> io::Result<Option<PathBuf>> {
        let path = path_in(directory);
        Ok(path.try_exists()?.then_some(path))
    }

    /// Creates the file; it and its name are durable when this returns. Blocks.
    ///
    /// # Errors
    /// [`VoteError::Io`], also when the file exists; [`VoteError::TooLarge`].
    pub fn create(directory: &Path, state: HardState) -> Result<Self, VoteError> {
        let path = path_in(directory);
        match SlotFile::create(&path, MAGIC, state) {
            Ok(slots) => Ok(Self { slots, path }),
            Err(error) => Err(VoteError::of(error, path)),
        }
    }

    /// Opens the file. Both slots hold the same, synced, when this returns. Blocks.
    ///
    /// # Errors
    /// [`VoteError`]; a broker that cannot open it does not vote.
    pub fn open(directory: &Path) -> Result<Self, VoteError> {
        let path = path_in(directory);
        match SlotFile::open(&path, MAGIC) {
            Ok(slots) => Ok(Self { slots, path }),
            Err(error) => Err(VoteError::of(error, path)),
        }
    }

    /// What is stored.
    pub fn state(&self) -> &HardState {
        self.slots.state()
    }

    /// Stores a vote: in both slots, synced, when this returns. Blocks.
    ///
    /// # Errors
    /// [`VoteError::Io`]; nothing may be answered by this vote, and every later call fails.
    pub fn store(
        &mut self,
        term: u64,
        voted_for: Option<u64>,
        is_committed: bool,
    ) -> Result<(), VoteError> {
        let state = HardState {
            term,
            voted_for,
            is_committed,
            ..self.state().clone()
        };
        let written = self.slots.write(state);
        written.map_err(|error| VoteError::of(error, self.path.clone()))
    }
}

impl VoteError {
    fn of(error: SlotError, path: PathBuf) -> Self {
        match error {
            SlotError::Damaged => Self::Damaged { path },
            SlotError::Copied { inode, device } => Self::Copied {
                path,
                inode,
                device,
            },
            SlotError::Failed => Self::Failed { path },
            SlotError::TooLarge { bytes, most } => Self::TooLarge { bytes, most },
            SlotError::Io(source) => Self::Io { path, source },
        }
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join("vote")
}
