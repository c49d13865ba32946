//! The writer of a log: append and commit.
//!
//! A log is owned by one thread at a time. Opening is in `recovery`; rolling, retention, checkpoints and closing are in
//! `maintain`.
use crate::commit::group_committer::SyncRequest;
use crate::failpoint;
use crate::io::disk::SyncFile;
use crate::io::jobs::JobSender;
use crate::io::preallocate::Preallocation;
use crate::segment::epochs::EpochTable;
use crate::segment::{NO_TIME, Segment};
use crate::state::checkpoint::CheckpointFile;
use crate::state::compaction::Compacting;
use crate::state::index_snapshot::SnapshotState;
use crate::state::producers::Producers;
use crate::state::removed::Removed;
use crate::state::shared::Shared;
use crate::wal::WalWrite;
use crate::{
    Appended, Durability, Error, GroupCommitter, HighWatermarkUpdater, IoOp, LogOptions, LogReader,
    SequenceError,
};
use bascule_record::crypt::{KeyRing, Sealer};
use bascule_record::planted_bug::{self, PlantedBug};
use bascule_record::{Header, Producer, SealedBatch, Stamp};
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Bytes of batches since the last commit request that are kept for the WAL; beyond that it reads them from the segment.
const HELD_BYTES: u64 = 1 << 20;
/// Zeros written at once, up to a multiple of this. Measured for batches of 5 KiB, by 16, 64 and 256 KiB: 3.3, 2.6 and 3.1 µs each,
/// and 4.9 µs without.
const STRIDE: u64 = 64 << 10;

/// Called on the thread of the group committer once everything appended before [`Log::commit`] is durable, with the durable
/// end (exclusive offset), or with the error. Must be quick and must not block: no failure is recorded while it runs, so it
/// must not take a lock that is held by a caller of the log.
pub type Committed = Box<dyn FnOnce(Result<u64, Arc<Error>>) + Send>;

/// The one writer of a partition. Not shared: the partition's task owns it.
///
/// Dropping it without [`Log::close`] is like a crash: readers get [`crate::ReadError::Closed`], background work that has not begun
/// is dropped (commits are still answered), and the next open recovers.
#[derive(Debug)]
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    /// Group commit; also keeps the threads alive.
    pub(crate) committer: Arc<GroupCommitter>,
    pub(crate) background: JobSender,
    /// Whether rounds may put this log's batches into the WAL.
    pub(crate) uses_wal: bool,
    /// Position in the active segment up to which commits were requested.
    pub(crate) committed_to: u64,
    /// Batches appended since, while rounds use the WAL, up to [`HELD_BYTES`].
    pub(crate) uncommitted: Vec<Bytes>,
    pub(crate) options: LogOptions,
    /// Encrypts batches; created by the first append that needs it.
    pub(crate) sealer: Option<Sealer>,
    pub(crate) active: Arc<Segment>,
    pub(crate) preallocation: Arc<Preallocation>,
    /// Link of the last batch.
    pub(crate) chain: u32,
    /// Position of the last batch in the active segment, if known.
    pub(crate) last_batch: Option<u64>,
    pub(crate) index_snapshot_state: SnapshotState,
    pub(crate) epochs: EpochTable,
    pub(crate) producers: Producers,
    pub(crate) checkpoint: Arc<Mutex<CheckpointFile>>,
    pub(crate) compacting: Arc<Compacting>,
    pub(crate) removed: Removed,
    pub(crate) directory: Arc<Path>,
}

impl Log {
    /// Appends one batch to the active segment (page cache), after a roll if one is due. Readers see it once
    /// [`LogReader::high_watermark`] has passed it.
    ///
    /// `leader_epoch`: at least that of the last append. `now_ns`: time of day, for rolling by age only. Timestamps below the
    /// latest one are raised to it.
    ///
    /// # Errors
    /// [`Error::Full`]: nothing was appended, a later append may succeed. [`Error::StaleEpoch`], [`Error::Batch`],
    /// [`Error::Encryption`]: nothing was appended, the log stays usable. Any other: the log refuses writes from now on.
    pub fn append(
        &mut self,
        batch: SealedBatch,
        leader_epoch: u64,
        now_ns: i64,
    ) -> Result<Appended, Error> {
        self.committer.check_usable()?;
        failpoint::pass("publish.before_append");
        if leader_epoch < self.epochs.last() {
            return Err(Error::StaleEpoch {
                path: self.directory.to_path_buf(),
                got: leader_epoch,
                current: self.epochs.last(),
            });
        }
        if self.roll_due(now_ns) {
            self.roll(now_ns)?;
        }
        let last_timestamp = self.shared.last_timestamp();
        let stamp = Stamp {
            incarnation: self.shared.identity.incarnation,
            partition: self.shared.identity.partition,
            leader_epoch,
            base_offset: self.shared.log_end(),
            chain: self.chain,
            not_before: if last_timestamp == NO_TIME {
                0
            } else {
                last_timestamp
            },
        };
        let bytes = self.stamped(batch, &stamp)?;
        let header = Header::read(&bytes).map_err(|source| Error::Batch { source })?;
        self.write(&bytes, &header)?;
        Ok(Appended {
            base_offset: header.base_offset,
            next_offset: header.next_offset(),
            base_timestamp: header.base_timestamp,
        })
    }

