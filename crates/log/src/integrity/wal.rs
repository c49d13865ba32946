//! Checks the WAL of a data directory that no broker uses, without changes, and lists the records that only it holds.
use super::Damage;
use crate::io::storage::{OpenMode, Storage};
use crate::recovery::replay::Replay;
use crate::wal::pending::{ChunkKind, Pending, ReplayChunk};
use crate::wal::replay;
use crate::wal::{WalDamage, WalOptions};
use crate::{Error, LogId};
use std::path::Path;

/// Content of a WAL, and its damage.
pub struct WalVerified {
    /// Number of files.
    pub files: u64,
    /// Number of whole frames that segments may not have.
    pub frames: u64,
    /// Length of the files, bytes.
    pub bytes: u64,
    /// Damage, in the order in which it was written.
    pub damages: Vec<WalDamage>,
    pending: Pending,
}

/// The records that the next start will replay into one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalOnlyRange {
    /// The log end after that replay.
    pub end: u64,
    /// Offsets [start, end) that each frame holds after the segments, in the order in which they were written.
    pub frames: Vec<(u64, u64)>,
    /// Offsets that neither the segments nor the WAL have any more.
    pub lost: Vec<Damage>,
}

/// Reads and checks the WAL in `directory`, of the logs whose directories are in `partitions`. An absent WAL has no files.
///
/// # Errors
/// [`Error::Io`], [`Error::Stray`], [`Error::NewerFormat`], [`Error::OlderFormat`].
pub fn verify_wal(
    storage: &dyn Storage,
    directory: &Path,
    partitions: &Path,
) -> Result<WalVerified, Error> {
    let options = WalOptions::new(directory.to_path_buf(), partitions.to_path_buf());
    let found = replay::scan(storage, &options, OpenMode::Read)?;
    Ok(WalVerified {
        files: found.files.len() as u64,
        frames: found.frames,
        bytes: found.files.iter().map(|file| file.len).sum(),
        damages: found.damages,
        pending: found.pending,
    })
}

impl WalVerified {
    /// What only the WAL holds of the log in `directory`, whose segments end at `log_end`; `None` when nothing.
    pub fn of(&self, log: LogId, directory: &Path, log_end: u64) -> Option<WalOnlyRange> {
        let chunks = self.pending.of(log)?;
        let replay = Replay::new(chunks, &self.damages, log);
        let (end, lost) = replay.outcome(log_end);
        let lost = lost
            .into_iter()
            .map(|range| replay.damage(directory, range));
        let mut frames = offsets_after(chunks, log_end);
        frames.retain(|(_, frame_end)| *frame_end <= end);
        Some(WalOnlyRange {
            end,
            frames,
            lost: lost.collect(),
        })
    }
}

/// The offsets of frames after `log_end` that later frames do not replace. A frame replaces all earlier frames from its first
/// offset on.
fn offsets_after(chunks: &[ReplayChunk], log_end: u64) -> Vec<(u64, u64)> {
    let (mut limit, mut frames) = (u64::MAX, Vec::new());
    for chunk in chunks.iter().rev() {
        let (start, end) = (chunk.start.max(log_end), chunk.end.min(limit));
        if start < end && chunk.kind == ChunkKind::Batches {
            frames.push((start, end));
        }
        limit = limit.min(chunk.start);
    }
    frames.reverse();
    frames
}
