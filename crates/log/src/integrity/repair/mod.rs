//! Repair of the directory of a log that no broker uses. Nothing is destroyed: files are moved into `aside/` beside the
//! segments, under their name and the time.
//!
//! In this order: segments with a wrong name are renamed; segments are restored from a backup, if one is given; the log is
//! truncated, if requested; invalid derived files are moved aside, the next start rebuilds them; the remaining damage is written
//! to the quarantine file, so that the next start reports it at once.
mod restore;

use super::verify::{Verified, verify};
use super::{Damage, Fault, Finding, FindingKind};
use crate::io::disk;
use crate::io::file_names::{base_offset_of, segment_name};
use crate::io::storage::{OpenMode, Storage};
use crate::segment::epochs::EpochTable;
use crate::segment::preamble::{PREAMBLE_BYTES, Preamble};
use crate::segment::segment_file::{find_segment_files, position_of};
use crate::state::checkpoint::{self, CHECKPOINT};
use crate::state::index_snapshot::INDEX_SNAPSHOT;
use crate::state::quarantine::{self, QUARANTINE, Ranges};
use crate::wal::format::Cut;
use crate::wal::{WalOptions, cut};
use crate::{Error, IoOp, LogId};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The requested repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Only report what would be done.
    pub dry_run: bool,
    /// A copy of this log's directory, at least as new as the damaged segments.
    pub from: Option<PathBuf>,
    /// Truncate the log here, at the beginning of a batch: this offset and all later ones are removed.
    pub cut_at: Option<u64>,
    /// The WAL of the log's data directory, which may be absent: the log is truncated in it too.
    pub wal: Option<WalOptions>,
    /// For the names of files moved aside, ns since 1970.
    pub now_ns: i64,
}

/// One step of a repair, done or planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Name of the action; the names are in `specs/formats/seam.md`.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Reason and target.
    pub detail: String,
}

/// Repairs a log as far as its files allow. Returns the steps and the remaining findings; of a dry run the planned ones.
///
/// # Errors
/// [`Error::Io`]; the steps before it remain done. [`Error::NotABoundary`] for a truncation in the middle of a batch.
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
        repaired: HashSet::new(),
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
        left.findings.retain(|found| !repair.would_repair(found));
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
    /// Files that are valid now, or gone; of a dry run, that would be.
    repaired: HashSet<PathBuf>,
    /// Offsets [start, end) of segments that came from the backup, or would.
    restored: Vec<(u64, u64)>,
}

