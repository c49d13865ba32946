//! The door: all that the rest of the broker knows of the metadata log, whether one broker commits or several.
use crate::consensus::solo::Solo;
use crate::consensus::vote::VoteFile;
use crate::events::Events;
use bascule_log::GroupCommitter;
use bytes::Bytes;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Largest entry.
const ENTRY_BYTES: usize = 1 << 20;

/// Why an entry is too large to be proposed; `None` = it is not.
pub(crate) fn over_the_limit(entry: &[u8]) -> Option<String> {
    let bytes = entry.len();
    (bytes > ENTRY_BYTES)
        .then(|| format!("an entry of {bytes} bytes is over the limit of {ENTRY_BYTES}"))
}

/// Why the metadata log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The operating system or the log engine refused.
    #[error("metadata log: {0}")]
    Log(#[from] bascule_log::Error),
    /// A snapshot file cannot be read or written.
    #[error("metadata snapshot: {0}")]
    Snapshot(#[from] io::Error),
    /// Entries are missing or damaged.
    #[error("metadata log: {0}")]
    Damaged(String),
    /// The directory is one of a cluster's. A broker that opened it alone would commit what no majority agreed to.
    #[error(
        "{path} is the vote of a broker of a cluster, and a broker alone must not use its directory. Name an empty data directory; \
         do not remove the file: the cluster still counts on this copy of its metadata"
    )]
    Voter {
        /// The file.
        path: PathBuf,
    },
}

/// One proposal.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Chosen by the proposer, > 0.
    pub id: u64,
    /// The entry.
    pub bytes: Bytes,
}

/// Proposals in, committed entries out. Entries have indexes from 1 on, without a gap.
pub trait Door: Debug + Send + Sync {
    /// Index of the last entry, committed or not; 0 = none.
    fn last_index(&self) -> u64;

    /// Appends entries; each comes back as a `committed` or a `failed` event. Never blocks on the disk. Call inside the runtime.
    fn propose(&self, proposals: Vec<Proposal>, timeout: Duration);

    /// Queues a `barrier` event behind every entry that is committed now.
    fn read_barrier(&self, id: u64);

    /// Stores a snapshot that covers entries 1…`index` and removes what no kept snapshot needs. Blocks.
    ///
    /// # Errors
    /// [`MetadataError::Damaged`] when `index` was never committed; else those of the file system.
    fn save_snapshot(&self, index: u64, state: &[u8]) -> Result<(), MetadataError>;

    /// Closes cleanly; later proposals fail. Blocks. Idempotent.
    ///
    /// # Errors
    /// Those of [`bascule_log::Log::close`].
    fn close(&self) -> Result<(), MetadataError>;
}

/// An open metadata log, and what the state is built from.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub door: Arc<dyn Door>,
    /// Index of the last entry that the newest snapshot covers; 0 = there is no snapshot.
    pub snapshot_index: u64,
    /// The state in that snapshot; empty = there is no snapshot.
    pub snapshot: Vec<u8>,
}

/// Opens `<data>/metadata` and queues every entry after the newest snapshot as a `committed` event. Blocks.
///
/// # Errors
/// [`MetadataError`]; nothing was queued or only a prefix. [`MetadataError::Voter`]: nothing was touched.
pub fn open(
    events: &Arc<Events>,
    data: &Path,
    committer: &Arc<GroupCommitter>,
) -> Result<Opened, MetadataError> {
    if let Some(path) = VoteFile::find(&data.join("metadata"))? {
        return Err(MetadataError::Voter { path });
    }
    let (solo, snapshot_index, snapshot) = Solo::open(events, data, committer)?;
    Ok(Opened {
        door: Arc::new(solo),
        snapshot_index,
        snapshot,
    })
}
