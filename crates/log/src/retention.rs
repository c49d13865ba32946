//! Removal of whole segments from the start of a log, and of logs.
//!
//! In this order: the log start moves for readers; the checkpoint with it is synced; the files get marked names; the
//! directory is synced; after a grace period the files are unlinked. A crash between any two of these leaves a state
//! from which the next open goes on. All but the first is done by the preparer.
use crate::disk;
use crate::failpoint;
use crate::maintain::current;
use crate::segment::Segment;
use crate::storage::{OsStorage, Storage};
use crate::{Error, Log, Retention};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long removed segments stay recoverable under their marked names, ns.
const GRACE_NS: i64 = 60_000_000_000;

impl Log {
    /// Rolls when due by age or size and then does nothing else (the next call removes); otherwise removes whole sealed
    /// segments by `retention`, oldest first. Returns the log start offset.
    ///
    /// Only segments wholly below the high watermark go, never the active one. Their files stay for a minute under
    /// marked names. The removal on disk happens after the return, on the preparer's thread.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed; [`Error::Io`] when rolling failed, and then the log refuses writes.
    pub fn maintain(&mut self, retention: &Retention, now_ns: i64) -> Result<u64, Error> {
        self.coordinator.check_usable()?;
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
            self.shared.edit_segments(|segments| {
                segments.retain(|segment| segment.base_offset >= log_start);
            });
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
                    failpoint::pass("retention.decided");
                    let mut checkpoint = checkpoint.lock();
                    checkpoint.write(current(&shared, false))?;
                    checkpoint.target().sync()?;
                    drop(checkpoint);
                    let _names = shared.names.lock();
                    mark_removed(
                        rounds.storage(),
                        &shared.directory,
                        removed.iter().map(|segment| segment.path()),
                        now_ns,
                    )?;
                    failpoint::pass("retention.renamed");
                }
                sweep_segments(rounds.storage(), &shared.directory, now_ns)
            };
            // Without space or descriptors the files stay where they are; the next open finishes their removal.
            work().unwrap_or_else(|error| rounds.fail_unless_passing(&error));
        }));
    }

    /// Unlinks directories that [`Log::delete`] marked longer than `grace_ns` ago. `parent` is `<data>/partitions`.
    /// Returns how many.
    ///
    /// # Errors
    /// [`Error::Io`] naming the first one that could not be removed; those before it are gone.
    pub fn sweep_deleted(parent: &Path, grace_ns: i64, now_ns: i64) -> Result<usize, Error> {
        Self::sweep_deleted_on(&OsStorage, parent, grace_ns, now_ns)
    }

    /// As [`Log::sweep_deleted`], on another storage.
    ///
    /// # Errors
    /// As [`Log::sweep_deleted`].
    pub fn sweep_deleted_on(
        storage: &dyn Storage,
        parent: &Path,
        grace_ns: i64,
        now_ns: i64,
    ) -> Result<usize, Error> {
        let due = due(storage, parent, grace_ns, now_ns)?;
        due.iter()
            .try_for_each(|path| disk::remove_tree(storage, path))?;
        Ok(due.len())
    }
}

/// Gives segments and their indexes marked names, and makes the change durable.
pub(crate) fn mark_removed<'a>(
    storage: &dyn Storage,
    directory: &Path,
    segments: impl Iterator<Item = &'a Path>,
    now_ns: i64,
) -> Result<(), Error> {
    for path in segments {
        disk::remove_file(storage, &path.with_extension("idx"))?;
        let marked = disk::deleted_name(path, now_ns);
        disk::rename(storage, path, &marked)?;
    }
    disk::sync_directory(storage, directory)
}

fn sweep_segments(storage: &dyn Storage, directory: &Path, now_ns: i64) -> Result<(), Error> {
    for path in due(storage, directory, GRACE_NS, now_ns)? {
        disk::remove_file(storage, &path)?;
        failpoint::pass("retention.half_unlinked");
    }
    Ok(())
}

/// Marked names older than the grace period.
fn due(
    storage: &dyn Storage,
    parent: &Path,
    grace_ns: i64,
    now_ns: i64,
) -> Result<Vec<PathBuf>, Error> {
    let mut paths = disk::list(storage, parent)?;
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
