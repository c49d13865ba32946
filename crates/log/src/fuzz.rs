//! Access for the fuzz targets (`crates/fuzz`) to private parsers of file bytes.
use crate::io::fields::{u32_at, u64_at};
use crate::segment::epochs;
use crate::segment::index;
use crate::segment::preamble::Preamble;
use crate::state::checkpoint;
use crate::state::producers::Producers;
use crate::{LogId, wal};

/// An `.idx` file: next offset and number of entries.
pub fn index(bytes: &[u8], identity: LogId, base_offset: u64) -> Option<(u64, usize)> {
    let (summary, entries) = index::read(bytes, identity, base_offset)?;
    let _ = entries.floor(summary.next_offset);
    let _ = entries.floor_time(summary.last_timestamp);
    Some((summary.next_offset, entries.len()))
}

/// A slot of a checkpoint: whether it counts.
pub fn checkpoint_slot(bytes: &[u8], identity: LogId) -> bool {
    checkpoint::parse_slot(bytes, identity).is_some()
}

/// A slot of the WAL's manifest: whether it is valid.
pub fn wal_manifest(bytes: &[u8]) -> bool {
    let parsed = wal::manifest::parse_slot(bytes);
    parsed.is_some_and(|(_, state)| state.needs(state.first_needed))
}

/// The first bytes of a WAL file: whether they are valid.
pub fn wal_preamble(bytes: &[u8]) -> bool {
    wal::format::read_preamble(bytes).is_some()
}

/// An end marker of a WAL file, under the log number that it names: whether it is valid.
pub fn wal_end_marker(bytes: &[u8]) -> bool {
    let preamble = wal::format::Preamble {
        number: u64_at(bytes, 0).unwrap_or_default(),
        link: u32_at(bytes, 8).unwrap_or_default(),
        ..Default::default()
    };
    wal::end_marker::EndMarker::read(bytes, &preamble).is_some()
}

/// The entries of an `epochs` file.
pub fn epochs(bytes: &[u8], identity: LogId) -> Vec<(u64, u64)> {
    epochs::parse(bytes, identity)
}

/// A preamble: whether it counts.
pub fn preamble(bytes: &[u8]) -> bool {
    Preamble::read(bytes).is_some()
}

/// A `producers` file, read and written again.
pub fn producers(bytes: &[u8], identity: LogId) -> Option<Vec<u8>> {
    let (producers, offset) = Producers::read(bytes, identity)?;
    Some(producers.to_bytes(identity, offset))
}
