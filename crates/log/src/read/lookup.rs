//! Offsets by time. Timestamps never decrease within a partition, so one search serves both directions.
use crate::io::file_names::segment_name;
use crate::read::cursor::Cursor;
use crate::segment::damage::{Damage, Fault};
use crate::segment::scan::LogPosition;
use crate::segment::segment_scan::{SegmentScan, Step};
use crate::segment::{NO_TIME, Segment};
use crate::state::shared::Shared;
use crate::{LogId, ReadError, ReadMode};
use bascule_record::crypt::KeyRing;
use bascule_record::{Batch, Batches, Header};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Bytes read at a time: about one index interval.
const STEP: usize = 64 << 10;

/// First committed offset whose timestamp is ≥ `timestamp`.
pub(crate) fn first_at_or_after(
    shared: &Arc<Shared>,
    timestamp: i64,
) -> Result<Option<u64>, ReadError> {
    let segments = shared.segments();
    // Segments without records, such as a new one, are skipped.
    let mut with_records = segments
        .iter()
        .filter(|segment| segment.last_timestamp() != NO_TIME);
    let Some(segment) = with_records.find(|segment| segment.last_timestamp() >= timestamp) else {
        return Ok(None);
    };
    let entry = segment.index().floor_time(timestamp);
    let start = entry.map_or(segment.base_offset, |entry| entry.offset);
    let keys = shared.keys();
    let mut cursor = Cursor::new(Arc::clone(shared), start);
    while let Some(bytes) = cursor.next(u64::MAX, STEP, ReadMode::Blocking)? {
        for bytes in Batches::new(bytes) {
            let offset =
                bytes.map_or(Ok(None), |bytes| first_in(shared, &bytes, timestamp, &keys))?;
            if let Some(offset) = offset {
                return Ok(Some(offset).filter(|offset| *offset < shared.high_watermark()));
            }
        }
    }
    Ok(None)
}

/// Last committed offset whose timestamp is ≤ `timestamp`.
pub(crate) fn last_at_or_before(
    shared: &Arc<Shared>,
    timestamp: i64,
) -> Result<Option<u64>, ReadError> {
    let after = match timestamp.checked_add(1) {
        Some(next) => first_at_or_after(shared, next)?,
        None => None,
    };
    let end = after.unwrap_or_else(|| shared.high_watermark());
    last_below(shared, end)
}

/// The identity of the record before an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Link of its batch, which commits to the whole history up to there.
    pub link: u32,
    /// Receipt time of the record, ns; `None` when compaction removed it or its key is missing.
    pub timestamp: Option<i64>,
}

/// The record before `offset`; `None` when it does not exist or is unknown. Damage there is recorded and counts as unknown:
/// reads from `offset` on do not depend on it.
pub(crate) fn before(shared: &Arc<Shared>, offset: u64) -> Result<Option<Predecessor>, ReadError> {
    match find_before(shared, offset) {
        Err(ReadError::Damaged(_)) => Ok(None),
        found => found,
    }
}

fn find_before(shared: &Arc<Shared>, offset: u64) -> Result<Option<Predecessor>, ReadError> {
    let Some(last) = offset.checked_sub(1) else {
        return Ok(None);
    };
    if last < shared.log_start() || offset > shared.high_watermark() {
        return Ok(None);
    }
    let mut cursor = Cursor::new(Arc::clone(shared), last);
    let Some(bytes) = cursor.next(offset, STEP, ReadMode::Blocking)? else {
        return Ok(None);
    };
    for bytes in Batches::new(bytes).flatten() {
        let Ok(header) = Header::read(&bytes) else {
            return Ok(None);
        };
        if header.base_offset <= last && last < header.next_offset() {
            return predecessor(shared, &bytes, &header, last);
        }
    }
    Ok(None)
}

