//! Creating and opening a log.
//!
//! An open first checks log ids and format versions of all segments; a refusal changes nothing. Then it resolves leftovers:
//!
//! | Present | Meaning | Action |
//! |---|---|---|
//! | `resetting` | an incomplete reset | repeat it, before anything else |
//! | `*.tmp` | an incomplete replacement | remove |
//! | `*.deleted-<ns>` | removed by retention or truncation | keep for its grace period |
//! | `.idx` without its `.seg` | an incomplete removal | remove |
//! | segments that end at or before the checkpoint's log start | an incomplete removal | complete it |
//! | segments without records that the one before covers | an incomplete merge of a compaction | remove |
//! | no segment, but a checkpoint above 0 | all segments were lost | continue at the durable point, the rest is damage |
//! | no segment, a checkpoint of 0 and a `*.deleted-<ns>` | an incomplete replacement of the only segment | create the segment |
//! | last segment without a readable preamble and without a batch | an incomplete roll | remove; create the only one again |
use crate::io::disk;
use crate::io::file_names::base_offset_of;
use crate::io::preallocate::Preallocation;
use crate::io::storage::OpenMode;
use crate::recovery::discover::{
    check_owner, check_version, drop_page_cache, finish_removal, foreign, has_removed, holds,
    mark_foreign, remove_half_rolled, tidy,
};
use crate::recovery::replay::Replay;
use crate::recovery::reset::finish_reset;
use crate::recovery::scan_segments::{Recovered, Recovery, RecoveryHints};
use crate::segment::Segment;
use crate::segment::create::create_segment;
use crate::segment::epochs::EpochTable;
use crate::segment::preamble::Preamble;
use crate::segment::segment_file::find_segment_files;
use crate::state::checkpoint::{CHECKPOINT, Checkpoint, CheckpointFile};
use crate::state::index_snapshot::{IndexSnapshot, SnapshotState};
use crate::state::producers::Producers;
use crate::state::shared::Shared;
use crate::{Error, GroupCommitter, Log, LogId, LogOptions};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

impl Log {
    /// Creates the directory and the first segment, both synced. Fails if the directory holds segments.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Failed`], [`Error::Io`].
    pub fn create(
        directory: &Path,
        identity: LogId,
        options: LogOptions,
        committer: &Arc<GroupCommitter>,
    ) -> Result<Self, Error> {
        committer.check_usable()?;
        Self::make(directory, identity, options.bounded(), committer)
            .inspect_err(|error| committer.files().fail_if_fatal(error))
    }

    fn make(
        directory: &Path,
        identity: LogId,
        options: LogOptions,
        committer: &Arc<GroupCommitter>,
    ) -> Result<Self, Error> {
        let storage = committer.files().storage();
        disk::create_directories(storage, directory)?;
        if disk::list(storage, directory)?
            .iter()
            .any(|path| base_offset_of(path).is_some())
        {
            return Err(Error::Exists {
                path: directory.to_path_buf(),
            });
        }
        let mut checkpoint = CheckpointFile::open(storage, directory, identity)?;
        checkpoint.write(storage, Checkpoint::default())?;
        checkpoint.sync(storage)?;
        let (segment, preallocation) = create_segment(
            committer.files(),
            directory,
            Preamble::first(storage, identity, 0),
            &options,
            0,
        )?;
        segment.sync()?;
        let epochs = EpochTable::open(storage, directory, identity, Vec::new())?;
        disk::sync_directory_and_name(storage, directory)?;
        let shared = Shared::new(
            directory.to_path_buf(),
            identity,
            vec![Arc::clone(&segment)],
            0,
        );
        shared.quarantine.attach(
            directory,
            identity,
            committer.files(),
            committer.background(),
            &[],
        );
        let parts = Parts {
            shared,
            segment,
            preallocation,
            chain: 0,
            last_batch: None,
            index_snapshot_state: SnapshotState::default(),
            epochs,
            producers: Producers::default(),
            checkpoint,
        };
        Ok(parts.into_log(options, committer))
    }

