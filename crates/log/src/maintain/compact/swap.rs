//! Replaces a segment, or adjacent ones, by the rewritten version: on disk and for readers. The new file takes the name of the first one.
//!
//! | Step | State after a crash | The next open |
//! |---|---|---|
//! | the new file is written and synced under its temporary name | `.tmp` beside the old segment | removes the `.tmp` |
//! | the old index is removed, the directory synced | as before, without an index | reads the headers of the old segment |
//! | the new file is renamed over the old one, the directory synced | one of the two, whole | reads its headers |
//! | the other replaced segments are renamed to deleted names, the directory synced | some of them; the new segment covers them, and they have no records | removes them |
//! | the new index is written | an incomplete index at worst | reads the headers unless the index is valid |
//!
//! Readers that hold the old segment continue in its unlinked file; later look-ups find the new one. The old segment never
//! opens its path again, because another file has that name now.
use super::rewriter::Rewritten;
use crate::io::disk;
use crate::io::files::Files;
use crate::maintain::retention::mark_expired;
use crate::segment::Segment;
use crate::segment::index;
use crate::state::shared::Shared;
use crate::{Error, failpoint};
use std::sync::Arc;

/// Replaces `old`, adjacent segments of which only a single one may have records. `false`: retention removed one of them meanwhile,
/// or the log was closed; nothing was replaced.
///
/// # Errors
/// Those of the storage. Either the old or the new segment is there, and both are valid.
pub(super) fn replace(
    shared: &Shared,
    files: &Files,
    old: &[Arc<Segment>],
    new: Rewritten,
) -> Result<bool, Error> {
    let (Some(file), Some((first, rest))) = (new.file, old.split_first()) else {
        return Ok(true);
    };
    failpoint::pass("compaction.written");
    let storage = files.storage();
    let (chain, epoch) = new.last;
    let segment = Arc::new(new.segment);
    let mut deletes = shared.pending_deletes.lock();
    if shared.is_closed() {
        // The next open removes the temporary file.
        return Ok(false);
    }
    // From here on readers use the new file by its descriptor, whatever its name.
    segment.set_file(&file);
    let index_path = first.path().with_extension("idx");
    disk::remove_file(storage, &index_path)?;
    disk::sync_directory(storage, &shared.directory)?;
    if !shared.replace_segments(old, std::slice::from_ref(&segment)) {
        disk::remove_file(storage, &file.path)?;
        return Ok(false);
    }
    first.set_replaced(true);
    if let Err(error) = disk::rename(storage, &file.path, first.path()) {
        first.set_replaced(false);
        shared.replace_segments(std::slice::from_ref(&segment), old);
        return Err(error);
    }
    failpoint::pass("compaction.swapped");
    deletes
        .retired
        .push((storage.monotonic_ns(), Arc::clone(first)));
    // From here on it is opened by its name.
    segment.close_file();
    disk::sync_directory(storage, &shared.directory)?;
    if !rest.is_empty() {
        let now_ns = storage.wall_clock_ns();
        let covered = rest.iter().map(|segment| (now_ns, Arc::clone(segment)));
        mark_expired(storage, &shared.directory, &mut deletes, covered.collect())?;
    }
    let summary = segment.summary(chain, epoch);
    let bytes = index::to_bytes(shared.identity, &summary, segment.index());
    disk::write(storage, &index_path, &bytes)?;
    Ok(true)
}
