//! The data directory: locked by one broker at a time, owned by one broker id, with a format version.
use super::manifest::{CLUSTER_FORMAT, FORMAT, Manifest, ManifestFault};
use crate::owner_only;
use crate::peer::to_hex;
use bascule_record::crypt::{Entropy, SystemEntropy};
use bascule_wire::ErrorCode;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a directory's id.
const ID_BYTES: usize = 16;
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

/// Creates a directory and its missing parents, and syncs their names. Syncs the name of a directory that exists too: the
/// process that created it may have been killed before it did.
pub(super) fn create_durably(path: &Path) -> io::Result<()> {
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

pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A locked data directory. The lock is released when this is dropped, or when the process ends in any way.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    /// Random, made with the directory; empty = of a broker alone.
    id: String,
    _lock: File,
}

impl DataDirectory {
    /// Creates the directory of a broker alone if it is missing, locks it, and checks its owner and format.
    ///
    /// # Errors
    /// [`DirectoryError`]: locked, foreign, newer or unusable.
    pub fn open(path: &Path, cluster_id: &str, broker_id: &str) -> Result<Self, DirectoryError> {
        Self::open_as(path, cluster_id, broker_id, false)
    }

    /// The same for a broker of a cluster, whose directory has an id.
    ///
    /// # Errors
    /// As [`DataDirectory::open`].
    pub fn open_of_cluster(
        path: &Path,
        cluster_id: &str,
        broker_id: &str,
    ) -> Result<Self, DirectoryError> {
        Self::open_as(path, cluster_id, broker_id, true)
    }

    fn open_as(
        path: &Path,
        cluster_id: &str,
        broker_id: &str,
        in_cluster: bool,
    ) -> Result<Self, DirectoryError> {
        let unusable = |error: io::Error| unusable(path, &error);
        create_durably(&partitions(path)).map_err(unusable)?;
        let lock = lock(path)?;
        let mut directory = Self {
            path: path.to_owned(),
            id: String::new(),
            _lock: lock,
        };
        match fs::read(path.join(MANIFEST)) {
            Ok(bytes) => {
                let manifest = directory.check(&bytes, cluster_id, broker_id)?;
                directory.check_kind(&manifest, in_cluster)?;
                directory.id = manifest.directory_id;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A broker writes the manifest before any other file, so without it the directory must hold no broker data.
                if let Some(found) = find_existing_data(path).map_err(unusable)? {
                    return Err(lost_manifest(path, &found));
                }
                if in_cluster {
                    directory.id = new_id().map_err(unusable)?;
                }
                let manifest = Manifest {
                    format: if in_cluster { CLUSTER_FORMAT } else { FORMAT },
                    cluster_id: cluster_id.into(),
                    broker_id: broker_id.into(),
                    directory_id: directory.id.clone(),
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

    /// Its id; empty = of a broker alone.
    pub fn id(&self) -> &str {
        &self.id
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

    fn check(
        &self,
        bytes: &[u8],
        cluster_id: &str,
        broker_id: &str,
    ) -> Result<Manifest, DirectoryError> {
        let path = self.path.display();
        let manifest = Manifest::read(bytes).map_err(|fault| match fault {
            ManifestFault::Newer(newer) => {
                let text = format!(
                    "{path} has format {newer}, this version knows up to {CLUSTER_FORMAT}: run the newer version on it"
                );
                let details = json!({"path": self.path, "format": newer, "known": CLUSTER_FORMAT});
                refused(ErrorCode::DataDirectoryNewer, text, details)
            }
            ManifestFault::Unreadable(_) => {
                let text = format!(
                    "{path}/{MANIFEST} is not readable: restore it from a backup of the directory"
                );
                let details = json!({"path": self.path});
                refused(ErrorCode::DataDirectoryUnusable, text, details)
            }
        })?;
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
        Ok(manifest)
    }

    /// A broker alone would commit what no majority agreed to; a directory of a broker alone cannot join yet.
    fn check_kind(&self, manifest: &Manifest, in_cluster: bool) -> Result<(), DirectoryError> {
        let path = self.path.display();
        let text = match (manifest.format, in_cluster) {
            (CLUSTER_FORMAT, false) => format!(
                "{path} belongs to a broker of a cluster: set cluster.peers as in the runs before, or name another directory"
            ),
            (FORMAT, true) => format!(
                "{path} belongs to a broker without a cluster, and such a directory cannot join one yet: name an empty directory, \
                 or leave out cluster.peers"
            ),
            _ => return Ok(()),
        };
        let details = json!({"path": self.path, "format": manifest.format});
        Err(refused(ErrorCode::DataDirectoryForeign, text, details))
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

/// A random id, in hexadecimal digits.
fn new_id() -> io::Result<String> {
    let mut id = [0; ID_BYTES];
    SystemEntropy.fill(&mut id).map_err(io::Error::other)?;
    Ok(to_hex(&id))
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

/// Describes a fault of the manifest of a data directory. `None`: the manifest is valid, or it is missing and no broker ever
/// used the directory.
pub(crate) fn check_manifest(path: &Path) -> Option<String> {
    match fs::read(path.join(MANIFEST)) {
        Ok(bytes) => Manifest::read(&bytes).err().map(|fault| fault.to_string()),
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
            r#"{"format": 3, "news": true}"#,
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
    fn the_manifest_of_a_broker_of_a_cluster_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        drop(DataDirectory::open_of_cluster(folder.path(), "c", "b").unwrap());
        assert_eq!(check_manifest(folder.path()), None);
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
}