/// The record at `last` of the batch of `header`.
fn predecessor(
    shared: &Arc<Shared>,
    bytes: &Bytes,
    header: &Header,
    last: u64,
) -> Result<Option<Predecessor>, ReadError> {
    let link = header.link();
    if header.count == 0 {
        // Compaction may have merged several batches: the link is that of the last of them.
        let is_end = header.next_offset() == last + 1;
        let timestamp = None;
        return Ok(is_end.then_some(Predecessor { link, timestamp }));
    }
    let timestamp = match open(shared, bytes, &shared.keys()) {
        Ok(batch) => {
            let at = batch.seek(last);
            (at < batch.len() && batch.offset(at) == last).then(|| batch.timestamp(at))
        }
        Err(ReadError::Locked { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(Some(Predecessor { link, timestamp }))
}

/// The last record below `end`, across the gaps that compaction left.
fn last_below(shared: &Arc<Shared>, end: u64) -> Result<Option<u64>, ReadError> {
    let mut end = end;
    let keys = shared.keys();
    while end > shared.log_start() {
        let segments = shared.segments();
        let after = segments.partition_point(|segment| segment.base_offset < end);
        let Some(segment) = after.checked_sub(1).and_then(|i| segments.get(i)) else {
            return Ok(None);
        };
        let entry = segment.index().floor(end - 1);
        let from = entry.map_or(segment.base_offset, |entry| entry.offset);
        let mut last = None;
        let mut cursor = Cursor::new(Arc::clone(shared), from);
        while let Some(bytes) = cursor.next(end, STEP, ReadMode::Blocking)? {
            for bytes in Batches::new(bytes).flatten() {
                last = last_in(shared, &bytes, end, &keys)?.or(last);
            }
        }
        let last = last.filter(|offset| *offset >= shared.log_start());
        if last.is_some() {
            return Ok(last);
        }
        end = from;
    }
    Ok(None)
}

/// Last offset of the batch below `end`.
fn last_in(
    shared: &Arc<Shared>,
    bytes: &Bytes,
    end: u64,
    keys: &KeyRing,
) -> Result<Option<u64>, ReadError> {
    let batch = open(shared, bytes, keys)?;
    Ok(batch.seek(end).checked_sub(1).map(|i| batch.offset(i)))
}

/// A checked view of a batch.
fn open(shared: &Arc<Shared>, bytes: &Bytes, keys: &KeyRing) -> Result<Batch, ReadError> {
    Batch::open(bytes, keys).map_err(|error| match (Header::read(bytes), error) {
        (Ok(header), source) if source.is_locked() => ReadError::Locked {
            start: header.base_offset,
            end: header.next_offset(),
            source,
        },
        (Ok(header), _) => whole_batch(shared, &header),
        // The cursor has checked the headers.
        (Err(error), _) => ReadError::io(
            &shared.directory,
            io::Error::new(io::ErrorKind::InvalidData, error),
        ),
    })
}

/// First offset of the batch, at or above `log_start`, whose timestamp is ≥ `timestamp`.
fn first_in(
    shared: &Arc<Shared>,
    bytes: &Bytes,
    timestamp: i64,
    keys: &KeyRing,
) -> Result<Option<u64>, ReadError> {
    let Ok(header) = Header::read(bytes) else {
        return Ok(None);
    };
    if header.max_timestamp < timestamp {
        return Ok(None);
    }
    let batch = open(shared, bytes, keys)?;
    let at = batch
        .seek_time(timestamp)
        .max(batch.seek(shared.log_start()));
    Ok((at < batch.len()).then(|| batch.offset(at)))
}

/// Records a damaged payload of a batch that was read, with its position in the files.
pub(crate) fn whole_batch(shared: &Arc<Shared>, header: &Header) -> ReadError {
    let (start, end) = (header.base_offset, header.next_offset());
    let segments = shared.segments();
    let after = segments.partition_point(|segment| segment.base_offset <= start);
    let segment = after.checked_sub(1).and_then(|i| segments.get(i));
    let damage = Damage {
        start,
        end,
        path: segment.map_or_else(
            || shared.directory.join(segment_name(start)),
            |segment| segment.path().to_path_buf(),
        ),
        position: segment
            .and_then(|segment| position_of(shared.identity, segment, start))
            .unwrap_or(0),
        fault: Fault::Payload,
    };
    shared.quarantine.note(&damage);
    ReadError::Damaged(Box::new(damage))
}

/// Position of the batch that begins at `offset`; `None` when its header is invalid.
fn position_of(identity: LogId, segment: &Arc<Segment>, offset: u64) -> Option<u64> {
    let file = segment.file().ok()?;
    let entry = segment.index().floor(offset);
    let start = entry.map_or(LogPosition::first(segment.base_offset), |entry| {
        LogPosition::at(entry.position, entry.offset)
    });
    let mut scan =
        SegmentScan::of_segment(segment, &*file.file, identity, start).payloads_from(u64::MAX);
    while scan.place.offset < offset {
        if let Step::Tail(_) = scan.next().ok()? {
            return None;
        }
    }
    (scan.place.offset == offset).then_some(scan.place.position)
}
