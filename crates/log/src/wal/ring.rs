//! The ring of WAL files: preallocated with zeros, filled one after the other, and recycled once the segments have their batches.
use super::WalOptions;
use super::end_marker::{self, EndMarker, tail_bytes};
use super::format::{self, PREAMBLE_BYTES, Preamble, WalPosition, end_of};
use super::manifest::{MAX_CLOSED, ManifestState};
use super::pending::Pending;
use super::replay::WalFile;
use crate::failpoint;
use crate::io::disk::{self, SyncFile};
use crate::io::file_names::{journal_name as name, journal_number as number};
use crate::io::preallocate::write_zeros;
use crate::io::storage::{OpenMode, Storage};
use crate::{Error, IoOp};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How long no file is made after one could not be: each try takes for a moment what space there is.
const PAUSE_NS: i64 = 60_000_000_000;

/// Name of the file that was quarantined last.
const DAMAGED: &str = "damaged";

/// A file that is filled.
#[derive(Clone)]
pub(crate) struct ClosedFile {
    /// The file.
    pub file: Arc<SyncFile>,
    /// Its log number, and where its synced frames end; 0: there are none.
    pub position: WalPosition,
    /// Whether a cut is in it.
    has_cut: bool,
}

/// The file that is being filled.
pub(crate) struct Current {
    /// Where frames go.
    pub file: Arc<SyncFile>,
    /// After the last synced frame; 0 when the preamble is not written yet.
    pub position: u64,
    /// The link that the next frame carries: the checksum of the frame before it.
    pub link: u32,
    /// Its preamble.
    pub of: Preamble,
    /// Whether a cut is in it.
    pub has_cut: bool,
    /// Number of synced rounds in it.
    rounds: u64,
    preamble: Vec<u8>,
}

impl Current {
    /// Puts the preamble into the empty buffer when the file has none.
    pub fn begin(&self, buffer: &mut Vec<u8>) {
        if self.position == 0 {
            buffer.extend_from_slice(&self.preamble);
        }
    }

    /// Writes the buffer, and the marker of its end; with the first one the copy of the preamble too.
    pub fn write(&self, buffer: &[u8], file_bytes: u64) -> io::Result<()> {
        let file = &self.file.file;
        file.write_all_at(buffer, self.position)?;
        let marker = EndMarker {
            synced: end_of(self.position),
            written: end_of(self.position + buffer.len() as u64),
        };
        let [marker, none] = [marker, EndMarker::default()].map(|of| of.to_bytes(&self.of));
        if self.position > 0 {
            return file.write_all_at(&marker, end_marker::position(self.rounds, file_bytes));
        }
        let tail = end_marker::first_tail(&marker, &none, &self.preamble, file_bytes);
        file.write_all_at(&tail, end_marker::position(0, file_bytes))
    }

    /// Records that the last `written` bytes were synced. `link`: the link that the next frame carries.
    pub fn synced(&mut self, written: u64, link: u32) {
        self.position += written;
        self.rounds += 1;
        self.link = link;
    }

    fn close(self) -> ClosedFile {
        ClosedFile {
            position: self.of.position(self.position),
            file: self.file,
            has_cut: self.has_cut,
        }
    }
}

/// All files of the WAL.
pub(crate) struct Ring {
    current: Option<Current>,
    /// Free to be used.
    ready: Vec<Arc<SyncFile>>,
    /// Segments have to be synced before these are recycled.
    full: Vec<ClosedFile>,
    /// Files whose segments are being synced.
    retiring: Vec<ClosedFile>,
    /// Files with a cut whose segments are synced. They stay as long as an older one: without the cut, a start would replay from
    /// that one what was cut.
    held: Vec<ClosedFile>,
    /// Files of the last run; they may hold chunks that a log still has to replay.
    old: Vec<WalFile>,
    /// Files that are in the ring or being made.
    count: usize,
    making: bool,
    /// No file is made before this monotonic time, ns.
    not_before: i64,
    /// The preamble of the next log number.
    next: Preamble,
    next_name: u64,
}

impl Ring {
    /// A ring that begins with the files of the last run. `next`: of the first preamble, log number, salt, data directory and the
    /// last log number before it.
    pub fn new(old: Vec<WalFile>, next: Preamble) -> Self {
        let next = Preamble {
            version: format::VERSION,
            run: next.number,
            ..next
        };
        let next_name = old.iter().filter_map(|file| number(&file.file.path)).max();
        Self {
            current: None,
            ready: Vec::new(),
            full: Vec::new(),
            retiring: Vec::new(),
            held: Vec::new(),
            old,
            count: 0,
            making: false,
            not_before: i64::MIN,
            next,
            next_name: next_name.map_or(0, |name| name + 1),
        }
    }

