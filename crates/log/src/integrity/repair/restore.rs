//! Restoring segments from a backup of the same log.
use super::super::Finding;
use super::super::verify::verify;
use super::{Repair, name_of};
use crate::Error;
use crate::io::disk;
use crate::io::file_names::base_offset_of;
use crate::io::storage::OpenMode;
use crate::segment::segment_file::{SegmentFile, find_segment_files};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A segment of the backup.
struct Copy {
    path: PathBuf,
    /// Offsets [start, end) that it holds.
    start: u64,
    end: u64,
    /// Why it cannot be used.
    why_not: Option<&'static str>,
}

impl Copy {
    /// Returns whether it may repair the finding.
    fn concerns(&self, found: &Finding) -> bool {
        let (start, end) = found.offsets;
        if start < end {
            start < self.end && self.start < end
        } else {
            name_of(&found.path) == name_of(&self.path)
        }
    }
}

impl Repair<'_> {
    /// Restores sealed segments that are damaged or missing from a backup in which they are whole.
    pub(super) fn restore(&mut self, backup: &Path) -> Result<(), Error> {
        let ours = verify(self.storage, self.directory, self.identity)?;
        let lost = ours.findings.iter().filter(|found| found.is_damage());
        let lost: Vec<&Finding> = lost
            .filter(|found| base_offset_of(&found.path).is_some())
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let copies = self.copies(backup)?;
        let mut wanted = BTreeMap::new();
        for found in &lost {
            let of = copies.iter().filter(|copy| copy.concerns(found));
            let of: Vec<(u64, &Copy)> = of.map(|copy| (copy.start, copy)).collect();
            if of.is_empty() {
                let detail = format!("the backup does not have it ({})", backup.display());
                self.act("not_restored", &found.path, detail);
            }
            wanted.extend(of);
        }
        for copy in wanted.values() {
            let path = self.directory.join(name_of(&copy.path));
            // Offsets before the log start may be gone.
            let first = copy.start.max(ours.log_start);
            let is_in = |found: &&Finding| (found.offsets.0..found.offsets.1).contains(&first);
            let is_lost = lost.iter().any(is_in);
            let is_here = self.exists(&path);
            let why_not = match copy.why_not {
                // If the name is free here, no other segment may hold its offsets.
                None if !is_here && !is_lost => Some("another segment here holds its offsets"),
                None if is_here && copy.start >= ours.checked_to => {
                    Some("it cannot be checked: a newer version wrote a batch before it")
                }
                why_not => why_not,
            };
            match why_not {
                Some(why) => {
                    let detail = format!("{why} ({})", copy.path.display());
                    self.act("not_restored", &path, detail);
                }
                None => self.take(copy, &path)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, copy: &Copy, path: &Path) -> Result<(), Error> {
        self.repaired.insert(path.to_path_buf());
        self.restored.push((copy.start, copy.end));
        if self.act("restore", path, format!("from {}", copy.path.display())) {
            if self.exists(path) {
                self.move_aside(path)?;
            }
            disk::copy(self.storage, &copy.path, path)?;
            self.move_index_aside(path)?;
        }
        Ok(())
    }

    /// The segments of the backup, in the order of offsets; none when it does not have the log.
    fn copies(&self, backup: &Path) -> Result<Vec<Copy>, Error> {
        let theirs = match verify(self.storage, backup, self.identity) {
            Ok(theirs) => theirs,
            Err(Error::Absent { .. }) => return Ok(Vec::new()),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let sources = find_segment_files(self.storage, backup, OpenMode::Read)?;
        let ends = sources.iter().skip(1).map(|source| source.base_offset);
        let ends: Vec<u64> = ends.chain([theirs.log_end]).collect();
        let last = sources.len();
        let bad: Vec<&Finding> = theirs
            .findings
            .iter()
            .filter(|found| found.is_damage())
            .collect();
        let copy = |(i, (source, end)): (usize, (&SegmentFile, u64))| {
            let mut copy = Copy {
                path: source.path.clone(),
                start: source.base_offset,
                end,
                why_not: None,
            };
            for found in &bad {
                if !copy.concerns(found) && found.path != copy.path {
                    continue;
                }
                if self.exists(&found.path) {
                    copy.why_not = Some("the backup's copy is damaged, too");
                } else {
                    // The next one is missing.
                    copy.end = copy.end.min(found.offsets.0);
                }
            }
            // Only a segment that the backup knows to be followed by another is whole.
            if copy.why_not.is_none() && i + 1 < last && end > theirs.checked_to {
                copy.why_not = Some("it is torn in the backup, or follows a torn one there");
            }
            if copy.why_not.is_none() && i + 1 == last {
                copy.why_not = Some(
                    "it is the last one in the backup: more may have been written to it later",
                );
            }
            copy
        };
        Ok(sources.iter().zip(ends).enumerate().map(copy).collect())
    }
}
