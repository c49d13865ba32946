//! Creates the file of a new active segment.
use crate::io::disk;
use crate::io::file_names::segment_name;
use crate::io::files::Files;
use crate::io::preallocate::Preallocation;
use crate::io::storage::OpenMode;
use crate::segment::Segment;
use crate::segment::preamble::Preamble;
use crate::{Durability, Error, IoOp, LogOptions};
use std::path::Path;
use std::sync::Arc;

/// Creates a segment's file with its preamble and `zeros` bytes after it, in the page cache.
pub(crate) fn create_segment(
    files: &Arc<Files>,
    directory: &Path,
    preamble: Preamble,
    options: &LogOptions,
    zeros: u64,
) -> Result<(Arc<Segment>, Arc<Preallocation>), Error> {
    let path = directory.join(segment_name(preamble.base_offset));
    let file = disk::open(files.storage(), &path, OpenMode::Replace)?;
    let mut bytes = preamble.to_bytes();
    if options.durability == Durability::Disk {
        let zeros = zeros
            .min(options.preallocate_bytes)
            .min(options.segment_bytes);
        bytes.resize(bytes.len() + zeros as usize, 0);
    }
    if let Err(source) = file.write_all_at(&bytes, 0) {
        // Nothing depends on the incomplete file; if it stays, the next attempt truncates it.
        let _ = files.storage().remove_file(&path);
        return Err(Error::io(IoOp::Write, &path, source));
    }
    let segment = Segment::new(files, path, preamble.base_offset, options.segment_bytes);
    segment.set_preamble(&preamble);
    segment.begin_writing(file);
    let zeros = Preallocation::new(bytes.len() as u64);
    Ok((Arc::new(segment), zeros))
}
