//! Mending the directory of a log that no broker uses. Nothing is ever destroyed: what is taken away is moved into
//! `aside/` beside the segments, under its name and the time.
//!
//! In this order: segments under a wrong name get their own back; segments are restored from a backup, when one is given;
//! derived files that do not check go aside, the next start rebuilds them; the log is cut, only when that is asked for;
//! what stays damaged is written into the quarantine, so that the next start shows it at once.
mod restore;

use super::verify::{Verified, verify};
use super::{Damage, Fault, Finding, FindingKind};
use crate::io::disk;
use crate::io::file_names::{base_offset_of, segment_name};
use crate::io::storage::{OpenMode, Storage};
use crate::segment::epochs::EpochTable;
use crate::segment::preamble::{PREAMBLE_BYTES, Preamble};
use crate::segment::scan::{Found, LogPosition, Scanner};
use crate::segment::segment_file::{SegmentFile, find_segment_files_to_read};
use crate::state::checkpoint::{self, CHECKPOINT, Checkpoint, CheckpointFile};
use crate::state::index_snapshot::INDEX_SNAPSHOT;
use crate::state::quarantine::{self, QUARANTINE, Ranges};
use crate::wal::format::Cut;
use crate::wal::{WalOptions, cut};
use crate::{Error, IoOp, LogId};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Only say what would be done.
    pub dry_run: bool,
    /// A copy of this log's directory, at least as new as the damaged segments.
    pub from: Option<PathBuf>,
    /// Cut the log here: this offset and all later ones go. The beginning of a batch.
    pub cut_at: Option<u64>,
    /// The WAL of the log's data directory: a cut ends the log in it too. It may be absent.
    pub wal: Option<WalOptions>,
    /// For the names of what goes aside, ns since 1970.
    pub now_ns: i64,
}

/// One thing that was done, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// `rename`, `restore`, `not_restored`, `set_aside`, `cut` or `quarantine`.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Why and where to.
    pub detail: String,
}

/// Mends a log as far as its files allow, and returns what was done and what is left; of a dry run what would be.
///
/// # Errors
/// [`Error::Io`]; what was done before it stays done. [`Error::NotABoundary`] for a cut in the middle of a batch.
pub fn repair(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    options: &RepairOptions,
) -> Result<(Vec<Action>, Verified), Error> {
    let mut repair = Repair {
        storage,
        directory,
        identity,
        options,
        actions: Vec::new(),
        mended: HashSet::new(),
        restored: Vec::new(),
    };
    repair.rename()?;
    if let Some(backup) = &options.from {
        repair.restore(backup)?;
    }
    if let Some(offset) = options.cut_at {
        repair.cut(offset)?;
    }
    repair.derived()?;
    let mut left = verify(storage, directory, identity)?;
    if options.dry_run {
        left.findings.retain(|found| !repair.would_mend(found));
    }
    repair.quarantine(&left)?;
    Ok((repair.actions, left))
}

struct Repair<'a> {
    storage: &'a dyn Storage,
    directory: &'a Path,
    identity: LogId,
    options: &'a RepairOptions,
    actions: Vec<Action>,
    /// Files that are as they should be, or gone; of a dry run, that would be.
    mended: HashSet<PathBuf>,
    /// Offsets [start, end) of segments that came from the backup, or would.
    restored: Vec<(u64, u64)>,
}