impl Repair<'_> {
    /// Returns whether the steps of a dry run would remove the finding.
    fn would_repair(&self, found: &Finding) -> bool {
        let (mut start, end) = found.offsets;
        if start >= end {
            // An index goes with its segment.
            let segment = found.path.with_extension("seg");
            return self.repaired.contains(&found.path) || self.repaired.contains(&segment);
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

    /// Records an action. Returns whether to carry it out.
    fn act(&mut self, what: &'static str, path: &Path, detail: String) -> bool {
        self.actions.push(Action {
            what,
            path: path.to_path_buf(),
            detail,
        });
        !self.options.dry_run
    }

    /// Renames segments of this log that have the name of another segment.
    fn rename(&mut self) -> Result<(), Error> {
        let mut wrong = Vec::new();
        for source in find_segment_files(self.storage, self.directory, OpenMode::Read)? {
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
        // Two copies of one segment, or one whose name is taken by a valid one: ambiguous.
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

    /// Moves invalid derived files aside.
    fn derived(&mut self) -> Result<(), Error> {
        let found = verify(self.storage, self.directory, self.identity)?.findings;
        // A dry run lists no index of a segment that it would restore or move.
        let derived = found.into_iter().filter(|found| {
            found.kind == FindingKind::Derived
                && base_offset_of(&found.path).is_none()
                && !self.would_repair(found)
        });
        let mut paths: Vec<(PathBuf, String)> =
            derived.map(|found| (found.path, found.what)).collect();
        // One slot of the checkpoint may be valid: it proves what was synced.
        paths.retain(|(path, _)| path.file_name().is_some_and(|name| name != CHECKPOINT));
        paths.dedup_by(|a, b| a.0 == b.0);
        for (path, what) in paths {
            self.repaired.insert(path.clone());
            let detail = format!("{what}; the next start rebuilds it");
            if self.exists(&path) {
                self.take_out(&path, detail)?;
            }
        }
        Ok(())
    }

    /// Removes `offset` and everything after it.
    fn cut(&mut self, offset: u64) -> Result<(), Error> {
        let sources = find_segment_files(self.storage, self.directory, OpenMode::Read)?;
        let after = sources.partition_point(|source| source.base_offset <= offset);
        let Some(source) = after.checked_sub(1).and_then(|i| sources.get(i)) else {
            return Err(not_a_boundary(self.directory, offset, offset));
        };
        // A dry run has not restored it.
        let is_planned = self.options.dry_run && self.repaired.contains(&source.path);
        let position = if is_planned {
            None
        } else {
            Some(position_of(source, self.identity, offset)?)
        };
        self.cut_wal(offset)?;
        for later in sources.get(after..).unwrap_or_default() {
            let detail = format!("it begins after offset {offset}");
            self.repaired.insert(later.path.clone());
            if self.take_out(&later.path, detail)? {
                self.move_index_aside(&later.path)?;
            }
        }
        let place = position.map_or_else(String::new, |at| format!("at position {at}, "));
        let detail = format!("{place}before offset {offset}; the whole file is kept aside");
        let (true, Some(position)) = (self.act("cut", &source.path, detail), position) else {
            return Ok(());
        };
        let kept = self.aside(&source.path)?;
        disk::copy(self.storage, &source.path, &kept)?;
        let file = disk::open(self.storage, &source.path, OpenMode::ReadWrite)?;
        file.set_len(position)
            .and_then(|()| file.sync_all())
            .map_err(|error| Error::io(IoOp::Truncate, &source.path, error))?;
        self.move_index_aside(&source.path)?;
        self.lower_checkpoint(offset)
    }

    /// Ends the log at `offset` in the WAL too: otherwise the next start would replay later batches.
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

    /// The log ends at `offset` from now on.
    fn lower_checkpoint(&self, offset: u64) -> Result<(), Error> {
        checkpoint::lower(self.storage, self.directory, self.identity, offset)?;
        // It may name truncated offsets.
        disk::remove_file(self.storage, &self.directory.join(INDEX_SNAPSHOT))?;
        disk::sync_directory(self.storage, self.directory)
    }

    /// Writes the remaining damage to the quarantine file.
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

    /// Moves a file aside as an action of its own. Returns whether it was carried out.
    fn take_out(&mut self, path: &Path, detail: String) -> Result<bool, Error> {
        let is_done = self.act("set_aside", path, detail);
        if is_done {
            self.move_aside(path)?;
        }
        Ok(is_done)
    }

    fn move_aside(&self, path: &Path) -> Result<(), Error> {
        disk::rename(self.storage, path, &self.aside(path)?)?;
        disk::sync_directory(self.storage, &self.directory.join("aside"))?;
        disk::sync_directory(self.storage, self.directory)
    }

    /// Moves the index of a segment aside, if there is one.
    fn move_index_aside(&self, segment: &Path) -> Result<(), Error> {
        let index = segment.with_extension("idx");
        if self.exists(&index) {
            self.move_aside(&index)?;
        }
        Ok(())
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

/// A name that recovery ignores, for an unfinished swap.
fn moving(path: &Path) -> PathBuf {
    path.with_extension("moving")
}

fn fault_of(sentence: &str) -> Fault {
    Fault::ALL
        .into_iter()
        .find(|fault| fault.to_string() == sentence)
        .unwrap_or(Fault::Header)
}
