//! The one way through the batches of a segment that is not being written: for recovery, verification, scrubs, repair and
//! readers that met damage.
use crate::LogId;
use crate::io::storage::StorageFile;
use crate::segment::Segment;
use crate::segment::damage::Fault;
use crate::segment::index::SparseIndex;
use crate::segment::resync::{ScanHints, SegmentBounds};
use crate::segment::scan::{Found, LogPosition, Scanner};
use crate::segment::segment_file::{SegmentFile, is_vacant};
use bascule_record::{DamageError, Header};
use std::collections::HashSet;
use std::io;

/// One step of a scan.
#[derive(Debug)]
pub(crate) enum Step {
    /// A valid batch, and where it begins.
    Batch(LogPosition, Header),
    /// Damage. The scan continues after it.
    Gap(Gap),
    /// No batch follows. The scan stays where the last one ends.
    Tail(Tail),
}

/// Bytes that cannot be served, between two batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// Where a batch was expected.
    pub at: LogPosition,
    /// Offset of the next batch. It may be below that of `at`, when the header of the batch before was a copy from elsewhere.
    pub end: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What follows the last batch.
#[derive(Debug)]
pub(crate) enum Tail {
    /// A later segment continues here.
    Next,
    /// Zeros or the end of the file, at or above the durable point.
    Clean,
    /// An invalid batch at or above the durable point.
    Torn,
    /// Bytes at or above the durable point that the disk cannot read.
    Unreadable(io::Error),
    /// Damage below the durable point. Nothing after it can be served.
    Lost(Fault),
    /// A batch that needs a newer version.
    Newer(DamageError),
}

/// A scan of one segment.
pub(crate) struct SegmentScan<'a> {
    scanner: Scanner<'a>,
    /// Where the next batch begins.
    pub place: LogPosition,
    hints: ScanHints<'a>,
    /// The segments after this one.
    following: &'a [SegmentFile],
    /// Below this offset only headers are checked.
    payloads_from: u64,
    /// Batches that the WAL holds: base offset and chain value.
    in_wal: Option<&'a HashSet<(u64, u32)>>,
}

impl<'a> SegmentScan<'a> {
    /// A scan of a file, from `place` on, that checks headers and payloads. An invalid batch below `durable` is damage, any other
    /// one the tail.
    pub fn of_file(
        source: &'a SegmentFile,
        following: &'a [SegmentFile],
        identity: LogId,
        place: LogPosition,
        index: Option<&'a SparseIndex>,
        durable: u64,
    ) -> Self {
        Self {
            scanner: Scanner::new(&*source.file, source.len, identity),
            place,
            hints: ScanHints {
                index,
                end: SegmentBounds::before(following.first()),
                durable,
            },
            following,
            payloads_from: 0,
            in_wal: None,
        }
    }

    /// A scan of a segment of an open log, through `file`. Every invalid batch is damage.
    pub fn of_segment(
        segment: &'a Segment,
        file: &'a dyn StorageFile,
        identity: LogId,
        place: LogPosition,
    ) -> Self {
        Self {
            scanner: Scanner::new(file, segment.end(), identity),
            place,
            hints: segment.hints(),
            following: &[],
            payloads_from: 0,
            in_wal: None,
        }
    }

    /// Checks payloads from `offset` on only; `u64::MAX`: none.
    pub fn payloads_from(mut self, offset: u64) -> Self {
        self.payloads_from = offset;
        self
    }

    /// Treats an invalid batch as the tail where one of these belongs. Then no ack relied on the bytes there or in a later
    /// segment: each round after a roll also syncs the sealed segment before it is acknowledged.
    pub fn with_wal(mut self, batches: Option<&'a HashSet<(u64, u32)>>) -> Self {
        self.in_wal = batches;
        self
    }

    /// Everything below was acknowledged; lower after an invalid batch that the WAL holds.
    pub fn durable(&self) -> u64 {
        self.hints.durable
    }

