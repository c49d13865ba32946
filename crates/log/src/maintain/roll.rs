//! The later life of a log: rolling, checkpoints, the end. Removal from its start is in `retention`.
//!
//! What acks must not wait for is done by the preparer, in the order in which it was asked for.
use crate::commit::group_committer::SyncRequest;
use crate::failpoint;
use crate::io::disk::{self, SyncFile};
use crate::io::files::Files;
use crate::io::jobs::Job;
use crate::io::preallocate::{FIRST_ZEROS, SegmentFile};
use crate::io::storage::{OpenMode, Storage};
use crate::segment::index;
use crate::segment::preamble::{FORMAT_VERSION, Preamble};
use crate::segment::{NO_TIME, Segment, segment_name};
use crate::state::checkpoint::Checkpoint;
use crate::state::index_snapshot::Candidate;
use crate::state::shared::Shared;
use crate::{Durability, Error, Identity, IoOp, Log, LogOptions};
use bascule_record::planted;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

/// A segment is sealed before its relative offsets could leave 32 bits.
const MAX_SPAN: u64 = 1 << 31;

/// A segment to roll to, and what the roll has to sync.
pub(crate) struct Next {
    directory: Arc<SyncFile>,
    /// The file of the active segment, which is sealed then.
    sealed: Arc<SyncFile>,
    /// The new one.
    pub segment: Arc<Segment>,
    file: Arc<SegmentFile>,
}

/// Creates a segment's file with its preamble and `zeros` bytes behind it, in the page cache.
pub(crate) fn create_segment(
    files: &Arc<Files>,
    directory: &Path,
    preamble: Preamble,
    options: &LogOptions,
    zeros: u64,
) -> Result<(Arc<Segment>, Arc<SegmentFile>), Error> {
    let path = directory.join(segment_name(preamble.base_offset));
    let file = disk::open(files.storage(), &path, OpenMode::Replace)?;
    let mut bytes = preamble.to_bytes();
    if options.durability == Durability::Disk {
        let zeros = zeros
            .min(options.preallocate_bytes)
            .min(options.segment_bytes);
        bytes.resize(bytes.len() + zeros as usize, 0);
    }
    if let Err(source) = file.write_all_at(&bytes, 0) {
        // Nothing depends on the half-made file; an error here leaves it to be truncated by the next attempt.
        let _ = files.storage().remove_file(&path);
        return Err(Error::io(IoOp::Write, &path, source));
    }
    let segment = Segment::new(files, path, preamble.base_offset, options.segment_bytes);
    segment.set_preamble(&preamble);
    let segment = Arc::new(segment);
    let segment_file = SegmentFile::new(&segment, file, bytes.len() as u64);
    Ok((segment, segment_file))
}

impl Log {
    pub(crate) fn roll_due(&self, now_ns: i64) -> bool {
        let first = self.active.first_timestamp();
        if first == NO_TIME && self.active.batch_bytes() == 0 {
            return false;
        }
        let age = self.options.segment_age_ns;
        self.active.end() >= self.options.segment_bytes
            || self.shared.log_end() - self.active.base_offset >= MAX_SPAN
            || (age > 0 && first != NO_TIME && now_ns.saturating_sub(first) >= age)
    }

    /// Seals the active segment and opens the next. A lack of space or descriptors only postpones it: the append that
    /// follows is tried on the old one.
    pub(crate) fn roll(&mut self, now_ns: i64) -> Result<(), Error> {
        self.roll_to(self.shared.log_end(), now_ns, FIRST_ZEROS as u64)
    }

    /// The same; the next segment begins at `base_offset`, which is not below the log end, and has `zeros` bytes of zeros.
    pub(crate) fn roll_to(
        &mut self,
        base_offset: u64,
        now_ns: i64,
        zeros: u64,
    ) -> Result<(), Error> {
        match self.next_segment(base_offset, now_ns, zeros)? {
            Some(next) => self.go_on_in(next, now_ns),
            None => Ok(()),
        }
    }

    /// Creates the segment to roll to, in the page cache; `None` without space or descriptors. Nothing else has changed.
    pub(crate) fn next_segment(
        &self,
        base_offset: u64,
        now_ns: i64,
        zeros: u64,
    ) -> Result<Option<Next>, Error> {
        let preamble = Preamble {
            version: FORMAT_VERSION,
            identity: self.shared.identity,
            chain: self.chain,
            base_offset,
            created: now_ns,
            last_timestamp: self.shared.last_timestamp(),
            epoch: self.epochs.last(),
        };
        let files = self.coordinator.files();
        let created =
            disk::open_directory(files.storage(), &self.directory).and_then(|directory| {
                let sealed = self.target()?;
                failpoint::check("segment.roll.before_create")
                    .map_err(|source| Error::io(IoOp::Create, &self.directory, source))?;
                let (segment, file) =
                    create_segment(files, &self.directory, preamble, &self.options, zeros)?;
                Ok(Next {
                    directory,
                    sealed,
                    segment,
                    file,
                })
            });
        match created {
            Ok(next) => Ok(Some(next)),
            Err(error) if error.is_transient() => Ok(None),
            Err(error) => {
                self.coordinator.rounds().fail(&error);
                Err(error)
            }
        }
    }

