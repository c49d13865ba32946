//! Sequential reading of whole batches.
use crate::io::disk::{SyncFile, read_up_to};
use crate::io::file_names::segment_name;
use crate::io::window::is_media_error;
use crate::segment::Segment;
use crate::segment::damage::{Damage, Fault};
use crate::segment::scan::LogPosition;
use crate::segment::segment_scan::{SegmentScan, Step, Tail};
use crate::state::shared::Shared;
use crate::{ReadError, ReadMode};
use bascule_record::{HEADER_BYTES, Header};
use bytes::{Bytes, BytesMut};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Minimum bytes read while seeking the batch of an offset: one index interval.
const SEEK_BYTES: usize = 64 << 10;

/// A reading position. Keeps segment and file position, so sequential reads need no look-up.
#[derive(Debug)]
pub struct Cursor {
    shared: Arc<Shared>,
    offset: u64,
    at: Option<At>,
    /// File position where a batch was invalid and valid when read again. If it is invalid there once more, it is reported as
    /// damage.
    suspect_position: Option<u64>,
    /// The last returned buffer; reused once its reader has dropped it.
    spare: Option<Bytes>,
    /// Whether it reads up to the log end instead of the high watermark.
    is_of_replica: bool,
}

/// Position of the next batch. Its offset is at most that of the cursor.
#[derive(Clone, Debug)]
struct At {
    segment: Arc<Segment>,
    place: LogPosition,
}

/// The outcome of checking the batches in a buffer.
enum BufferScan {
    /// Batches in `[from, to)` of the buffer are to be returned.
    Batches { from: usize, to: usize },
    /// All batches in the buffer end at or before the cursor.
    Passed,
    /// The next batch needs that many bytes.
    Needs(usize),
    /// The next batch is not committed, or beyond the limit.
    Nothing,
    /// The bytes at the position are not the expected batch.
    Damage,
}

/// The batch at a position, from the WAL.
enum WalRead {
    /// The batch, to be returned.
    Batch(Bytes),
    /// It ends at or before the cursor.
    Passed,
    /// It is not committed, or beyond the limit.
    Nothing,
    /// The WAL does not have it.
    Missing,
}

impl Cursor {
    pub(crate) fn new(shared: Arc<Shared>, offset: u64) -> Self {
        Self {
            shared,
            offset,
            at: None,
            suspect_position: None,
            spare: None,
            is_of_replica: false,
        }
    }

    /// One that reads up to the log end, committed or not.
    pub(crate) fn to_log_end(shared: Arc<Shared>, offset: u64) -> Self {
        Self {
            is_of_replica: true,
            ..Self::new(shared, offset)
        }
    }

    /// Next offset this cursor will return.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves forward to `offset` without reading; never back.
    pub fn skip_to(&mut self, offset: u64) {
        if offset > self.offset {
            self.offset = offset;
            self.at = None;
        }
    }

    /// Returns the next whole batches whose base offset is below `until` (exclusive; capped at the high watermark): at least
    /// one batch, and further ones as long as all together have at most `max_bytes`. `None`: there is none yet.
    ///
    /// The first batch may also contain records before [`Cursor::offset`] as it was before the call: callers skip them with
    /// `Batch::seek`. If retention removed the position, reading continues at the log start.
    ///
    /// # Errors
    /// See [`ReadError`]. After `WouldBlock` and `Damaged` the cursor has not moved; [`Cursor::skip_to`] the end of a damaged range
    /// to continue.
    pub fn next(
        &mut self,
        until: u64,
        max_bytes: usize,
        mode: ReadMode,
    ) -> Result<Option<Bytes>, ReadError> {
        if self.shared.is_closed() {
            return Err(ReadError::Closed);
        }
        let committed = self.readable_end();
        let limit = until.min(committed);
        let mut wanted = max_bytes;
        loop {
            self.clamp_to_log_start();
            if self.offset >= limit {
                self.spare = None;
                return Ok(None);
            }
            let Some(at) = self.locate()? else {
                continue;
            };
            let Some((buffer, complete)) = self.fill(&at, wanted, mode)? else {
                continue;
            };
            match self.scan_buffer(&at, &buffer, limit, committed, max_bytes) {
                BufferScan::Batches { from, to } => {
                    let bytes = buffer.freeze();
                    self.spare = Some(bytes.clone());
                    return Ok(Some(bytes.slice(from..to)));
                }
                BufferScan::Passed => wanted = max_bytes,
                BufferScan::Nothing => return Ok(None),
                BufferScan::Needs(bytes) if complete => wanted = bytes,
                // Fewer bytes than the segment should have: not cached, or the file lost its end.
                BufferScan::Needs(_) | BufferScan::Damage if mode == ReadMode::NoWait => {
                    return Err(ReadError::WouldBlock);
                }
                BufferScan::Needs(_) | BufferScan::Damage => {
                    match self.read_from_wal(limit, committed) {
                        WalRead::Batch(batch) => return Ok(Some(batch)),
                        WalRead::Passed => {}
                        WalRead::Nothing => return Ok(None),
                        WalRead::Missing => self.skip_damage()?,
                    }
                }
            }
        }
    }

