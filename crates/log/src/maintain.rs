//! The later life of a log: rolling, retention, checkpoints, the end.
//!
//! What may wait is done by the preparer in the order in which it was asked for. A removal is: the log start moves for
//! readers; the checkpoint with it is synced; the files get their marked names; the directory is synced. A crash
//! between any two of these leaves a state from which the next open goes on.
use crate::ahead::{FIRST_ZEROS, SegmentFile};
use crate::checkpoint::Checkpoint;
use crate::coordinator::SyncRequest;
use crate::disk;
use crate::preamble::{FORMAT_VERSION, Preamble};
use crate::segment::{NO_TIME, Segment, segment_name};
use crate::shared::Shared;
use crate::worker::Job;
use crate::{Durability, Error, Identity, Log, LogOptions, Retention, index};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

/// How long removed segments stay recoverable under their marked names, ns.
const GRACE_NS: i64 = 60_000_000_000;
/// A segment is sealed before its relative offsets could leave 32 bits.
const MAX_SPAN: u64 = 1 << 31;

/// Creates a segment's file with its preamble and first zeros, in the page cache.
pub(crate) fn create_segment(
    directory: &Path,
    preamble: Preamble,
    options: &LogOptions,
) -> Result<(Arc<Segment>, Arc<SegmentFile>), Error> {
    let path = directory.join(segment_name(preamble.base_offset));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .map_err(|source| Error::io("create", &path, source))?;
    let mut bytes = preamble.to_bytes();
    if options.durability == Durability::Disk {
        let zeros = (FIRST_ZEROS as u64)
            .min(options.preallocate_bytes)
            .min(options.segment_bytes);
        bytes.resize(bytes.len() + zeros as usize, 0);
    }
    let segment_file = SegmentFile::new(path.clone(), file, bytes.len() as u64);
    if let Err(source) = segment_file.write(&bytes, 0) {
        // Nothing depends on the half-made file; an error here leaves it to be truncated by the next attempt.
        let _ = fs::remove_file(&path);
        return Err(Error::io("write", &path, source));
    }
    let segment = Segment::new(path, preamble.base_offset, options.segment_bytes);
    segment.set_file(segment_file.target());
    Ok((Arc::new(segment), segment_file))
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
        let preamble = Preamble {
            version: FORMAT_VERSION,
            identity: self.shared.identity,
            chain: self.chain,
            base_offset: self.shared.log_end(),
            created: now_ns,
            last_timestamp: self.shared.last_timestamp(),
            epoch: self.epochs.last(),
        };
        let (segment, file) = match create_segment(&self.directory, preamble, &self.options) {
            Ok(created) => created,
            Err(Error::Io { source, .. })
                if disk::is_full(&source) || disk::is_out_of_descriptors(&source) =>
            {
                return Ok(());
            }
            Err(error) => {
                self.coordinator.rounds().fail(&error);
                return Err(error);
            }
        };
        let end = self.active.end();
        self.file.finish(end).map_err(|source| {
            let error = Error::io("truncate", self.active.path(), source);
            self.coordinator.rounds().fail(&error);
            error
        })?;
        let sealed = std::mem::replace(&mut self.active, Arc::clone(&segment));
        let sealed_file = std::mem::replace(&mut self.file, file);
        let mut segments = self.shared.segments().as_ref().clone();
        segments.push(segment);
        self.shared.set_segments(segments);
        self.sync_roll(&sealed_file);
        self.describe_sealed(sealed);
        Ok(())
    }

    /// The sealed file, the new one and its name become durable before any later commit is answered.
    fn sync_roll(&mut self, sealed: &Arc<SegmentFile>) {
        let (shared, preparer) = (Arc::clone(&self.shared), self.preparer.clone());
        let write_checkpoint = self.checkpoint_job();
        let end = self.active.base_offset;
        self.coordinator.rounds().submit(SyncRequest {
            file: Some(Arc::clone(sealed.target())),
            also: Some(Arc::clone(self.file.target())),
            directory: Some(Arc::clone(&self.directory)),
            answer: Box::new(move |result| {
                if result.is_ok() {
                    shared.raise_durable_end(end);
                    preparer.submit(write_checkpoint);
                }
            }),
        });
    }

    /// Has the sealed segment's index and the producers at the start of the new one written. Both can be rebuilt, so a
    /// failure to write them only costs time at the next open; half a file does not pass its checksum.
    fn describe_sealed(&self, sealed: Arc<Segment>) {
        let (chain, epoch, identity) = (self.chain, self.epochs.last(), self.shared.identity);
        let producers = self.producers.to_bytes(identity, self.active.base_offset);
        let producers_path = self.directory.join("producers");
        self.preparer.submit(Box::new(move || {
            let bytes = index::to_bytes(identity, &sealed.summary(chain, epoch), sealed.index());
            let _ = fs::write(sealed.path().with_extension("idx"), bytes);
            let _ = disk::replace(&producers_path, &producers);
        }));
    }

    /// Rolls when due by age or size and then does nothing else (the next call removes); otherwise removes whole sealed
    /// segments by `retention`, oldest first. Returns the log start offset.
    ///
    /// Only segments wholly below the high watermark go, never the active one. Their files stay for a minute under
    /// marked names. The removal on disk happens after the return, on the preparer's thread.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed; [`Error::Io`] when rolling failed, and then the log refuses writes.
    pub fn maintain(&mut self, retention: &Retention, now_ns: i64) -> Result<u64, Error> {
        self.check_usable()?;
        if self.roll_due(now_ns) {
            self.roll(now_ns)?;
            return Ok(self.shared.log_start());
        }
        let segments = self.shared.segments();
        let count = expired(&segments, retention, now_ns, self.shared.high_watermark());
        let (removed, kept) = segments.split_at(count);
        let (removed, log_start) = match kept.first() {
            Some(first) if count > 0 => (removed.to_vec(), first.base_offset),
            _ => (Vec::new(), self.shared.log_start()),
        };
        if !removed.is_empty() {
            self.shared.raise_log_start(log_start);
            self.shared.set_segments(kept.to_vec());
        }
        self.remove_on_disk(removed, now_ns);
        Ok(log_start)
    }

    fn remove_on_disk(&self, removed: Vec<Arc<Segment>>, now_ns: i64) {
        let (shared, rounds) = (
            Arc::clone(&self.shared),
            Arc::clone(self.coordinator.rounds()),
        );
        let checkpoint = Arc::clone(&self.checkpoint);
        self.preparer.submit(Box::new(move || {
            let work = || {
                if !removed.is_empty() {
                    let mut checkpoint = checkpoint.lock();
                    checkpoint.write(current(&shared, false))?;
                    checkpoint.target().sync()?;
                    drop(checkpoint);
                    mark_removed(
                        &shared.directory,
                        removed.iter().map(|segment| segment.path()),
                        now_ns,
                    )?;
                }
                sweep_segments(&shared.directory, now_ns)
            };
            if let Err(error) = work() {
                rounds.fail(&error);
            }
        }));
    }

    /// Writes the checkpoint (high watermark, log start, durable point). Never on the path of an ack: the preparer does
    /// it, after the return. In class `memory` it also has the data synced, and the next checkpoint tells of it.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.check_usable()?;
        let end = self.shared.log_end();
        if self.options.durability == Durability::Memory && self.shared.durable_end() < end {
            let shared = Arc::clone(&self.shared);
            let epochs_dirty = std::mem::take(&mut self.epochs_dirty);
            self.coordinator.rounds().submit(SyncRequest {
                file: Some(Arc::clone(self.file.target())),
                also: epochs_dirty.then(|| Arc::clone(self.epochs.target())),
                directory: None,
                answer: Box::new(move |result| {
                    if result.is_ok() {
                        shared.raise_durable_end(end);
                    }
                }),
            });
        }
        self.preparer.submit(self.checkpoint_job());
        Ok(())
    }

    /// Writes what is true when it runs.
    fn checkpoint_job(&self) -> Job {
        let (shared, rounds) = (
            Arc::clone(&self.shared),
            Arc::clone(self.coordinator.rounds()),
        );
        let checkpoint = Arc::clone(&self.checkpoint);
        Box::new(move || {
            if shared.is_closed() {
                return;
            }
            if let Err(error) = checkpoint.lock().write(current(&shared, false)) {
                rounds.fail(&error);
            }
        })
    }

    /// Syncs, writes a clean checkpoint and closes; readers get [`crate::ReadError::Closed`]. Blocks.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed before; [`Error::Io`]. Either way the log is closed, and the next
    /// open recovers it.
    pub fn close(self) -> Result<(), Error> {
        self.check_usable()?;
        self.settle_preparer();
        let end = self.active.end();
        self.file
            .finish(end)
            .map_err(|source| Error::io("truncate", self.active.path(), source))?;
        self.file.target().sync()?;
        self.epochs.target().sync()?;
        let log_end = self.shared.log_end();
        self.shared.raise_durable_end(log_end);
        let identity = self.shared.identity;
        let summary = self.active.summary(self.chain, self.epochs.last());
        let index_path = self.active.path().with_extension("idx");
        fs::write(
            &index_path,
            index::to_bytes(identity, &summary, self.active.index()),
        )
        .map_err(|source| Error::io("write", &index_path, source))?;
        disk::replace(
            &self.directory.join("producers"),
            &self.producers.to_bytes(identity, log_end),
        )?;
        let mut checkpoint = self.checkpoint.lock();
        checkpoint.write(current(&self.shared, true))?;
        checkpoint.target().sync()
    }

    /// Renames the directory to a marked name, syncs the parent; the files are unlinked by [`Log::sweep_deleted`].
    ///
    /// # Errors
    /// [`Error::Io`]; then the log is closed but still there.
    pub fn delete(self) -> Result<(), Error> {
        self.shared.close();
        self.settle_preparer();
        let marked = disk::deleted_name(&self.directory, disk::wall_clock_ns());
        fs::rename(&self.directory, &marked)
            .map_err(|source| Error::io("rename", &self.directory, source))?;
        self.directory.parent().map_or(Ok(()), disk::sync_directory)
    }

    /// Waits until the preparer has done what this log asked for.
    fn settle_preparer(&self) {
        let (done, settled) = mpsc::channel();
        self.preparer.submit(Box::new(move || {
            // The receiver waits below.
            let _ = done.send(());
        }));
        // An error means that the job was dropped because no thread is left: nothing more will be done.
        let _ = settled.recv();
    }

    /// Unlinks directories that [`Log::delete`] marked longer than `grace_ns` ago. `parent` is `<data>/partitions`.
    /// Returns how many.
    ///
    /// # Errors
    /// [`Error::Io`] naming the first one that could not be removed; those before it are gone.
    pub fn sweep_deleted(parent: &Path, grace_ns: i64, now_ns: i64) -> Result<usize, Error> {
        let mut swept = 0;
        for path in due(parent, grace_ns, now_ns)? {
            fs::remove_dir_all(&path).map_err(|source| Error::io("remove", &path, source))?;
            swept += 1;
        }
        Ok(swept)
    }
}

