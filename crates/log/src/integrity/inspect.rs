//! What lies in the directory of a log, for people: segments, batches, epochs, producers, checkpoint, quarantine.
use super::Damage;
use super::walk::{Course, walk};
use crate::io::disk;
use crate::io::storage::Storage;
use crate::segment::epochs::EpochTable;
use crate::segment::index;
use crate::segment::resync::{Ending, Known};
use crate::segment::scan::{LogPosition, Scanner};
use crate::segment::segment_file::{SegmentFile, find_segment_files_to_read};
use crate::state::checkpoint::{self, Checkpoint};
use crate::state::producers::Producers;
use crate::state::quarantine;
use crate::{Error, IoOp, LogId};
use bascule_record::Header;
use std::path::{Path, PathBuf};

/// One batch, by its header.
#[derive(Clone, Copy, Debug)]
pub struct BatchView {
    /// Where it begins in the file, bytes.
    pub position: u64,
    /// What its header says.
    pub header: Header,
}

/// One segment.
#[derive(Clone, Debug)]
pub struct SegmentView {
    /// The file.
    pub path: PathBuf,
    /// First offset, from the name.
    pub base_offset: u64,
    /// First offset after its last batch.
    pub next_offset: u64,
    /// Length of the file, bytes.
    pub bytes: u64,
    /// Position after its last batch.
    pub end: u64,
    /// Sound batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Timestamps of the first and the last record, ns since 1970.
    pub timestamps: Option<(i64, i64)>,
    /// Whether its first bytes check.
    pub has_preamble: bool,
    /// Whether an index that checks lies beside it.
    pub has_index: bool,
    /// Damage in it.
    pub damages: Vec<Damage>,
}

/// A whole log.
#[derive(Clone, Debug, Default)]
pub struct LogView {
    /// Segments, oldest first.
    pub segments: Vec<SegmentView>,
    /// Batches from the wanted offset on, at most as many as asked for.
    pub batches: Vec<BatchView>,
    /// (leader epoch, first offset), ascending, as the table on disk tells.
    pub epochs: Vec<(u64, u64)>,
    /// How many idempotent producers the snapshot holds, and the offset below which it is complete.
    pub producers: Option<(usize, u64)>,
    /// High watermark, log start, durable point, closed cleanly.
    pub checkpoint: Option<(u64, u64, u64, bool)>,
    /// Ranges noted as damaged.
    pub quarantine: Vec<Damage>,
    /// When the last whole scrub ended, ns since 1970; 0 = never.
    pub scrubbed: i64,
}

impl LogView {
    /// First offset after everything that the segments hold, or are known to have held.
    pub fn end(&self) -> u64 {
        let held = self.segments.last().map_or(0, |last| last.next_offset);
        let (_, log_start, durable, _) = self.checkpoint.unwrap_or_default();
        held.max(log_start).max(durable)
    }
}

/// Looks at a log without changing anything. Lists at most `most` batches, those that end behind `from`.
///
/// # Errors
/// [`Error::Io`].
pub fn inspect(
    storage: &dyn Storage,
    directory: &Path,
    identity: LogId,
    from: u64,
    most: usize,
) -> Result<LogView, Error> {
    let sources = find_segment_files_to_read(storage, directory)?;
    let known = quarantine::read(storage, directory, identity);
    let last = checkpoint::look(storage, directory, identity).and_then(|slots| slots.last);
    let producers = disk::read(storage, &directory.join("producers")).ok();
    let producers = producers.and_then(|bytes| Producers::read(&bytes, identity));
    let mut view = LogView {
        epochs: EpochTable::read(storage, directory, identity),
        producers: producers.map(|(producers, to)| (producers.len(), to)),
        checkpoint: last.map(|c: Checkpoint| (c.high_watermark, c.log_start, c.durable, c.clean)),
        quarantine: known.damages,
        scrubbed: known.scrubbed,
        ..LogView::default()
    };
    for (i, source) in sources.iter().enumerate() {
        let next = sources.get(i + 1);
        let durable = last.map_or(0, |last| last.durable);
        let batches = &mut view.batches;
        let mut visit = |place: &LogPosition, header: &Header| {
            if header.next_offset() > from && batches.len() < most {
                batches.push(BatchView {
                    position: place.position,
                    header: *header,
                });
            }
        };
        let segment = look_at(storage, identity, source, next, durable, &mut visit)?;
        view.segments.push(segment);
    }
    Ok(view)
}

fn look_at(
    storage: &dyn Storage,
    identity: LogId,
    source: &SegmentFile,
    next: Option<&SegmentFile>,
    durable: u64,
    visit: &mut dyn FnMut(&LogPosition, &Header),
) -> Result<SegmentView, Error> {
    let bytes = disk::read(storage, &source.path.with_extension("idx")).unwrap_or_default();
    let described = index::read(&bytes, identity, source.base_offset);
    let ends = described.as_ref().map(|(summary, _)| summary.next_offset);
    let index = described.map(|(_, index)| index);
    let course = Course {
        path: &source.path,
        known: Known {
            index: index.as_ref(),
            end: Ending::before(next),
            durable,
        },
        limit: next.map_or(u64::MAX, |next| next.base_offset),
        ends,
        durable,
    };
    let start = LogPosition::first(source.base_offset);
    let (mut batches, mut records, mut timestamps) = (0, 0, None);
    let mut scanner = Scanner::new(&*source.file, source.len, identity);
    let walked = walk(&mut scanner, start, &course, &mut |place, header| {
        batches += 1;
        records += u64::from(header.count);
        let first = timestamps.map_or(header.base_timestamp, |(first, _)| first);
        timestamps = Some((first, header.max_timestamp));
        visit(place, header);
        Ok(())
    })
    .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
    Ok(SegmentView {
        path: source.path.clone(),
        base_offset: source.base_offset,
        next_offset: walked.place.offset,
        bytes: source.len,
        end: walked.place.position,
        batches,
        records,
        timestamps,
        has_preamble: source.preamble.is_some(),
        has_index: index.is_some(),
        damages: walked.damages,
    })
}
