//! Zeros after the end of an active segment, so that a sync has no metadata to write.
//!
//! A sync of a growing file also writes its size and block map; a sync of a file whose blocks exist writes data only, in
//! about half the time. So the background worker writes and syncs zeros chunk by chunk after the end of the log, as long as
//! syncs are small enough to gain by it. The writer never waits for it: it may write past the zeros at any time.
//!
//! Locks: `stopped` guards the range being zeroed. The background worker holds it while it writes one chunk to the page
//! cache, not while it syncs; the writer takes it only for a write that passes the zeroed end.
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

/// Zeros written with the preamble of a segment that a log rolls to, bytes. The first segment of a log has none: partitions
/// that stay empty take no space.
pub(crate) const FIRST_ZEROS: usize = 256 << 10;
/// Zeros written and synced at a time. The sync of an ack may wait for one chunk, so it is small.
const CHUNK: usize = 512 << 10;
/// Mean size of a sync from which on zeros cost more than they save: they double the bytes written, and a block map adds
/// little to a large sync. Measured at 1 KiB a record, 512 in flight: 0.17 M/s with zeros, 0.27 M/s
/// without; at 256 B, 64 in flight: 46 k/s with, 37 k/s without.
const LARGE_SYNC: u64 = 96 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// Zeros written by one call. Linux keeps the pages of one write as one folio, and each later write into that folio costs by
/// its size.
const PIECE: u64 = 16 << 10;

/// Writes zeros from one position to another, piece by piece.
pub(crate) fn write_zeros(file: &dyn StorageFile, from: u64, to: u64) -> io::Result<()> {
    let mut position = from;
    while position < to {
        let len = (PIECE - position % PIECE).min(to - position);
        let zeros = ZEROS.get(..len as usize).unwrap_or(&ZEROS);
        file.write_all_at(zeros, position)?;
        position += zeros.len() as u64;
    }
    Ok(())
}

/// The largest block of a filesystem, and the one that most have, bytes.
const LARGEST_BLOCK: u64 = 64 << 10;
const USUAL_BLOCK: u64 = 4096;

/// Overwrites with zeros, durably, the bytes that the filesystem may hold in the last block of a file after its end.
/// Returns the new length.
///
/// A block that was written before a power cut keeps its bytes even if the new length was lost. If the file grows in the
/// next run, and the power fails again before that block is rewritten, the old bytes reappear: a batch of an earlier run,
/// whole and linked to its predecessor. The power-cut rig met this on xfs and showed it to be possible on ext4.
pub(crate) fn cover_last_block(file: &dyn StorageFile, end: u64) -> io::Result<u64> {
    let cover = |block: u64| {
        let covered = end.next_multiple_of(block);
        let zeros = ZEROS.get(..(covered - end) as usize).unwrap_or(&ZEROS);
        file.write_all_at(zeros, end).map(|()| covered)
    };
    let covered = cover(LARGEST_BLOCK).or_else(|error| {
        // No space for a new block; the last block of the file is allocated already.
        let full = is_full(&error);
        if full { cover(USUAL_BLOCK) } else { Err(error) }
    })?;
    file.sync_data()?;
    Ok(covered)
}

/// The zeros after the end of a file that is being written.
#[derive(Debug)]
pub(crate) struct Preallocation {
    /// Everything between the end of what is written and this position is zeros.
    zeroed_to: AtomicU64,
    stopped: Mutex<Stopped>,
    /// The last block has to be covered before the next write ([`cover_last_block`]).
    bare: AtomicBool,
    busy: AtomicBool,
    /// End of the last requested sync, and the moving average of the bytes in one.
    asked_to: AtomicU64,
    sync_bytes: AtomicU64,
}

/// Whether zeros may no longer be written.
type Stopped = bool;

impl Preallocation {
    /// Of a file of `len` bytes, with nothing but zeros after the end of what is written.
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

    /// Makes the first write cover the last block: recovery found the segment without a batch and left it as it was.
    pub fn cover_at_first_write(&self) {
        self.bare.store(true, Ordering::Release);
    }

    /// Writes to the page cache. A write that passes the zeros first writes zeros up to the next multiple of `stride`; 0 = none.
    /// A small write into existing pages costs half of one that allocates pages.
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
                // There may be space for the batch itself.
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

    /// Records that a sync up to `end` was requested.
    pub fn sync_requested(&self, end: u64) {
        let bytes = end.saturating_sub(self.asked_to.swap(end, Ordering::Relaxed));
        let mean = self.sync_bytes.load(Ordering::Relaxed);
        self.sync_bytes
            .store((7 * mean + bytes) / 8, Ordering::Relaxed);
    }

    /// Truncates the file to `end` after a failed write; the zeros go too.
    pub fn cut(&self, file: &SyncFile, end: u64) -> io::Result<()> {
        let _guard = self.stopped.lock();
        file.file.set_len(end)?;
        self.zeroed_to.store(end, Ordering::Release);
        Ok(())
    }

    /// Stops writing zeros.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
    }

    /// Stops writing zeros and truncates the file to `end`.
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

    /// Writes and syncs zeros up to `target`, as long as `wanted` returns `true`. Without a descriptor it writes none, which costs
    /// time only.
    ///
    /// The kernel reports a failed write-back once per descriptor. So this syncs a descriptor of its own: on the descriptor of
    /// the acks it could consume the failure, and the sync of an ack would succeed.
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
        let to = from + chunk as u64;
        let written = write_zeros(&*own.file, from, to);
        written.map_err(|source| Error::io(IoOp::Write, &own.path, source))?;
        self.zeroed_to.store(to, Ordering::Release);
        Ok(true)
    }
}