    /// End of what this cursor may read.
    fn readable_end(&self) -> u64 {
        if self.is_of_replica {
            self.shared.log_end()
        } else {
            self.shared.high_watermark()
        }
    }

    fn clamp_to_log_start(&mut self) {
        let start = self.shared.log_start();
        if self.offset < start {
            self.offset = start;
            self.at = None;
        }
    }

    /// Where to read. `None`: the state has changed, try again.
    fn locate(&mut self) -> Result<Option<At>, ReadError> {
        if let Some(at) = &self.at
            && at.place.position < at.segment.end()
        {
            return Ok(Some(at.clone()));
        }
        let segments = self.shared.segments();
        let after = segments.partition_point(|segment| segment.base_offset <= self.offset);
        let Some(segment) = after.checked_sub(1).and_then(|i| segments.get(i)) else {
            let wanted = self.offset;
            self.clamp_to_log_start();
            if self.offset == wanted {
                let first = segments.first().map_or(u64::MAX, |first| first.base_offset);
                return Err(self.missing(wanted, first));
            }
            // Retention has moved the log start meanwhile.
            return Ok(None);
        };
        let next_base = segments
            .get(after)
            .map_or(u64::MAX, |next| next.base_offset);
        let before = self.at.take();
        // Not of one that compaction has replaced: the new one may go further.
        if let Some(at) = &before
            && Arc::ptr_eq(&at.segment, segment)
        {
            return self.segment_ends_early(at, next_base);
        }
        let entry = segment.index().floor(self.offset);
        let place = LogPosition {
            position: entry.map_or(crate::segment::preamble::PREAMBLE_BYTES, |entry| {
                entry.position
            }),
            offset: entry.map_or(segment.base_offset, |entry| entry.offset),
            chain: segment.first_chain(
                before
                    .filter(|at| at.place.offset == segment.base_offset)
                    .and_then(|at| at.place.chain),
            ),
            epoch: 0,
            previous_batch: None,
        };
        let at = At {
            segment: Arc::clone(segment),
            place,
        };
        if place.position >= at.segment.end() {
            return self.segment_ends_early(&at, next_base);
        }
        self.at = Some(at.clone());
        Ok(Some(at))
    }

    /// The segment has no more batches although the offset is committed: the rest of the segment is lost.
    fn segment_ends_early(&self, at: &At, next_base: u64) -> Result<Option<At>, ReadError> {
        let end = if next_base == u64::MAX {
            self.shared.log_end()
        } else {
            next_base
        };
        Err(self.damaged(Damage {
            start: at.place.offset,
            end,
            path: at.segment.path().to_path_buf(),
            position: at.place.position,
            fault: Fault::Short,
        }))
    }

    /// The file that should hold the offsets [start, end) is missing.
    fn missing(&self, start: u64, end: u64) -> ReadError {
        let name = segment_name(start);
        self.damaged(Damage {
            start,
            end,
            path: self.shared.directory.join(name),
            position: 0,
            fault: Fault::Missing,
        })
    }

    fn damaged(&self, damage: Damage) -> ReadError {
        self.shared.quarantine.note(&damage);
        ReadError::Damaged(Box::new(damage))
    }

