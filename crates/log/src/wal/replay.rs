//! The content of the WAL at a start, by log (reliability §3.1, step 3).
use super::WalOptions;
use super::end_marker::{self, EndMarkers, tail_bytes};
use super::extent::{ConsistencyCheck, ExpectedExtent};
use super::format::{self, PREAMBLE_BYTES, Preamble, WalPosition};
use super::manifest::{ManifestState, WalManifest};
use super::pending::{ChunkKind, Pending, ReplayChunk};
use super::scan::{Content, Frame, Scan};
use crate::io::disk::{self, SyncFile, read_up_to};
use crate::io::file_names::journal_number as number;
use crate::io::storage::{OpenMode, Storage, StorageFile};
use crate::state::checkpoint;
use crate::{Error, IoOp, LogId};
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of the last run.
pub(crate) struct WalFile {
    /// Open as was asked for.
    pub file: Arc<SyncFile>,
    /// Its length, bytes.
    pub len: u64,
    /// `None` when it was never used, or when the preamble and its copy are damaged.
    pub preamble: Option<Preamble>,
    /// Damage at its beginning.
    pub beginning: Option<WalFault>,
    /// How far its frames reach, by the file itself.
    pub markers: EndMarkers,
    /// Whether some of it is damaged; known after [`scan`].
    pub is_damaged: bool,
    /// Whether a cut is in it; known after [`scan`], of a file that is needed.
    pub has_cut: bool,
    /// How far its acknowledged frames reach; known after [`scan`], of a file that is needed.
    pub position: WalPosition,
}

impl WalFile {
    /// Its log number; 0 when it has none.
    pub fn number(&self) -> u64 {
        self.preamble.map_or(0, |preamble| preamble.number)
    }

    /// Returns whether segments may not have its batches; known after [`scan`].
    pub fn is_needed(&self) -> bool {
        self.position.number > 0
    }

    /// Returns whether it is the file of that log number.
    pub fn is_of(&self, of: &WalPosition) -> bool {
        let is_of = |preamble: Preamble| preamble.number == of.number && preamble.link == of.seed;
        self.preamble.is_some_and(is_of)
    }
}

/// Kind of damage in the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalFault {
    /// One frame, or several adjacent ones that are lost entirely.
    Frame,
    /// The preamble; its copy is used, and nothing is lost.
    Preamble,
    /// The preamble and its copy: no frame in the file can be read.
    File,
    /// A file is missing, emptied or another one; the path is that of the WAL.
    Lost,
    /// The manifest: nothing is lost by it alone.
    Manifest,
    /// The end markers, which prove that no last frames are missing: nothing is lost by it alone.
    EndMarkers,
    /// The end markers of the newest file: its last frames may be missing.
    End,
}

impl WalFault {
    /// Returns whether frames can be lost by it.
    pub fn can_cost(self) -> bool {
        !matches!(self, Self::Preamble | Self::Manifest | Self::EndMarkers)
    }
}

/// Damage in the WAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalDamage {
    /// The file.
    pub path: PathBuf,
    /// Position of the frame, bytes.
    pub position: u64,
    /// Kind of damage.
    pub fault: WalFault,
    /// The log and the offsets [start, end) that the frame held, as far as its headers can be read.
    pub of: Option<(LogId, u64, u64)>,
    /// Whether its content was acknowledged. If not, that is unknown: it may have been in flight when the broker ended.
    pub was_acked: bool,
}

impl WalDamage {
    /// Returns whether acknowledged records may be lost by it.
    pub fn is_loss(&self) -> bool {
        let is_unknown = matches!(self.fault, WalFault::File | WalFault::Lost | WalFault::End);
        self.was_acked || is_unknown
    }
}

/// Content of the WAL.
pub(crate) struct ScanResult {
    /// The chunks that logs have to replay.
    pub pending: Pending,
    /// The files, by log number.
    pub files: Vec<WalFile>,
    /// Damage, in the order in which it was written.
    pub damages: Vec<WalDamage>,
    /// Number of whole frames.
    pub frames: u64,
    /// The manifest.
    pub manifest: WalManifest,
    /// Its content; `None` when that cannot be trusted.
    pub state: Option<ManifestState>,
}