    /// Opens and recovers (reliability §3.1). At the first invalid batch at or above the durable point the log is truncated, and
    /// the truncation synced. An invalid batch below it is damage: nothing is truncated, the range is quarantined. Blocks.
    ///
    /// Everything recovered is durable when this returns. The high watermark is the checkpoint's, at most the log end.
    ///
    /// # Errors
    /// [`Error::Absent`], [`Error::NewerFormat`], [`Error::Foreign`]: nothing was changed. [`Error::Failed`], [`Error::Io`].
    pub fn open(
        directory: &Path,
        identity: LogId,
        options: LogOptions,
        committer: &Arc<GroupCommitter>,
    ) -> Result<(Self, Recovery), Error> {
        committer.check_usable()?;
        Self::recover(directory, identity, options.bounded(), committer)
            .inspect_err(|error| committer.files().fail_if_fatal(error))
    }

    fn recover(
        directory: &Path,
        identity: LogId,
        options: LogOptions,
        committer: &Arc<GroupCommitter>,
    ) -> Result<(Self, Recovery), Error> {
        let storage = committer.files().storage();
        finish_reset(directory, identity, &options, committer)?;
        let mut sources = find_segment_files(storage, directory, OpenMode::ReadWrite)?;
        sources.iter().try_for_each(check_version)?;
        let known = holds(storage, directory, CHECKPOINT)?;
        mark_foreign(&mut sources, identity, known)?;
        check_owner(storage, directory, identity, &sources)?;
        let absent = || Error::Absent {
            path: directory.to_path_buf(),
        };
        if sources.is_empty() && !known {
            return Err(absent());
        }
        let mut checkpoint = CheckpointFile::open(storage, directory, identity)?;
        if let Some(first) = sources.first() {
            checkpoint.raise_log_start(first.base_offset);
        }
        let snapshot = IndexSnapshot::find(
            storage,
            directory,
            identity,
            &sources,
            options.segment_bytes,
        );
        if let Some(snapshot) = &snapshot {
            checkpoint.raise_durable(snapshot.end_offset());
        }
        let last = checkpoint.last();
        // A log that had records never begins at 0 again, even without segments: its offsets are used. So does a log whose only
        // segment an earlier open removed and then failed to create again.
        let has_begun = match last {
            Some(last) => {
                last.durable > 0 || last.log_start > 0 || has_removed(storage, directory)?
            }
            None => false,
        };
        if sources.is_empty() && !has_begun {
            return Err(absent());
        }
        let durable = last.map_or(0, |last| last.durable);
        // At or above the durable point it would be truncated, but it is not a torn tail.
        if let Some(last) = sources.last().filter(|last| last.base_offset >= durable)
            && let Some(found) = last.foreign
        {
            return Err(foreign(last, identity, found));
        }
        tidy(storage, directory, &sources)?;
        drop_page_cache(&mut sources, last.unwrap_or_default())?;
        remove_half_rolled(storage, directory, identity, &mut sources, durable)?;
        finish_removal(
            storage,
            directory,
            identity,
            &mut sources,
            last.map_or(0, |last| last.log_start),
        )?;
        if sources.is_empty() {
            let base = last.map_or(0, |last| last.log_start);
            let (segment, _) = create_segment(
                committer.files(),
                directory,
                Preamble::first(storage, identity, base),
                &options,
                0,
            )?;
            segment.sync()?;
            disk::sync_directory(storage, directory)?;
            sources = find_segment_files(storage, directory, OpenMode::ReadWrite)?;
        }
        let wal = committer.sync_queue().wal();
        let wal = wal.filter(|wal| wal.serves(directory));
        let replay = wal.and_then(|wal| {
            let parts = wal.replay(identity)?;
            Some(Replay::new(&parts, wal.damages(), identity))
        });
        let recovered = Recovered::scan(
            committer.files(),
            directory,
            identity,
            sources,
            RecoveryHints {
                checkpoint: last,
                snapshot,
                wal: replay.as_ref(),
            },
            &options,
        )?;
        let known = checkpoint.last().map_or(0, |last| last.high_watermark);
        let (mut log, mut report) =
            Self::from_recovered(recovered, checkpoint, identity, options, committer)?;
        if let (Some(wal), Some(replay)) = (wal, replay) {
            let replayed = log.replay(&replay)?;
            report.replayed = replayed.batches;
            report.clean &= replayed.lost.is_empty();
            report.damaged.extend(replayed.lost);
            log.set_high_watermark(known);
            wal.replayed(identity);
        }
        Ok((log, report))
    }

