//! A segment's file, written ahead with zeros so that a sync has no metadata to write.
//!
//! A sync of a file that grows must also write its size and block map; one of a file whose blocks exist already writes
//! data only, in about half the time. So the background worker keeps the file longer than the log: chunk by chunk it writes and
//! syncs zeros, while syncs are small enough to gain by it. The writer never waits for it: when it reaches the end of the zeros it simply goes on.
//!
//! Locks: `ahead` guards the range being zeroed. The background worker holds it while it writes one chunk to the page cache (not
//! while it syncs); the writer takes it only for a write that passes the zeroed end.
use crate::error::is_full;
use crate::failpoint;
use crate::io::disk::SyncFile;
use crate::io::storage::{OpenMode, Storage, StorageFile};
use crate::{Error, IoOp};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Zeros written with the preamble of a segment that a log rolls to, before anybody waits for it, bytes. The first segment of
/// a log has none: partitions that stay empty take no space.
pub(crate) const FIRST_ZEROS: usize = 256 << 10;
/// Zeros written and synced at a time. An ack's sync that meets one of these waits for it too, so it is small.
const CHUNK: usize = 512 << 10;
/// Mean size of a sync from which on zeros cost more than they save: they double what is written, and a large sync hardly
/// notices that it must write a block map too. Measured at 1 KiB a record, 512 in flight: 0.17 M/s with zeros, 0.27 M/s
/// without; at 256 B, 64 in flight: 46 k/s with, 37 k/s without.
const LARGE_SYNC: u64 = 96 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// Zeros written by one call. Linux keeps what one write brought as one piece of the page cache, and each later write into
/// that piece costs by the piece's size.
pub(crate) const PIECE: usize = 16 << 10;

/// The largest block of a filesystem, and the one that most have, bytes.
const LARGEST_BLOCK: u64 = 64 << 10;
const USUAL_BLOCK: u64 = 4096;

/// Overwrites with zeros, durably, what a filesystem may hold in the last block of a file behind its end. Returns the
/// new length.
///
/// A block that was written before a power cut keeps its bytes although the length that would have shown them is lost.
/// When the file then grows in the next life, and that life loses its power before the same block is written again, the
/// bytes are back: a batch of the life before the last, whole and linked to its predecessor. Seen on xfs, and shown to be
/// possible on ext4, by the power-cut rig.
pub(crate) fn cover_last_block(file: &dyn StorageFile, end: u64) -> io::Result<u64> {
    let cover = |block: u64| {
        let covered = end.next_multiple_of(block);
        let zeros = ZEROS.get(..(covered - end) as usize).unwrap_or(&ZEROS);
        file.write_all_at(zeros, end).map(|()| covered)
    };
    let covered = cover(LARGEST_BLOCK).or_else(|error| {
        // No room for a new block: the last one of the file is there already.
        let full = is_full(&error);
        if full { cover(USUAL_BLOCK) } else { Err(error) }
    })?;
    file.sync_data()?;
    Ok(covered)
}

/// The zeros behind the end of a file that is being written.
#[derive(Debug)]
pub(crate) struct Preallocation {
    /// Everything between the end of what is written and this position is zeros.
    zeroed_to: AtomicU64,
    stopped: Mutex<Stopped>,
    /// The block that holds the end has to be covered before anything is written behind it ([`cover_last_block`]).
    bare: AtomicBool,
    busy: AtomicBool,
    /// Where the last sync that was asked for ends, and how many bytes such a sync has had of late.
    asked_to: AtomicU64,
    sync_bytes: AtomicU64,
}

/// Whether zeros may no longer be written.
type Stopped = bool;

impl Preallocation {
    /// Of a file of `len` bytes, with nothing but zeros behind the end of what is written.
    pub fn new(len: u64) -> Arc<Self> {
        Arc::new(Self {
            zeroed_to: AtomicU64::new(len),
            stopped: Mutex::new(false),
            bare: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            asked_to: AtomicU64::new(0),
            sync_bytes: AtomicU64::new(0),
        })
    }

    /// Recovery found the segment without a batch and left it as it is: the first write covers its last block.
    pub fn cover_at_first_write(&self) {
        self.bare.store(true, Ordering::Release);
    }