    /// Seals the active segment and goes on in the next. An error fails the directory.
    pub(crate) fn go_on_in(&mut self, next: Next, now_ns: i64) -> Result<(), Error> {
        let Next {
            directory,
            sealed: sealed_file,
            segment,
            file,
        } = next;
        failpoint::pass("segment.roll.created");
        let end = self.active.end();
        self.file.finish(&sealed_file, end).map_err(|source| {
            let error = Error::io(IoOp::Truncate, self.active.path(), source);
            self.coordinator.rounds().fail(&error);
            error
        })?;
        failpoint::pass("segment.seal");
        let sealed = std::mem::replace(&mut self.active, Arc::clone(&segment));
        self.file = file;
        self.committed_to = self.active.end();
        self.uncommitted.clear();
        self.shared
            .edit_segments(|segments| segments.push(Arc::clone(&segment)));
        segment.attach(&self.shared);
        let new_file = self.target()?;
        self.sync_roll([sealed_file, new_file], directory);
        sealed.sealed();
        self.producers
            .forget_removed(self.shared.log_start(), now_ns);
        self.describe_sealed(sealed);
        Ok(())
    }

    /// The sealed file, the new one and its name become durable before any later commit is answered.
    fn sync_roll(&self, files: [Arc<SyncFile>; 2], directory: Arc<SyncFile>) {
        if self.options.durability == Durability::Memory {
            self.sync_lazily(files.to_vec(), Some(directory), self.active.base_offset);
            return;
        }
        let [sealed, new] = files;
        let segment = Arc::clone(&self.active);
        let (shared, preparer) = (Arc::clone(&self.shared), self.preparer.clone());
        let write_checkpoint = self.checkpoint_job(None);
        let end = self.active.base_offset;
        self.coordinator.rounds().submit(SyncRequest {
            file: Some(sealed),
            also: Some(new),
            range: None,
            directory: Some(directory).filter(|_| !planted::is(4)),
            answer: Box::new(move |result| {
                if result.is_ok() {
                    segment.made_durable();
                    shared.raise_settled_end(end);
                    preparer.submit(write_checkpoint);
                }
            }),
        });
    }

    /// Class `memory`: nobody waits for the sync, and it may have a whole segment to write. So the preparer does it, and
    /// the acks of other partitions do not wait behind it.
    fn sync_lazily(&self, files: Vec<Arc<SyncFile>>, directory: Option<Arc<SyncFile>>, end: u64) {
        let shared = Arc::clone(&self.shared);
        let rounds = Arc::clone(self.coordinator.rounds());
        let segment = Arc::clone(&self.active);
        self.preparer.submit(Box::new(move || {
            if rounds.failure().is_some() {
                return;
            }
            let synced = files.iter().try_for_each(|file| file.sync());
            match synced.and_then(|()| directory.map_or(Ok(()), |names| names.sync_names())) {
                Ok(()) => {
                    segment.made_durable();
                    shared.raise_settled_end(end);
                }
                Err(error) => rounds.fail(&error),
            }
        }));
    }

    /// Has the sealed segment's index and the producers at the start of the new one written. Both can be rebuilt, so a
    /// lack of space only costs time at the next open; half a file does not pass its checksum.
    fn describe_sealed(&self, sealed: Arc<Segment>) {
        let (chain, epoch, identity) = (self.chain, self.epochs.last(), self.shared.identity);
        let producers = self.producers.to_bytes(identity, self.active.base_offset);
        let producers_path = self.directory.join("producers");
        let (shared, rounds) = (
            Arc::clone(&self.shared),
            Arc::clone(self.coordinator.rounds()),
        );
        self.preparer.submit(Box::new(move || {
            let _names = shared.names.lock();
            if shared.is_closed() {
                return;
            }
            let is_current = shared.holds(&sealed);
            let bytes = index::to_bytes(identity, &sealed.summary(chain, epoch), sealed.index());
            let path = sealed.path().with_extension("idx");
            let storage = rounds.storage();
            let written = if is_current {
                disk::write(storage, &path, &bytes)
            } else {
                Ok(())
            };
            written
                .and_then(|()| disk::replace(storage, &producers_path, &producers))
                .unwrap_or_else(|error| rounds.fail_unless_passing(&error));
        }));
    }

