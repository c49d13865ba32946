//! The end of a reset: an open that finds the file `resetting` replaces what the log was by what it is to be.
use crate::commit::group_committer::GroupCommitter;
use crate::io::disk;
use crate::io::storage::{OpenMode, Storage};
use crate::segment::create::create_segment;
use crate::segment::epochs::EpochTable;
use crate::segment::preamble::{FORMAT_VERSION, Preamble};
use crate::segment::segment_file::{find_segment_files, mark_removed};
use crate::state::checkpoint::{Checkpoint, CheckpointFile};
use crate::state::index_snapshot::INDEX_SNAPSHOT;
use crate::state::quarantine;
use crate::state::start::{RESETTING, Start};
use crate::{Error, LogId, LogOptions};
use std::path::Path;
use std::sync::Arc;

/// Does again what ends a log's reset, if its file is there. Called before anything of the log is read.
pub(crate) fn finish_reset(
    directory: &Path,
    identity: LogId,
    options: &LogOptions,
    committer: &Arc<GroupCommitter>,
) -> Result<(), Error> {
    let storage = committer.files().storage();
    let path = directory.join(RESETTING);
    let Ok(bytes) = disk::read(storage, &path) else {
        return Ok(());
    };
    // Damage: the log is what the last step left, and its leader compares it again.
    if let Some(start) = Start::read(&bytes, identity) {
        committer.wait_for_cut(directory, identity, 0, start.epoch)?;
        replace_files(storage, directory, identity, &start)?;
        begin(directory, identity, &start, options, committer)?;
        if let Some(wal) = committer.sync_queue().wal() {
            wal.replayed(identity);
        }
    }
    disk::remove_file(storage, &path)?;
    disk::sync_directory(storage, directory)
}

/// Removes all segments, and sets what the log knows beside them.
fn replace_files(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    start: &Start,
) -> Result<(), Error> {
    let sources = find_segment_files(storage, directory, OpenMode::Read)?;
    let paths = sources.iter().rev().map(|source| source.path.as_path());
    mark_removed(storage, directory, paths, storage.wall_clock_ns())?;
    let begun = Checkpoint {
        high_watermark: start.offset,
        log_start: start.offset,
        durable: start.offset,
        clean: false,
    };
    CheckpointFile::open(storage, directory, identity)?.write_both(storage, begun)?;
    quarantine::cut(storage, directory, identity, 0)?;
    disk::remove_file(storage, &directory.join(INDEX_SNAPSHOT))?;
    EpochTable::open(storage, directory, identity, start.epochs.clone())?;
    disk::replace(storage, &directory.join("producers"), &start.producers)
}

/// Creates the segment in which the log begins.
fn begin(
    directory: &Path,
    identity: LogId,
    start: &Start,
    options: &LogOptions,
    committer: &Arc<GroupCommitter>,
) -> Result<(), Error> {
    let storage = committer.files().storage();
    let preamble = Preamble {
        version: FORMAT_VERSION,
        identity,
        chain: start.chain,
        base_offset: start.offset,
        created: storage.wall_clock_ns(),
        last_timestamp: start.last_timestamp,
        epoch: start.epoch,
    };
    let (segment, _) = create_segment(committer.files(), directory, preamble, options, 0)?;
    segment.sync()?;
    disk::sync_directory(storage, directory)
}
