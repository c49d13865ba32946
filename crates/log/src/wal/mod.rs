//! The write-ahead log (WAL) of a data directory: one file to sync when many partitions are dirty at once.
//!
//! A round of the group committer with many dirty segments copies the batches since each segment's last commit into the WAL,
//! syncs that one file and acknowledges them; a background job syncs the segments later (after 64 MiB or 5 s). With few dirty
//! segments a round syncs them directly. It uses the WAL nevertheless if it has few bytes and one of its segments waits for
//! the background sync, because a direct sync would have to write all the bytes of that segment.
//!
//! * [`ring`]: the files, preallocated, filled one after the other and recycled once the segments are synced.
//! * [`manifest`]: which log numbers must have a file, in a file beside them.
//! * [`mod@format`]: preamble and frames; the bytes are in `specs/formats/journal.md`.
//! * [`end_marker`]: the end of the frames of a file, stored apart from them.
//! * `scan`: the frames of a file, also those after damage. A damaged file is quarantined as `damaged` beside the others.
//! * `extent`: detects missing files and missing ends of files, by the manifest and the end markers.
//! * [`replay`]: the content of the WAL at a start, by partition; `recovery::replay` appends it to a log.
//! * [`flush`]: the segments that are to be synced later.
//! * [`cut`]: removes the batches of a log from an offset on.
//!
//! Invariants. The *segment-synced end* of a log never passes what was synced in its segments, and only it goes into
//! checkpoints; the *durable end* counts the WAL too. A file is recycled only when every segment with batches in it is synced
//! and the manifest does not name it any more; a round is acknowledged only when the manifest names its log number. After a
//! failed sync of the WAL or of a segment the directory is failed.
//! A batch is replayed only at its own offset and after its own predecessor. So replay is idempotent: it does not restore
//! deleted or trimmed records, and does not overwrite later ones. Between the segment-synced end and the durable end, readers
//! find batches in the WAL that a segment has lost.
pub(crate) mod cut;
pub(crate) mod end_marker;
mod extent;
mod flush;
pub(crate) mod format;
mod lookup;
pub(crate) mod manifest;
pub(crate) mod pending;
pub(crate) mod replay;
pub(crate) mod ring;
mod scan;
#[cfg(test)]
mod tests;
mod write;

use crate::failpoint;
use crate::io::disk::{self, SyncFile};
use crate::io::files::Files;
use crate::io::jobs::JobSender;
use crate::io::storage::{OpenMode, Storage};
use crate::segment::scan::LogPosition;
use crate::state::shared::UnsyncedBatches;
use crate::{Error, IoOp, LogId};
use bascule_record::Header;
use bytes::Bytes;
use flush::{PendingFlush, PendingFlushes};
use format::{FRAME_BYTES, Kind, Preamble};
use lookup::Lookup;
use manifest::{MAX_CLOSED, ManifestState, WalManifest};
use parking_lot::{Condvar, Mutex};
use pending::{Pending, ReplayChunk};
use replay::ScanResult;
use ring::Ring;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use replay::{WalDamage, WalFault};
pub(crate) use write::WalWrite;
use write::{by_log, content_bytes};

/// Segments are synced when the WAL holds so many bytes for them, or the oldest ones for so long.
const FLUSH_BYTES: u64 = 64 << 20;
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// A round of few segments uses the WAL only if it has fewer bytes than this and its segments have batches there already. For
/// more bytes a sync of the segments is cheaper than writing them twice.
const FEW_BYTES: usize = 96 << 10;

/// Where the WAL is and when it is used.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Directory of its files; created when it is first used.
    pub directory: PathBuf,
    /// Directory whose children, named by incarnation, are the logs that may use it.
    pub partitions: PathBuf,
    /// Dirty segments in a round from which on it is used, at least 1. Small rounds of fewer continue in it.
    pub from_dirty_files: usize,
    /// Size of one file, bytes; at least 2 KiB, less than 4 GiB.
    pub file_bytes: u64,
    /// Most files, 2 to 14, and as many again that logs have yet to replay from; when all are full, rounds sync directly until
    /// segments are synced.
    pub files: usize,
    /// Only of a stepped group committer, which has no time: so many rounds stand for the 5 s after which segments are synced.
    pub flush_rounds: u32,
}

