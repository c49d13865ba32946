//! Offsets by time. Timestamps never decrease within a partition, so one search serves both directions.
use crate::cursor::Cursor;
use crate::segment::NO_TIME;
use crate::shared::Shared;
use crate::{ReadError, ReadMode};
use bascule_record::crypt::KeyRing;
use bascule_record::{Batch, Batches};
use bytes::Bytes;
use std::sync::Arc;

/// Bytes read at a time: about one index interval.
const STEP: usize = 64 << 10;

/// First committed offset whose timestamp is ≥ `timestamp`.
pub(crate) fn first_at_or_after(
    shared: &Arc<Shared>,
    timestamp: i64,
) -> Result<Option<u64>, ReadError> {
    let segments = shared.segments();
    // A segment without records, such as one just rolled, decides nothing.
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
            let offset = bytes.map_or(Ok(None), |bytes| first_in(&bytes, timestamp, &keys))?;
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
    Ok(end
        .checked_sub(1)
        .filter(|offset| *offset >= shared.log_start()))
}

/// First offset of the batch whose timestamp is ≥ `timestamp`.
fn first_in(bytes: &Bytes, timestamp: i64, keys: &KeyRing) -> Result<Option<u64>, ReadError> {
    let Ok(header) = bascule_record::Header::read(bytes) else {
        return Ok(None);
    };
    if header.max_timestamp < timestamp {
        return Ok(None);
    }
    let (start, end) = (header.base_offset, header.next_offset());
    let batch = Batch::open(bytes, keys).map_err(|error| match error {
        source if source.is_locked() => ReadError::Locked { start, end, source },
        _ => ReadError::Damaged { start, end },
    })?;
    let (mut low, mut high) = (0, batch.len());
    while low < high {
        let middle = low.midpoint(high);
        if batch.timestamp(middle) < timestamp {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok((low < batch.len()).then(|| batch.offset(low)))
}
