//! Metadata that is older than the data it should describe: lost, emptied, or an old copy put back.
//!
//! A partition's directory is named after its incarnation, whose upper bits are the index of the metadata entry that
//! created it. A log that ends before that entry cannot know the partition. Going on would take its files for nobody's, and
//! give its name to a new partition, so the broker does not start, and nothing is touched (reliability P13).
use super::snapshot;
use std::fs;
use std::path::{Path, PathBuf};

/// Bits of an incarnation that are the partition's number (`specs/formats/metadata.md`).
const PARTITION_BITS: u32 = 16;

/// Why a metadata log that ends at entry `end` cannot be the one of the data directory; `None` when it can.
pub(crate) fn behind_partitions(data: &Path, end: u64) -> Option<String> {
    let (created, directory) = newest_partition(data)?;
    (created > end).then(|| {
        format!(
            "it ends at entry {end}, but {} was created by entry {created}: the metadata is lost or an old copy. Nothing \
             was touched. Restore {} from a backup that is at least as new, or move the partitions away to begin again",
            directory.display(),
            data.join("metadata").display()
        )
    })
}

/// The newest entry of the metadata that anything in the data directory beside the metadata log gives evidence of: a
/// partition that it created, or a snapshot that covers it. (0, the directory) when nothing does.
pub(crate) fn newest_known(data: &Path) -> (u64, PathBuf) {
    let partition = newest_partition(data);
    let snapshot = snapshot::newest_index(&data.join("metadata"));
    partition
        .into_iter()
        .chain(snapshot)
        .max()
        .unwrap_or_else(|| (0, data.to_path_buf()))
}

/// The partition that was created last: by which entry, and its directory.
fn newest_partition(data: &Path) -> Option<(u64, PathBuf)> {
    let entries = fs::read_dir(data.join("partitions")).ok()?;
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            // Of deleted ones too: their files are still the ones that a new partition must not meet.
            let number = name
                .split_once('.')
                .map_or(name.as_str(), |(number, _)| number);
            Some((number.parse::<u64>().ok()? >> PARTITION_BITS, entry.path()))
        })
        .max()
}

/// Snapshots of the metadata that fail their checksum.
pub(crate) fn damaged_snapshots(data: &Path) -> Vec<PathBuf> {
    snapshot::damaged(&data.join("metadata"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_ends_before_a_partition_was_created_is_not_its_own() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(behind_partitions(data.path(), 0), None);
        for name in ["7", "65536", "196609.deleted-5", "notes"] {
            fs::create_dir_all(data.path().join("partitions").join(name)).unwrap();
        }
        assert_eq!(behind_partitions(data.path(), 3), None);
        let text = behind_partitions(data.path(), 2).unwrap();
        assert!(
            text.contains("196609") && text.contains("entry 3"),
            "{text}"
        );
    }
}
