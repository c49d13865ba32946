//! The known damaged ranges of a log, in memory and in the file `quarantine` beside the segments.
//!
//! The file is a record, not evidence: reads check every batch, and a scrub finds all damage again. It keeps damage visible
//! after a restart and prevents a second report. A range leaves it when a scrub finds its segment intact, or when it falls
//! below the log start. Its bytes are in `specs/formats/segment.md`.
use crate::io::disk;
use crate::io::fields::{i64_at, seal, u32_at, u64_at, unseal};
use crate::io::file_names::{base_offset_of, segment_name};
use crate::io::file_names::{journal_name, journal_number};
use crate::io::files::Files;
use crate::io::jobs::JobSender;
use crate::io::storage::Storage;
use crate::segment::damage::{Damage, Fault};
use crate::{Error, LogId};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Name of the file.
pub(crate) const QUARANTINE: &str = "quarantine";
const MAGIC: [u8; 4] = *b"BSCQ";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 40;
/// Most ranges that are kept, the first found. Reads report the others.
const MAX_RANGES: usize = 10_000;

/// Called for every new range.
pub type Listener = Box<dyn Fn(&Damage) + Send + Sync>;

/// The known ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Ordered by start and by end; none covers another.
    pub damages: Vec<Damage>,
    /// When the last whole scrub ended, ns since 1970; 0 = never.
    pub scrubbed: i64,
}

/// The quarantine of an open log.
#[derive(Default)]
pub(crate) struct Quarantine {
    ranges: Arc<Mutex<Ranges>>,
    /// A job that writes the file is queued and has not begun; it writes the ranges of that moment.
    queued: Arc<AtomicBool>,
    /// Whether writing has ended; held while the file is written.
    ended: Arc<Mutex<bool>>,
    listener: OnceLock<Listener>,
    home: OnceLock<Home>,
}

/// Where the file is written.
struct Home {
    directory: PathBuf,
    identity: LogId,
    files: Arc<Files>,
    background: JobSender,
}

impl std::fmt::Debug for Quarantine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quarantine")
            .field("ranges", &self.ranges)
            .finish_non_exhaustive()
    }
}

impl Quarantine {
    /// Loads the file, adds the ranges that recovery found, and writes the file from now on.
    pub fn attach(
        &self,
        directory: &Path,
        identity: LogId,
        files: &Arc<Files>,
        background: JobSender,
        found: &[Damage],
    ) {
        let home = Home {
            directory: directory.to_path_buf(),
            identity,
            files: Arc::clone(files),
            background,
        };
        let before = read(files.storage(), directory, identity);
        let mut ranges = Ranges {
            scrubbed: before.scrubbed,
            damages: Vec::new(),
        };
        for damage in before.damages.iter().chain(found) {
            insert(&mut ranges.damages, damage.clone());
        }
        let changed = ranges != before;
        *self.ranges.lock() = ranges;
        // A log is attached once.
        let _ = self.home.set(home);
        if changed {
            self.save();
        }
    }

    /// Ends the writing of the file.
    pub fn end(&self) {
        *self.ended.lock() = true;
    }

    /// Sets the listener for new ranges; only the first one counts.
    pub fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// The known ranges from the log start on, ordered by offset.
    pub fn list(&self, log_start: u64) -> Vec<Damage> {
        let mut damages = self.ranges.lock().damages.clone();
        damages.retain(|damage| damage.end > log_start);
        damages
    }

    /// Adds a range. A new one is reported and written to the file.
    pub fn note(&self, damage: &Damage) {
        if self.add(damage) {
            self.save();
        }
    }

    /// Adds a range and reports a new one. Returns whether it was new.
    fn add(&self, damage: &Damage) -> bool {
        let is_new = insert(&mut self.ranges.lock().damages, damage.clone());
        if let Some(listener) = self.listener.get().filter(|_| is_new) {
            listener(damage);
        }
        is_new
    }

    /// When the last whole scrub ended, ns since 1970; 0 = never.
    pub fn scrubbed(&self) -> i64 {
        self.ranges.lock().scrubbed
    }

    /// Replaces the ranges within [start, end) with those that a scrub found.
    pub fn replace(&self, start: u64, end: u64, found: &[Damage]) {
        let still: HashSet<&Damage> = found.iter().collect();
        let mut ranges = self.ranges.lock();
        let before = ranges.damages.len();
        let inside = |damage: &Damage| damage.start >= start && damage.end <= end;
        ranges
            .damages
            .retain(|damage| !inside(damage) || still.contains(damage));
        let mut changed = ranges.damages.len() < before;
        drop(ranges);
        for damage in found {
            changed |= self.add(damage);
        }
        if changed {
            self.save();
        }
    }

