//! The log in `<data>/metadata/log`.
use super::door::MetadataError;
use bascule_log::{GroupCommitter, Log, LogId, LogOptions};
use std::path::Path;
use std::sync::Arc;

/// The metadata log is not a stream: its identity is fixed.
pub(super) const IDENTITY: LogId = LogId {
    incarnation: 1,
    partition: 0,
};
const SEGMENT_BYTES: u64 = 8 << 20;
const PREALLOCATE_BYTES: u64 = 1 << 20;

/// Opens or creates the log in `<data>/metadata`. Blocks.
///
/// # Errors
/// [`MetadataError::Damaged`], [`MetadataError::Log`].
pub fn open_log(directory: &Path, committer: &Arc<GroupCommitter>) -> Result<Log, MetadataError> {
    let path = &directory.join("log");
    let options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        preallocate_bytes: PREALLOCATE_BYTES,
        ..LogOptions::default()
    };
    match Log::open(path, IDENTITY, options.clone(), committer) {
        Ok((log, recovery)) => match recovery.damaged.first() {
            None => Ok(log),
            Some((start, end)) => Err(MetadataError::Damaged(format!(
                "entries {} to {end} are damaged on disk. Nothing was touched. `bascule log verify {}` shows where; restore \
                 the files from a backup",
                start + 1,
                path.display()
            ))),
        },
        // Also when a crash came between making the directory and its first segment.
        Err(bascule_log::Error::Absent { .. }) => {
            Ok(Log::create(path, IDENTITY, options, committer)?)
        }
        Err(error) => Err(error.into()),
    }
}