    pub(crate) fn write(&mut self, bytes: &Bytes, header: &Header) -> Result<(), Error> {
        // Before anything changes: there may be no descriptor.
        let file = self
            .active
            .file_to_write(header.next_offset())
            .map_err(|source| Error::io(IoOp::Open, self.active.path(), source))?;
        let begins_epoch = self.epochs.is_new(header.leader_epoch);
        if begins_epoch {
            self.epochs
                .begin(
                    self.committer.files().storage(),
                    header.leader_epoch,
                    header.base_offset,
                )
                .inspect_err(|error| self.committer.files().fail_unless_transient(error))?;
            failpoint::pass("checkpoint.epoch_written");
        }
        let position = self.active.end();
        let stride = self.stride(position, bytes.len());
        if let Err(source) = self.preallocation.write(&file, bytes, position, stride) {
            let error = self.failed_write(&file, source, position);
            if begins_epoch {
                self.epochs.withdraw(header.leader_epoch);
            }
            return Err(error);
        }
        if self.active.batch_bytes() == 0 {
            failpoint::pass("segment.first_batch");
        }
        failpoint::pass("publish.appended");
        self.remember(bytes, position);
        self.chain = header.link();
        self.last_batch = Some(position);
        self.active.add(header);
        self.producers.note(header);
        self.shared
            .set_log_end(header.next_offset(), header.max_timestamp);
        if self.options.durability == Durability::Disk {
            self.preallocate();
        }
        Ok(())
    }

    /// Submits the writing of more zeros after the end of the active segment when few are left. Submits nothing while acks rely on
    /// the WAL, because then no ack waits for a sync of the segment.
    fn preallocate(&self) {
        let (end, options) = (self.active.end(), &self.options);
        if self.shared.is_in_wal() {
            return;
        }
        let due = self
            .preallocation
            .due(end, options.preallocate_bytes, options.segment_bytes);
        let Some(target) = due else { return };
        let (zeros, shared) = (Arc::clone(&self.preallocation), Arc::clone(&self.shared));
        let files = Arc::clone(self.committer.files());
        let path = self.active.path().to_path_buf();
        self.background.submit(Box::new(move || {
            zeros
                .zero_to(files.storage(), &path, target, || !shared.is_in_wal())
                .unwrap_or_else(|error| files.fail_unless_transient(&error));
        }));
    }

    /// The stride of the zeros to write with a batch of `len` bytes at `position`; 0 = none. Only small batches of a log whose
    /// acks rely on the WAL have zeros: the background worker preallocates nothing for such a log.
    fn stride(&self, position: u64, len: usize) -> u64 {
        let (options, end) = (&self.options, position + STRIDE);
        let has_room = STRIDE <= options.preallocate_bytes && end <= options.segment_bytes;
        let is_small = (len as u64) < STRIDE / 4;
        if self.shared.is_in_wal() && has_room && is_small {
            STRIDE
        } else {
            0
        }
    }

    /// Truncates what a failed write left after the end. Any error but a lack of space fails the directory.
    fn failed_write(&self, file: &SyncFile, source: std::io::Error, end: u64) -> Error {
        let path = self.active.path();
        let error = Error::io(IoOp::Write, path, source);
        match self.preallocation.cut(file, end) {
            Ok(()) => {
                self.committer.files().fail_unless_transient(&error);
                error
            }
            Err(cut) => {
                self.committer
                    .files()
                    .fail(&Error::io(IoOp::Truncate, path, cut));
                error
            }
        }
    }

    /// The batch with its place in the log stamped on it, encrypted if the log has keys.
    pub(crate) fn stamped(&mut self, batch: SealedBatch, stamp: &Stamp) -> Result<Bytes, Error> {
        self.check_sealing()?;
        match &mut self.sealer {
            Some(sealer) => batch
                .stamp_encrypted(stamp, sealer)
                .map_err(|source| Error::Encryption { source }),
            None => Ok(batch.stamp(stamp)),
        }
    }

    /// Checks that appends can be encrypted, if they have to be.
    ///
    /// # Errors
    /// [`Error::Encryption`]: the current key is missing. Appends are refused until [`Log::set_options`] sets it.
    pub fn check_sealing(&mut self) -> Result<(), Error> {
        if self.sealer.is_none() {
            let made = self.options.keys.sealer();
            self.sealer = made.map_err(|source| Error::Encryption { source })?;
        }
        Ok(())
    }

    /// Sets the keys; later batches are encrypted with the current one.
    pub(crate) fn set_keys(&mut self, keys: &KeyRing) {
        // The next append creates a new sealer, with random bytes of its own.
        self.sealer = None;
        self.shared.set_keys(keys);
    }