/// What a checkpoint written now says. The durable point is read first, so it is never ahead of the rest.
pub(crate) fn current(shared: &Shared, clean: bool) -> Checkpoint {
    let durable = shared.durable_end();
    Checkpoint {
        high_watermark: shared.high_watermark(),
        log_start: shared.log_start(),
        durable,
        clean,
    }
}

/// Gives segments and their indexes marked names, and makes the change durable.
pub(crate) fn mark_removed<'a>(
    directory: &Path,
    segments: impl Iterator<Item = &'a Path>,
    now_ns: i64,
) -> Result<(), Error> {
    for path in segments {
        disk::remove_file(&path.with_extension("idx"))?;
        let marked = disk::deleted_name(path, now_ns);
        fs::rename(path, &marked).map_err(|source| Error::io("rename", path, source))?;
    }
    disk::sync_directory(directory)
}

fn sweep_segments(directory: &Path, now_ns: i64) -> Result<(), Error> {
    due(directory, GRACE_NS, now_ns)?
        .iter()
        .try_for_each(|path| disk::remove_file(path))
}

/// Marked names older than the grace period.
fn due(parent: &Path, grace_ns: i64, now_ns: i64) -> Result<Vec<PathBuf>, Error> {
    let mut paths = disk::list(parent)?;
    paths.retain(|path| {
        disk::deleted_at(path).is_some_and(|marked| now_ns.saturating_sub(marked) >= grace_ns)
    });
    Ok(paths)
}