    /// Reads from the position. Returns the bytes and whether the read was complete; `None` when the segment was removed meanwhile.
    fn fill(
        &mut self,
        at: &At,
        wanted: usize,
        mode: ReadMode,
    ) -> Result<Option<(BytesMut, bool)>, ReadError> {
        let file = match at.segment.file() {
            Ok(file) => file,
            Err(_) if self.shared.is_closed() => return Err(ReadError::Closed),
            Err(_) if !self.shared.holds(&at.segment) => {
                // Compaction has replaced it: try again.
                self.at = None;
                return Ok(None);
            }
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound
                    && self.shared.log_start() > self.offset =>
            {
                return Ok(None);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let (start, end) = (at.place.offset, self.limit_of(&at.segment));
                return Err(self.damaged(Damage {
                    start,
                    end,
                    path: at.segment.path().to_path_buf(),
                    position: 0,
                    fault: Fault::Missing,
                }));
            }
            Err(error) => return Err(ReadError::io(at.segment.path(), error)),
        };
        let least = if at.place.offset < self.offset {
            SEEK_BYTES
        } else {
            HEADER_BYTES
        };
        let available = usize::try_from(at.segment.end() - at.place.position).unwrap_or(usize::MAX);
        let mut buffer = self.buffer(wanted.max(least).min(available));
        let read = match mode {
            ReadMode::NoWait => read_cached(&file, &mut buffer, at.place.position)?,
            ReadMode::Blocking => read_until_media_error(&file, &mut buffer, at.place.position)?,
        };
        let complete = read == buffer.len();
        buffer.truncate(read);
        Ok(Some((buffer, complete)))
    }

    /// An initialised buffer of `len` bytes: the last one if it is free and of about that size.
    fn buffer(&mut self, len: usize) -> BytesMut {
        if let Some(spare) = self.spare.take()
            && (len..=len.saturating_mul(2)).contains(&spare.len())
            && let Ok(mut buffer) = spare.try_into_mut()
        {
            buffer.truncate(len);
            return buffer;
        }
        BytesMut::zeroed(len)
    }

    /// Checks the headers in the buffer, which begins at the position, and moves the cursor over valid batches.
    fn scan_buffer(
        &mut self,
        at: &At,
        buffer: &BytesMut,
        limit: u64,
        committed: u64,
        max_bytes: usize,
    ) -> BufferScan {
        let mut place = at.place;
        let (mut from, mut to) = (0, 0);
        let outcome = loop {
            if to > from && to - from >= max_bytes || place.position >= at.segment.end() {
                break BufferScan::Passed;
            }
            if place.position + HEADER_BYTES as u64 > at.segment.end() {
                break BufferScan::Damage;
            }
            let rest = buffer.get(to..).unwrap_or_default();
            let Some(head) = rest.get(..HEADER_BYTES) else {
                break BufferScan::Needs(HEADER_BYTES);
            };
            let header = match Header::read(head) {
                Ok(header) if place.fits(&header, self.shared.identity) => header,
                _ => break BufferScan::Damage,
            };
            let size = header.batch_bytes();
            if place.position + size as u64 > at.segment.end() {
                break BufferScan::Damage;
            }
            if header.base_offset >= limit || header.next_offset() > committed {
                break BufferScan::Nothing;
            }
            if rest.len() < size {
                break BufferScan::Needs(size);
            }
            if to > from && to - from + size > max_bytes {
                break BufferScan::Passed;
            }
            to += size;
            place = place.after(&header);
            if place.offset <= self.offset {
                from = to;
            }
        };
        // Passed batches need no second check, whatever follows.
        self.at = Some(At {
            segment: Arc::clone(&at.segment),
            place,
        });
        if to > from {
            self.offset = place.offset;
            return BufferScan::Batches { from, to };
        }
        outcome
    }

