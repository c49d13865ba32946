//! Which logs a path means, and that no broker uses them.
use super::report;
use crate::engine::directory::{check_manifest, lock_existing};
use crate::engine::error::EngineError;
use bascule_log::{LogId, WalOptions};
use bascule_wire::ErrorCode;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Bits of an incarnation that are the partition's number (`specs/formats/metadata.md`).
const PARTITION_BITS: u32 = 16;
/// Identity of the metadata log.
const METADATA: LogId = LogId {
    incarnation: 1,
    partition: 0,
};

/// One log.
pub(super) struct LogPlace {
    pub directory: PathBuf,
    pub identity: LogId,
}

impl LogPlace {
    /// Whether it is the metadata log.
    pub fn is_metadata(&self) -> bool {
        self.identity == METADATA
    }

    /// The WAL that holds a part of the log, if the log is where it was written.
    pub fn wal(&self) -> Option<WalOptions> {
        let partitions = self.directory.parent()?;
        let directory = partitions.with_file_name("journal");
        let is_there = partitions.file_name()? == "partitions";
        is_there.then(|| WalOptions::new(directory, partitions.to_path_buf()))
    }
}

/// The logs of a path, locked as long as this lives.
pub(super) struct Target {
    /// The path as given.
    pub root: PathBuf,
    /// Whether it is a whole data directory.
    pub is_data_directory: bool,
    /// Its logs: the metadata log first, then by incarnation.
    pub logs: Vec<LogPlace>,
    _lock: Option<File>,
}

impl Target {
    /// `path`: a data directory, or the directory of one log in it, or a copy of either.
    ///
    /// # Errors
    /// `data_directory_locked`, `not_found`, `data_directory_unusable`.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let is_data_directory =
            path.join("partitions").is_dir() || path.join("metadata/log").is_dir();
        let data = if is_data_directory {
            Some(path)
        } else {
            // <data>/partitions/<incarnation> and <data>/metadata/log are both two levels down.
            path.parent().and_then(Path::parent)
        };
        let lock = data.map_or(Ok(None), lock_existing)?;
        let mut logs = Vec::new();
        if is_data_directory {
            let metadata = path.join("metadata/log");
            if metadata.is_dir() {
                logs.push(LogPlace {
                    directory: metadata,
                    identity: METADATA,
                });
            }
            logs.extend(partitions(path));
        } else {
            logs.extend(log_at(path));
        }
        if logs.is_empty() && !is_data_directory {
            let text = format!(
                "{} is neither a data directory nor the directory of a log (<data>/partitions/<incarnation>)",
                path.display()
            );
            return Err(EngineError::new(ErrorCode::NotFound, text));
        }
        Ok(Self {
            root: path.to_path_buf(),
            is_data_directory,
            logs,
            _lock: lock,
        })
    }

    /// The WAL, and the directory of its logs. `None` for a single log that has no WAL, or none beside its directory.
    pub fn wal(&self) -> Option<(PathBuf, PathBuf)> {
        let journal = match self.logs.first() {
            _ if self.is_data_directory => self.root.join("journal"),
            Some(log) if log.is_metadata() => return None,
            // The manifest reports a journal that is gone.
            log => log?
                .wal()
                .map(|wal| wal.directory)
                .filter(|wal| wal.is_dir() || wal.with_extension("head").is_file())?,
        };
        let partitions = journal.with_file_name("partitions");
        Some((journal, partitions))
    }

    /// The data directory that it is, or is in.
    pub fn root_of_data(&self) -> PathBuf {
        let data = self.root.parent().and_then(Path::parent);
        match data {
            Some(data) if !self.is_data_directory => data.to_path_buf(),
            _ => self.root.clone(),
        }
    }

    /// The directory of the log in a backup of the data directory.
    pub fn in_backup(&self, log: &LogPlace, backup: &Path) -> PathBuf {
        match log.directory.strip_prefix(&self.root) {
            Ok(inside) if self.is_data_directory => backup.join(inside),
            _ => {
                let name = log.directory.file_name().unwrap_or_default();
                let whole = backup.join("partitions").join(name);
                if whole.is_dir() {
                    whole
                } else {
                    backup.to_path_buf()
                }
            }
        }
    }

    /// What is wrong with `bascule.json`.
    pub fn check_manifest(&self) -> Option<Value> {
        let problem = check_manifest(&self.root)?;
        Some(report::file(&self.root.join("bascule.json"), &problem))
    }
}

/// The partitions of a data directory, by incarnation.
fn partitions(data: &Path) -> Vec<LogPlace> {
    let entries = fs::read_dir(data.join("partitions"));
    let mut logs: Vec<LogPlace> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| log_at(&entry.path()))
        .collect();
    logs.sort_by_key(|log| log.identity.incarnation);
    logs
}

/// The log in a directory, by its name.
fn log_at(directory: &Path) -> Option<LogPlace> {
    let name = directory.file_name()?.to_str()?;
    if !directory.is_dir() {
        return None;
    }
    let is_metadata = name == "log" && directory.parent()?.file_name()? == "metadata";
    let identity = if is_metadata {
        METADATA
    } else {
        let incarnation: u64 = name.parse().ok()?;
        LogId {
            incarnation,
            partition: (incarnation & ((1 << PARTITION_BITS) - 1)) as u32,
        }
    };
    Some(LogPlace {
        directory: directory.to_path_buf(),
        identity,
    })
}