    /// Writes to the page cache. A write that passes the zeros has more of them written first, up to the next multiple of
    /// `stride`; 0: none. Small writes into pages that are there cost half of those that each bring new ones.
    pub fn write(
        &self,
        file: &SyncFile,
        bytes: &[u8],
        position: u64,
        stride: u64,
    ) -> io::Result<()> {
        let mut end = position + bytes.len() as u64;
        if end <= self.zeroed_to.load(Ordering::Acquire) {
            return file.file.write_all_at(bytes, position);
        }
        let _guard = self.stopped.lock();
        if self.bare.load(Ordering::Acquire) {
            let covered = cover_last_block(&*file.file, position)?;
            self.zeroed_to.store(covered, Ordering::Release);
            self.bare.store(false, Ordering::Release);
        }
        if stride > 0 {
            let from = self.zeroed_to.load(Ordering::Acquire).max(position);
            let to = end.next_multiple_of(stride).max(from);
            let zeros = ZEROS.get(..(to - from) as usize).unwrap_or_default();
            match file.file.write_all_at(zeros, from) {
                Ok(()) => end = from + zeros.len() as u64,
                // There may be room for the bytes.
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let result = file.file.write_all_at(bytes, position);
        if result.is_ok() {
            self.zeroed_to.fetch_max(end, Ordering::AcqRel);
        }
        result
    }

    /// Takes note of a sync asked for, of everything up to `end`.
    pub fn asked(&self, end: u64) {
        let bytes = end.saturating_sub(self.asked_to.swap(end, Ordering::Relaxed));
        let mean = self.sync_bytes.load(Ordering::Relaxed);
        self.sync_bytes
            .store((7 * mean + bytes) / 8, Ordering::Relaxed);
    }

    /// Takes back what a failed write may have left behind `end`, and with it the zeros.
    pub fn cut(&self, file: &SyncFile, end: u64) -> io::Result<()> {
        let _guard = self.stopped.lock();
        file.file.set_len(end)?;
        self.zeroed_to.store(end, Ordering::Release);
        Ok(())
    }

    /// Ends the writing of zeros for good.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
    }

    /// Ends the writing of zeros for good and takes back those behind `end`.
    pub fn finish(&self, file: &SyncFile, end: u64) -> io::Result<()> {
        let mut stopped = self.stopped.lock();
        *stopped = true;
        if file.file.len()? > end {
            file.file.set_len(end)?;
        }
        Ok(())
    }

    /// The position up to which [`Preallocation::zero_to`] should run now; the caller has it run. `None` while at least half
    /// a step of zeros is left, while another run is not done, and while syncs are large. A step grows with the file, so that a
    /// partition with little in it takes little: it is at most `preallocate` bytes, and never passes `limit`.
    pub fn due(&self, end: u64, preallocate: u64, limit: u64) -> Option<u64> {
        if self.sync_bytes.load(Ordering::Relaxed) >= LARGE_SYNC {
            return None;
        }
        let step = preallocate.min(end.max(FIRST_ZEROS as u64));
        let have = self.zeroed_to.load(Ordering::Relaxed).saturating_sub(end);
        let target = (end + step).min(limit);
        let enough = have >= step / 2 || have + end >= target;
        (!enough && !self.busy.swap(true, Ordering::Relaxed)).then_some(target)
    }

    /// Writes and syncs zeros up to `target`, for as long as they are `wanted`. Without space or descriptors there are none,
    /// which costs time only: the writer will report it itself.
    ///
    /// The kernel reports a failed write-back once per descriptor. So this syncs one of its own: on the one that acks are
    /// synced by, it could take the failure away from a sync that runs at the same moment and would then succeed.
    pub fn zero_to(
        &self,
        storage: &dyn Storage,
        path: &Path,
        target: u64,
        wanted: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let zeroed = match SyncFile::open(storage, path, OpenMode::ReadWrite) {
            Ok(own) => self.zero_all(&own, target, wanted),
            Err(_) => Ok(()),
        };
        self.busy.store(false, Ordering::Relaxed);
        zeroed
    }

    fn zero_all(
        &self,
        own: &SyncFile,
        target: u64,
        wanted: impl Fn() -> bool,
    ) -> Result<(), Error> {
        while wanted() && self.zero_chunk(own, target)? {
            failpoint::pass("segment.preallocate.half");
            own.sync()?;
        }
        Ok(())
    }

    fn zero_chunk(&self, own: &SyncFile, target: u64) -> Result<bool, Error> {
        let stopped = self.stopped.lock();
        let from = self.zeroed_to.load(Ordering::Acquire);
        let chunk = usize::try_from(target.saturating_sub(from))
            .unwrap_or(CHUNK)
            .min(CHUNK);
        if *stopped || chunk == 0 {
            return Ok(false);
        }
        let zeros = ZEROS.get(..chunk).unwrap_or(&ZEROS);
        let mut position = from;
        while position < from + chunk as u64 {
            let piece = PIECE - position as usize % PIECE;
            let rest = chunk - (position - from) as usize;
            let piece = zeros.get(..piece.min(rest)).unwrap_or(zeros);
            own.file
                .write_all_at(piece, position)
                .map_err(|source| Error::io(IoOp::Write, &own.path, source))?;
            position += piece.len() as u64;
        }
        self.zeroed_to.store(from + chunk as u64, Ordering::Release);
        Ok(true)
    }
}