    /// Length of what is scanned, bytes.
    pub fn len(&self) -> u64 {
        self.scanner.window.len
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.scanner.window.bytes_read
    }

    /// Drops what is cached of the file from the next batch on, here and in the page cache: later reads see the disk.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn forget_cached(&mut self) -> io::Result<()> {
        self.scanner.window.forget(self.place.position)
    }

    /// The next step.
    ///
    /// # Errors
    /// Those of the storage, except media errors: these are [`Fault::Unreadable`].
    pub fn next(&mut self) -> io::Result<Step> {
        let at = self.place;
        let found = self.scanner.check(&at, at.offset >= self.payloads_from)?;
        self.step(at, found)
    }

    /// The step at `at` instead of the batch there, which is a copy from elsewhere.
    ///
    /// # Errors
    /// As [`SegmentScan::next`].
    pub fn reject(&mut self, at: LogPosition) -> io::Result<Step> {
        self.step(at, Found::Damage(Fault::Misplaced))
    }

    fn step(&mut self, at: LogPosition, found: Found) -> io::Result<Step> {
        self.place = at;
        let (fault, resumed) = match found {
            Found::Batch(header) => {
                self.place = at.after(&header);
                return Ok(Step::Batch(at, header));
            }
            Found::Unsupported(error) => return Ok(Step::Tail(Tail::Newer(error))),
            Found::End => (Fault::Short, None),
            Found::Damage(fault) => (fault, None),
            Found::Payload(header, fault) => {
                let after = at.after(&header);
                (
                    fault,
                    Some(after).filter(|after| after.position <= self.len()),
                )
            }
        };
        if self.continues_in_next(&at, &found)? {
            return Ok(Step::Tail(Tail::Next));
        }
        let wal = self.in_wal.zip(at.chain);
        if wal.is_some_and(|(wal, chain)| wal.contains(&(at.offset, chain))) {
            self.hints.durable = self.durable().min(at.offset);
        }
        if at.offset >= self.durable() {
            let unreadable = self.scanner.unreadable.take();
            return Ok(Step::Tail(match unreadable {
                Some(error) if fault == Fault::Unreadable => Tail::Unreadable(error),
                _ if matches!(found, Found::End) => Tail::Clean,
                _ => Tail::Torn,
            }));
        }
        let resumed = match resumed {
            None => self.resume_after(&at)?,
            after => after,
        };
        let Some(place) = resumed else {
            return Ok(Step::Tail(Tail::Lost(fault)));
        };
        self.place = place;
        let end = place.offset;
        Ok(Step::Gap(Gap { at, end, fault }))
    }

    /// Returns whether a later segment begins at the offset. One without a batch does not prove it where something else than the
    /// end of the batches was found below the durable point.
    fn continues_in_next(&self, at: &LogPosition, found: &Found) -> io::Result<bool> {
        let next = self
            .following
            .iter()
            .find(|next| next.base_offset == at.offset);
        let Some(next) = next else {
            return Ok(false);
        };
        let ends = matches!(found, Found::End) || at.offset >= self.durable();
        Ok(ends || !is_vacant(next)?)
    }

    /// As [`Scanner::resume_after`]. If nothing follows the damage before the next segment, and that one is vacant, it may be the
    /// rest of a roll without space: then the batches of this segment continue beyond its offset.
    fn resume_after(&mut self, at: &LogPosition) -> io::Result<Option<LogPosition>> {
        let resumed = self.scanner.resume_after(at, &self.hints)?;
        if resumed.is_some() {
            return Ok(resumed);
        }
        let mut rest = self.following;
        while let Some((next, behind)) = rest.split_first()
            && is_vacant(next)?
        {
            rest = behind;
        }
        if rest.len() == self.following.len() {
            return Ok(None);
        }
        let hints = ScanHints {
            end: SegmentBounds::before(rest.first()),
            ..self.hints
        };
        self.scanner.resume_after(at, &hints)
    }
}