    /// Records a complete scrub, and drops ranges below the log start.
    pub fn scrub_ended(&self, now_ns: i64, log_start: u64) {
        let mut ranges = self.ranges.lock();
        ranges.damages.retain(|damage| damage.end > log_start);
        ranges.scrubbed = now_ns;
        drop(ranges);
        self.save();
    }

    /// Submits a job that writes the file, unless one is queued.
    fn save(&self) {
        let Some(home) = self.home.get() else { return };
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let (ranges, queued) = (Arc::clone(&self.ranges), Arc::clone(&self.queued));
        let (identity, path) = (home.identity, home.directory.join(QUARANTINE));
        let (files, ended) = (Arc::clone(&home.files), Arc::clone(&self.ended));
        // Once the group committer has ended nothing runs this: the next open finds the damage again.
        home.background.submit(Box::new(move || {
            // First: ranges that are added during the write are not in it.
            queued.store(false, Ordering::Release);
            let bytes = to_bytes(identity, &ranges.lock());
            let ended = ended.lock();
            if *ended {
                return;
            }
            match disk::replace(files.storage(), &path, &bytes) {
                // The log was deleted meanwhile.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                other => other.unwrap_or_else(|error| files.fail_unless_transient(&error)),
            }
        }));
    }
}

/// Adds a range unless a known one covers it, and drops those that it covers. Returns whether it was added.
fn insert(damages: &mut Vec<Damage>, new: Damage) -> bool {
    let behind = damages.partition_point(|known| known.start <= new.start);
    let before = behind.checked_sub(1).and_then(|at| damages.get(at));
    if before.is_some_and(|known| known.end >= new.end) {
        return false;
    }
    let from = damages.partition_point(|known| known.start < new.start);
    let to = damages.partition_point(|known| known.end <= new.end);
    if from >= to && damages.len() >= MAX_RANGES {
        return false;
    }
    damages.splice(from..to.max(from), [new]);
    true
}

/// The file's bytes.
pub(crate) fn to_bytes(identity: LogId, ranges: &Ranges) -> Vec<u8> {
    let count = ranges.damages.len().min(MAX_RANGES);
    let mut out = Vec::with_capacity(HEAD_BYTES + count * ENTRY_BYTES + 4);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&identity.incarnation.to_le_bytes());
    out.extend_from_slice(&identity.partition.to_le_bytes());
    out.extend_from_slice(&(count as u32).to_le_bytes());
    out.extend_from_slice(&ranges.scrubbed.to_le_bytes());
    for damage in ranges.damages.iter().take(count) {
        let number = base_offset_of(&damage.path).or_else(|| journal_number(&damage.path));
        let segment = number.unwrap_or(damage.start);
        out.extend_from_slice(&damage.start.to_le_bytes());
        out.extend_from_slice(&damage.end.to_le_bytes());
        out.extend_from_slice(&segment.to_le_bytes());
        out.extend_from_slice(&damage.position.to_le_bytes());
        out.extend_from_slice(&damage.fault.to_number().to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }
    seal(&mut out);
    out
}

/// Reads the file; nothing when it is absent, damaged, of another version or of another log.
pub(crate) fn read(storage: &dyn Storage, directory: &Path, identity: LogId) -> Ranges {
    let bytes = disk::read(storage, &directory.join(QUARANTINE)).unwrap_or_default();
    of_bytes(&bytes, directory, identity).unwrap_or_default()
}

/// Takes the ranges of a closed log from `offset` on out of the file: the log ends there from now on.
///
/// # Errors
/// [`Error::Io`], [`Error::Full`].
pub(crate) fn cut(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    offset: u64,
) -> Result<(), Error> {
    let mut ranges = read(storage, directory, identity);
    let before = ranges.clone();
    ranges.damages.retain(|damage| damage.start < offset);
    for damage in &mut ranges.damages {
        damage.end = damage.end.min(offset);
    }
    if ranges == before {
        return Ok(());
    }
    disk::replace(
        storage,
        &directory.join(QUARANTINE),
        &to_bytes(identity, &ranges),
    )
}

