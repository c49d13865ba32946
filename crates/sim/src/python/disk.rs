//! The class `Disk`.
use crate::disk::{Crash, Faults, SimDisk};
use crate::storage::{SharedDisk, SimStorage};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::Path;
use std::sync::Arc;

/// A simulated disk.
#[pyclass(frozen)]
pub(crate) struct Disk {
    disk: SharedDisk,
}

impl Disk {
    /// The engine's door to it.
    pub fn storage(&self) -> SimStorage {
        SimStorage(Arc::clone(&self.disk))
    }
}

#[pymethods]
impl Disk {
    #[new]
    fn new(seed: u64) -> Self {
        Self {
            disk: Arc::new(Mutex::new(SimDisk::new(seed))),
        }
    }

    #[pyo3(signature = (*, read=0.0, write=0.0, sync=0.0, open=0.0, misdirect=0.0, write_back=0.0, no_descriptors=false, space=None))]
    #[allow(clippy::too_many_arguments)] // keywords, one per kind of fault
    fn set_faults(
        &self,
        read: f64,
        write: f64,
        sync: f64,
        open: f64,
        misdirect: f64,
        write_back: f64,
        no_descriptors: bool,
        space: Option<u64>,
    ) {
        self.disk.lock().faults = Faults {
            read,
            write,
            sync,
            open,
            misdirect,
            write_back,
            no_descriptors,
            space,
        };
    }

    fn set_now(&self, now_ns: i64) {
        let mut disk = self.disk.lock();
        disk.monotonic += now_ns.saturating_sub(disk.now).max(0);
        disk.now = now_ns;
    }

    fn stop_after(&self, operations: u64) {
        let mut disk = self.disk.lock();
        disk.stop_at = disk.counts.operations.saturating_add(operations);
    }

    fn is_stopped(&self) -> bool {
        self.disk.lock().is_stopped()
    }

    fn crash(&self, keep: f64, tear: f64, noise: f64, keep_names: f64) {
        let how = Crash { keep, tear, noise };
        self.disk.lock().crash(keep_names, how);
    }

    fn restart(&self) {
        self.disk.lock().restart();
    }

    fn fork(&self) -> Self {
        let disk = self.disk.lock().clone();
        Self {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    fn digest(&self) -> u64 {
        self.disk.lock().digest()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.disk.lock().counts;
        vec![
            ("operations", counts.operations),
            ("syncs", counts.syncs),
            ("faults", counts.faults),
            ("failed_syncs", counts.failed_syncs),
            ("misdirected", counts.misdirected),
            ("pages_kept", counts.kept),
            ("pages_lost", counts.lost),
            ("pages_torn", counts.torn),
            ("names_lost", counts.names_lost),
        ]
    }

    fn paths(&self) -> Vec<String> {
        let found = self.disk.lock().walk();
        found.into_iter().map(|(path, _)| path).collect()
    }

    #[pyo3(signature = (path, *, durable=false))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        durable: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut disk = self.disk.lock();
        let node = disk.find(Path::new(path))?;
        let file = disk.file(node)?;
        let bytes = if durable { file.durable() } else { file.data() };
        Ok(PyBytes::new(py, bytes))
    }

    fn damage(&self, path: &str, position: usize, bytes: &[u8]) -> PyResult<()> {
        let mut disk = self.disk.lock();
        let node = disk.find(Path::new(path))?;
        disk.file(node)?.damage(position, bytes);
        Ok(())
    }

    fn truncate(&self, path: &str, len: usize) -> PyResult<()> {
        let mut disk = self.disk.lock();
        let node = disk.find(Path::new(path))?;
        disk.file(node)?.damage_length(len);
        Ok(())
    }

    fn make_directory(&self, path: &str) -> PyResult<()> {
        use bascule_log::{OpenMode, Storage};
        let storage = self.storage();
        storage.create_directory(Path::new(path))?;
        storage
            .open(Path::new("/"), OpenMode::Directory)?
            .sync_all()?;
        Ok(())
    }

    /// Pages that landed in the wrong place, of files that are still there: path, position meant, position hit.
    fn misdirected(&self) -> Vec<(String, usize, usize)> {
        let disk = self.disk.lock();
        let paths = disk.walk();
        let place = |(node, meant, hit): &(u64, usize, usize)| {
            let (path, _) = paths.iter().find(|(_, other)| other == node)?;
            Some((path.clone(), *meant, *hit))
        };
        disk.misdirected.iter().filter_map(place).collect()
    }
}