impl Repair<'_> {
    /// Whether what a dry run has shown would take the finding away.
    fn would_mend(&self, found: &Finding) -> bool {
        let (mut start, end) = found.offsets;
        if start >= end {
            // An index goes with its segment.
            let segment = found.path.with_extension("seg");
            return self.mended.contains(&found.path) || self.mended.contains(&segment);
        }
        if self.options.cut_at.is_some_and(|cut| start >= cut) {
            return true;
        }
        for (from, to) in &self.restored {
            if *from <= start {
                start = start.max(*to);
            }
        }
        start >= end
    }

    /// Notes an action; whether it is to be carried out.
    fn act(&mut self, what: &'static str, path: &Path, detail: String) -> bool {
        self.actions.push(Action {
            what,
            path: path.to_path_buf(),
            detail,
        });
        !self.options.dry_run
    }

    /// Segments of this log that lie under another one's name.
    fn rename(&mut self) -> Result<(), Error> {
        let mut wrong = Vec::new();
        for source in find_segment_files_to_read(self.storage, self.directory)? {
            let mut bytes = [0; PREAMBLE_BYTES as usize];
            let read = disk::read_up_to(&*source.file, &mut bytes, 0).unwrap_or(0);
            let preamble = Preamble::read(bytes.get(..read).unwrap_or_default());
            if let Some(own) = preamble.filter(|own| own.identity == self.identity)
                && own.base_offset != source.base_offset
            {
                wrong.push((source.path, own.base_offset));
            }
        }
        let from: HashSet<PathBuf> = wrong.iter().map(|(path, _)| path.clone()).collect();
        let targets: Vec<PathBuf> = wrong
            .iter()
            .map(|(_, base)| self.directory.join(segment_name(*base)))
            .collect();
        let distinct: HashSet<&PathBuf> = targets.iter().collect();
        let taken = |target: &PathBuf| !from.contains(target) && self.exists(target);
        // Two copies of one segment, or one whose place is taken by a good one: nobody can tell what is meant.
        if distinct.len() != targets.len() || targets.iter().any(taken) {
            return Ok(());
        }
        for ((path, _), target) in wrong.iter().zip(&targets) {
            let detail = format!("its content belongs under the name {}", name_of(target));
            if self.act("rename", path, detail) {
                disk::rename(self.storage, path, &moving(path))?;
            }
        }
        if !self.options.dry_run {
            for ((path, _), target) in wrong.iter().zip(&targets) {
                disk::rename(self.storage, &moving(path), target)?;
            }
            disk::sync_directory(self.storage, self.directory)?;
        }
        Ok(())
    }

    /// Derived files that do not check.
    fn derived(&mut self) -> Result<(), Error> {
        let found = verify(self.storage, self.directory, self.identity)?.findings;
        // Of a segment that a dry run would restore or set aside the index goes, too.
        let derived = found.into_iter().filter(|found| {
            found.kind == FindingKind::Derived
                && base_offset_of(&found.path).is_none()
                && !self.would_mend(found)
        });
        let mut paths: Vec<(PathBuf, String)> =
            derived.map(|found| (found.path, found.what)).collect();
        // One slot of the checkpoint may be sound: it is evidence of what was synced.
        paths.retain(|(path, _)| path.file_name().is_some_and(|name| name != CHECKPOINT));
        paths.dedup_by(|a, b| a.0 == b.0);
        for (path, what) in paths {
            self.mended.insert(path.clone());
            let detail = format!("{what}; the next start rebuilds it");
            if self.exists(&path) && self.act("set_aside", &path, detail) {
                self.set_aside(&path)?;
            }
        }
        Ok(())
    }

    /// Takes away `offset` and everything behind it.
    fn cut(&mut self, offset: u64) -> Result<(), Error> {
        let sources = find_segment_files_to_read(self.storage, self.directory)?;
        let after = sources.partition_point(|source| source.base_offset <= offset);
        let Some(source) = after.checked_sub(1).and_then(|i| sources.get(i)) else {
            return Err(not_a_boundary(self.directory, offset, offset));
        };
        // What a dry run would restore is not there yet.
        let is_planned = self.options.dry_run && self.mended.contains(&source.path);
        let position = if is_planned {
            None
        } else {
            Some(self.position_of(source, offset)?)
        };
        self.cut_wal(offset)?;
        for later in sources.get(after..).unwrap_or_default() {
            let detail = format!("it begins behind offset {offset}");
            self.mended.insert(later.path.clone());
            if self.act("set_aside", &later.path, detail) {
                self.set_aside(&later.path)?;
                self.set_index_aside(&later.path)?;
            }
        }
        let place = position.map_or_else(String::new, |at| format!("at position {at}, "));
        let detail = format!("{place}before offset {offset}; the whole file is kept aside");
        let (true, Some(position)) = (self.act("cut", &source.path, detail), position) else {
            return Ok(());
        };
        let kept = self.aside(&source.path)?;
        self.copy(&source.path, &kept)?;
        let file = disk::open(self.storage, &source.path, OpenMode::ReadWrite)?;
        file.set_len(position)
            .and_then(|()| file.sync_all())
            .map_err(|error| Error::io(IoOp::Truncate, &source.path, error))?;
        self.set_index_aside(&source.path)?;
        self.lower_checkpoint(offset)
    }

    /// Ends the log at `offset` in the WAL too: the next start would replay what lies behind.
    fn cut_wal(&mut self, offset: u64) -> Result<(), Error> {
        let Some(wal) = &self.options.wal else {
            return Ok(());
        };
        if !cut::is_due(self.storage, wal, self.identity, offset)? {
            return Ok(());
        }
        let detail = format!("the next start replays nothing of this log from offset {offset} on");
        if self.act("cut", &wal.directory, detail) {
            let epochs = EpochTable::read(self.storage, self.directory, self.identity);
            let cut = Cut {
                log: self.identity,
                offset,
                epoch: epochs.last().map_or(0, |(epoch, _)| *epoch),
            };
            cut::append(self.storage, wal, &cut)?;
        }
        Ok(())
    }

    /// Where the batch that begins at `offset` lies.
    fn position_of(&self, source: &SegmentFile, offset: u64) -> Result<u64, Error> {
        let mut scanner = Scanner::new(&*source.file, source.len, self.identity);
        let mut place = LogPosition::first(source.base_offset);
        while place.offset < offset {
            let found = scanner
                .look(&place, false)
                .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
            match found {
                Found::Batch(header) | Found::Payload(header, _)
                    if header.next_offset() <= offset =>
                {
                    place = place.after(&header);
                }
                _ => return Err(not_a_boundary(&source.path, offset, place.offset)),
            }
        }
        Ok(place.position)
    }

    /// The log ends at `offset` from now on.
    fn lower_checkpoint(&self, offset: u64) -> Result<(), Error> {
        let last = checkpoint::look(self.storage, self.directory, self.identity)
            .and_then(|slots| slots.last)
            .unwrap_or_default();
        let mut file = CheckpointFile::open(self.storage, self.directory, self.identity)?;
        // Both slots, so that the older one cannot speak for what was cut.
        for clean in [true, false] {
            let lowered = Checkpoint {
                high_watermark: last.high_watermark.min(offset),
                log_start: last.log_start.min(offset),
                durable: last.durable.min(offset),
                clean,
            };
            file.write(self.storage, lowered)?;
            file.sync(self.storage)?;
        }
        // It may speak of what was cut.
        disk::remove_file(self.storage, &self.directory.join(INDEX_SNAPSHOT))?;
        disk::sync_directory(self.storage, self.directory)
    }

    /// Writes down what stays damaged.
    fn quarantine(&mut self, left: &Verified) -> Result<(), Error> {
        let damages: Vec<Damage> = left
            .findings
            .iter()
            .filter(|found| found.offsets.0 < found.offsets.1)
            .map(|found| Damage {
                start: found.offsets.0,
                end: found.offsets.1,
                path: found.path.clone(),
                position: found.position,
                fault: fault_of(&found.what),
            })
            .collect();
        let known = quarantine::read(self.storage, self.directory, self.identity);
        if known.damages == damages {
            return Ok(());
        }
        let path = self.directory.join(QUARANTINE);
        let detail = match damages.len() {
            1 => "1 damaged range".to_owned(),
            count => format!("{count} damaged ranges"),
        };
        if self.act("quarantine", &path, detail) {
            let ranges = Ranges {
                damages,
                scrubbed: known.scrubbed,
            };
            disk::replace(
                self.storage,
                &path,
                &quarantine::to_bytes(self.identity, &ranges),
            )?;
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        self.storage.open(path, OpenMode::Read).is_ok()
    }

    /// A free name in `aside/` for a file.
    fn aside(&self, path: &Path) -> Result<PathBuf, Error> {
        let directory = self.directory.join("aside");
        disk::create_directories(self.storage, &directory)?;
        Ok(directory.join(format!("{}.{}", name_of(path), self.options.now_ns)))
    }

    fn set_aside(&self, path: &Path) -> Result<(), Error> {
        disk::rename(self.storage, path, &self.aside(path)?)?;
        disk::sync_directory(self.storage, &self.directory.join("aside"))?;
        disk::sync_directory(self.storage, self.directory)
    }

    /// That of a segment, where there is one.
    fn set_index_aside(&self, segment: &Path) -> Result<(), Error> {
        let index = segment.with_extension("idx");
        if self.exists(&index) {
            self.set_aside(&index)?;
        }
        Ok(())
    }

    /// Copies a file under a temporary name, syncs it and gives it its own.
    fn copy(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let source = disk::open(self.storage, from, OpenMode::Read)?;
        let temporary = to.with_extension("tmp");
        let target = disk::open(self.storage, &temporary, OpenMode::Replace)?;
        let copy = || -> io::Result<()> {
            let (len, mut position) = (source.len()?, 0);
            let mut buffer = vec![0; COPY_BYTES];
            while position < len {
                let read = disk::read_up_to(&*source, &mut buffer, position)?;
                if read == 0 {
                    break;
                }
                target.write_all_at(buffer.get(..read).unwrap_or_default(), position)?;
                position += read as u64;
            }
            target.sync_all()
        };
        copy().map_err(|error| Error::io(IoOp::Copy, from, error))?;
        disk::rename(self.storage, &temporary, to)?;
        to.parent()
            .map_or(Ok(()), |parent| disk::sync_directory(self.storage, parent))
    }
}

fn not_a_boundary(path: &Path, wanted: u64, last: u64) -> Error {
    Error::NotABoundary {
        path: path.to_path_buf(),
        wanted,
        last,
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// A name that means nothing to recovery, for a swap half done.
fn moving(path: &Path) -> PathBuf {
    path.with_extension("moving")
}

fn fault_of(sentence: &str) -> Fault {
    Fault::ALL
        .into_iter()
        .find(|fault| fault.to_string() == sentence)
        .unwrap_or(Fault::Header)
}
