//! Removal of whole segments from the start of a log, and of logs.
//!
//! Steps, in this order: the log start moves for readers; the new first segment is synced, because its preamble alone has the
//! latest time of the removed records; the checkpoint with the log start is synced; the files are renamed to deleted names;
//! the directory is synced; after a grace period the files are unlinked. After a crash between two steps the next open
//! continues. The background worker does all steps but the first.
use crate::failpoint;
use crate::io::disk::{self, SyncFile};
use crate::io::file_names;
use crate::io::storage::{OpenMode, OsStorage, Storage};
use crate::segment::Segment;
use crate::segment::segment_file::mark_names;
use crate::state::shared::PendingDeletes;
use crate::{Error, Log, Removed, Retention};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Grace period of removed segments under their deleted names, ns of monotonic time.
const GRACE_NS: i64 = 60_000_000_000;

impl Log {
    /// What [`Log::maintain`] and [`Log::trim`] have removed so far.
    pub fn removed(&self) -> Removed {
        self.removed
    }

    /// Rolls if due by age or size, and then does nothing else. Otherwise removes whole sealed segments by `retention`, oldest
    /// first. Returns the log start offset.
    ///
    /// `now_ns`: a time of day that is not ahead of the true one (see [`crate::ClockGuard`]).
    ///
    /// With [`Retention::archive`] and [`Retention::hold`], segments that the archive does not have or a reader needs stay, up to
    /// the size at which the wait ends.
    /// Removes only segments wholly below the high watermark and [`Log::hold`], never the active one, and none before
    /// [`Retention::min_age_ns`].
    /// Their files stay for a minute under deleted names, also across a restart. The removal on disk happens after the return,
    /// in the background worker.
    ///
    /// # Errors
    /// [`Error::Failed`] when the directory has failed; [`Error::Io`] when rolling failed, and then the log refuses writes.
    pub fn maintain(&mut self, retention: &Retention, now_ns: i64) -> Result<u64, Error> {
        self.committer.check_usable()?;
        if self.roll_due(now_ns) {
            self.roll(now_ns)?;
            return Ok(self.shared.log_start());
        }
        let monotonic_ns = self.committer.files().storage().monotonic_ns();
        let segments = self.shared.segments();
        let removable = Removable {
            end: self.shared.high_watermark().min(self.shared.hold()),
            held_before: monotonic_ns.saturating_sub(retention.min_age_ns),
            monotonic_ns,
        };
        let due = expired(&segments, retention, now_ns, &removable);
        let count = due.min(releasable(&segments, retention));
        let (archive, hold) = (retention.archive, retention.hold);
        self.removed
            .add_needed(segments.split_at(count).0, archive, hold);
        self.remove_first(count, now_ns, false);
        Ok(self.shared.log_start())
    }

    /// Removes the first `count` segments from the list and submits the removal of their files. `moved`: the log start has moved
    /// independently, so the checkpoint is written even without removed segments.
    pub(crate) fn remove_first(&mut self, count: usize, now_ns: i64, moved: bool) {
        let segments = self.shared.segments();
        let (removed, kept) = segments.split_at(count.min(segments.len()));
        self.removed.add(removed);
        let removed = removed.to_vec();
        if let Some(first) = kept.first().filter(|_| !removed.is_empty()) {
            let log_start = first.base_offset;
            self.shared.raise_log_start(log_start);
            self.shared.edit_segments(|segments| {
                segments.retain(|segment| segment.base_offset >= log_start);
            });
        }
        let removed = removed.into_iter().map(|segment| (now_ns, segment));
        self.remove_on_disk(removed.collect(), kept.first().cloned(), moved);
    }

    fn remove_on_disk(
        &self,
        removed: Vec<(i64, Arc<Segment>)>,
        first_kept: Option<Arc<Segment>>,
        moved: bool,
    ) {
        let only_sweeps = removed.is_empty() && !moved;
        if only_sweeps && self.shared.sweep_waits.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, files) = (Arc::clone(&self.shared), Arc::clone(self.committer.files()));
        let checkpoint = Arc::clone(&self.checkpoint);
        self.background.submit(Box::new(move || {
            if only_sweeps {
                shared.sweep_waits.store(false, Ordering::Relaxed);
            }
            if files.failure().is_some() {
                return;
            }
            // Includes segments that an earlier job failed to remove for lack of space or descriptors.
            let removed = {
                let mut deletes = shared.pending_deletes.lock();
                deletes.expired.extend(removed);
                deletes.expired.clone()
            };
            let work = || {
                if moved || !removed.is_empty() {
                    failpoint::pass("retention.decided");
                    if let Some(first) = first_kept.filter(|_| !removed.is_empty()) {
                        sync_by_own_descriptor(files.storage(), first.path())?;
                    }
                    let mut checkpoint = checkpoint.lock();
                    if shared.is_closed() {
                        return Ok(());
                    }
                    checkpoint.write(files.storage(), shared.checkpoint(false))?;
                    checkpoint.sync(files.storage())?;
                    drop(checkpoint);
                }
                let mut deletes = shared.pending_deletes.lock();
                if shared.is_closed() {
                    return Ok(());
                }
                let monotonic_ns = files.storage().monotonic_ns();
                if !removed.is_empty() {
                    deletes.expired.retain(|(_, segment)| {
                        let is_it = |(_, other): &(i64, Arc<Segment>)| Arc::ptr_eq(segment, other);
                        !removed.iter().any(is_it)
                    });
                    mark_expired(files.storage(), &shared.directory, &mut deletes, removed)?;
                    failpoint::pass("retention.renamed");
                }
                sweep(
                    files.storage(),
                    &shared.directory,
                    &mut deletes,
                    monotonic_ns,
                )
            };
            // Without space or descriptors the files stay where they are until the next job, or the next open.
            work().unwrap_or_else(|error| files.fail_unless_transient(&error));
        }));
    }
}