/// The ranges in the bytes of the file; `None` when they are invalid.
pub(crate) fn of_bytes(bytes: &[u8], directory: &Path, identity: LogId) -> Option<Ranges> {
    let body = unseal(bytes)?;
    let ours = body.get(..4)? == MAGIC
        && u32_at(body, 4)? == VERSION
        && u64_at(body, 8)? == identity.incarnation
        && u32_at(body, 16)? == identity.partition;
    let entries = body.get(HEAD_BYTES..)?;
    if !ours || entries.len() != u32_at(body, 20)? as usize * ENTRY_BYTES {
        return None;
    }
    let mut ranges = Ranges {
        scrubbed: i64_at(body, 24)?,
        damages: Vec::new(),
    };
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let (number, fault) = (u64_at(entry, 16)?, Fault::of_number(u32_at(entry, 32)?));
        let data = directory.parent().and_then(Path::parent);
        ranges.damages.push(Damage {
            start: u64_at(entry, 0)?,
            end: u64_at(entry, 8)?,
            path: match data.filter(|_| fault == Fault::Wal) {
                Some(data) => data.join("journal").join(journal_name(number)),
                None => directory.join(segment_name(number)),
            },
            position: u64_at(entry, 24)?,
            fault,
        });
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: LogId = LogId {
        incarnation: 7,
        partition: 2,
    };

    fn damage(start: u64, end: u64) -> Damage {
        Damage {
            start,
            end,
            path: Path::new("/log").join(segment_name(3)),
            position: 64,
            fault: Fault::Misplaced,
        }
    }

    #[test]
    fn ranges_come_back_from_their_bytes_and_no_byte_may_change() {
        let ranges = Ranges {
            damages: vec![damage(5, 9), damage(20, 21)],
            scrubbed: 77,
        };
        let bytes = to_bytes(IDENTITY, &ranges);
        let directory = Path::new("/log");
        assert_eq!(of_bytes(&bytes, directory, IDENTITY), Some(ranges));
        let other = LogId {
            incarnation: 8,
            ..IDENTITY
        };
        assert_eq!(of_bytes(&bytes, directory, other), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(of_bytes(&damaged, directory, IDENTITY), None, "byte {at}");
        }
    }

    #[test]
    fn a_range_is_reported_once_and_a_wider_one_replaces_it() {
        let quarantine = Quarantine::default();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&reported);
        quarantine.listen(Box::new(move |damage| {
            theirs.lock().push((damage.start, damage.end));
        }));
        for (start, end) in [(5, 9), (6, 8), (5, 9), (1, 2), (4, 10)] {
            quarantine.note(&damage(start, end));
        }
        assert_eq!(*reported.lock(), [(5, 9), (1, 2), (4, 10)]);
        assert_eq!(quarantine.list(0), [damage(1, 2), damage(4, 10)]);
        assert_eq!(quarantine.list(2), [damage(4, 10)]);
        quarantine.replace(3, 12, &[]);
        assert_eq!(quarantine.list(0), [damage(1, 2)]);
    }

    #[test]
    fn a_bounded_number_of_ranges_is_kept_and_a_wider_one_still_replaces_them() {
        let quarantine = Quarantine::default();
        let found: Vec<Damage> = (0..MAX_RANGES as u64 + 50)
            .map(|i| damage(2 * i, 2 * i + 1))
            .collect();
        quarantine.replace(0, u64::MAX, &found);
        assert_eq!(quarantine.list(0), found[..MAX_RANGES]);
        quarantine.replace(0, u64::MAX, &found);
        assert_eq!(quarantine.list(0), found[..MAX_RANGES]);
        quarantine.note(&damage(0, 100));
        let mut left = vec![damage(0, 100)];
        left.extend_from_slice(&found[50..MAX_RANGES]);
        assert_eq!(quarantine.list(0), left);
    }

    #[test]
    fn ranges_that_overlap_are_kept_and_covered_ones_are_not() {
        let mut damages = Vec::new();
        for (start, end, added) in [
            (10, 20, true),
            (15, 25, true),
            (5, 12, true),
            (16, 25, false),
            (10, 20, false),
            (30, 40, true),
            (12, 22, true),
            (11, 25, true),
            (0, 41, true),
        ] {
            let before = damages.clone();
            let known = |new: &Damage| before.iter().any(|a: &Damage| covers(a, new));
            assert_eq!(known(&damage(start, end)), !added);
            assert_eq!(insert(&mut damages, damage(start, end)), added);
            assert!(damages.is_sorted_by_key(|damage| (damage.start, damage.end)));
            let pairs = damages.windows(2);
            assert!(pairs.into_iter().all(|pair| !covers(&pair[0], &pair[1])));
        }
        assert_eq!(damages, [damage(0, 41)]);
    }

    fn covers(a: &Damage, b: &Damage) -> bool {
        a.start <= b.start && b.end <= a.end
    }
}
