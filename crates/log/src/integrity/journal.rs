//! The journal of a data directory that no broker uses, read and checked without touching anything, and what of each log
//! hangs on it.
use super::Damage;
use crate::io::storage::{OpenMode, Storage};
use crate::recovery::replay::Replay;
use crate::wal::pending::{Part, Pending};
use crate::wal::replay;
use crate::wal::{JournalDamage, JournalOptions};
use crate::{Error, Identity};
use std::path::Path;

/// What a journal holds, and what of it does not check.
pub struct JournalVerified {
    /// Files.
    pub files: u64,
    /// Whole frames, those included that the segments have by now.
    pub frames: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What does not check, in the order in which it was written.
    pub damages: Vec<JournalDamage>,
    pending: Pending,
}

/// What the next start will take over into one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hanging {
    /// First offset after everything, then.
    pub end: u64,
    /// Offsets [start, end) that each frame holds behind the segments, in the order in which they were written.
    pub frames: Vec<(u64, u64)>,
    /// Offsets that neither the segments nor the journal have any more.
    pub lost: Vec<Damage>,
}

/// Reads and checks the journal in `directory`, of the logs whose directories are in `partitions`. Where there is none, it
/// has no files.
///
/// # Errors
/// [`Error::Io`]; [`Error::NewerFormat`].
pub fn verify_journal(
    storage: &dyn Storage,
    directory: &Path,
    partitions: &Path,
) -> Result<JournalVerified, Error> {
    let options = JournalOptions::new(directory.to_path_buf(), partitions.to_path_buf());
    let looked = replay::look(storage, &options, OpenMode::Read)?;
    Ok(JournalVerified {
        files: looked.sources.len() as u64,
        frames: looked.frames,
        bytes: looked.sources.iter().map(|source| source.len).sum(),
        damages: looked.damages,
        pending: looked.pending,
    })
}

impl JournalVerified {
    /// What of the log in `directory`, whose segments end at `log_end`, hangs on the journal; `None` when nothing.
    pub fn of(&self, identity: Identity, directory: &Path, log_end: u64) -> Option<Hanging> {
        let parts = self.pending.take_over(identity)?;
        let mut frames = behind(&parts, log_end);
        let replay = Replay::new(parts, &self.damages, identity);
        let (end, lost) = replay.outcome(log_end);
        let lost = lost
            .into_iter()
            .map(|range| replay.damage(directory, range));
        frames.retain(|(_, frame_end)| *frame_end <= end);
        Some(Hanging {
            end,
            frames,
            lost: lost.collect(),
        })
    }
}

/// What frames hold behind `log_end` and no later one tells otherwise: one that begins at an offset ends what was written
/// before from there on.
fn behind(parts: &[Part], log_end: u64) -> Vec<(u64, u64)> {
    let (mut limit, mut frames) = (u64::MAX, Vec::new());
    for part in parts.iter().rev() {
        let (start, end) = (part.start.max(log_end), part.end.min(limit));
        if start < end && !part.is_lost() {
            frames.push((start, end));
        }
        limit = limit.min(part.start);
    }
    frames.reverse();
    frames
}
