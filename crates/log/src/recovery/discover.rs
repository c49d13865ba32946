//! The segments of a log as they are found on disk, and what is done about leftovers before recovery (the table of `open`).
use crate::io::disk;
use crate::io::storage::{OpenMode, Storage, StorageFile};
use crate::maintain::retention::mark_removed;
use crate::segment::base_offset_of;
use crate::segment::preamble::{FORMAT_VERSION, PREAMBLE_BYTES, Preamble};
use crate::segment::scan::{Found, Place, Scanner};
use crate::state::checkpoint::{self, CHECKPOINT, Checkpoint};
use crate::{Error, Identity, IoOp};
use bascule_record::planted;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment's file as found on disk.
pub(crate) struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// From its name.
    pub base_offset: u64,
    /// Open for reading and writing.
    pub file: Arc<dyn StorageFile>,
    /// Its length, bytes.
    pub len: u64,
    /// `None` when it does not check, or is another log's.
    pub preamble: Option<Preamble>,
    /// Whose segment lies here instead of ours.
    pub foreign: Option<Identity>,
}

/// Opens a segment's file and reads its preamble.
pub(crate) fn open_source(
    storage: &dyn Storage,
    path: PathBuf,
    base_offset: u64,
    mode: OpenMode,
) -> Result<Source, Error> {
    let file = disk::open(storage, &path, mode)?;
    let len = file
        .len()
        .map_err(|source| Error::io(IoOp::Stat, &path, source))?;
    let mut source = Source {
        preamble: None,
        path,
        base_offset,
        file,
        len,
        foreign: None,
    };
    read_preamble(&mut source)?;
    Ok(source)
}

pub(crate) fn read_preamble(source: &mut Source) -> Result<(), Error> {
    let mut bytes = [0; PREAMBLE_BYTES as usize];
    let read = disk::read_up_to(&*source.file, &mut bytes, 0)
        .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
    let preamble = Preamble::read(bytes.get(..read).unwrap_or_default());
    source.preamble = preamble.filter(|preamble| {
        preamble.base_offset == source.base_offset || preamble.version != FORMAT_VERSION
    });
    Ok(())
}

/// Syncs the segments that begin beyond the durable point and forgets what is cached of them. An earlier life may have
/// ended after a failed sync: then the page cache shows batches that the disk does not have. The segment in which the
/// durable point lies is treated so by the walk, from that point on: what lies before it was synced with success.
///
/// A checkpoint that tells of a clean end proves nothing here: the disk may have lost what a life after that one wrote over
/// it. Behind a clean end lies at most a segment without a batch.
pub(crate) fn trust_the_disk_alone(sources: &mut [Source], last: Checkpoint) -> Result<(), Error> {
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

/// The segments in order of their base offsets, to be written to.
pub(crate) fn find_sources(storage: &dyn Storage, directory: &Path) -> Result<Vec<Source>, Error> {
    list_sources(storage, directory, OpenMode::ReadWrite)
}

/// The same, only to be read.
pub(crate) fn find_sources_to_read(
    storage: &dyn Storage,
    directory: &Path,
) -> Result<Vec<Source>, Error> {
    list_sources(storage, directory, OpenMode::Read)
}

pub(crate) fn list_sources(
    storage: &dyn Storage,
    directory: &Path,
    mode: OpenMode,
) -> Result<Vec<Source>, Error> {
    let paths = match disk::list(storage, directory) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Vec::new()
        }
        other => other?,
    };
    let segments = paths
        .into_iter()
        .filter_map(|path| base_offset_of(&path).map(|base| (path, base)));
    segments
        .map(|(path, base)| open_source(storage, path, base, mode))
        .collect()
}

