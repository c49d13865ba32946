//! Verification: reads and checks everything in the directory of a log, without changes.
//!
//! It finds more than recovery: recovery trusts index files and reads only headers below the durable point, verification reads
//! every payload.
use super::segment_check::{SegmentCheck, check_segment};
use super::{Damage, Fault};
use crate::io::disk;
use crate::io::file_names::segment_name;
use crate::io::storage::{OpenMode, Storage};
use crate::segment::epochs::EpochTable;
use crate::segment::index::{self, SparseIndex, Summary};
use crate::segment::preamble::{FORMAT_VERSION, PREAMBLE_BYTES};
use crate::segment::scan::LogPosition;
use crate::segment::segment_file::{SegmentFile, empty_end, find_segment_files, last_non_zero};
use crate::segment::segment_scan::SegmentScan;
use crate::state::checkpoint::{self, CHECKPOINT, Checkpoint};
use crate::state::index_snapshot::IndexSnapshot;
use crate::state::producers::Producers;
use crate::{Error, IoOp, LogId};
use std::path::{Path, PathBuf};

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingKind {
    /// Lost records; a broker refuses their offsets and serves the others.
    Damage,
    /// A file that the next start rebuilds from the segments.
    Derived,
    /// Bytes after the durable point that were never acknowledged; the next start truncates them.
    Tail,
    /// A file of another log, or of a newer version.
    Foreign,
}

impl FindingKind {
    /// One word, stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::Derived => "derived",
            Self::Tail => "tail",
            Self::Foreign => "foreign",
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind.
    pub kind: FindingKind,
    /// File.
    pub path: PathBuf,
    /// Position in it, bytes.
    pub position: u64,
    /// Offsets [start, end) that are lost or would be truncated; empty when none are.
    pub offsets: (u64, u64),
    /// What is wrong.
    pub what: String,
}

impl Finding {
    /// Returns whether records are lost or a file is in the wrong place; rebuilt files and torn tails do not count.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.kind, FindingKind::Damage | FindingKind::Foreign)
    }
}

/// Content of a log, and its problems.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Number of segments.
    pub segments: u64,
    /// Number of valid batches.
    pub batches: u64,
    /// Number of records in them.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// First offset, by the checkpoint or the first segment.
    pub log_start: u64,
    /// First offset after everything.
    pub log_end: u64,
    /// First offset that was not checked in the segments: they are torn there, or a newer version continued.
    pub checked_to: u64,
    /// Everything below it was synced, by the checkpoint; `None` without one.
    pub durable: Option<u64>,
    /// The problems, ordered by file.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Returns whether any finding is damage.
    pub fn is_damaged(&self) -> bool {
        self.findings.iter().any(Finding::is_damage)
    }
}

/// Reads and checks all of a log, without changes.
///
/// # Errors
/// [`Error::Absent`] when there is neither a segment nor a checkpoint; [`Error::Io`].
pub fn verify(storage: &dyn Storage, directory: &Path, identity: LogId) -> Result<Verified, Error> {
    let mut sources = find_segment_files(storage, directory, OpenMode::Read)?;
    let checkpoint = checkpoint::peek(storage, directory, identity);
    if sources.is_empty() && checkpoint.is_none() {
        return Err(Error::Absent {
            path: directory.to_path_buf(),
        });
    }
    let mut last = checkpoint.as_ref().and_then(|slots| slots.last);
    if let (Some(last), Some(first)) = (&mut last, sources.first())
        && checkpoint.as_ref().is_some_and(|slots| slots.is_damaged)
    {
        last.log_start = last.log_start.max(first.base_offset);
    }
    let last_base = sources.last().map_or(0, |source| source.base_offset);
    if let Some(last) = &mut last
        && let Some(snapshot) = IndexSnapshot::find(storage, directory, identity, &sources, 0)
    {
        last.durable = last.durable.max(snapshot.end_offset());
    }
    let mut check = Check {
        storage,
        directory,
        identity,
        durable: last.map_or(last_base, |last| last.durable.max(last.log_start)),
        place: LogPosition::first(last.map_or(
            sources.first().map_or(0, |first| first.base_offset),
            |last| last.log_start,
        )),
        epochs: Vec::new(),
        out: Verified {
            segments: sources.len() as u64,
            durable: last.map(|last| last.durable),
            ..Verified::default()
        },
    };
    check.out.log_start = check.place.offset;
    check.checkpoint(checkpoint.is_some_and(|look| look.is_damaged));
    let empty = take_empty(&mut sources)?;
    let merged = take_merged(&mut sources, identity)?;
    let mut rest = sources.as_slice();
    while let Some((source, following)) = rest.split_first() {
        if !check.segment(source, following)? {
            break;
        }
        rest = following;
    }
    check.finish(last);
    check.report_empty(&empty);
    for source in &merged {
        let what =
            "a compaction merged this segment into the one before; the next start removes it";
        check.find(FindingKind::Derived, &source.path, 0, what);
    }
    Ok(check.out)
}

