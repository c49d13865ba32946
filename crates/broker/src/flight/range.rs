//! Positions in words and times become offsets.
use super::request::{End, Start};
use bascule_log::{LogReader, ReadError};
use std::ops::Range;

/// The offsets of a bounded scan, at this moment. `start ≤ end`. May wait for the disk when times are named.
///
/// # Errors
/// [`ReadError::OutOfRange`] when a named offset lies below the log start or beyond the high watermark.
pub fn resolve(reader: &LogReader, start: Start, end: End) -> Result<Range<u64>, ReadError> {
    let high_watermark = reader.high_watermark();
    let start = resolve_start(reader, start, high_watermark)?;
    let end = resolve_end(reader, end, high_watermark)?;
    Ok(start..end.max(start))
}

/// The first offset of a scan, given the high watermark of the moment.
///
/// # Errors
/// See [`resolve`].
pub fn resolve_start(
    reader: &LogReader,
    start: Start,
    high_watermark: u64,
) -> Result<u64, ReadError> {
    let log_start = reader.log_start();
    match start {
        Start::Earliest => Ok(log_start),
        Start::Latest => Ok(high_watermark),
        Start::Last(count) => Ok(high_watermark.saturating_sub(count).max(log_start)),
        Start::Time(time) => Ok(reader
            .offset_at_or_after(time)?
            .unwrap_or(high_watermark)
            .min(high_watermark)),
        Start::Offset(offset) => checked(reader, offset, high_watermark),
    }
}

/// The exclusive end of a bounded scan, given the high watermark of the moment.
///
/// # Errors
/// See [`resolve`]; an end below the log start gives an empty scan.
pub fn resolve_end(reader: &LogReader, end: End, high_watermark: u64) -> Result<u64, ReadError> {
    match end {
        End::Open | End::Latest => Ok(high_watermark),
        End::Time(time) => Ok(reader
            .offset_at_or_after(time)?
            .unwrap_or(high_watermark)
            .min(high_watermark)),
        End::Offset(offset) if offset > high_watermark => checked(reader, offset, high_watermark),
        End::Offset(offset) => Ok(offset),
    }
}

fn checked(reader: &LogReader, offset: u64, high_watermark: u64) -> Result<u64, ReadError> {
    let start = reader.log_start();
    if offset < start || offset > high_watermark {
        return Err(ReadError::OutOfRange {
            offset,
            start,
            end: high_watermark,
        });
    }
    Ok(offset)
}