    /// Writes the checkpoint (high watermark, log start, durable point), and now and then the landmark from which the next
    /// recovery begins. Never on the path of an ack: the preparer does it, after the return. In class `memory` it has the
    /// data synced first.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.coordinator.check_usable()?;
        let end = self.shared.log_end();
        if self.options.durability == Durability::Memory && self.shared.durable_end() < end {
            let mut files = vec![self.target()?];
            files.extend(self.epochs.take_unsynced());
            self.sync_lazily(files, None, end);
        }
        let candidate = self.candidate();
        self.preparer.submit(self.checkpoint_job(candidate));
        Ok(())
    }

    /// Writes what is true when it runs.
    fn checkpoint_job(&self, candidate: Option<Arc<Candidate>>) -> Job {
        let (shared, rounds) = (
            Arc::clone(&self.shared),
            Arc::clone(self.coordinator.rounds()),
        );
        let checkpoint = Arc::clone(&self.checkpoint);
        Box::new(move || {
            let mut checkpoint = checkpoint.lock();
            if shared.is_closed() {
                return;
            }
            let result = checkpoint.write(rounds.storage(), current(&shared, false));
            checkpoint.let_go();
            drop(checkpoint);
            failpoint::pass("checkpoint.durable_written");
            result
                .and_then(
                    |()| match candidate.filter(|_| rounds.failure().is_none()) {
                        Some(candidate) => candidate.write_if_settled(rounds.storage(), &shared),
                        None => Ok(()),
                    },
                )
                .unwrap_or_else(|error| rounds.fail_unless_passing(&error));
        })
    }

    /// Syncs, writes a clean checkpoint and closes; readers get [`crate::ReadError::Closed`]. Blocks.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed before; [`Error::Io`]. Either way the log is closed, and the next
    /// open recovers it.
    pub fn close(mut self) -> Result<(), Error> {
        self.compacting.cancel();
        self.settle();
        // Also what failed just now: the failure has been told once, a sync after it would prove nothing.
        self.coordinator.check_usable()?;
        self.write_end()
            .inspect_err(|error| self.coordinator.rounds().fail_if_lost(error))
    }

    fn write_end(&mut self) -> Result<(), Error> {
        let (end, file) = (self.active.end(), self.target()?);
        self.file
            .finish(&file, end)
            .map_err(|source| Error::io(IoOp::Truncate, self.active.path(), source))?;
        file.sync()?;
        if let Some(epochs) = self.epochs.take_unsynced() {
            epochs.sync()?;
        }
        let log_end = self.shared.log_end();
        self.shared.raise_settled_end(log_end);
        let identity = self.shared.identity;
        let summary = self.active.summary(self.chain, self.epochs.last());
        let index_path = self.active.path().with_extension("idx");
        let storage = self.coordinator.files().storage();
        disk::write(
            storage,
            &index_path,
            &index::to_bytes(identity, &summary, self.active.index()),
        )?;
        disk::replace(
            storage,
            &self.directory.join("producers"),
            &self.producers.to_bytes(identity, log_end),
        )?;
        let mut checkpoint = self.checkpoint.lock();
        failpoint::pass("checkpoint.before_clean");
        checkpoint.write(storage, current(&self.shared, true))?;
        checkpoint.sync(storage)
    }

    /// Renames the directory to a marked name, syncs the parent; the files are unlinked by [`crate::DeletedLogs`].
    ///
    /// # Errors
    /// [`Error::Io`]; then the log is closed but still there.
    pub fn delete(self) -> Result<(), Error> {
        self.shared.close();
        self.compacting.cancel();
        self.settle();
        let storage = self.coordinator.files().storage();
        let marked = disk::deleted_name(&self.directory, storage.wall_clock_ns());
        let mark = || {
            disk::rename(storage, &self.directory, &marked)?;
            failpoint::pass("delete.renamed");
            self.directory
                .parent()
                .map_or(Ok(()), |parent| disk::sync_directory(storage, parent))
        };
        mark().inspect_err(|error| self.coordinator.rounds().fail_if_lost(error))
    }

    /// Waits until both threads have done what this log asked for. The committer first: its answers may ask the preparer.
    pub(crate) fn settle(&self) {
        if self.coordinator.is_stepped() {
            while self.coordinator.step() {}
            return;
        }
        let (done, settled) = mpsc::channel();
        let last = done.clone();
        self.coordinator.rounds().submit(SyncRequest {
            file: None,
            also: None,
            range: None,
            directory: None,
            // The receiver waits below; here and for the preparer.
            answer: Box::new(move |_| {
                let _ = done.send(());
            }),
        });
        // An error means that no thread is left to do anything.
        let _ = settled.recv();
        self.preparer.submit(Box::new(move || {
            let _ = last.send(());
        }));
        let _ = settled.recv();
    }
}

/// What a checkpoint written now says. The durable point is read first, so it is never ahead of the rest. The log start
/// is told as far as everything below it is in the segments or removed with one: what a trim hides in the middle of a
/// segment may be what acked records, so far in the journal only, follow.
pub(crate) fn current(shared: &Shared, clean: bool) -> Checkpoint {
    let durable = shared.settled_end();
    let first = shared
        .segments()
        .first()
        .map_or(0, |first| first.base_offset);
    Checkpoint {
        high_watermark: shared.high_watermark(),
        log_start: shared.log_start().min(durable.max(first)),
        durable,
        clean,
    }
}

/// The preamble of a log's first segment.
pub(crate) fn first_preamble(
    storage: &dyn Storage,
    identity: Identity,
    base_offset: u64,
) -> Preamble {
    Preamble {
        version: FORMAT_VERSION,
        identity,
        chain: 0,
        base_offset,
        created: storage.wall_clock_ns(),
        last_timestamp: NO_TIME,
        epoch: 0,
    }
}