    /// Returns whether `bytes` of frames fit, if need be into the next file, which is then the current one.
    pub fn room_for(&mut self, bytes: u64, file_bytes: u64) -> bool {
        let used = |current: &Current| current.position.max(PREAMBLE_BYTES as u64);
        // The end markers and the copy of the preamble come after them.
        let bytes = bytes + tail_bytes(file_bytes);
        if self
            .current
            .as_ref()
            .is_some_and(|current| used(current) + bytes <= file_bytes)
        {
            return true;
        }
        if PREAMBLE_BYTES as u64 + bytes > file_bytes {
            return false;
        }
        let Some(file) = self.ready.pop() else {
            return false;
        };
        failpoint::pass("journal.file_switch");
        self.end_current();
        let (preamble, of) = format::preamble(&Preamble {
            file_bytes: end_of(file_bytes),
            ..self.next
        });
        self.current = Some(Current {
            file,
            position: 0,
            link: of.link,
            of,
            has_cut: false,
            rounds: 0,
            preamble,
        });
        self.next.number += 1;
        true
    }

    /// The file to write to, after [`Ring::room_for`] said so.
    pub fn current(&mut self) -> Option<&mut Current> {
        self.current.as_mut()
    }

    /// Closes the current file for writing: it is full, or a write failed. After a failed write, a later frame in the same file
    /// could make unacknowledged frames look acknowledged.
    pub fn end_current(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        if current.position > 0 {
            self.next.before = current.of.position(current.position);
        }
        self.full.push(current.close());
    }

    /// The same after a failed write or sync of a round that was not acknowledged; `None` when the round may continue
    /// elsewhere.
    pub fn end_unacked<T>(&mut self, error: Error) -> Result<Option<T>, Error> {
        self.end_current();
        if error.is_transient() {
            Ok(None)
        } else {
            Err(error)
        }
    }

    /// Returns whether the next file should be made now.
    pub fn is_half_full(&self, file_bytes: u64) -> bool {
        let position = self.current.as_ref().map_or(0, |current| current.position);
        self.ready.is_empty() && position > file_bytes / 2
    }

    /// Returns whether no file is ready and a sync of segments would free one.
    pub fn is_short(&self) -> bool {
        self.ready.is_empty() && !self.full.is_empty()
    }

    /// The name of a file that is to be made now: none is ready, none is being made and there are fewer than `most`, and
    /// fewer than twice as many with the older ones that are kept; and the last one could be made, or a minute has passed.
    pub fn next_to_make(&mut self, most: usize, now_ns: i64) -> Option<String> {
        let kept = self.old.len() + self.held.len();
        let is_many = self.count >= most || self.count + kept >= 2 * most;
        if self.making || !self.ready.is_empty() || is_many || now_ns < self.not_before {
            return None;
        }
        Some(self.take_name())
    }

    /// The name of a file that is to be made now, whatever there is.
    pub fn take_name(&mut self) -> String {
        self.making = true;
        self.count += 1;
        let name = name(self.next_name);
        self.next_name += 1;
        name
    }

    /// The requested file was made, or could not be.
    pub fn made(&mut self, file: Option<&Arc<SyncFile>>, now_ns: i64) {
        self.making = false;
        if let Some(file) = file {
            self.ready.push(Arc::clone(file));
        } else {
            self.count -= 1;
            self.not_before = now_ns.saturating_add(PAUSE_NS);
        }
    }

    /// The files that hold batches of unsynced segments, newest first, each with the end of its synced frames. A file without
    /// any is left out: it still has the frames of its last use.
    pub fn newest_first(&self) -> Vec<(Arc<SyncFile>, u64)> {
        let current = self.current.iter().map(|of| (&of.file, of.position));
        let closed = self.retiring.iter().chain(&self.full).rev();
        let closed = closed.map(|of| (&of.file, of.position.end.into()));
        let files = current.chain(closed).filter(|(_, end)| *end > 0);
        files.map(|(file, end)| (Arc::clone(file), end)).collect()
    }

    /// The files before these that are kept for a later start, each with the end of its frames.
    pub fn kept(&self) -> Vec<(Arc<SyncFile>, u64)> {
        let old = self.old.iter().map(|of| (&of.file, of.len));
        let held = self
            .held
            .iter()
            .map(|of| (&of.file, of.position.end.into()));
        let files = old.chain(held);
        files.map(|(file, end)| (Arc::clone(file), end)).collect()
    }

    /// The segments of the full files are about to be synced.
    pub fn retire(&mut self) {
        self.retiring.append(&mut self.full);
    }

    /// They were synced, and of the files the manifest names in `named` only those that have to stay: the others may be used
    /// again. `None`: they were not synced.
    pub fn retired(&mut self, named: Option<&ManifestState>) {
        let files = std::mem::take(&mut self.retiring);
        let Some(named) = named else {
            // They are older than those that became full meanwhile.
            self.full.splice(..0, files);
            return;
        };
        for of in files {
            if of.has_cut && named.needs(of.position.number) {
                self.count -= 1;
                self.held.push(of);
            } else {
                self.ready.push(of.file);
            }
        }
    }

