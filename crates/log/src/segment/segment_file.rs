//! The files of segments on disk: listing, opening, marking as deleted.
use crate::io::disk;
use crate::io::file_names;
use crate::io::file_names::base_offset_of;
use crate::io::storage::{OpenMode, Storage, StorageFile};
use crate::io::window::is_media_error;
use crate::segment::preamble::{FORMAT_VERSION, PREAMBLE_BYTES, Preamble};
use crate::segment::scan::{Found, LogPosition, Scanner};
use crate::segment::segment_scan::{SegmentScan, Step};
use crate::{Error, IoOp, LogId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of a segment as found on disk.
pub(crate) struct SegmentFile {
    /// Its path.
    pub path: PathBuf,
    /// The base offset in its name.
    pub base_offset: u64,
    /// The open file.
    pub file: Arc<dyn StorageFile>,
    /// Its length, bytes.
    pub len: u64,
    /// `None` when it is invalid or that of another log.
    pub preamble: Option<Preamble>,
    /// The log that the segment belongs to, when it is another one.
    pub foreign: Option<LogId>,
}

/// Opens the file of a segment and reads its preamble.
pub(crate) fn open_segment_file(
    storage: &dyn Storage,
    path: PathBuf,
    base_offset: u64,
    mode: OpenMode,
) -> Result<SegmentFile, Error> {
    let file = disk::open(storage, &path, mode)?;
    let len = file
        .len()
        .map_err(|source| Error::io(IoOp::Stat, &path, source))?;
    let mut source = SegmentFile {
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

pub(crate) fn read_preamble(source: &mut SegmentFile) -> Result<(), Error> {
    let mut bytes = [0; PREAMBLE_BYTES as usize];
    let read = disk::read_up_to(&*source.file, &mut bytes, 0)
        .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
    let preamble = Preamble::read(bytes.get(..read).unwrap_or_default());
    source.preamble = preamble.filter(|preamble| {
        preamble.base_offset == source.base_offset || preamble.version != FORMAT_VERSION
    });
    Ok(())
}

/// The segment files in order of their base offsets.
pub(crate) fn find_segment_files(
    storage: &dyn Storage,
    directory: &Path,
    mode: OpenMode,
) -> Result<Vec<SegmentFile>, Error> {
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
        .map(|(path, base)| open_segment_file(storage, path, base, mode))
        .collect()
}

/// Returns whether the segment begins with a valid batch.
pub(crate) fn has_batch(source: &SegmentFile, identity: LogId) -> Result<bool, Error> {
    let place = LogPosition::first(source.base_offset);
    let found = Scanner::new(&*source.file, source.len, identity)
        .check(&place, true)
        .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
    Ok(matches!(found, Found::Batch(_) | Found::Unsupported(_)))
}

/// Position after the last byte from `from` on that is not zero; `from` when all are zero.
pub(crate) fn last_non_zero(source: &SegmentFile, from: u64) -> std::io::Result<u64> {
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

/// Returns whether the segment holds nothing behind its preamble: one that was never appended to, or the rest of a roll without
/// space, after which the writer continued in the segment before. `false` where the disk cannot read it.
pub(crate) fn is_vacant(source: &SegmentFile) -> std::io::Result<bool> {
    match last_non_zero(source, PREAMBLE_BYTES) {
        Err(error) if is_media_error(&error) => Ok(false),
        found => Ok(found? == PREAMBLE_BYTES),
    }
}

/// End of the segment, if it has batches and none of them has records. A segment that begins below the end of such a one before it is
/// what compaction merged into that one.
pub(crate) fn empty_end(source: &SegmentFile, identity: LogId) -> Result<Option<u64>, Error> {
    let mut scanner = Scanner::new(&*source.file, source.len, identity);
    let mut place = LogPosition::first(source.base_offset);
    loop {
        let found = scanner
            .check(&place, true)
            .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
        match found {
            Found::Batch(header) if header.count == 0 => place = place.after(&header),
            Found::End => return Ok(Some(place.offset).filter(|end| *end > source.base_offset)),
            _ => return Ok(None),
        }
    }
}

/// Removes the indexes of segments, renames their files to deleted names and syncs the directory.
pub(crate) fn mark_removed<'a>(
    storage: &dyn Storage,
    directory: &Path,
    segments: impl Iterator<Item = &'a Path>,
    now_ns: i64,
) -> Result<(), Error> {
    mark_names(storage, segments, now_ns)?;
    disk::sync_directory(storage, directory)
}

/// As [`mark_removed`], without the sync.
pub(crate) fn mark_names<'a>(
    storage: &dyn Storage,
    mut segments: impl Iterator<Item = &'a Path>,
    now_ns: i64,
) -> Result<(), Error> {
    segments.try_for_each(|path| {
        disk::remove_file(storage, &path.with_extension("idx"))?;
        disk::rename(storage, path, &file_names::deleted_name(path, now_ns))
    })
}

/// Position of the batch of the log that begins at `offset`, or of the end when the segment's batches end there. Damage before
/// it is passed over.
///
/// # Errors
/// [`Error::NotABoundary`]; [`Error::Io`].
pub(crate) fn position_of(
    source: &SegmentFile,
    identity: LogId,
    offset: u64,
) -> Result<u64, Error> {
    let first = LogPosition::first(source.base_offset);
    let scan = SegmentScan::of_file(source, &[], identity, first, None, offset);
    let mut scan = scan.payloads_from(u64::MAX);
    let mut last = source.base_offset;
    while scan.place.offset < offset {
        last = scan.place.offset;
        let step = scan.next();
        match step.map_err(|error| Error::io(IoOp::Read, &source.path, error))? {
            Step::Batch(..) | Step::Gap(_) => {}
            Step::Tail(_) => break,
        }
    }
    if scan.place.offset == offset {
        return Ok(scan.place.position);
    }
    Err(Error::NotABoundary {
        path: source.path.clone(),
        wanted: offset,
        last,
    })
}