    /// Reads the batch at the position from the WAL: between the segment-synced and the durable end the segment may show the rest
    /// of a failed write.
    fn read_from_wal(&mut self, limit: u64, committed: u64) -> WalRead {
        let Some(At { segment, place }) = self.at.clone() else {
            return WalRead::Missing;
        };
        let Some((header, batch)) = self.shared.find_in_wal(&place) else {
            return WalRead::Missing;
        };
        if header.base_offset >= limit || header.next_offset() > committed {
            return WalRead::Nothing;
        }
        let place = place.after(&header);
        self.at = Some(At { segment, place });
        if place.offset <= self.offset {
            return WalRead::Passed;
        }
        self.offset = place.offset;
        WalRead::Batch(batch)
    }

    /// Moves to the next valid batch after the damage at the position. Damage that ends at or before the cursor is not reported.
    fn skip_damage(&mut self) -> Result<(), ReadError> {
        let Some(At { segment, place }) = self.at.take() else {
            return Ok(());
        };
        let file = match segment.file() {
            Ok(file) => file,
            Err(_) if self.shared.is_closed() => return Err(ReadError::Closed),
            // Compaction has replaced it: try again.
            Err(_) if !self.shared.holds(&segment) => return Ok(()),
            Err(source) => return Err(ReadError::io(segment.path(), source)),
        };
        let failed = |source| ReadError::io(&file.path, source);
        let identity = self.shared.identity;
        let mut scan = SegmentScan::of_segment(&segment, &*file.file, identity, place);
        let (fault, resumed) = match scan.next().map_err(failed)? {
            Step::Batch(..) if self.suspect_position != Some(place.position) => {
                // The second read succeeded: a transient fault of the disk.
                self.suspect_position = Some(place.position);
                self.at = Some(At { segment, place });
                return Ok(());
            }
            Step::Batch(..) => (Fault::Unreadable, Some(scan.place)),
            Step::Gap(gap) => (gap.fault, Some(scan.place)),
            Step::Tail(Tail::Lost(fault)) => (fault, None),
            // A newer version wrote it: unsupported, but not damaged.
            Step::Tail(Tail::Newer(error)) => {
                return Err(failed(io::Error::new(ErrorKind::Unsupported, error)));
            }
            Step::Tail(_) => (Fault::Short, None),
        };
        let limit = self.limit_of(&segment);
        let end = resumed.map_or(limit, |resumed| resumed.offset);
        if end > self.offset {
            return Err(self.damaged(Damage {
                start: place.offset,
                end,
                path: segment.path().to_path_buf(),
                position: place.position,
                fault,
            }));
        }
        self.at = resumed.map(|place| At { segment, place });
        Ok(())
    }

    /// First offset after the segment.
    fn limit_of(&self, segment: &Segment) -> u64 {
        let segments = self.shared.segments();
        let after = segments.partition_point(|other| other.base_offset <= segment.base_offset);
        segments
            .get(after)
            .map_or_else(|| self.shared.log_end(), |next| next.base_offset)
    }
}

/// Fills the buffer up to the first page that the disk cannot read. Returns the number of bytes read.
fn read_until_media_error(
    file: &SyncFile,
    buffer: &mut BytesMut,
    position: u64,
) -> Result<usize, ReadError> {
    const PAGE: u64 = 4096;
    match read_up_to(&*file.file, buffer, position) {
        Err(error) if is_media_error(&error) => {}
        other => return other.map_err(|source| ReadError::io(&file.path, source)),
    }
    let mut done = 0;
    while done < buffer.len() {
        let at = position + done as u64;
        let step = ((at / PAGE + 1) * PAGE - at) as usize;
        let end = (done + step).min(buffer.len());
        let page = buffer.get_mut(done..end).unwrap_or_default();
        match read_up_to(&*file.file, page, at) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if is_media_error(&error) => break,
            Err(error) => return Err(ReadError::io(&file.path, error)),
        }
    }
    Ok(done)
}

/// Reads from the page cache.
fn read_cached(file: &SyncFile, buffer: &mut BytesMut, position: u64) -> Result<usize, ReadError> {
    loop {
        match file.file.read_cached_at(buffer, position) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Media errors are handled by blocking reads.
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_media_error(&error) => {
                return Err(ReadError::WouldBlock);
            }
            Err(error) => return Err(ReadError::io(&file.path, error)),
        }
    }
}
