//! The content of a log's directory for people: segments, batches, epochs, producers, checkpoint, quarantine.
use super::Damage;
use super::segment_check::check_segment;
use crate::io::disk;
use crate::io::storage::{OpenMode, Storage};
use crate::segment::epochs::EpochTable;
use crate::segment::index;
use crate::segment::scan::LogPosition;
use crate::segment::segment_file::find_segment_files;
use crate::segment::segment_scan::SegmentScan;
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
    /// Its header.
    pub header: Header,
}

/// One segment.
#[derive(Clone, Debug, Default)]
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
    /// Valid batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Timestamps of the first and the last record, ns since 1970.
    pub timestamps: Option<(i64, i64)>,
    /// Whether its preamble is valid.
    pub has_preamble: bool,
    /// Whether it has a valid index file.
    pub has_index: bool,
    /// Damage in it.
    pub damages: Vec<Damage>,
}

/// A whole log.
#[derive(Clone, Debug, Default)]
pub struct LogView {
    /// Segments, oldest first.
    pub segments: Vec<SegmentView>,
    /// Batches from the requested offset on, at most as many as requested.
    pub batches: Vec<BatchView>,
    /// (leader epoch, first offset), ascending, from the table on disk.
    pub epochs: Vec<(u64, u64)>,
    /// Number of idempotent producers in their snapshot, and the offset below which it is complete.
    pub producers: Option<(usize, u64)>,
    /// High watermark, log start, durable point, closed cleanly.
    pub checkpoint: Option<(u64, u64, u64, bool)>,
    /// Ranges known to be damaged.
    pub quarantine: Vec<Damage>,
    /// When the last whole scrub ended, ns since 1970; 0 = never.
    pub scrubbed: i64,
}

impl LogView {
    /// First offset after everything that the segments hold or have held.
    pub fn end(&self) -> u64 {
        let held = self.segments.last().map_or(0, |last| last.next_offset);
        let (_, log_start, durable, _) = self.checkpoint.unwrap_or_default();
        held.max(log_start).max(durable)
    }
}

/// Describes a log without changing it. Lists at most `most` batches that end after `from`.
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
    let sources = find_segment_files(storage, directory, OpenMode::Read)?;
    let known = quarantine::read(storage, directory, identity);
    let last = checkpoint::peek(storage, directory, identity).and_then(|slots| slots.last);
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
    let mut rest = sources.as_slice();
    while let Some((source, following)) = rest.split_first() {
        rest = following;
        let durable = last.map_or(0, |last| last.durable);
        let bytes = disk::read(storage, &source.path.with_extension("idx")).unwrap_or_default();
        let described = index::read(&bytes, identity, source.base_offset);
        let index_end = described.as_ref().map(|(summary, _)| summary.next_offset);
        let index = described.as_ref().map(|(_, index)| index);
        let start = LogPosition::first(source.base_offset);
        let mut scan = SegmentScan::of_file(source, following, identity, start, index, durable);
        let limit = following.first().map_or(u64::MAX, |next| next.base_offset);
        let mut segment = SegmentView {
            path: source.path.clone(),
            base_offset: source.base_offset,
            bytes: source.len,
            has_preamble: source.preamble.is_some(),
            has_index: index.is_some(),
            ..SegmentView::default()
        };
        let checked = check_segment(
            &mut scan,
            &source.path,
            limit,
            index_end,
            &mut |at, header| {
                segment.add(header);
                if header.next_offset() > from && view.batches.len() < most {
                    view.batches.push(BatchView {
                        position: at.position,
                        header: *header,
                    });
                }
                Ok(())
            },
        )
        .map_err(|error| Error::io(IoOp::Read, &source.path, error))?;
        (segment.next_offset, segment.end) = (scan.place.offset, scan.place.position);
        segment.damages = checked.damages;
        view.segments.push(segment);
    }
    Ok(view)
}

impl SegmentView {
    fn add(&mut self, header: &Header) {
        self.batches += 1;
        self.records += u64::from(header.count);
        let first = self
            .timestamps
            .map_or(header.base_timestamp, |(first, _)| first);
        self.timestamps = Some((first, header.max_timestamp));
    }
}