    /// Requests durability of everything appended so far; never blocks. In class `memory` the callback runs immediately on this
    /// thread. In class `disk` it runs on the thread of the group committer, even if nothing was left to sync; callbacks of one
    /// log run in the order of their requests.
    pub fn commit(&mut self, done: Committed) {
        let end = self.shared.log_end();
        if self.options.durability == Durability::Memory {
            self.committer.files().health().answer(|result| {
                done(
                    result
                        .map(|()| end)
                        .map_err(|failure| Arc::new(failure.to_error())),
                );
            });
            return;
        }
        if planted_bug::is_active(PlantedBug::AckBeforeSync) {
            self.shared.raise_durable_end(end);
            return done(Ok(end));
        }
        let dirty = self.shared.durable_end() < end;
        self.preallocation.sync_requested(self.active.end());
        let shared = Arc::clone(&self.shared);
        // Unsynced writes keep their file open, so this never fails for a lack of descriptors.
        let file = match dirty.then(|| self.target()).transpose() {
            Ok(file) => file,
            Err(error) => return done(Err(Arc::new(error))),
        };
        let range = self.take_uncommitted(file.as_ref(), end);
        let in_wal = self.uses_wal;
        self.committer.sync_queue().submit(SyncRequest {
            // Earlier requests are served before this one is answered.
            file: file.filter(|_| !in_wal),
            range,
            also: self.epochs.take_unsynced(),
            directory: None,
            answer: Box::new(move |result| match result {
                Ok(()) => {
                    if in_wal {
                        shared.raise_durable_end(end);
                    } else {
                        shared.raise_segment_synced_end(end);
                    }
                    done(Ok(end));
                }
                Err(failure) => done(Err(Arc::new(failure.to_error()))),
            }),
        });
    }

    /// Keeps the batch at `position` for the WAL, so that it need not be read back.
    fn remember(&mut self, batch: &Bytes, position: u64) {
        let held = position - self.committed_to + batch.len() as u64;
        let is_disk = self.options.durability == Durability::Disk;
        if is_disk && self.shared.is_in_wal() && held <= HELD_BYTES {
            self.uncommitted.push(Bytes::clone(batch));
        }
    }

    /// The batches appended to the active segment since the last commit request, for the WAL; `None` when there are none or
    /// the log does not use it.
    fn take_uncommitted(&mut self, file: Option<&Arc<SyncFile>>, end: u64) -> Option<WalWrite> {
        let batches = std::mem::take(&mut self.uncommitted);
        let from = std::mem::replace(&mut self.committed_to, self.active.end());
        let file = file.filter(|_| self.uses_wal && from < self.committed_to)?;
        Some(WalWrite {
            file: Arc::clone(file),
            from,
            to: self.committed_to,
            batches,
            shared: Arc::clone(&self.shared),
            end,
        })
    }

    /// The active segment's file, to be synced.
    ///
    /// # Errors
    /// [`Error::Io`] when it has to be reopened and cannot be: then it has no unsynced writes.
    pub(crate) fn target(&self) -> Result<Arc<SyncFile>, Error> {
        let opened = self.active.file();
        opened.map_err(|source| Error::io(IoOp::Open, self.active.path(), source))
    }

    /// Checks a batch of an idempotent producer. `None`: it is new. `Some(Ok(appended))`: a duplicate of one of its last 5
    /// batches, with the place of the original. `Some(Err(_))`: it must not be appended.
    ///
    /// An unknown producer may begin with any sequence; a new epoch of a known one begins with 0. At most 10,000 producers are
    /// known, and none is forgotten within 15 minutes of its last batch. `now_ns`: time of day.
    ///
    /// The original of a duplicate is appended but may not be durable: answer the duplicate after a later [`Log::commit`].
    pub fn find_duplicate(
        &self,
        producer: Producer,
        count: u32,
        now_ns: i64,
    ) -> Option<Result<Appended, SequenceError>> {
        self.producers.find(producer, count, now_ns)
    }

    /// Moves the high watermark (exclusive; never back, never past the log end) and shows it to readers.
    pub fn set_high_watermark(&self, offset: u64) {
        self.shared.raise_high_watermark(offset);
    }

    /// A handle that moves the high watermark from another thread.
    pub fn high_watermark_updater(&self) -> HighWatermarkUpdater {
        HighWatermarkUpdater::new(Arc::clone(&self.shared))
    }

    /// A reader's handle.
    pub fn reader(&self) -> LogReader {
        LogReader::new(Arc::clone(&self.shared))
    }

    /// Leader epochs in this log and the offset where each began, both ascending.
    pub fn epochs(&self) -> &[(u64, u64)] {
        self.epochs.entries()
    }

    /// Changes the settings. The segment size applies from the next append on. A change of the durability class blocks until
    /// the syncs requested under the old one are done.
    pub fn set_options(&mut self, options: LogOptions) {
        if options.durability != self.options.durability {
            self.wait_idle();
        }
        self.set_keys(&options.keys);
        self.options = options.bounded();
    }
}

impl Drop for Log {
    /// Waits for the background job that may be running. Afterwards no job changes the files, so the directory may be reopened
    /// at once.
    fn drop(&mut self) {
        self.compacting.cancel();
        self.preallocation.stop();
        self.shared.close();
        self.shared.quarantine.end();
        // A running job holds one of these locks; later jobs find the log closed.
        drop(self.checkpoint.lock());
        self.shared.release_files();
    }
}