/// Reads every file of the WAL. Frames of partitions that do not exist are skipped: they were deleted. So are those that the
/// segments have: that they were synced stays true whatever becomes of the checkpoint that says so.
pub(crate) fn scan(
    storage: &dyn Storage,
    options: &WalOptions,
    mode: OpenMode,
) -> Result<ScanResult, Error> {
    let manifest = WalManifest::open(storage, &options.directory, mode)?;
    let mut files = files(storage, &options.directory, mode)?;
    let check = ConsistencyCheck::new(&manifest, &files)?;
    let mut is_wanted = wanted(storage, &options.partitions)?;
    let (mut damages, mut frames) = (Vec::new(), 0);
    let mut pending = Pending::default();
    for file in &mut files {
        let is_needed = check.needs(file);
        check_version(file, is_needed)?;
        if !is_needed {
            continue;
        }
        let read = read_file(file, check.extent(file))?;
        frames += read.frames;
        file.is_damaged = !read.damages.is_empty();
        file.has_cut = read.has_cut();
        file.position = file.preamble.unwrap_or_default().position(read.sure_end());
        damages.extend(read.damages);
        for (log, chunk) in read.chunks {
            if is_wanted(log, &chunk) {
                pending.add(log, chunk);
            }
        }
    }
    let mut beside = check.damages(&manifest.path, &options.directory, &files);
    beside.append(&mut damages);
    Ok(ScanResult {
        pending,
        files,
        damages: beside,
        frames,
        manifest,
        state: check.into_state(),
    })
}

/// Returns whether a log exists and its segments may not have a chunk.
fn wanted<'a>(
    storage: &'a dyn Storage,
    partitions: &'a Path,
) -> Result<impl FnMut(LogId, &ReplayChunk) -> bool + 'a, Error> {
    let present: HashSet<u64> = list_if_there(storage, partitions)?
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect();
    let mut durable: HashMap<LogId, u64> = HashMap::new();
    Ok(move |log: LogId, chunk: &ReplayChunk| {
        let durable = durable.entry(log).or_insert_with(|| {
            let directory = partitions.join(log.incarnation.to_string());
            let slots = checkpoint::peek(storage, &directory, log);
            let last = slots.and_then(|slots| slots.last);
            last.map_or(0, |last| last.durable)
        });
        let is_behind = chunk.kind == ChunkKind::Cut || chunk.end > *durable;
        present.contains(&log.incarnation) && is_behind
    })
}

/// Content of one file.
#[derive(Default)]
pub(crate) struct FileRead {
    /// Chunks of all logs, in order.
    pub chunks: Vec<(LogId, ReplayChunk)>,
    /// Damage, in order.
    pub damages: Vec<WalDamage>,
    /// Number of whole frames.
    pub frames: u64,
    /// Position after the last whole frame.
    pub end: u64,
    /// Position of the first frame that may not have been acknowledged.
    acked_to: u64,
}

/// Position and log of a frame, and which chunks and damages are of it.
type Found = (u64, Option<LogId>, Range<usize>, Range<usize>);

impl FileRead {
    /// Notes which frames were acknowledged: those before `acked_to`, and those with a later frame of the same log after them: a
    /// round has at most one frame of a log, and begins when the one before it was synced.
    fn note_acked(&mut self, frames: Vec<Found>, acked_to: u64) {
        let mut was_acked = false;
        let mut behind = HashSet::new();
        self.acked_to = u64::MAX;
        for (position, log, chunks, damages) in frames.into_iter().rev() {
            was_acked |= position < acked_to || log.is_some_and(|log| !behind.insert(log));
            if !was_acked {
                self.acked_to = position;
            }
            for (_, chunk) in self.chunks.get_mut(chunks).unwrap_or_default() {
                chunk.was_acked = was_acked;
            }
            for damage in self.damages.get_mut(damages).unwrap_or_default() {
                damage.was_acked = was_acked;
            }
        }
    }

    /// Returns whether a cut is in it.
    fn has_cut(&self) -> bool {
        let mut chunks = self.chunks.iter();
        chunks.any(|(_, chunk)| chunk.kind == ChunkKind::Cut)
    }