    fn from_recovered(
        recovered: Recovered,
        mut checkpoint: CheckpointFile,
        identity: LogId,
        options: LogOptions,
        committer: &Arc<GroupCommitter>,
    ) -> Result<(Self, Recovery), Error> {
        let last = checkpoint.last();
        let directory = recovered.directory;
        // Offsets between the log start and the first segment are lost, not removed.
        let log_start = last.map_or(recovered.first_offset, |last| last.log_start);
        let shared = Shared::new(directory.clone(), identity, recovered.segments, log_start);
        shared.set_log_end(recovered.next_offset, recovered.last_timestamp);
        shared.raise_segment_synced_end(recovered.next_offset);
        shared.raise_high_watermark(last.map_or(log_start, |last| last.high_watermark));
        let storage = committer.files().storage();
        checkpoint.write(storage, shared.checkpoint(false))?;
        if last.is_none() {
            // Without a checkpoint a torn tail in a sealed segment would look like damage.
            checkpoint.sync(storage)?;
        }
        checkpoint.release();
        shared.quarantine.attach(
            &directory,
            identity,
            committer.files(),
            committer.background(),
            &recovered.quarantine,
        );
        let parts = Parts {
            epochs: EpochTable::open(storage, &directory, identity, recovered.epochs)?,
            shared,
            segment: recovered.active,
            preallocation: recovered.preallocation,
            chain: recovered.chain,
            last_batch: recovered.last_batch,
            index_snapshot_state: recovered.index_snapshot_state,
            producers: recovered.producers,
            checkpoint,
        };
        Ok((parts.into_log(options, committer), recovered.report))
    }
}

/// The parts of a created or recovered log.
struct Parts {
    shared: Shared,
    segment: Arc<Segment>,
    preallocation: Arc<Preallocation>,
    chain: u32,
    last_batch: Option<u64>,
    index_snapshot_state: SnapshotState,
    epochs: EpochTable,
    producers: Producers,
    checkpoint: CheckpointFile,
}

impl Parts {
    fn into_log(self, options: LogOptions, committer: &Arc<GroupCommitter>) -> Log {
        let wal = committer.sync_queue().wal();
        let uses_wal = wal.is_some_and(|wal| wal.serves(&self.shared.directory));
        Log {
            directory: Arc::from(self.shared.directory.as_path()),
            shared: {
                self.shared.set_keys(&options.keys);
                self.shared.pending_deletes.lock().opened =
                    committer.files().storage().monotonic_ns();
                if let Some(wal) = wal.filter(|_| uses_wal) {
                    self.shared.set_wal(wal);
                }
                let shared = Arc::new(self.shared);
                // Recovery synced all of it.
                self.segment.made_durable();
                self.segment.attach(&shared);
                shared
            },
            committer: Arc::clone(committer),
            background: committer.background(),
            uses_wal,
            committed_to: self.segment.end(),
            uncommitted: Vec::new(),
            options,
            sealer: None,
            active: self.segment,
            preallocation: self.preallocation,
            chain: self.chain,
            last_batch: self.last_batch,
            index_snapshot_state: self.index_snapshot_state,
            epochs: self.epochs,
            producers: self.producers,
            checkpoint: Arc::new(Mutex::new(self.checkpoint)),
            compacting: Arc::default(),
            removed: crate::Removed::default(),
        }
    }
}
