//! Rolling: the active segment is sealed and the next one begins.
//!
//! The background worker writes what acks must not wait for, in order of submission.
use crate::commit::group_committer::SyncRequest;
use crate::failpoint;
use crate::io::disk::{self, SyncFile};
use crate::io::preallocate::{FIRST_ZEROS, Preallocation};
use crate::segment::create::create_segment;
use crate::segment::index;
use crate::segment::preamble::{FORMAT_VERSION, Preamble};
use crate::segment::{NO_TIME, Segment};
use crate::{Durability, Error, IoOp, Log};
use bascule_record::planted_bug::{self, PlantedBug};
use std::sync::Arc;

/// A segment is sealed before its relative offsets exceed 32 bits.
const MAX_SPAN: u64 = 1 << 31;

/// The next segment, and the files that the roll has to sync.
pub(crate) struct Next {
    directory: Arc<SyncFile>,
    /// The file of the active segment, which is sealed by the roll.
    sealed: Arc<SyncFile>,
    /// The next segment.
    pub segment: Arc<Segment>,
    preallocation: Arc<Preallocation>,
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

    /// Seals the active segment and begins the next. A lack of space or descriptors only postpones the roll: the next append goes
    /// to the old segment.
    pub(crate) fn roll(&mut self, now_ns: i64) -> Result<(), Error> {
        self.roll_to(self.shared.log_end(), now_ns, FIRST_ZEROS as u64)
    }

    /// As [`Log::roll`]; the next segment begins at `base_offset`, at least the log end, with `zeros` bytes of zeros.
    pub(crate) fn roll_to(
        &mut self,
        base_offset: u64,
        now_ns: i64,
        zeros: u64,
    ) -> Result<(), Error> {
        match self.next_segment(base_offset, now_ns, zeros)? {
            Some(next) => self.continue_in(next, now_ns),
            None => Ok(()),
        }
    }

    /// Creates the next segment in the page cache, and changes nothing else; `None` for a lack of space or descriptors.
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
        let files = self.committer.files();
        let created =
            disk::open_directory(files.storage(), &self.directory).and_then(|directory| {
                let sealed = self.target()?;
                failpoint::check("segment.roll.before_create")
                    .map_err(|source| Error::io(IoOp::Create, &self.directory, source))?;
                let (segment, preallocation) =
                    create_segment(files, &self.directory, preamble, &self.options, zeros)?;
                Ok(Next {
                    directory,
                    sealed,
                    segment,
                    preallocation,
                })
            });
        match created {
            Ok(next) => Ok(Some(next)),
            Err(error) if error.is_transient() => Ok(None),
            Err(error) => {
                self.committer.files().fail(&error);
                Err(error)
            }
        }
    }

    /// Seals the active segment and continues in the next. An error fails the directory.
    pub(crate) fn continue_in(&mut self, next: Next, now_ns: i64) -> Result<(), Error> {
        let Next {
            directory,
            sealed: sealed_file,
            segment,
            preallocation,
        } = next;
        failpoint::pass("segment.roll.created");
        let end = self.active.end();
        self.preallocation
            .finish(&sealed_file, end)
            .map_err(|source| {
                let error = Error::io(IoOp::Truncate, self.active.path(), source);
                self.committer.files().fail(&error);
                error
            })?;
        failpoint::pass("segment.seal");
        let sealed = std::mem::replace(&mut self.active, Arc::clone(&segment));
        self.preallocation = preallocation;
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

    /// Makes the sealed file, the new one and its name durable before any later commit is answered.
    fn sync_roll(&self, files: [Arc<SyncFile>; 2], directory: Arc<SyncFile>) {
        if self.options.durability == Durability::Memory {
            self.sync_in_background(files.to_vec(), Some(directory), self.active.base_offset);
            return;
        }
        let [sealed, new] = files;
        let segment = Arc::clone(&self.active);
        let (shared, background) = (Arc::clone(&self.shared), self.background.clone());
        let write_checkpoint = self.checkpoint_job(None);
        let end = self.active.base_offset;
        self.committer.sync_queue().submit(SyncRequest {
            file: Some(sealed),
            also: Some(new),
            range: None,
            directory: Some(directory)
                .filter(|_| !planted_bug::is_active(PlantedBug::RollNotSynced)),
            answer: Box::new(move |result| {
                if result.is_ok() {
                    segment.made_durable();
                    shared.raise_segment_synced_end(end);
                    background.submit(write_checkpoint);
                }
            }),
        });
    }

    /// Syncs in the background worker, for class `memory`: no ack waits for it, and a sync of a whole segment would delay the acks
    /// of other partitions.
    pub(super) fn sync_in_background(
        &self,
        targets: Vec<Arc<SyncFile>>,
        directory: Option<Arc<SyncFile>>,
        end: u64,
    ) {
        self.sync_then(targets, directory, end, |_| ());
    }

    /// As [`Log::sync_in_background`]; `done` is called on the background worker, after all syncs submitted earlier, or dropped
    /// with it.
    pub(super) fn sync_then(
        &self,
        targets: Vec<Arc<SyncFile>>,
        directory: Option<Arc<SyncFile>>,
        end: u64,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let files = Arc::clone(self.committer.files());
        let segment = Arc::clone(&self.active);
        self.background.submit(Box::new(move || {
            if let Some(failure) = files.failure() {
                return done(Err(failure.to_error()));
            }
            let synced = targets.iter().try_for_each(|target| target.sync());
            let synced = synced.and_then(|()| directory.map_or(Ok(()), |names| names.sync_names()));
            match &synced {
                Ok(()) => {
                    segment.made_durable();
                    shared.raise_segment_synced_end(end);
                }
                Err(error) => files.fail(error),
            }
            done(synced);
        }));
    }

    /// Submits the writing of the sealed segment's index and of the `producers` file. Both can be rebuilt, so a lack of space costs
    /// time at the next open only; an incomplete file fails its checksum.
    fn describe_sealed(&self, sealed: Arc<Segment>) {
        let (chain, epoch, identity) = (self.chain, self.epochs.last(), self.shared.identity);
        let producers = self.producers.to_bytes(identity, self.active.base_offset);
        let producers_path = self.directory.join("producers");
        let (shared, files) = (Arc::clone(&self.shared), Arc::clone(self.committer.files()));
        self.background.submit(Box::new(move || {
            let _deletes = shared.pending_deletes.lock();
            if shared.is_closed() {
                return;
            }
            let is_current = shared.holds(&sealed);
            let bytes = index::to_bytes(identity, &sealed.summary(chain, epoch), sealed.index());
            let path = sealed.path().with_extension("idx");
            let storage = files.storage();
            let written = if is_current {
                disk::write(storage, &path, &bytes)
            } else {
                Ok(())
            };
            written
                .and_then(|()| disk::replace(storage, &producers_path, &producers))
                .unwrap_or_else(|error| files.fail_unless_transient(&error));
        }));
    }
}