    /// Log numbers before the current one whose segments are not synced.
    pub fn closed(&self) -> impl Iterator<Item = WalPosition> + '_ {
        let closed = self.full.iter().map(|full| full.position);
        closed.filter(|position| position.end > 0)
    }

    /// Log numbers that segments may not have: of this run those that are not ready, of earlier ones those with something that a
    /// log has yet to replay; and those with a cut that are newer than one of these. `is_flushed`: the segments of retiring files
    /// are synced.
    pub fn needed(&self, is_flushed: bool, pending: &Pending) -> ManifestState {
        let retiring = self.retiring.iter().filter(|_| !is_flushed);
        let closed = self.full.iter().chain(retiring);
        let closed: Vec<WalPosition> = closed.map(|of| of.position).collect();
        let current = self.current.iter().map(|current| current.of.number);
        let used = closed.iter().map(|of| of.number).chain(current);
        let mut is_waited_for = false;
        let old = self.old.iter().filter(|file| {
            is_waited_for |= pending.is_in(&file.file);
            pending.is_in(&file.file) || (file.has_cut && is_waited_for)
        });
        let old: Vec<WalPosition> = old.map(|file| file.position).collect();
        let with_cut = self.retiring.iter().filter(|of| is_flushed && of.has_cut);
        let held = self.held.iter().chain(with_cut);
        let held = held.filter(|_| is_waited_for).map(|of| of.position);
        let kept = old.into_iter().filter(|of| of.number > 0).chain(held);
        let synced = closed.iter().copied();
        ManifestState {
            newest: self.next.before,
            first_needed: used.min().unwrap_or(self.next.number),
            closed: kept
                .chain(synced)
                .filter(|of| of.end > 0)
                .take(MAX_CLOSED)
                .collect(),
            data_dir_id: self.next.data_dir_id,
        }
    }

    /// Number of the data directory.
    pub fn data_dir_id(&self) -> u64 {
        self.next.data_dir_id
    }

    /// Returns whether the ring has no file and never had one.
    pub fn is_unused(&self) -> bool {
        let is_empty = self.full.is_empty() && self.old.is_empty() && self.held.is_empty();
        is_empty && self.current.is_none() && self.next.before.number == 0
    }

    /// Keeps those files of the last run from which something is to be replayed, or which the manifest names, and newer files
    /// with a cut as long. Others are recycled, removed, or, damaged, quarantined. One that cannot be is found again by the next
    /// start.
    pub fn release_old(
        &mut self,
        options: &WalOptions,
        storage: &dyn Storage,
        pending: &Pending,
        named: &ManifestState,
    ) {
        let old = std::mem::take(&mut self.old);
        let (needed, free) = old
            .into_iter()
            .partition(|file| pending.is_in(&file.file) || named.needs(file.number()));
        self.old = needed;
        let held = std::mem::take(&mut self.held);
        let is_named = |of: &ClosedFile| named.needs(of.position.number);
        let (held, released) = held.into_iter().partition(is_named);
        self.held = held;
        for of in released {
            if self.count < options.files {
                self.count += 1;
                self.ready.push(of.file);
            } else {
                let _ = storage.remove_file(&of.file.path);
            }
        }
        for file in free {
            let path = &file.file.path;
            if file.is_damaged {
                let _ = storage.rename(path, &options.directory.join(DAMAGED));
            } else if file.len == options.file_bytes && self.count < options.files {
                self.count += 1;
                self.ready.push(file.file);
            } else {
                let _ = storage.remove_file(path);
            }
        }
    }
}

/// Makes a file of zeros in a directory that is there, durable with its name. As much again has to be free: others on the
/// filesystem need space too.
pub(crate) fn make(storage: &dyn Storage, path: &Path, bytes: u64) -> Result<Arc<SyncFile>, Error> {
    if let Some(directory) = path.parent() {
        // If the free space is unknown, the writes show it.
        let free = storage.free_bytes(directory).unwrap_or(u64::MAX);
        if free < bytes.saturating_mul(2) {
            return Err(Error::Full {
                path: path.to_path_buf(),
            });
        }
    }
    let file = SyncFile::open(storage, path, OpenMode::Replace)?;
    let fill = || {
        let written = write_zeros(&*file.file, 0, bytes);
        written.map_err(|source| Error::io(IoOp::Write, path, source))?;
        file.sync()?;
        path.parent().map_or(Ok(()), |directory| {
            disk::sync_directory_and_name(storage, directory)
        })
    };
    match fill() {
        Ok(()) => Ok(file),
        Err(error) => {
            // Half a file is useless, and a full disk needs its space.
            let _ = storage.remove_file(path);
            Err(error)
        }
    }
}
