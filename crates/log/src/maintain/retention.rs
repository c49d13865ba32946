//! Removal of whole segments from the start of a log, and of logs.
//!
//! In this order: the log start moves for readers; the segment that is then the first is synced, since it alone tells how
//! late the removed records were; the checkpoint with the log start is synced; the files get marked names; the directory is
//! synced; after a grace period the files are unlinked. A crash between any two of these leaves a state
//! from which the next open goes on. All but the first is done by the background worker.
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

/// How long removed segments stay recoverable under their marked names, ns of monotonic time.
const GRACE_NS: i64 = 60_000_000_000;

impl Log {
    /// What [`Log::maintain`] and [`Log::trim`] have removed so far.
    pub fn removed(&self) -> Removed {
        self.removed
    }

    /// Rolls when due by age or size and then does nothing else (the next call removes); otherwise removes whole sealed
    /// segments by `retention`, oldest first, and leading ones in which compaction left nothing. Returns the log start
    /// offset.
    ///
    /// `now_ns`: a time of day that is not ahead of the true one (see [`crate::ClockGuard`]).
    ///
    /// Only segments wholly below the high watermark go, never the active one, and none before [`Retention::min_age_ns`].
    /// Their files stay for a minute under marked names, over a reopening too. The removal on disk happens after the
    /// return, on the background worker's thread.
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
            committed: self.shared.high_watermark(),
            held_before: monotonic_ns.saturating_sub(retention.min_age_ns),
            monotonic_ns,
        };
        let count = expired(&segments, retention, now_ns, &removable);
        self.remove_first(count, now_ns, false);
        Ok(self.shared.log_start())
    }

    /// Takes the first `count` segments out of the list and has their files removed. `moved`: the log start has moved
    /// without that, and the checkpoint is to say so.
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
            // With what an earlier job had no space or descriptors for.
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
                    mark_expired(files.storage(), &shared.directory, &removed)?;
                    for (now_ns, segment) in removed {
                        let marked = file_names::deleted_name(segment.path(), now_ns);
                        deletes.marked.insert(marked, monotonic_ns);
                        deletes.retired.push((monotonic_ns, segment));
                    }
                    deletes.expired.clear();
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

/// Logs that [`Log::delete`] marked and whose files wait for their grace period. Times are monotonic: a clock that is set
/// forward shortens no grace. A log that an earlier run marked waits from when this value first finds it.
#[derive(Debug, Default)]
pub struct DeletedLogs {
    /// Since when each marked directory waits here, ns.
    since: HashMap<PathBuf, i64>,
}

impl DeletedLogs {
    /// Removes the directories in `parent`, which is `<data>/partitions`, that have waited for `grace_ns`. Returns how many.
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

    /// Removes what was marked of one log, whose directory in `parent` had this name, without its grace period.
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

/// The kernel tells a failed write-back once per descriptor: on the one that acks are synced by it would be taken away
/// from them.
fn sync_by_own_descriptor(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    SyncFile::open(storage, path, OpenMode::ReadWrite)?.sync()
}

/// The same for segments taken out of the list, each with the time of its mark; some may have theirs from an earlier try.
fn mark_expired(
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

/// Unlinks what was marked long enough ago, and lets go of the files of segments that are gone as long.
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

/// What no limit of retention overrules.
struct Removable {
    /// End of committed records.
    committed: u64,
    /// Segments held since then may go: monotonic, ns, inclusive.
    held_before: i64,
    /// Monotonic time now, ns.
    monotonic_ns: i64,
}

/// How many segments from the start go (liftbridge §5.5): by age those whose last record is older, or, when
/// nobody knows any more how late the last ones were, those that were held for that long; by
/// records and bytes, counted from the newest back with the active one included, the first that makes the sum exceed
/// the limit and all older ones, but for the newest with records. Never the active one, never one that is not wholly
/// committed or too young.
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
            segment.next_offset() <= limits.committed && segment.held_since() <= limits.held_before
        })
        .count();
    let is_vacant = |segment: &&Arc<Segment>| segment.is_vacant();
    let mut count = sealed.iter().take_while(is_vacant).count();
    if retention.age_ns > 0 {
        let oldest = now_ns.saturating_sub(retention.age_ns);
        let held_before = limits.monotonic_ns.saturating_sub(retention.age_ns);
        let old = |segment: &&Arc<Segment>| match segment.latest() {
            Some(latest) => latest < oldest,
            None => segment.held_since() < held_before,
        };
        count = count.max(sealed.iter().take_while(old).count());
    }
    count = count.max(beyond(segments, retention.messages, |segment| {
        segment.records()
    }));
    count = count.max(beyond(segments, retention.bytes, |segment| {
        segment.batch_bytes()
    }));
    count.min(removable)
}

/// How many segments lie beyond `limit`, counted from the newest back; 0 = no limit. The newest that holds anything does
/// not: a limit below the size of one segment is no wish to keep nothing.
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
    fn a_log_that_is_looked_after_more_often_than_its_directory_is_swept_waits_once() {
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