/// Whether the directory is there and holds the name.
pub(crate) fn holds(storage: &dyn Storage, directory: &Path, name: &str) -> Result<bool, Error> {
    match disk::list(storage, directory) {
        Ok(paths) => Ok(paths.contains(&directory.join(name))),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the directory holds something that was removed from a log and waits for its grace period.
pub(crate) fn has_removed(storage: &dyn Storage, directory: &Path) -> Result<bool, Error> {
    let paths = disk::list(storage, directory)?;
    Ok(paths.iter().any(|path| disk::deleted_at(path).is_some()))
}

/// Refuses what a newer version wrote.
pub(crate) fn check_version(source: &Source) -> Result<(), Error> {
    match &source.preamble {
        Some(preamble) if preamble.version > FORMAT_VERSION => Err(Error::NewerFormat {
            path: source.path.clone(),
            found: preamble.version,
            supported: FORMAT_VERSION,
        }),
        _ => Ok(()),
    }
}

/// A segment of another log among ours is damage, as if its preamble did not check. When none is ours the directory is
/// another log's; and where another log's segment may hold the end of ours, which would be cut, nothing is touched.
pub(crate) fn set_foreign_aside(
    sources: &mut [Source],
    identity: Identity,
    has_checkpoint: bool,
) -> Result<(), Error> {
    let is_foreign = |source: &Source| {
        let found = source.preamble.map(|preamble| preamble.identity);
        found.filter(|found| *found != identity && !planted::is(26))
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

/// Where no preamble tells whose the segments are, the checkpoint does.
pub(crate) fn check_owner(
    storage: &dyn Storage,
    directory: &Path,
    identity: Identity,
    sources: &[Source],
) -> Result<(), Error> {
    if sources.is_empty() || sources.iter().any(|source| source.preamble.is_some()) {
        return Ok(());
    }
    match checkpoint::owner(storage, directory)? {
        Some(found) if found != identity && !planted::is(26) => {
            Err(not_ours(&directory.join(CHECKPOINT), identity, found))
        }
        _ => Ok(()),
    }
}

pub(crate) fn foreign(source: &Source, identity: Identity, found: Identity) -> Error {
    not_ours(&source.path, identity, found)
}

fn not_ours(path: &Path, identity: Identity, found: Identity) -> Error {
    Error::Foreign {
        path: path.to_path_buf(),
        incarnation: identity.incarnation,
        partition: identity.partition,
        found_incarnation: found.incarnation,
        found_partition: found.partition,
    }
}

/// Removes names that mean nothing any more.
pub(crate) fn tidy(
    storage: &dyn Storage,
    directory: &Path,
    sources: &[Source],
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

/// The last segment may be one whose creation was never synced; nothing in it was ever acked then.
pub(crate) fn drop_half_rolled(
    storage: &dyn Storage,
    directory: &Path,
    identity: Identity,
    sources: &mut Vec<Source>,
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

/// Whether the segment begins with a sound batch.
pub(crate) fn has_batch(source: &Source, identity: Identity) -> Result<bool, Error> {
    let place = Place::first(source.base_offset);
    let found = Scanner::new(&*source.file, source.len, identity)
        .look(&place, true)
        .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
    Ok(matches!(found, Found::Batch(_) | Found::Unsupported(_)))
}

/// Position after the last byte behind `from` that is not zero; `from` when there is none.
pub(crate) fn last_non_zero(source: &Source, from: u64) -> std::io::Result<u64> {
    const STEP: u64 = 256 << 10;
    let mut end = source.len;
    let mut buffer = vec![0; STEP as usize];
    while end > from {
        let start = end.saturating_sub(STEP).max(from);
        let window = buffer.get_mut(..(end - start) as usize).unwrap_or_default();
        let read = disk::read_up_to(&*source.file, window, start)?;
        if let Some(at) = window.iter().take(read).rposition(|byte| *byte != 0) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(from)
}

/// Finishes a removal that the checkpoint tells of. A segment that begins at the log start but holds nothing is no proof of
/// one: it may be the rest of a roll that found no space, and what it should hold lies in the segment before.
pub(crate) fn drop_removed(
    storage: &dyn Storage,
    directory: &Path,
    identity: Identity,
    sources: &mut Vec<Source>,
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
    let removed: Vec<Source> = sources.drain(..count).collect();
    mark_removed(
        storage,
        directory,
        removed.iter().map(|source| source.path.as_path()),
        storage.wall_clock_ns(),
    )
}
