//! The class `Store`: one life of one process with one data directory.
use super::disk::Disk;
use super::failure::raise;
use super::log::Log;
use bascule_log::{Durability, GroupCommitter, LogId, LogOptions, WalOptions};
use bascule_record::Codec;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// The group committer of a data directory, stepped by the caller.
#[pyclass(frozen)]
pub(crate) struct Store {
    committer: Mutex<Option<Arc<GroupCommitter>>>,
}

/// What recovery reports: bytes scanned, batches, bytes cut, damaged ranges, clean.
type Report = (u64, u64, u64, Vec<(u64, u64)>, bool);

impl Store {
    fn committer(&self) -> PyResult<Arc<GroupCommitter>> {
        let committer = self.committer.lock();
        committer
            .clone()
            .ok_or_else(|| PyValueError::new_err("this life has ended"))
    }
}

/// Settings of a log from their numbers.
pub(crate) fn options(
    memory: bool,
    segment_bytes: u64,
    segment_age_ns: i64,
    preallocate_bytes: u64,
) -> LogOptions {
    LogOptions {
        durability: if memory {
            Durability::Memory
        } else {
            Durability::Disk
        },
        segment_bytes,
        segment_age_ns,
        preallocate_bytes,
        codec: Codec::None,
        ..LogOptions::default()
    }
}

#[pymethods]
impl Store {
    /// `journal`: dirty segments from which on it is used, bytes of one file, files, rounds until segments are synced.
    #[new]
    #[pyo3(signature = (disk, journal=None))]
    fn new(disk: &Disk, journal: Option<(usize, u64, usize, u32)>) -> PyResult<Self> {
        let storage = Arc::new(disk.storage());
        let committer = match journal {
            None => GroupCommitter::stepped(storage),
            Some((from_dirty_files, file_bytes, files, flush_rounds)) => {
                let options = WalOptions {
                    from_dirty_files,
                    file_bytes,
                    files,
                    flush_rounds,
                    ..WalOptions::new("/journal".into(), "/partitions".into())
                };
                GroupCommitter::stepped_with_wal(storage, options).map_err(|error| raise(&error))?
            }
        };
        Ok(Self {
            committer: Mutex::new(Some(committer)),
        })
    }

    #[pyo3(signature = (path, incarnation, partition, *, memory, segment_bytes, segment_age_ns, preallocate_bytes))]
    #[allow(clippy::too_many_arguments)] // keywords: the settings of a log
    fn create(
        &self,
        path: &str,
        incarnation: u64,
        partition: u32,
        memory: bool,
        segment_bytes: u64,
        segment_age_ns: i64,
        preallocate_bytes: u64,
    ) -> PyResult<Log> {
        let options = options(memory, segment_bytes, segment_age_ns, preallocate_bytes);
        let identity = LogId {
            incarnation,
            partition,
        };
        let committer = self.committer()?;
        bascule_log::Log::create(Path::new(path), identity, options, &committer)
            .map(Log::new)
            .map_err(|error| raise(&error))
    }

    #[pyo3(signature = (path, incarnation, partition, *, memory, segment_bytes, segment_age_ns, preallocate_bytes))]
    #[allow(clippy::too_many_arguments)] // keywords: the settings of a log
    fn open(
        &self,
        path: &str,
        incarnation: u64,
        partition: u32,
        memory: bool,
        segment_bytes: u64,
        segment_age_ns: i64,
        preallocate_bytes: u64,
    ) -> PyResult<(Log, Report)> {
        let options = options(memory, segment_bytes, segment_age_ns, preallocate_bytes);
        let identity = LogId {
            incarnation,
            partition,
        };
        let committer = self.committer()?;
        let (log, recovery) =
            bascule_log::Log::open(Path::new(path), identity, options, &committer)
                .map_err(|error| raise(&error))?;
        let report = (
            recovery.scanned_bytes,
            recovery.batches,
            recovery.cut_bytes,
            recovery.damaged,
            recovery.clean,
        );
        Ok((Log::new(log), report))
    }

    fn step(&self) -> PyResult<bool> {
        Ok(self.committer()?.step())
    }

    fn journal_losses(&self) -> PyResult<Vec<(String, u64)>> {
        let damages = self.committer()?.wal_damages();
        let lost = damages.into_iter().filter(|damage| damage.was_acked);
        Ok(lost
            .map(|damage| (damage.path.display().to_string(), damage.position))
            .collect())
    }

    fn failure(&self) -> PyResult<Option<String>> {
        Ok(self.committer()?.failure())
    }

    /// Ends the life; nothing more is written.
    fn end(&self) {
        *self.committer.lock() = None;
    }
}
