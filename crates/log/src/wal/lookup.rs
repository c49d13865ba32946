//! What one file of the WAL says about the batches of a log.
use super::extent::ExpectedExtent;
use super::pending::{ChunkKind, ReplayChunk};
use super::replay::{of_file, read_file};
use crate::io::disk::SyncFile;
use crate::segment::scan::LogPosition;
use crate::{Error, LogId};
use bascule_record::Header;
use bytes::Bytes;
use std::sync::Arc;

/// What a file says about a batch.
pub(crate) enum Lookup {
    /// It has it.
    Found(Header, Bytes),
    /// An older file may have it.
    Absent,
    /// The log was cut before it, or this is unknown: older frames are not to be trusted.
    Ended,
}

/// Searches a file whose synced frames end at `synced` for the batch at `place`, from the newest frame back.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn find(
    file: &Arc<SyncFile>,
    synced: u64,
    log: LogId,
    place: &LogPosition,
) -> Result<Lookup, Error> {
    let read = read_file(&of_file(file)?, ExpectedExtent::default())?;
    let unknown_to = read.unknown_to(synced);
    let ours = |(of, chunk): &&(LogId, ReplayChunk)| {
        let is_synced = chunk.position < synced && Some(chunk.position) > unknown_to;
        *of == log && is_synced && chunk.start <= place.offset
    };
    for (_, chunk) in read.chunks.iter().rev().filter(ours) {
        if chunk.kind == ChunkKind::Cut {
            return Ok(Lookup::Ended);
        }
        let found = chunk.batches()?.find(|(header, _)| place.fits(header, log));
        if let Some((header, batch)) = found {
            return Ok(Lookup::Found(header, batch));
        }
    }
    Ok(unknown_to.map_or(Lookup::Absent, |_| Lookup::Ended))
}

/// Returns whether a file whose synced frames end at `synced` has batches of the log from `offset` on, or may have.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn is_behind(
    file: &Arc<SyncFile>,
    synced: u64,
    log: LogId,
    offset: u64,
) -> Result<bool, Error> {
    let read = read_file(&of_file(file)?, ExpectedExtent::default())?;
    let mut chunks = read.chunks.iter();
    let is_there = chunks.any(|(of, chunk)| *of == log && chunk.end > offset);
    Ok(is_there || read.unknown_to(synced).is_some())
}