    /// The position before `end` up to which some frames cannot be read, not even their log: they may be cuts. `None`: there are
    /// none.
    pub(super) fn unknown_to(&self, end: u64) -> Option<u64> {
        let unknown = self.damages.iter();
        let unknown = unknown.filter(|of| of.of.is_none() && of.fault.can_cost());
        let before = unknown.map(|of| of.position).filter(|of| *of < end);
        before.max()
    }

    /// The end of the frames that were certainly acknowledged; 0 when unknown. The next start must not report frames as missing
    /// that were perhaps never synced.
    fn sure_end(&self) -> u64 {
        let is_unknown = |damage: &WalDamage| damage.fault == WalFault::End;
        if self.damages.iter().any(is_unknown) {
            return 0;
        }
        self.end.min(self.acked_to)
    }
}

/// Reads one file of which `extent` is expected.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn read_file(file: &WalFile, extent: ExpectedExtent) -> Result<FileRead, Error> {
    let failed = |error| Error::io(IoOp::Read, &file.file.path, error);
    let extent = extent.with(&file.markers);
    let mut read = FileRead::default();
    let damage = |position, fault, of| WalDamage {
        path: file.file.path.clone(),
        position,
        fault,
        of,
        was_acked: false,
    };
    if let Some(fault) = file.beginning {
        read.damages.push(WalDamage {
            was_acked: file.preamble.is_none() && extent.acked_to > 0,
            ..damage(0, fault, None)
        });
    }
    let mut frames = Vec::new();
    let mut scan = Scan::new(file);
    while let Some(frame) = scan.next().map_err(failed)? {
        let (chunks, damages) = (read.chunks.len(), read.damages.len());
        let of = add_chunks(&mut read.chunks, file, &frame);
        if frame.content.is_whole() {
            read.frames += 1;
            read.end = scan.position();
        } else {
            read.damages
                .push(damage(frame.position, WalFault::Frame, of));
        }
        let log = of.map(|(log, ..)| log);
        let counts = (chunks..read.chunks.len(), damages..read.damages.len());
        frames.push((frame.position, log, counts.0, counts.1));
    }
    if let Some((position, fault)) = damage_at_end(file, &scan, &extent) {
        let damages = read.damages.len()..read.damages.len() + 1;
        read.damages.push(damage(position, fault, None));
        if fault.can_cost() {
            frames.push((position, None, 0..0, damages));
        }
    }
    read.note_acked(frames, extent.acked_to);
    Ok(read)
}

/// Damage at the end of a file that was scanned, with its position; `None`: no frames are missing.
fn damage_at_end(file: &WalFile, scan: &Scan, extent: &ExpectedExtent) -> Option<(u64, WalFault)> {
    let gone = if extent.is_begun {
        2 - file.markers.valid
    } else {
        0
    };
    let clean_end = scan.clean_end();
    let is_missed = clean_end.is_some_and(|end| end < extent.reached);
    let fault = match (gone, extent.is_closed) {
        (2, false) => WalFault::End,
        // The marker that is left may be that of the round before the last, which then is missing in part or whole.
        (1, false) if is_missed => WalFault::End,
        (1, false) if clean_end.is_some() => WalFault::Frame,
        _ if is_missed => WalFault::Frame,
        (0, _) => return None,
        _ => return Some((file.markers.position, WalFault::EndMarkers)),
    };
    Some((clean_end.unwrap_or(scan.position()), fault))
}

