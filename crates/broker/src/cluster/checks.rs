//! What a start refuses of the files of the metadata, before anything of them is used.
use crate::consensus::MetadataError;
use crate::consensus::vote::{HardState, VoteError, VoteFile};
use crate::engine::error::EngineError;
use bascule_wire::ErrorCode;
use std::path::Path;

/// A vote without a founding, or entries without a vote, is what no start leaves.
pub(super) fn check_vote(
    metadata: &Path,
    is_founded: bool,
    entries: u64,
) -> Result<(), EngineError> {
    let vote = VoteFile::find(metadata).map_err(MetadataError::from)?;
    let damaged = |text| Err(EngineError::new(ErrorCode::MetadataDamaged, text));
    let Some(path) = vote else {
        if entries == 0 {
            return Ok(());
        }
        return damaged(format!(
            "{} has {entries} entries, and the file vote beside it is gone: this broker may have voted, and does not vote again",
            metadata.join("log").display()
        ));
    };
    if !is_founded {
        return damaged(format!(
            "{} is there, and {} is gone: copy that file from another broker of the cluster",
            path.display(),
            metadata.join("founding").display()
        ));
    }
    // Opened again when the voter starts; refused here, before that.
    match VoteFile::open(metadata) {
        Ok(_) => Ok(()),
        Err(error @ VoteError::Damaged { .. }) => damaged(error.to_string()),
        Err(error) => {
            let code = match error {
                VoteError::Copied { .. } => ErrorCode::DataDirectoryForeign,
                _ => ErrorCode::StorageFailed,
            };
            Err(EngineError::new(code, error.to_string()))
        }
    }
}

/// Entries between the newest readable snapshot and the log are gone when newer snapshots are damaged.
pub(super) fn check_begin(log_start: u64, snapshot_index: u64) -> Result<(), EngineError> {
    if log_start <= snapshot_index {
        return Ok(());
    }
    let (first, last) = (snapshot_index + 1, log_start);
    let text = format!(
        "the newest readable snapshot of the metadata ends at entry {snapshot_index}, and its log begins behind entry {last}: entries \
         {first} to {last} are damaged. Give this broker an empty directory and an id of its own"
    );
    Err(EngineError::new(ErrorCode::MetadataDamaged, text))
}

pub(super) fn open_vote(metadata: &Path, state: HardState) -> Result<VoteFile, VoteError> {
    let found = VoteFile::find(metadata);
    let found = found.map_err(|source| VoteError::Io {
        path: metadata.to_owned(),
        source,
    })?;
    match found {
        Some(_) => VoteFile::open(metadata),
        None => VoteFile::create(metadata, state),
    }
}
