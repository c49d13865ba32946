//! Leftovers among the segments of a log, resolved before recovery (the table in `open`).
use crate::io::disk;
use crate::io::file_names;
use crate::io::storage::Storage;
use crate::segment::preamble::{FORMAT_VERSION, PREAMBLE_BYTES};
use crate::segment::segment_file::{SegmentFile, has_batch, mark_removed, read_preamble};
use crate::state::checkpoint::{self, CHECKPOINT, Checkpoint};
use crate::{Error, IoOp, LogId};
use bascule_record::planted_bug::{self, PlantedBug};
use std::path::Path;

/// Syncs the segments that begin beyond the durable point and drops them from the page cache. An earlier run may have ended
/// after a failed sync: then the page cache shows batches that the disk does not have. The scan does the same for the
/// segment of the durable point, from that point on; everything before it was synced successfully.
///
/// A clean checkpoint proves nothing here: the disk may have lost what a later run wrote over it. After a clean close there
/// is at most a segment without a batch.
pub(crate) fn drop_page_cache(sources: &mut [SegmentFile], last: Checkpoint) -> Result<(), Error> {
    let durable = last.durable;
    let bases: Vec<u64> = sources.iter().map(|source| source.base_offset).collect();
    for (i, source) in sources.iter_mut().enumerate() {
        let beyond = bases.get(i + 1).is_none_or(|next| *next > durable);
        let as_closed = last.clean && source.len <= PREAMBLE_BYTES;
        if beyond && source.base_offset >= durable && !as_closed {
            source
                .file
                .forget_cached(0)
                .map_err(|error| Error::io(IoOp::Sync, &source.path, error))?;
            if source.foreign.is_none() {
                read_preamble(source)?;
            }
        }
    }
    Ok(())
}

/// Returns whether the directory exists and holds the name.
pub(crate) fn holds(storage: &dyn Storage, directory: &Path, name: &str) -> Result<bool, Error> {
    match disk::list(storage, directory) {
        Ok(paths) => Ok(paths.contains(&directory.join(name))),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether the directory holds a file that was marked as deleted.
pub(crate) fn has_removed(storage: &dyn Storage, directory: &Path) -> Result<bool, Error> {
    let paths = disk::list(storage, directory)?;
    Ok(paths
        .iter()
        .any(|path| file_names::deleted_at(path).is_some()))
}

/// Refuses a segment of a newer version.
pub(crate) fn check_version(source: &SegmentFile) -> Result<(), Error> {
    match &source.preamble {
        Some(preamble) if preamble.version > FORMAT_VERSION => Err(Error::NewerFormat {
            path: source.path.clone(),
            found: preamble.version,
            supported: FORMAT_VERSION,
        }),
        _ => Ok(()),
    }
}

/// Marks segments of another log, which count as damage. Refuses the directory when no segment is of this log, or when a
/// segment of another log may hide the end of this one, which would then be truncated.
pub(crate) fn mark_foreign(
    sources: &mut [SegmentFile],
    identity: LogId,
    has_checkpoint: bool,
) -> Result<(), Error> {
    let is_foreign = |source: &SegmentFile| {
        let found = source.preamble.map(|preamble| preamble.identity);
        found.filter(|found| {
            *found != identity && !planted_bug::is_active(PlantedBug::ForeignFilesTaken)
        })
    };
    let ours = sources
        .iter()
        .any(|source| source.preamble.is_some() && is_foreign(source).is_none());
    let last_is_foreign = sources
        .last()
        .is_some_and(|last| is_foreign(last).is_some());
    for source in sources {
        let Some(found) = is_foreign(source) else {
            continue;
        };
        if !ours || (last_is_foreign && !has_checkpoint) {
            return Err(foreign(source, identity, found));
        }
        source.preamble = None;
        source.foreign = Some(found);
    }
    Ok(())
}

/// Checks the owner by the checkpoint when no preamble is readable.
pub(crate) fn check_owner(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    sources: &[SegmentFile],
) -> Result<(), Error> {
    if sources.is_empty() || sources.iter().any(|source| source.preamble.is_some()) {
        return Ok(());
    }
    match checkpoint::owner(storage, directory)? {
        Some(found)
            if found != identity && !planted_bug::is_active(PlantedBug::ForeignFilesTaken) =>
        {
            Err(not_ours(&directory.join(CHECKPOINT), identity, found))
        }
        _ => Ok(()),
    }
}

pub(crate) fn foreign(source: &SegmentFile, identity: LogId, found: LogId) -> Error {
    not_ours(&source.path, identity, found)
}

fn not_ours(path: &Path, identity: LogId, found: LogId) -> Error {
    Error::Foreign {
        path: path.to_path_buf(),
        incarnation: identity.incarnation,
        partition: identity.partition,
        found_incarnation: found.incarnation,
        found_partition: found.partition,
    }
}

/// Removes temporary files and indexes without a segment.
pub(crate) fn tidy(
    storage: &dyn Storage,
    directory: &Path,
    sources: &[SegmentFile],
) -> Result<(), Error> {
    for path in disk::list(storage, directory)? {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let orphan = extension == Some("idx")
            && !sources
                .iter()
                .any(|source| source.path.with_extension("idx") == path);
        if orphan || extension == Some("tmp") {
            disk::remove_file(storage, &path)?;
        }
    }
    Ok(())
}

/// Removes a last segment whose creation was never synced; nothing in it was acknowledged.
pub(crate) fn remove_half_rolled(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    sources: &mut Vec<SegmentFile>,
    durable: u64,
) -> Result<(), Error> {
    let Some(last) = sources.last() else {
        return Ok(());
    };
    if last.preamble.is_some() || last.base_offset < durable || has_batch(last, identity)? {
        return Ok(());
    }
    mark_removed(
        storage,
        directory,
        std::iter::once(last.path.as_path()),
        storage.wall_clock_ns(),
    )?;
    sources.pop();
    Ok(())
}

/// Completes a removal that the checkpoint records. An empty segment at the log start does not prove a removal: it may be
/// the rest of a roll without space, whose records are in the segment before.
pub(crate) fn finish_removal(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    sources: &mut Vec<SegmentFile>,
    log_start: u64,
) -> Result<(), Error> {
    let bases = sources.iter().skip(1).map(|source| source.base_offset);
    let mut count = bases.take_while(|base| *base <= log_start).count();
    while let Some(kept) = sources.get(count).filter(|_| count > 0) {
        if has_batch(kept, identity)? {
            break;
        }
        count -= 1;
    }
    if count == 0 {
        return Ok(());
    }
    let removed: Vec<SegmentFile> = sources.drain(..count).collect();
    mark_removed(
        storage,
        directory,
        removed.iter().map(|source| source.path.as_path()),
        storage.wall_clock_ns(),
    )
}