/// How many segments from the start go (Liftbridge specification §5.5): by age those whose last record is older; by
/// records and bytes, counted from the newest back with the active one included, the first that makes the sum exceed
/// the limit and all older ones. Never the active one, never one that is not wholly committed.
fn expired(
    segments: &[Arc<Segment>],
    retention: &Retention,
    now_ns: i64,
    high_watermark: u64,
) -> usize {
    let Some((_, sealed)) = segments.split_last() else {
        return 0;
    };
    let removable = sealed
        .iter()
        .take_while(|segment| segment.next_offset() <= high_watermark)
        .count();
    let mut count = 0;
    if retention.age_ns > 0 {
        let oldest = now_ns.saturating_sub(retention.age_ns);
        let old = |segment: &&Arc<Segment>| segment.last_timestamp() < oldest;
        count = sealed.iter().take_while(old).count();
    }
    count = count.max(beyond(segments, retention.messages, |segment| {
        segment.records()
    }));
    count = count.max(beyond(segments, retention.bytes, |segment| {
        segment.batch_bytes()
    }));
    count.min(removable)
}

/// How many segments lie beyond `limit`, counted from the newest back; 0 = no limit.
fn beyond(segments: &[Arc<Segment>], limit: u64, size: impl Fn(&Segment) -> u64) -> usize {
    if limit == 0 {
        return 0;
    }
    let mut sum = 0_u64;
    for (i, segment) in segments.iter().enumerate().rev() {
        sum = sum.saturating_add(size(segment));
        if sum > limit {
            return i + 1;
        }
    }
    0
}

/// The preamble of a log's first segment.
pub(crate) fn first_preamble(identity: Identity, base_offset: u64) -> Preamble {
    Preamble {
        version: FORMAT_VERSION,
        identity,
        chain: 0,
        base_offset,
        created: disk::wall_clock_ns(),
        last_timestamp: NO_TIME,
        epoch: 0,
    }
}