/// Adds what a frame holds. Returns its log and the offsets [start, end), as far as they can be read.
fn add_chunks(
    chunks: &mut Vec<(LogId, ReplayChunk)>,
    file: &WalFile,
    frame: &Frame,
) -> Option<(LogId, u64, u64)> {
    let chunk = |kind, position, len, offsets: Range<u64>, frame_start| ReplayChunk {
        kind,
        file: Arc::clone(&file.file),
        position,
        len,
        start: offsets.start,
        end: offsets.end,
        frame_start,
        was_acked: false,
    };
    let batches = match &frame.content {
        Content::Batches(batches) => batches,
        Content::Cut(cut) => {
            let offsets = cut.offset..cut.offset;
            let chunk = chunk(ChunkKind::Cut, frame.position, 0, offsets, cut.offset);
            chunks.push((cut.log, chunk));
            return Some((cut.log, cut.offset, cut.offset));
        }
        Content::Gap => return None,
    };
    let first = batches.first?;
    let (log, start) = (LogId::of(&first), first.base_offset);
    let content = frame.position + format::FRAME_BYTES as u64;
    let mut known = start;
    for run in &batches.runs {
        let (position, len) = (content + run.bytes.start as u64, run.bytes.len());
        let chunk = chunk(ChunkKind::Batches, position, len, run.start..run.end, start);
        chunks.push((log, chunk));
        known = run.end;
    }
    if known < batches.end {
        let chunk = chunk(
            ChunkKind::Lost,
            frame.position,
            0,
            known..batches.end,
            start,
        );
        chunks.push((log, chunk));
    }
    Some((log, start, batches.end))
}

/// The files in the directory, by log number.
pub(crate) fn files(
    storage: &dyn Storage,
    directory: &Path,
    mode: OpenMode,
) -> Result<Vec<WalFile>, Error> {
    let paths = list_if_there(storage, directory)?;
    let paths = paths.iter().filter(|path| number(path).is_some());
    let open = |path: &PathBuf| of_file(&SyncFile::open(storage, path, mode)?);
    let mut files: Vec<WalFile> = paths.map(open).collect::<Result<_, _>>()?;
    files.sort_by_key(WalFile::number);
    Ok(files)
}

fn list_if_there(storage: &dyn Storage, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    match disk::list(storage, directory) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

pub(super) fn of_file(file: &Arc<SyncFile>) -> Result<WalFile, Error> {
    let failed = |source| Error::io(IoOp::Read, &file.path, source);
    let len = file.file.len().map_err(failed)?;
    let mut begin = [0; PREAMBLE_BYTES];
    read_up_to(&*file.file, &mut begin, 0).map_err(failed)?;
    let own = format::read_preamble(&begin);
    let preamble = match own {
        Some(own) => Some(own),
        None => copy_of_preamble(&*file.file, len).map_err(failed)?,
    };
    let markers = preamble.map(|preamble| end_marker::read(&*file.file, len, &preamble));
    // A file that was never used is full of zeros.
    let mut tail = [0; 2 * PREAMBLE_BYTES];
    read_up_to(&*file.file, &mut tail, len.saturating_sub(tail_bytes(len))).map_err(failed)?;
    let is_used = begin.iter().chain(&tail).any(|byte| *byte != 0);
    let beginning = match (own, preamble) {
        (Some(_), _) => None,
        (None, Some(_)) => Some(WalFault::Preamble),
        (None, None) => is_used.then_some(WalFault::File),
    };
    Ok(WalFile {
        file: Arc::clone(file),
        len,
        preamble,
        beginning,
        markers: markers.transpose().map_err(failed)?.unwrap_or_default(),
        is_damaged: false,
        has_cut: false,
        position: WalPosition::default(),
    })
}

/// Refuses a file of a newer format, and one of an older format whose batches the segments may not have.
fn check_version(file: &WalFile, is_needed: bool) -> Result<(), Error> {
    let found = file.preamble.map_or(format::VERSION, |of| of.version);
    let (path, supported) = (file.file.path.clone(), format::VERSION);
    if found > supported {
        return Err(Error::NewerFormat {
            path,
            found,
            supported,
        });
    }
    if found < supported && is_needed {
        return Err(Error::OlderFormat {
            path,
            found,
            supported,
        });
    }
    Ok(())
}

fn copy_of_preamble(file: &dyn StorageFile, len: u64) -> io::Result<Option<Preamble>> {
    let mut copy = [0; PREAMBLE_BYTES];
    if len < 2 * PREAMBLE_BYTES as u64 {
        return Ok(None);
    }
    read_up_to(file, &mut copy, len - PREAMBLE_BYTES as u64)?;
    Ok(format::read_preamble(&copy))
}