/// Takes out the segments before the last one that hold nothing but zeros: each is the rest of a roll that found no space, or
/// its offsets are missing between those around it.
fn take_empty(sources: &mut Vec<SegmentFile>) -> Result<Vec<SegmentFile>, Error> {
    let (mut kept, mut empty) = (Vec::with_capacity(sources.len()), Vec::new());
    let last = sources.pop();
    for source in sources.drain(..) {
        let end = last_non_zero(&source, PREAMBLE_BYTES)
            .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
        if end > PREAMBLE_BYTES {
            kept.push(source);
        } else {
            empty.push(source);
        }
    }
    kept.extend(last);
    *sources = kept;
    Ok(empty)
}

/// Takes out segments that a compaction merged into the one before and could not remove.
fn take_merged(sources: &mut Vec<SegmentFile>, identity: LogId) -> Result<Vec<SegmentFile>, Error> {
    let (mut kept, mut merged) = (Vec::with_capacity(sources.len()), Vec::new());
    let mut covered = 0;
    for source in sources.drain(..) {
        let end = empty_end(&source, identity)?;
        if source.base_offset < covered && end.is_some_and(|end| end <= covered) {
            merged.push(source);
        } else {
            covered = end.unwrap_or(0);
            kept.push(source);
        }
    }
    *sources = kept;
    Ok(merged)
}

struct Check<'a> {
    storage: &'a dyn Storage,
    directory: &'a Path,
    identity: LogId,
    durable: u64,
    place: LogPosition,
    epochs: Vec<(u64, u64)>,
    out: Verified,
}

