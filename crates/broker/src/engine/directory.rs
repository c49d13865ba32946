//! The data directory: locked by one broker at a time, owned by one broker id, with a format version.
use crate::owner_only;
use bascule_wire::ErrorCode;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Format version of the directory as a whole.
const FORMAT: u64 = 1;
const LOCK: &str = "bascule.lock";
const MANIFEST: &str = "bascule.json";
/// Its immediate subdirectories.
const DIRECTORIES: [&str; 5] = ["partitions", "metadata", "journal", "created", "nats"];

/// Why a directory cannot be used: a code of specs/errors.toml and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct DirectoryError {
    /// `data_directory_…`.
    pub code: ErrorCode,
    /// One sentence with the path, what is wrong and what to do.
    pub text: String,
    /// The values in the sentence: a JSON object.
    pub details: Value,
}

/// The directory of the partitions in the data directory `data`.
pub(super) fn partitions(data: &Path) -> PathBuf {
    data.join("partitions")
}

/// Marks the files of a closed partition as deleted, as `Log::delete` does for an open one: renames its directory to
/// `<name>.deleted-<ns>` and syncs the parent. Returns `false` when there are no files.
///
/// # Errors
/// Errors of the operating system; the files are unchanged then.
pub(super) fn mark_deleted(data: &Path, incarnation: u64, now_ns: i64) -> io::Result<bool> {
    let parent = partitions(data);
    let name = incarnation.to_string();
    let marked = parent.join(format!("{name}.deleted-{}", now_ns.max(0)));
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

/// Creates a directory and its missing parents, and syncs their names. Syncs the name of a directory that exists too: the
/// process that created it may have been killed before it did.
fn create_durably(path: &Path) -> io::Result<()> {
    match owner_only::create_directory(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_durably(path.parent().ok_or(error)?)?;
            owner_only::create_directory(path)?;
        }
        Err(error) => return Err(error),
    }
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    sync(parent.unwrap_or(Path::new(".")))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A locked data directory. The lock is released when this is dropped, or when the process ends in any way.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    _lock: File,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Manifest {
    format: u64,
    cluster_id: String,
    broker_id: String,
}

impl DataDirectory {
    /// Creates the directory if it is missing, locks it, and checks its owner and format.
    ///
    /// # Errors
    /// [`DirectoryError`]: locked, foreign, newer or unusable.
    pub fn open(path: &Path, cluster_id: &str, broker_id: &str) -> Result<Self, DirectoryError> {
        let unusable = |error: io::Error| unusable(path, &error);
        create_durably(&partitions(path)).map_err(unusable)?;
        let lock = lock(path)?;
        let directory = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        match fs::read(path.join(MANIFEST)) {
            Ok(bytes) => directory.check(&bytes, cluster_id, broker_id)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A broker writes the manifest before any other file, so without it the directory must hold no broker data.
                if let Some(found) = find_existing_data(path).map_err(unusable)? {
                    return Err(lost_manifest(path, &found));
                }
                let manifest = Manifest {
                    format: FORMAT,
                    cluster_id: cluster_id.into(),
                    broker_id: broker_id.into(),
                };
                directory.write(&manifest).map_err(unusable)?;
            }
            Err(error) => return Err(unusable(error)),
        }
        Ok(directory)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the permissions of group and others from the directory and its immediate subdirectories. Returns a sentence for the
    /// log for each directory that had any, or whose permissions cannot be changed.
    pub fn restrict(&self) -> Vec<String> {
        let inside = DIRECTORIES.iter().map(|name| self.path.join(name));
        let all = std::iter::once(self.path.clone()).chain(inside);
        all.filter_map(|path| match owner_only::restrict(&path) {
            Ok(None) => None,
            Ok(Some(mode)) => Some(format!(
                "{} could be used by other users of this machine (mode {mode:04o}); from now on only by the broker's (0700)",
                path.display()
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(format!(
                "{} may be used by other users of this machine, and its mode cannot be changed ({error}): \
                 make the broker's user its owner, or chmod it to 0700",
                path.display()
            )),
        })
        .collect()
    }

    fn check(&self, bytes: &[u8], cluster_id: &str, broker_id: &str) -> Result<(), DirectoryError> {
        let path = self.path.display();
        let format = serde_json::from_slice::<serde_json::Value>(bytes)
            .ok()
            .and_then(|json| json.get("format")?.as_u64());
        if let Some(newer) = format.filter(|format| *format > FORMAT) {
            let text = format!(
                "{path} has format {newer}, this version knows up to {FORMAT}: run the newer version on it"
            );
            let details = json!({"path": self.path, "format": newer, "known": FORMAT});
            return Err(refused(ErrorCode::DataDirectoryNewer, text, details));
        }
        let manifest = serde_json::from_slice::<Manifest>(bytes).ok();
        let Some(manifest) = manifest.filter(|manifest| manifest.format == FORMAT) else {
            let text = format!(
                "{path}/{MANIFEST} is not readable: restore it from a backup of the directory"
            );
            let details = json!({"path": self.path});
            return Err(refused(ErrorCode::DataDirectoryUnusable, text, details));
        };
        for (what, owner, ours) in [
            ("cluster", &manifest.cluster_id, cluster_id),
            ("broker", &manifest.broker_id, broker_id),
        ] {
            if owner != ours {
                let text = format!(
                    "{path} belongs to {what} {owner:?}, this is {what} {ours:?}: use another directory or that id"
                );
                let details =
                    json!({"path": self.path, "what": what, "owner": owner, "ours": ours});
                return Err(refused(ErrorCode::DataDirectoryForeign, text, details));
            }
        }
        Ok(())
    }

    fn write(&self, manifest: &Manifest) -> io::Result<()> {
        let temporary = self.path.join("bascule.json.tmp");
        let mut file = owner_only::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.sync_all()?;
        fs::rename(&temporary, self.path.join(MANIFEST))?;
        sync(&self.path)
    }
}

/// Locks a data directory for a tool; `None` when it has no lock file, as a copy may.
///
/// # Errors
/// `data_directory_locked` while a broker uses it; `data_directory_unusable`.
pub(crate) fn lock_existing(path: &Path) -> Result<Option<File>, DirectoryError> {
    if path.join(LOCK).is_file() {
        lock(path).map(Some)
    } else {
        Ok(None)
    }
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

/// Describes a fault of the manifest of a data directory. `None`: the manifest is valid, or it is missing and no broker ever
/// used the directory.
pub(crate) fn check_manifest(path: &Path) -> Option<String> {
    match fs::read(path.join(MANIFEST)) {
        Ok(bytes) => match serde_json::from_slice::<Manifest>(&bytes) {
            Ok(manifest) if manifest.format == FORMAT => None,
            Ok(manifest) => Some(format!(
                "it says format {}, this version knows {FORMAT}",
                manifest.format
            )),
            Err(error) => Some(format!("it is not readable: {error}")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_used =
                path.join(LOCK).is_file() || !matches!(find_existing_data(path), Ok(None));
            is_used.then(|| "it is missing".to_owned())
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the first file or directory that a broker has created in the data directory; `None` when there is none.
fn find_existing_data(path: &Path) -> io::Result<Option<PathBuf>> {
    for name in ["metadata", "created", "partitions"] {
        let entries = match fs::read_dir(path.join(name)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(entry) = entries.into_iter().next() {
            return Ok(Some(entry?.path()));
        }
    }
    Ok(None)
}

fn lost_manifest(path: &Path, found: &Path) -> DirectoryError {
    let shown = path.display();
    let text = format!(
        "{shown}/{MANIFEST} is missing, but {} is there: the file is lost. Nothing was touched. Restore it from a \
         backup of the directory, or write it again with the ids that this broker had: \
         {{\"format\": {FORMAT}, \"cluster_id\": \"…\", \"broker_id\": \"…\"}}; to begin again, name an empty directory",
        found.display()
    );
    let details = json!({"path": path, "held": found});
    refused(ErrorCode::DataDirectoryUnusable, text, details)
}

fn lock(path: &Path) -> Result<File, DirectoryError> {
    let unusable = |error: io::Error| unusable(path, &error);
    let name = path.join(LOCK);
    let mut file = owner_only::options()
        .read(true)
        .write(true)
        .truncate(false)
        .open(&name)
        .map_err(unusable)?;
    if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(unusable(error.into()));
        }
        let mut owner = String::new();
        let _ = file.read_to_string(&mut owner);
        let owner = owner.trim();
        let text = format!(
            "{} is used by a running broker (process {owner}): stop it or use another directory",
            path.display()
        );
        let details = json!({"path": path, "process": owner.parse::<u32>().ok()});
        return Err(refused(ErrorCode::DataDirectoryLocked, text, details));
    }
    file.set_len(0)
        .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()))
        .map_err(unusable)?;
    Ok(file)
}

fn unusable(path: &Path, error: &io::Error) -> DirectoryError {
    let text = format!(
        "{} cannot be used as a data directory: {error}",
        path.display()
    );
    refused(
        ErrorCode::DataDirectoryUnusable,
        text,
        json!({"path": path}),
    )
}

fn refused(code: ErrorCode, text: String, details: Value) -> DirectoryError {
    DirectoryError {
        code,
        text,
        details,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_user_and_one_owner() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDirectory::open(folder.path(), "c", "b").unwrap();
        let second = DataDirectory::open(folder.path(), "c", "b").unwrap_err();
        assert_eq!(second.code, ErrorCode::DataDirectoryLocked);
        assert!(second.text.contains(&std::process::id().to_string()));
        drop(first);
        assert_eq!(
            DataDirectory::open(folder.path(), "c", "other")
                .unwrap_err()
                .code,
            ErrorCode::DataDirectoryForeign
        );
        assert_eq!(
            DataDirectory::open(folder.path(), "other", "b")
                .unwrap_err()
                .code,
            ErrorCode::DataDirectoryForeign
        );
        DataDirectory::open(folder.path(), "c", "b").unwrap();
    }

    #[test]
    fn an_unknown_format_and_a_broken_manifest_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(folder.path(), "c", "b").unwrap());
        fs::write(
            folder.path().join(MANIFEST),
            r#"{"format": 2, "news": true}"#,
        )
        .unwrap();
        assert_eq!(
            DataDirectory::open(folder.path(), "c", "b")
                .unwrap_err()
                .code,
            ErrorCode::DataDirectoryNewer
        );
        fs::write(folder.path().join(MANIFEST), "garbage").unwrap();
        assert_eq!(
            DataDirectory::open(folder.path(), "c", "b")
                .unwrap_err()
                .code,
            ErrorCode::DataDirectoryUnusable
        );
        fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(
            DataDirectory::open(&folder.path().join("file"), "c", "b")
                .unwrap_err()
                .code,
            ErrorCode::DataDirectoryUnusable
        );
    }

    #[test]
    fn a_lost_manifest_is_not_replaced_in_a_used_directory() {
        for inside in ["partitions/65536", "created/65536", "metadata/log"] {
            let folder = tempfile::tempdir().unwrap();
            drop(DataDirectory::open(folder.path(), "c", "b").unwrap());
            assert_eq!(check_manifest(folder.path()), None);
            fs::remove_file(folder.path().join(MANIFEST)).unwrap();
            fs::create_dir_all(folder.path().join(inside)).unwrap();
            let refused = DataDirectory::open(folder.path(), "c", "b").unwrap_err();
            assert_eq!(refused.code, ErrorCode::DataDirectoryUnusable);
            assert!(refused.text.contains(inside) && refused.text.contains("backup"));
            assert!(!folder.path().join(MANIFEST).exists());
            assert_eq!(
                check_manifest(folder.path()),
                Some("it is missing".to_owned())
            );
        }
        // A manifest that was never finished is written again.
        let folder = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(folder.path(), "c", "b").unwrap());
        fs::remove_file(folder.path().join(MANIFEST)).unwrap();
        DataDirectory::open(folder.path(), "c", "b").unwrap();
    }

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
