//! Committed batches out of a log.
use super::message::{Answered, MOST_BYTES, Start};
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::{Batches, DamageError, Header};
use bytes::BytesMut;

/// Bytes asked of the log at once.
const READ_BYTES: usize = 512 << 10;

/// The offset at which a read of `count` records begins. Waits for the disk where a time is asked for: not for async tasks.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn first_offset(reader: &LogReader, start: Start, count: u32) -> Result<u64, ReadError> {
    let end = reader.high_watermark();
    let first = match start {
        Start::Offset(offset) => offset,
        Start::First => 0,
        Start::Last => end.saturating_sub(count.into()),
        Start::Time(nanos) => reader.offset_at_or_after(nanos)?.unwrap_or(end),
    };
    Ok(first.max(reader.log_start()))
}

/// The answer to a read. Waits for the disk: not for async tasks.
///
/// # Errors
/// The log cannot be read.
pub(super) fn read(
    reader: &LogReader,
    start: Start,
    count: u32,
    bytes: u32,
) -> Result<Answered, ReadError> {
    let first = first_offset(reader, start, count)?;
    let end = reader.high_watermark();
    let most = bytes.min(MOST_BYTES) as usize;
    // Records at or behind `first`, at least: of a batch that begins before it nobody has counted them.
    let (mut found, mut records) = (BytesMut::new(), 0);
    let mut cursor = reader.cursor(first);
    'log: while records < u64::from(count) && found.len() < most {
        let left = READ_BYTES.min(most - found.len());
        let Some(read) = cursor.next(end, left, ReadMode::Blocking)? else {
            break;
        };
        for batch in Batches::new(read) {
            let batch = batch.map_err(|error| damaged(&error))?;
            let is_full = !found.is_empty() && found.len() + batch.len() > most;
            if records >= u64::from(count) || is_full {
                break 'log;
            }
            let header = Header::read(&batch).map_err(|error| damaged(&error))?;
            if header.base_offset >= first {
                records += u64::from(header.count);
            }
            if found.is_empty() && batch.len() > most {
                // It is the whole answer, and is not copied.
                return Ok(Answered::Read {
                    start: first,
                    end,
                    batches: batch,
                });
            }
            found.extend_from_slice(&batch);
        }
    }
    Ok(Answered::Read {
        start: first,
        end,
        batches: found.freeze(),
    })
}

fn damaged(error: &DamageError) -> ReadError {
    ReadError::Io {
        path: std::path::PathBuf::new(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()),
    }
}