impl Check<'_> {
    fn find(&mut self, kind: FindingKind, path: &Path, position: u64, what: impl Into<String>) {
        self.out.findings.push(Finding {
            kind,
            path: path.to_path_buf(),
            position,
            offsets: (0, 0),
            what: what.into(),
        });
    }

    fn lose(&mut self, damage: &Damage) {
        self.out.findings.push(Finding {
            kind: FindingKind::Damage,
            path: damage.path.clone(),
            position: damage.position,
            offsets: (damage.start, damage.end),
            what: damage.fault.to_string(),
        });
    }

    /// Reports empty segments, after everything else: lost offsets of one were reported before.
    fn report_empty(&mut self, empty: &[SegmentFile]) {
        for source in empty {
            let is_lost =
                |found: &Finding| (found.offsets.0..found.offsets.1).contains(&source.base_offset);
            if !self.out.findings.iter().any(is_lost) {
                let what = "the segment holds nothing; the next start removes it";
                self.find(FindingKind::Derived, &source.path, 0, what);
            }
        }
    }

    fn checkpoint(&mut self, damaged_slot: bool) {
        if damaged_slot {
            let path = self.directory.join(CHECKPOINT);
            let what =
                "a slot of the checkpoint fails its checksum; the other one, or none, is used";
            self.find(FindingKind::Derived, &path, 0, what);
        }
    }

    /// `false` when nothing after this segment belongs to the log.
    fn segment(&mut self, source: &SegmentFile, following: &[SegmentFile]) -> Result<bool, Error> {
        self.begin(source);
        let described = self.index(source);
        let index = described.as_ref().map(|(_, index)| index);
        let index_end = described.as_ref().map(|(summary, _)| summary.next_offset);
        let next = following.first().map(|next| next.base_offset);
        let mut scan = SegmentScan::of_file(
            source,
            following,
            self.identity,
            self.place,
            index,
            self.durable,
        );
        let (mut batches, mut records) = (0, 0);
        let epochs = &mut self.epochs;
        let limit = next.unwrap_or(u64::MAX);
        let checked = check_segment(
            &mut scan,
            &source.path,
            limit,
            index_end,
            &mut |at, header| {
                batches += 1;
                records += u64::from(header.count);
                if epochs
                    .last()
                    .is_none_or(|(last, _)| header.leader_epoch > *last)
                {
                    epochs.push((header.leader_epoch, at.offset));
                }
                Ok(())
            },
        )
        .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
        self.out.batches += batches;
        self.out.records += records;
        self.out.bytes += scan.bytes_read();
        let end = scan.place;
        checked.damages.iter().for_each(|damage| self.lose(damage));
        if let Some((summary, _)) = described
            && checked.damages.is_empty()
        {
            self.compare(source, &summary, &end);
        }
        self.place = end;
        let lost = checked.damages.last().map_or(0, |damage| damage.end);
        if lost > self.place.offset {
            // The batch that the next segment's first one follows is among them.
            self.place.offset = lost;
            self.place.chain = None;
        }
        Ok(self.end(source, next, &checked, end))
    }

    /// Moves the place to the beginning of a segment.
    fn begin(&mut self, source: &SegmentFile) {
        let first = self.out.batches == 0 && self.out.findings.is_empty();
        if self.place.offset < source.base_offset {
            let start = self.place.offset;
            let path = self.directory.join(segment_name(start));
            self.lose(&Damage {
                start,
                end: source.base_offset,
                path,
                position: 0,
                fault: Fault::Missing,
            });
            self.place.chain = None;
        }
        let preamble = source.preamble;
        match &preamble {
            Some(preamble) if preamble.version > FORMAT_VERSION => {
                self.find(
                    FindingKind::Foreign,
                    &source.path,
                    0,
                    "a newer version wrote this file",
                );
            }
            Some(preamble) if preamble.identity != self.identity => {
                let what = format!(
                    "this file belongs to incarnation {} partition {}",
                    preamble.identity.incarnation, preamble.identity.partition
                );
                self.find(FindingKind::Foreign, &source.path, 0, what);
            }
            Some(_) => {}
            None => self.find(
                FindingKind::Derived,
                &source.path,
                0,
                "the preamble of the segment is invalid; its batches hold the same facts",
            ),
        }
        let chain = preamble
            .filter(|preamble| preamble.identity == self.identity)
            .filter(|preamble| preamble.chain != 0 || source.base_offset == 0)
            .map(|preamble| preamble.chain);
        let is_new_chain = chain.is_none() && preamble.is_some_and(|preamble| preamble.chain == 0);
        let follows = self.place.offset == source.base_offset && self.place.chain.is_some();
        if first || is_new_chain || !follows {
            self.place.chain = chain;
        }
        self.place.position = PREAMBLE_BYTES;
        self.place.previous_batch = None;
        self.place.offset = source.base_offset;
    }

    fn index(&mut self, source: &SegmentFile) -> Option<(Summary, SparseIndex)> {
        let path = source.path.with_extension("idx");
        let bytes = disk::read(self.storage, &path).ok()?;
        let read = index::read(&bytes, self.identity, source.base_offset);
        if read.is_none() {
            self.find(FindingKind::Derived, &path, 0, "the index is invalid");
        }
        read
    }

    /// Compares the index of a valid segment, which ends at `place`, with the segment.
    fn compare(&mut self, source: &SegmentFile, summary: &Summary, place: &LogPosition) {
        let same = summary.next_offset == place.offset
            && summary.end == place.position
            && place.chain.is_none_or(|chain| chain == summary.chain);
        if !same {
            let path = source.path.with_extension("idx");
            let what = "the index has another end than the segment";
            self.find(FindingKind::Derived, &path, 0, what);
        }
    }

    /// Checks what follows the last batch of a segment, at `end`. `false`: the log ends here.
    fn end(
        &mut self,
        source: &SegmentFile,
        next: Option<u64>,
        checked: &SegmentCheck,
        end: LogPosition,
    ) -> bool {
        if let Some(newer) = &checked.newer {
            let what = format!("a batch is not for this version: {newer}");
            self.find(FindingKind::Foreign, &source.path, end.position, what);
            return false;
        }
        let behind = next.is_some_and(|next| next != self.place.offset);
        let cut = self.place.offset >= self.durable && (checked.torn || behind);
        if cut {
            self.out.findings.push(Finding {
                kind: FindingKind::Tail,
                path: source.path.clone(),
                position: end.position,
                offsets: (end.offset, end.offset),
                what: "the bytes from here on are invalid and were never acknowledged; the next start truncates them".into(),
            });
        }
        !cut
    }

    fn finish(&mut self, last: Option<Checkpoint>) {
        self.out.checked_to = self.place.offset;
        if self.place.offset < self.durable {
            let known = self.out.findings.iter().map(|found| found.offsets.1).max();
            let start = known.unwrap_or(0).max(self.place.offset);
            if start < self.durable {
                self.lose(&Damage {
                    start,
                    end: self.durable,
                    path: self.directory.join(segment_name(start)),
                    position: 0,
                    fault: Fault::Short,
                });
            }
            self.place.offset = self.durable;
        }
        self.out.log_end = self.place.offset;
        self.derived(last);
    }

    fn derived(&mut self, last: Option<Checkpoint>) {
        let path = self.directory.join("epochs");
        let known = EpochTable::read(self.storage, self.directory, self.identity);
        let of_file =
            |epochs: &[(u64, u64)]| epochs.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>();
        let found = of_file(&self.epochs);
        let known_epochs = of_file(&known);
        // Epochs below the log start stay in the table; the last one may have begun without a record.
        let missing = found.iter().any(|epoch| !known_epochs.contains(epoch));
        let sized =
            disk::read(self.storage, &path).is_ok_and(|bytes| bytes.len() == known.len() * 24);
        if missing || !sized {
            self.find(
                FindingKind::Derived,
                &path,
                0,
                "the table of leader epochs is invalid",
            );
        }
        let path = self.directory.join("producers");
        if let Ok(bytes) = disk::read(self.storage, &path)
            && Producers::read(&bytes, self.identity).is_none()
        {
            self.find(
                FindingKind::Derived,
                &path,
                0,
                "the snapshot of the producers is invalid",
            );
        }
        if last.is_none() {
            let path = self.directory.join(CHECKPOINT);
            let what =
                "there is no valid checkpoint: batches of the last segment count as unacknowledged";
            self.find(FindingKind::Derived, &path, 0, what);
        }
    }
}