/// Logs that [`Log::delete`] marked and whose files wait for their grace period. Times are monotonic, so that setting the
/// clock shortens no grace period. The period of a log that an earlier run marked begins when this value first finds it.
#[derive(Debug, Default)]
pub struct DeletedLogs {
    /// When each marked directory was first found, ns.
    since: HashMap<PathBuf, i64>,
}

impl DeletedLogs {
    /// Removes the marked directories in `parent`, which is `<data>/partitions`, that have waited for `grace_ns`. Returns how many.
    ///
    /// # Errors
    /// [`Error::Io`] naming the first one that could not be removed; those before it are gone.
    pub fn sweep(&mut self, parent: &Path, grace_ns: i64) -> Result<usize, Error> {
        self.sweep_on(&OsStorage, parent, grace_ns)
    }

    /// As [`DeletedLogs::sweep`], on another storage.
    ///
    /// # Errors
    /// As [`DeletedLogs::sweep`].
    pub fn sweep_on(
        &mut self,
        storage: &dyn Storage,
        parent: &Path,
        grace_ns: i64,
    ) -> Result<usize, Error> {
        let mut marked = disk::list(storage, parent)?;
        marked.retain(|path| file_names::deleted_at(path).is_some());
        self.since
            .retain(|path, _| marked.binary_search(path).is_ok());
        let now_ns = storage.monotonic_ns();
        let mut removed = 0;
        for path in marked {
            let since = *self.since.entry(path.clone()).or_insert(now_ns);
            if now_ns.saturating_sub(since) >= grace_ns {
                disk::remove_tree(storage, &path)?;
                self.since.remove(&path);
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes the marked directories of one log, named `name` in `parent`, without a grace period.
    ///
    /// # Errors
    /// As [`DeletedLogs::sweep`].
    pub fn remove_now(parent: &Path, name: &str) -> Result<(), Error> {
        let marked = disk::list(&OsStorage, parent)?;
        let is_its = |path: &PathBuf| {
            let marked = path.file_name().and_then(|marked| marked.to_str());
            let rest = marked.and_then(|marked| marked.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with('.')) && file_names::deleted_at(path).is_some()
        };
        marked
            .iter()
            .filter(|path| is_its(path))
            .try_for_each(|path| disk::remove_tree(&OsStorage, path))
    }
}

/// Syncs a descriptor of its own: the kernel reports a failed write-back once per descriptor, and on that of the acks this sync
/// could consume it.
fn sync_by_own_descriptor(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    SyncFile::open(storage, path, OpenMode::ReadWrite)?.sync()
}

/// Marks segments that left the list, each with its time, to be unlinked after their grace period; an earlier attempt may have
/// marked some of them. After an error the next job of the background worker tries again.
pub(super) fn mark_expired(
    storage: &dyn Storage,
    directory: &Path,
    deletes: &mut PendingDeletes,
    expired: Vec<(i64, Arc<Segment>)>,
) -> Result<(), Error> {
    if let Err(error) = mark_and_sync(storage, directory, &expired) {
        deletes.expired.extend(expired);
        return Err(error);
    }
    let monotonic_ns = storage.monotonic_ns();
    for (now_ns, segment) in expired {
        let marked = file_names::deleted_name(segment.path(), now_ns);
        deletes.marked.insert(marked, monotonic_ns);
        deletes.retired.push((monotonic_ns, segment));
    }
    Ok(())
}

fn mark_and_sync(
    storage: &dyn Storage,
    directory: &Path,
    expired: &[(i64, Arc<Segment>)],
) -> Result<(), Error> {
    for (now_ns, segment) in expired {
        let marked = file_names::deleted_name(segment.path(), *now_ns);
        match disk::open(storage, &marked, OpenMode::Read) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                mark_names(storage, std::iter::once(segment.path()), *now_ns)?;
            }
            other => drop(other?),
        }
    }
    disk::sync_directory(storage, directory)
}

/// Unlinks files whose grace period is over, and releases the files of segments that left the list as long ago.
fn sweep(
    storage: &dyn Storage,
    directory: &Path,
    deletes: &mut PendingDeletes,
    monotonic_ns: i64,
) -> Result<(), Error> {
    let is_due = |since: i64| monotonic_ns.saturating_sub(since) >= GRACE_NS;
    deletes.retired.retain(|(since, segment)| {
        if is_due(*since) {
            segment.release();
        }
        !is_due(*since)
    });
    for path in disk::list(storage, directory)? {
        let since = deletes.marked.get(&path).copied().unwrap_or(deletes.opened);
        if file_names::deleted_at(&path).is_some() && is_due(since) {
            disk::remove_file(storage, &path)?;
            deletes.marked.remove(&path);
            failpoint::pass("retention.half_unlinked");
        }
    }
    Ok(())
}

/// Bounds that override the limits of retention.
struct Removable {
    /// End of the records that may be removed: those that are committed and not held.
    end: u64,
    /// Segments held since this monotonic time or longer may be removed, ns.
    held_before: i64,
    /// Monotonic time now, ns.
    monotonic_ns: i64,
}

/// How many segments from the start are removed (liftbridge §5.5). By age: those whose last record is older or, if the time of
/// the last record is unknown, those held for that long. By records and bytes: counted from the newest back, including
/// the active one, the first segment that makes the sum exceed the limit and all older ones, except the newest segment with
/// records. Never the active segment, and never one that is not wholly committed or too young.
fn expired(
    segments: &[Arc<Segment>],
    retention: &Retention,
    now_ns: i64,
    limits: &Removable,
) -> usize {
    let Some((_, sealed)) = segments.split_last() else {
        return 0;
    };
    let removable = sealed
        .iter()
        .take_while(|segment| {
            segment.next_offset() <= limits.end && segment.held_since() <= limits.held_before
        })
        .count();
    let mut count = 0;
    if retention.age_ns > 0 {
        let oldest = now_ns.saturating_sub(retention.age_ns);
        let held_before = limits.monotonic_ns.saturating_sub(retention.age_ns);
        let old = |segment: &&Arc<Segment>| match segment.latest() {
            Some(latest) => latest < oldest,
            None => segment.held_since() < held_before,
        };
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

/// How many segments from the start neither an archive nor a reader needs.
fn releasable(segments: &[Arc<Segment>], retention: &Retention) -> usize {
    let archive = retention.archive.map(|it| (it.archived_to, it.max_bytes));
    let hold = retention.hold.map(|it| (it.from, it.max_bytes));
    let waits = archive.into_iter().chain(hold);
    let each = waits.map(|(from, max_bytes)| below(segments, from, max_bytes));
    each.min().unwrap_or(segments.len())
}

/// How many segments from the start lie below the offset `from`, or are beyond the size at which the wait for the others ends.
fn below(segments: &[Arc<Segment>], from: u64, max_bytes: u64) -> usize {
    let is_below = |segment: &&Arc<Segment>| segment.next_offset() <= from;
    let count = segments.iter().take_while(is_below).count();
    count.max(beyond(segments, max_bytes, Segment::batch_bytes))
}

/// How many segments exceed `limit`, counted from the newest back; 0 = no limit. The newest segment with records never does: a
/// limit below the size of one segment does not empty the log.
fn beyond(segments: &[Arc<Segment>], limit: u64, size: impl Fn(&Segment) -> u64) -> usize {
    if limit == 0 {
        return 0;
    }
    let mut sum = 0_u64;
    for (i, segment) in segments.iter().enumerate().rev() {
        let holds_more = sum > 0;
        sum = sum.saturating_add(size(segment));
        if sum > limit && holds_more {
            return i + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupCommitter, LogId, LogOptions};

    #[test]
    fn a_log_that_is_maintained_more_often_than_its_directory_is_swept_queues_one_sweep() {
        let home = tempfile::tempdir().unwrap();
        let committer = GroupCommitter::stepped(Arc::new(OsStorage));
        let identity = LogId {
            incarnation: 1,
            partition: 0,
        };
        let path = home.path().join("1");
        let mut log = Log::create(&path, identity, LogOptions::default(), &committer).unwrap();
        committer.step();
        for _ in 0..2 {
            for now_ns in 0..1000 {
                log.maintain(&Retention::default(), now_ns).unwrap();
            }
            assert_eq!(log.background.waiting(), 1);
            committer.step();
            assert_eq!(log.background.waiting(), 0);
        }
    }
}