impl WalOptions {
    /// Four files of 64 MiB, used from 4 dirty segments on: measured, 4 in one round take 2 to 4 times as long as one file.
    pub fn new(directory: PathBuf, partitions: PathBuf) -> Self {
        Self {
            directory,
            partitions,
            from_dirty_files: 4,
            file_bytes: 64 << 20,
            files: 4,
            flush_rounds: 16,
        }
    }
}

struct State {
    ring: Ring,
    unflushed: PendingFlushes,
    flush_bytes: u64,
    flush_since: Option<Instant>,
    flush_rounds: u32,
    /// A job syncs segments.
    is_flushing: bool,
    pending: Pending,
    buffer: Vec<u8>,
}

/// The WAL of one data directory.
pub(crate) struct Wal {
    options: WalOptions,
    files: Arc<Files>,
    background: JobSender,
    threads: bool,
    state: Mutex<State>,
    /// Whoever holds both has locked the state first.
    manifest: Mutex<WalManifest>,
    /// Notified at the end of each job that syncs segments.
    flushed: Condvar,
    damages: Vec<WalDamage>,
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Wal {
    /// Scans the files of the last run and syncs them and their names. That run may have been killed before it synced them, and
    /// acknowledged records will be written to them again.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read or synced; [`Error::NewerFormat`], [`Error::OlderFormat`].
    pub fn open(
        options: WalOptions,
        files: &Arc<Files>,
        background: JobSender,
        threads: bool,
    ) -> Result<Arc<Self>, Error> {
        let storage = files.storage();
        let mut found = replay::scan(storage, &options, OpenMode::ReadWrite)?;
        if !found.files.is_empty() {
            found.files.iter().try_for_each(|of| of.file.sync())?;
            disk::sync_directory_and_name(storage, &options.directory)?;
        }
        let options = WalOptions {
            from_dirty_files: options.from_dirty_files.max(1),
            file_bytes: options.file_bytes.clamp(2 << 10, u64::from(u32::MAX)),
            files: options.files.clamp(2, MAX_CLOSED / 2),
            ..options
        };
        let damages = std::mem::take(&mut found.damages);
        let (state, manifest) = begin(found, &options, storage)?;
        Ok(Arc::new(Self {
            options,
            files: Arc::clone(files),
            background,
            threads,
            state: Mutex::new(state),
            manifest: Mutex::new(manifest),
            flushed: Condvar::new(),
            damages,
        }))
    }

    /// Returns whether the log in `directory` may use the WAL.
    pub fn serves(&self, directory: &Path) -> bool {
        directory.parent() == Some(&self.options.partitions)
    }

    /// Returns whether a round with these dirty segments, of `bytes` in all, should use the WAL: when they are many; or when the
    /// bytes are few and a segment has many more to sync, because earlier batches are only in the WAL. Segments whose sync a job has begun do not
    /// count, so a single writer returns to its segment.
    pub fn wants(&self, dirty: &[&SyncFile], bytes: usize) -> bool {
        let is_many = dirty.len() >= self.options.from_dirty_files;
        let may_continue = || {
            let state = self.state.lock();
            dirty.iter().any(|file| state.unflushed.has(file))
        };
        is_many || (bytes < FEW_BYTES && may_continue())
    }

    /// Copies the batches into the WAL and syncs it. Returns the bytes written; `None` when the round has to sync the segments
    /// instead: no file is ready, or there is no space.
    ///
    /// # Errors
    /// [`Error::Io`]: then the directory has to fail.
    pub fn write(self: &Arc<Self>, writes: &[&WalWrite]) -> Result<Option<u64>, Error> {
        let Some(frames) = by_log(writes) else {
            return Ok(None);
        };
        let bytes = frames
            .iter()
            .map(|of| content_bytes(of) + FRAME_BYTES as u64);
        let mut state = self.state.lock();
        let put = |buffer: &mut Vec<u8>, link, seed| put_frames(buffer, &frames, link, seed);
        let Some(written) = self.append(&mut state, bytes.sum(), put)? else {
            return Ok(None);
        };
        self.note(&mut state, writes, written);
        Ok(Some(written))
    }

    /// Appends frames of `bytes` in all and syncs them; `put` adds them to a buffer and returns the link of the next one. Returns
    /// the bytes written; `None` when no file is ready or has space, or `put` returned none.
    fn append(
        self: &Arc<Self>,
        state: &mut State,
        bytes: u64,
        put: impl FnOnce(&mut Vec<u8>, u32, u32) -> Option<u32>,
    ) -> Result<Option<u64>, Error> {
        let State { ring, buffer, .. } = state;
        if !ring.room_for(bytes, self.options.file_bytes) {
            self.prepare(ring);
            return Ok(None);
        }
        let Some(current) = ring.current() else {
            return Ok(None);
        };
        buffer.clear();
        current.begin(buffer);
        let Some(link) = put(buffer, current.link, current.of.link) else {
            return Ok(None);
        };
        let path = &current.file.path;
        if let Err(source) = current.write(buffer, self.options.file_bytes) {
            let error = Error::io(IoOp::Write, path, source);
            return ring.end_unacked(error);
        }
        let is_first = current.position == 0;
        if is_first {
            failpoint::pass("journal.recycled");
        }
        current.file.sync()?;
        let written = buffer.len() as u64;
        let newest = current.of.position(written);
        if is_first {
            let mut manifest = self.manifest.lock();
            if let Err(error) = manifest.began(self.files.storage(), newest, ring.closed()) {
                return ring.end_unacked(error);
            }
            failpoint::pass("journal.head_synced");
        }
        if let Some(current) = ring.current() {
            current.synced(written, link);
        }
        Ok(Some(written))
    }

    /// Has the segments of these batches synced later.
    fn note(self: &Arc<Self>, state: &mut State, writes: &[&WalWrite], written: u64) {
        for of in writes {
            state.unflushed.add(PendingFlush {
                file: Arc::clone(&of.file),
                shared: Arc::clone(&of.shared),
                end: of.end,
            });
        }
        state.flush_bytes += written;
        state.flush_rounds += 1;
        if self.threads {
            state.flush_since.get_or_insert_with(Instant::now);
        }
        if state.ring.is_half_full(self.options.file_bytes) {
            self.prepare(&mut state.ring);
        }
    }

    /// Has another file made when none is ready and there may be one more; after a failure, a minute later.
    fn prepare(self: &Arc<Self>, ring: &mut Ring) {
        let now_ns = self.files.storage().monotonic_ns();
        let Some(name) = ring.next_to_make(self.options.files, now_ns) else {
            return;
        };
        let path = self.options.directory.join(name);
        let wal = Arc::clone(self);
        // Rounds sync many segments until the file exists, so it is made before work that no ack waits for.
        self.background.submit_first(Box::new(move || {
            let made = wal.make(&path);
            let now_ns = wal.files.storage().monotonic_ns();
            wal.state.lock().ring.made(made.as_ref().ok(), now_ns);
            if let Err(error) = made {
                wal.files.fail_if_fatal(&error);
            }
        }));
    }

    /// Makes one, and before the first one the manifest: without it none may be used.
    fn make(&self, path: &Path) -> Result<Arc<SyncFile>, Error> {
        let storage = self.files.storage();
        disk::create_directories(storage, &self.options.directory)?;
        let data_dir_id = self.state.lock().ring.data_dir_id();
        self.manifest.lock().create(storage, data_dir_id)?;
        ring::make(storage, path, self.options.file_bytes)
    }

    /// The chunks that a log has to replay when it is opened, in the order in which they were written.
    pub fn replay(&self, log: LogId) -> Option<Vec<ReplayChunk>> {
        let state = self.state.lock();
        state.pending.of(log).map(<[ReplayChunk]>::to_vec)
    }

    /// Damage that was found when it was opened, in the order in which it was written.
    pub fn damages(&self) -> &[WalDamage] {
        &self.damages
    }

    /// The log has replayed its part, durably. Files of the last run that no other log waits for are recycled.
    pub fn replayed(&self, log: LogId) {
        self.state.lock().pending.remove(log);
        match self.release_flushed(false) {
            Ok(named) => self.release_old(&mut self.state.lock(), &named),
            Err(error) => self.files.fail_if_fatal(&error),
        }
    }

    /// `named`: a content of the manifest, now or earlier.
    fn release_old(&self, state: &mut State, named: &ManifestState) {
        let State { ring, pending, .. } = state;
        ring.release_old(&self.options, self.files.storage(), pending, named);
    }
}

impl UnsyncedBatches for Wal {
    /// From frames whose segment is not synced yet. The system may have dropped the batch from memory after a failed write-back
    /// of the segment: then only the WAL has it. The newest frame has it: an older one of the same offset was cut.
    fn find(&self, log: LogId, place: &LogPosition) -> Option<(Header, Bytes)> {
        let files = self.state.lock().ring.newest_first();
        for (file, synced) in files {
            match lookup::find(&file, synced, log, place) {
                Ok(Lookup::Found(header, batch)) => return Some((header, batch)),
                Ok(Lookup::Absent) => {}
                Ok(Lookup::Ended) | Err(_) => return None,
            }
        }
        None
    }
}

/// Adds a frame for the batches of each log; returns the link of the next one. `None` when a batch cannot be read.
fn put_frames(
    buffer: &mut Vec<u8>,
    frames: &[Vec<&WalWrite>],
    mut link: u32,
    seed: u32,
) -> Option<u32> {
    for writes in frames {
        let at = buffer.len();
        buffer.resize(at + FRAME_BYTES, 0);
        writes.iter().all(|of| of.put(buffer)).then_some(())?;
        let (head, content) = buffer.get_mut(at..)?.split_at_mut_checked(FRAME_BYTES)?;
        link = format::frame(head, Kind::Batches, content, link, seed);
    }
    Some(link)
}

/// Begins a run with the files that the scan found. Files from which no log has to replay anything are released.
fn begin(
    found: ScanResult,
    options: &WalOptions,
    storage: &dyn Storage,
) -> Result<(State, WalManifest), Error> {
    let next = first_of_run(&found, storage);
    let ScanResult {
        pending,
        files,
        mut manifest,
        state,
        ..
    } = found;
    let is_used = state.is_some() || !files.is_empty();
    let mut ring = Ring::new(files, next);
    if is_used {
        let needed = ring.needed(false, &pending);
        match manifest.set(storage, needed.clone()) {
            Ok(()) => ring.release_old(options, storage, &pending, &needed),
            // All of them are needed until the manifest can be written.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
    }
    let state = State {
        ring,
        unflushed: PendingFlushes::default(),
        flush_bytes: 0,
        flush_since: None,
        flush_rounds: 0,
        is_flushing: false,
        pending,
        buffer: Vec::new(),
    };
    Ok((state, manifest))
}

/// The first preamble of a run: its log number follows the ones that the scan found.
fn first_of_run(found: &ScanResult, storage: &dyn Storage) -> Preamble {
    let last = found.files.last();
    // Without a manifest the last file is the newest.
    let newest = found.state.as_ref().map(|state| state.newest);
    let newest = newest.or_else(|| Some(last?.preamble?.position(0)));
    let before = newest.unwrap_or_default();
    let number = found.files.iter().map(replay::WalFile::number).max();
    // The moment, in nanoseconds, is unknown to writers of records.
    let salt = storage.wall_clock_ns().cast_unsigned();
    let of_files = found.files.iter().rev().filter_map(|file| file.preamble);
    let mut ids = of_files.map(|preamble| preamble.data_dir_id);
    let of_manifest = found.state.as_ref().map(|state| state.data_dir_id);
    Preamble {
        number: number.unwrap_or_default().max(before.number) + 1,
        salt,
        before,
        data_dir_id: of_manifest
            .filter(|id| *id > 0)
            .or_else(|| ids.find(|id| *id > 0))
            .unwrap_or(salt.max(1)),
        ..Preamble::default()
    }
}
