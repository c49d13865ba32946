//! Records of the partitions whose files were created in a data directory: what has a record and no files is missing.
use super::directory::{create_durably, partitions, sync};
use crate::owner_only;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Marks the files of a closed partition as deleted, as `Log::delete` does for an open one: renames its directory to
/// `<name>.deleted-<ns>` and syncs the parent. Returns `false` when there are no files.
///
/// # Errors
/// Errors of the operating system; the files are unchanged then.
pub(super) fn mark_deleted(data: &Path, incarnation: u64, now_ns: i64) -> io::Result<bool> {
    mark(data, incarnation, &format!("deleted-{}", now_ns.max(0)))
}

/// As [`mark_deleted`], to `<name>.kept-<ns>`: nothing removes the files but a person.
///
/// # Errors
/// As [`mark_deleted`].
pub(super) fn mark_kept(data: &Path, incarnation: u64, now_ns: i64) -> io::Result<bool> {
    mark(data, incarnation, &format!("kept-{}", now_ns.max(0)))
}

fn mark(data: &Path, incarnation: u64, mark: &str) -> io::Result<bool> {
    let parent = partitions(data);
    let name = incarnation.to_string();
    let marked = parent.join(format!("{name}.{mark}"));
    match fs::rename(parent.join(&name), marked) {
        Ok(()) => {
            sync(&parent)?;
            remove_created_record(data, &name)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            remove_created_record(data, &name)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether the files of a partition were created here and not deleted since. If so, they must exist.
pub(crate) fn was_created(data: &Path, incarnation: u64) -> io::Result<bool> {
    created(data).join(incarnation.to_string()).try_exists()
}

/// Records durably that the files of a partition were created.
pub(super) fn record_created(data: &Path, incarnation: u64) -> io::Result<()> {
    let directory = created(data);
    create_durably(&directory)?;
    owner_only::create(&directory.join(incarnation.to_string()))?;
    sync(&directory)
}

/// Removes that record. A record that a crash leaves is harmless, because incarnations are not used again.
fn remove_created_record(data: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(created(data).join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn created(data: &Path) -> PathBuf {
    data.join("created")
}

/// The directories of partitions that were created here, were not deleted, and do not exist; ordered by incarnation. A
/// partition that is marked as deleted is not missing: a crash left only the record of its creation.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn missing_partitions(data: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(created(data)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut incarnations = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        incarnations.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    incarnations.sort_unstable();
    let mut deleted = HashSet::new();
    for entry in fs::read_dir(partitions(data)).into_iter().flatten() {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.split_once(".deleted-")?.0.parse::<u64>().ok());
        deleted.extend(number);
    }
    let directories = incarnations
        .iter()
        .filter(|incarnation| !deleted.contains(incarnation))
        .map(|incarnation| partitions(data).join(incarnation.to_string()));
    Ok(directories
        .filter(|directory| !directory.is_dir())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_that_were_made_and_are_not_there_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            missing_partitions(folder.path()).unwrap(),
            Vec::<PathBuf>::new()
        );
        for incarnation in [65536, 65537, 65538, 131_072] {
            record_created(folder.path(), incarnation).unwrap();
        }
        fs::create_dir_all(partitions(folder.path()).join("65538.deleted-7")).unwrap();
        fs::create_dir_all(partitions(folder.path()).join("65537")).unwrap();
        let missing = missing_partitions(folder.path()).unwrap();
        let names: Vec<_> = missing
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        assert_eq!(names, ["65536", "131072"]);
    }
}
