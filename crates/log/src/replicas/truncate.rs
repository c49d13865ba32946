//! Truncation: a follower's log ends where its leader's history does.
//!
//! The log is closed, its files are cut, and it is opened again: the recovery of a closed log is the only code that builds the
//! state of a log from its files. In this order, so that a crash after any step leaves a log that ends at the new end, or at an
//! earlier end of the same history: everything is synced in the segments (a clean close); the WAL has a cut, so no start replays
//! what was truncated; the checkpoint claims nothing above the new end; later segments are renamed, newest first; the segment
//! that holds the new end is shortened. All of it is synced before the log is opened and appended to.
use crate::io::disk;
use crate::io::storage::{OpenMode, Storage};
use crate::recovery::scan_segments::Recovery;
use crate::segment::segment_file::{SegmentFile, find_segment_files, mark_removed, position_of};
use crate::state::index_snapshot::INDEX_SNAPSHOT;
use crate::state::{checkpoint, quarantine};
use crate::{Error, IoOp, Log, LogId, ReadError};
use std::path::Path;
use std::sync::Arc;

impl Log {
    /// Returns whether [`Log::truncate`] may end the log at `to`. `is_kept`: what is truncated is kept elsewhere.
    ///
    /// # Errors
    /// [`Error::NotABoundary`]: no batch begins there, and the log does not end there, or this is unknown because of damage.
    /// [`Error::BelowHighWatermark`]: committed records would be lost. [`Error::Io`].
    pub fn check_truncation(&self, to: u64, is_kept: bool) -> Result<(), Error> {
        let path = || self.directory.to_path_buf();
        let high_watermark = self.shared.high_watermark();
        if to < high_watermark && !is_kept {
            return Err(Error::BelowHighWatermark {
                path: path(),
                wanted: to,
                high_watermark,
            });
        }
        let failed = |error| match error {
            ReadError::Io { path, source } => Error::io(IoOp::Read, &path, source),
            error => Error::io(IoOp::Read, &self.directory, std::io::Error::other(error)),
        };
        let last = match self.link_at(to) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => self
                .batch_at(to)
                .ok()
                .flatten()
                .map(|batch| batch.base_offset),
            Err(ReadError::Damaged(damage)) => Some(damage.start),
            Err(error) => return Err(failed(error)),
        };
        Err(Error::NotABoundary {
            path: path(),
            wanted: to,
            last: last.unwrap_or_else(|| self.shared.log_end()),
        })
    }

    /// Ends the log at `to` (see [`Log::check_truncation`]) and returns it as it is then, with its high watermark at most there.
    /// Readers of the log until now get [`ReadError::Closed`]. Everything is durable when this returns: no start brings back what
    /// was truncated. Blocks on syncs.
    ///
    /// `leader_epoch`: under which it is truncated. `keep`: a directory for whole copies of the segments that held what is
    /// truncated, synced before anything is; needed below the high watermark.
    ///
    /// # Errors
    /// As [`Log::check_truncation`], and [`Error::Full`], [`Error::Failed`], [`Error::Io`]. The log is closed then; opened again,
    /// it ends at `to`, or later in the same history as before.
    pub fn truncate(
        self,
        to: u64,
        leader_epoch: u64,
        keep: Option<&Path>,
    ) -> Result<(Self, Recovery), Error> {
        self.check_truncation(to, keep.is_some())?;
        let (directory, identity) = (Arc::clone(&self.directory), self.shared.identity);
        let (options, committer) = (self.options.clone(), Arc::clone(&self.committer));
        self.close()?;
        let files = Arc::clone(committer.files());
        let truncation = Truncation {
            storage: files.storage(),
            directory: &directory,
            identity,
            to,
        };
        committer
            .wait_for_cut(&directory, identity, to, leader_epoch)
            .and_then(|()| truncation.cut_files(keep))
            .inspect_err(|error| files.fail_if_fatal(error))?;
        Self::open(&directory, identity, options, &committer)
    }
}

/// The truncation of a closed log.
struct Truncation<'a> {
    storage: &'a dyn Storage,
    directory: &'a Path,
    identity: LogId,
    to: u64,
}

impl Truncation<'_> {
    fn cut_files(&self, keep: Option<&Path>) -> Result<(), Error> {
        let (storage, directory) = (self.storage, self.directory);
        let sources = find_segment_files(storage, directory, OpenMode::ReadWrite)?;
        let after = sources.partition_point(|source| source.base_offset <= self.to);
        let (kept, removed) = sources.split_at(after);
        let Some(last) = kept.last() else {
            return Err(Error::NotABoundary {
                path: directory.to_path_buf(),
                wanted: self.to,
                last: self.to,
            });
        };
        let position = position_of(last, self.identity, self.to)?;
        if let Some(keep) = keep {
            self.copy_to(keep, std::iter::once(last).chain(removed))?;
        }
        checkpoint::lower(storage, directory, self.identity, self.to)?;
        quarantine::cut(storage, directory, self.identity, self.to)?;
        disk::remove_file(storage, &directory.join(INDEX_SNAPSHOT))?;
        let paths = removed.iter().rev().map(|source| source.path.as_path());
        mark_removed(storage, directory, paths, storage.wall_clock_ns())?;
        disk::remove_file(storage, &last.path.with_extension("idx"))?;
        let shortened = last.file.set_len(position);
        shortened
            .and_then(|()| last.file.sync_all())
            .map_err(|source| Error::io(IoOp::Truncate, &last.path, source))?;
        disk::sync_directory(storage, directory)
    }

    fn copy_to<'a>(
        &self,
        keep: &Path,
        sources: impl Iterator<Item = &'a SegmentFile>,
    ) -> Result<(), Error> {
        disk::create_directories(self.storage, keep)?;
        for source in sources {
            let name = source.path.file_name().unwrap_or_default();
            disk::copy(self.storage, &source.path, &keep.join(name))?;
        }
        disk::sync_directory_and_name(self.storage, keep)
    }
}
