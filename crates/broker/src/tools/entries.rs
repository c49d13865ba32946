//! The metadata of a data directory that no broker uses: snapshot and entries, as the control plane replays them.
use super::place::Target;
use crate::engine::error::EngineError;
use crate::metadata;
use bascule_log::integrity::{self, BatchView, LogView, SegmentView};
use bascule_log::{LogId, OsStorage};
use bascule_record::Batch;
use bytes::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The metadata log's identity.
const IDENTITY: LogId = LogId {
    incarnation: 1,
    partition: 0,
};

/// The readable part of the metadata.
#[derive(Debug, Default)]
pub struct Metadata {
    /// Index of the last entry that the snapshot covers; 0 = no snapshot.
    pub index: u64,
    /// The snapshot's state.
    pub state: Vec<u8>,
    /// The entries after the snapshot, in order, without a gap.
    pub entries: Vec<Bytes>,
    /// Why later entries are missing; empty when all were read.
    pub problem: String,
}

/// Reads the metadata of the data directory that `path` is or lies in. Damage is not an error: what lies before it is
/// returned, with the problem.
///
/// # Errors
/// `data_directory_locked` while a broker runs on it; `not_found` when `path` is neither.
pub fn read_metadata(path: &Path) -> Result<Metadata, EngineError> {
    let target = Target::open(path)?;
    let directory = target.root_of_data().join("metadata");
    let mut found = Metadata::default();
    if !directory.join("log").is_dir() {
        found.problem = format!("there is no metadata log in {}", directory.display());
        return Ok(found);
    }
    match metadata::newest_snapshot(&directory) {
        Ok((index, state)) => (found.index, found.state) = (index, state),
        Err(error) => {
            found.problem = format!("the metadata snapshot cannot be read: {error}");
            return Ok(found);
        }
    }
    let read = read_entries(&directory.join("log"), found.index, &mut found.entries);
    let end = found.index + found.entries.len() as u64;
    // A damaged end that nothing in the log itself proves shows in partitions that later entries created.
    let behind = || metadata::behind_partitions(&target.root_of_data(), end);
    found.problem = match read {
        Ok(()) => behind().map_or(String::new(), |text| format!("metadata log: {text}")),
        Err(problem) => problem,
    };
    Ok(found)
}

/// Appends the entries after `index`; the error says where the entries end and why.
fn read_entries(log: &Path, index: u64, entries: &mut Vec<Bytes>) -> Result<(), String> {
    let view = integrity::inspect(&OsStorage, log, IDENTITY, index, usize::MAX)
        .map_err(|error| format!("the metadata log cannot be read: {error}"))?;
    let mut next = index;
    for batch in &view.batches {
        if batch.header.base_offset > next {
            break;
        }
        let bytes = read_batch(&view, batch)
            .map_err(|why| format!("entry {} of the metadata is damaged: {why}", next + 1))?;
        for i in bytes.seek(next)..bytes.len() {
            next = bytes.offset(i) + 1;
            entries.push(Bytes::copy_from_slice(bytes.value(i).unwrap_or_default()));
        }
    }
    // Past the last batch that could be read there may be damaged ones, which `end` counts.
    let end = view.end();
    if next < end {
        return Err(format!(
            "entries {} to {end} of the metadata are damaged or missing",
            next + 1
        ));
    }
    Ok(())
}

fn read_batch(view: &LogView, batch: &BatchView) -> Result<Batch, String> {
    let offset = batch.header.base_offset;
    let holds =
        |segment: &&SegmentView| segment.base_offset <= offset && offset < segment.next_offset;
    let segment = view.segments.iter().find(holds);
    let path = &segment.ok_or("no segment has it")?.path;
    let mut bytes = vec![0; batch.header.batch_bytes()];
    File::open(path)
        .and_then(|file| file.read_exact_at(&mut bytes, batch.position))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Batch::read(&Bytes::from(bytes)).map_err(|damage| format!("{}: {damage}", path.display()))
}
