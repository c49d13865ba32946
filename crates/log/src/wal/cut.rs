//! Cuts: end a log at an offset. Replay ignores the earlier frames of the WAL from that offset on.
use super::extent::ExpectedExtent;
use super::format::{self, CUT_BYTES, Cut, FRAME_BYTES, Kind};
use super::lookup;
use super::pending::ReplayChunk;
use super::replay::{self, ScanResult};
use super::ring::{Ring, make};
use super::{Wal, WalOptions, first_of_run};
use crate::io::disk;
use crate::io::storage::{OpenMode, Storage};
use crate::{Error, IoOp, LogId};
use std::path::PathBuf;
use std::sync::Arc;

/// Length of the file that a cut without a broker makes, bytes.
const FILE_BYTES: u64 = 4096;

impl Wal {
    /// Appends a cut, unless there is nothing to cut; durable when it returns. When no file is ready or has space, segments are
    /// synced to free one; `false` when none was free after that either: try again.
    ///
    /// # Errors
    /// [`Error::Io`]: then the directory has to fail.
    pub fn cut(self: &Arc<Self>, cut: &Cut) -> Result<bool, Error> {
        if !self.has_batches(cut.log, cut.offset) || self.append_cut(cut)? {
            return Ok(true);
        }
        self.flush();
        self.append_cut(cut)
    }

    fn append_cut(self: &Arc<Self>, cut: &Cut) -> Result<bool, Error> {
        let put = |buffer: &mut Vec<u8>, link, seed| Some(put_cut(buffer, cut, link, seed));
        let bytes = (FRAME_BYTES + CUT_BYTES) as u64;
        let mut state = self.state.lock();
        let is_written = self.append(&mut state, bytes, put)?.is_some();
        if let Some(current) = state.ring.current().filter(|_| is_written) {
            current.has_cut = true;
        }
        Ok(is_written)
    }

    /// Returns whether a start may find batches of the log from `offset` on in the files.
    fn has_batches(&self, log: LogId, offset: u64) -> bool {
        let state = self.state.lock();
        let files = [state.ring.newest_first(), state.ring.kept()].concat();
        drop(state);
        for (file, synced) in files {
            // One that cannot be read may have them.
            if lookup::is_behind(&file, synced, log, offset).unwrap_or(true) {
                return true;
            }
        }
        false
    }
}

/// Returns whether the WAL holds batches of the log from `offset` on that a start may replay, once a checkpoint says that segments
/// end there.
///
/// # Errors
/// [`Error::Io`], [`Error::Stray`], [`Error::NewerFormat`], [`Error::OlderFormat`].
pub(crate) fn is_due(
    storage: &dyn Storage,
    options: &WalOptions,
    log: LogId,
    offset: u64,
) -> Result<bool, Error> {
    let found = replay::scan(storage, options, OpenMode::Read)?;
    for file in found.files.iter().filter(|file| file.is_needed()) {
        let chunks = replay::read_file(file, ExpectedExtent::default())?.chunks;
        let is_behind = |(of, chunk): &(LogId, ReplayChunk)| *of == log && chunk.end > offset;
        if chunks.iter().any(is_behind) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Appends a cut while no broker runs, in a file of its own, which it returns; durable then.
///
/// # Errors
/// As [`is_due`]; [`Error::Full`].
pub(crate) fn append(
    storage: &dyn Storage,
    options: &WalOptions,
    cut: &Cut,
) -> Result<PathBuf, Error> {
    let found = replay::scan(storage, options, OpenMode::ReadWrite)?;
    let next = first_of_run(&found, storage);
    let ScanResult {
        files,
        mut manifest,
        state,
        ..
    } = found;
    // One that segments have all of may be recycled: it must not be missed.
    let newest = files.iter().find(|file| file.is_of(&next.before));
    let newest = newest.filter(|file| file.is_needed());
    let newest = newest.map(|file| file.position);
    let mut ring = Ring::new(files, next);
    let path = options.directory.join(ring.take_name());
    disk::create_directories(storage, &options.directory)?;
    ring.made(Some(&make(storage, &path, FILE_BYTES)?), 0);
    let has_room = ring.room_for((FRAME_BYTES + CUT_BYTES) as u64, FILE_BYTES);
    let Some(current) = ring.current().filter(|_| has_room) else {
        return Err(Error::Full { path });
    };
    let mut buffer = Vec::new();
    current.begin(&mut buffer);
    put_cut(&mut buffer, cut, current.link, current.of.link);
    let written = current.write(&buffer, FILE_BYTES);
    written.map_err(|source| Error::io(IoOp::Write, &path, source))?;
    current.file.sync()?;
    let position = current.of.position(buffer.len() as u64);
    manifest.create(storage, next.data_dir_id)?;
    if state.is_some() {
        manifest.began(storage, position, newest)?;
    }
    Ok(path)
}

fn put_cut(buffer: &mut Vec<u8>, cut: &Cut, link: u32, seed: u32) -> u32 {
    let mut head = [0; FRAME_BYTES];
    let content = cut.to_bytes();
    let link = format::frame(&mut head, Kind::Cut, &content, link, seed);
    buffer.extend_from_slice(&head);
    buffer.extend_from_slice(&content);
    link
}
