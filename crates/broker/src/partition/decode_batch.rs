//! Decodes the batches that a cursor reads: decrypts them, and reports damaged ones to the log.
use bascule_log::{LogReader, ReadError};
use bascule_record::{Batch, DamageError, Header};
use bytes::Bytes;
use std::io;
use std::path::PathBuf;

/// Decodes one batch.
///
/// # Errors
/// [`ReadError::Locked`], [`ReadError::Damaged`]; [`ReadError::Io`] for bytes that are not a batch, which a cursor never returns.
pub(crate) fn decode_batch(
    reader: &LogReader,
    bytes: Result<Bytes, DamageError>,
) -> Result<Batch, ReadError> {
    let bytes = bytes.map_err(|error| not_a_batch(&error))?;
    reader
        .open(&bytes)
        .map_err(|error| match Header::read(&bytes) {
            Ok(header) if error.is_locked() => ReadError::Locked {
                start: header.base_offset,
                end: header.next_offset(),
                source: error,
            },
            Ok(header) => reader.damaged(&header),
            Err(_) => not_a_batch(&error),
        })
}

fn not_a_batch(error: &DamageError) -> ReadError {
    ReadError::Io {
        path: PathBuf::new(),
        source: io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    }
}
