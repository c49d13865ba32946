//! The operating system's storage with one fault: from the n-th call that can fail so on, for a given number of calls.
#![allow(dead_code)] // each test program uses its part
use bascule_log::{FileWrapper, OpenMode, OsStorage, Storage, StorageFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What a call does; which errors it can have depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Open,
    Create,
    Read,
    Write,
    Sync,
    Name,
    Remove,
    Cut,
    Look,
}

/// An error of the operating system and the calls that can have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Eio,
    Enospc,
    Edquot,
    Erofs,
    Emfile,
    Enfile,
}

impl Fault {
    pub const ALL: [Self; 6] = [
        Self::Eio,
        Self::Enospc,
        Self::Edquot,
        Self::Erofs,
        Self::Emfile,
        Self::Enfile,
    ];

    /// Returns whether it ends by itself when space or descriptors return.
    pub fn passes(self) -> bool {
        !matches!(self, Self::Eio | Self::Erofs)
    }

    pub fn can_hit(self, kind: Kind) -> bool {
        match self {
            Self::Eio => true,
            Self::Enospc | Self::Edquot => {
                matches!(kind, Kind::Create | Kind::Write | Kind::Sync | Kind::Name)
            }
            Self::Erofs => !matches!(kind, Kind::Read | Kind::Look | Kind::Sync),
            Self::Emfile | Self::Enfile => matches!(kind, Kind::Open | Kind::Create | Kind::Look),
        }
    }

    fn error(self) -> io::Error {
        let errno = match self {
            Self::Eio => rustix::io::Errno::IO,
            Self::Enospc => rustix::io::Errno::NOSPC,
            Self::Edquot => rustix::io::Errno::DQUOT,
            Self::Erofs => rustix::io::Errno::ROFS,
            Self::Emfile => rustix::io::Errno::MFILE,
            Self::Enfile => rustix::io::Errno::NFILE,
        };
        errno.into()
    }
}

/// What is to fail, and what has.
#[derive(Debug, Default)]
struct Plan {
    fault: Option<Fault>,
    waits_for: Option<Fault>,
    /// Calls until the fault, among those it can hit.
    calls_left: u64,
    /// How many fail then.
    failures_left: u64,
    /// Calls seen that the fault can hit.
    seen: u64,
    hits: Vec<(Kind, PathBuf)>,
}

#[derive(Clone, Debug, Default)]
pub struct Faulty(Arc<Mutex<Plan>>);

#[derive(Debug)]
struct FaultyFile {
    storage: Faulty,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

impl Faulty {
    /// Fails `failures` calls that `fault` can hit, after `calls` that go well.
    pub fn new(fault: Fault, calls: u64, failures: u64) -> Arc<Self> {
        Arc::new(Self(Arc::new(Mutex::new(Plan {
            fault: Some(fault),
            calls_left: calls,
            failures_left: failures,
            ..Plan::default()
        }))))
    }

    /// Nothing fails and nothing is counted before [`Faulty::arm`].
    pub fn disarmed(fault: Fault, calls: u64, failures: u64) -> Arc<Self> {
        let storage = Self::new(fault, calls, failures);
        let mut plan = storage.0.lock().unwrap();
        plan.waits_for = plan.fault.take();
        drop(plan);
        storage
    }

    /// From now on calls are counted and fail.
    pub fn arm(&self) {
        let mut plan = self.0.lock().unwrap();
        plan.fault = plan.waits_for.take().or(plan.fault);
    }

    /// From now on everything goes well.
    pub fn heal(&self) {
        self.0.lock().unwrap().fault = None;
    }

    /// Calls that the fault could have hit.
    pub fn seen(&self) -> u64 {
        self.0.lock().unwrap().seen
    }

    /// What failed.
    pub fn hits(&self) -> Vec<(Kind, PathBuf)> {
        self.0.lock().unwrap().hits.clone()
    }

    fn pass(&self, kind: Kind, path: &Path) -> io::Result<()> {
        let mut plan = self.0.lock().unwrap();
        let Some(fault) = plan.fault.filter(|fault| fault.can_hit(kind)) else {
            return Ok(());
        };
        plan.seen += 1;
        if plan.calls_left > 0 {
            plan.calls_left -= 1;
            return Ok(());
        }
        if plan.failures_left == 0 {
            return Ok(());
        }
        plan.failures_left -= 1;
        plan.hits.push((kind, path.to_path_buf()));
        Err(fault.error())
    }
}

impl Storage for Faulty {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let kind = match mode {
            OpenMode::Create | OpenMode::Replace => Kind::Create,
            OpenMode::Read | OpenMode::ReadWrite | OpenMode::Directory => Kind::Open,
        };
        self.pass(kind, path)?;
        Ok(Arc::new(FaultyFile {
            storage: self.clone(),
            path: path.to_path_buf(),
            file: OsStorage.open(path, mode)?,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(Kind::Name, from)?;
        OsStorage.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.pass(Kind::Remove, path)?;
        OsStorage.remove_file(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.pass(Kind::Name, path)?;
        OsStorage.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.pass(Kind::Remove, path)?;
        OsStorage.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.pass(Kind::Look, path)?;
        OsStorage.list(path)
    }
}

impl FileWrapper for FaultyFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.storage.pass(Kind::Read, &self.path)?;
        self.file.read_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if let Err(error) = self.storage.pass(Kind::Write, &self.path) {
            // A failed write may leave any part behind.
            self.file
                .write_all_at(&bytes[..bytes.len() / 2], position)?;
            return Err(error);
        }
        self.file.write_all_at(bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage.pass(Kind::Cut, &self.path)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // No power is cut here: a real sync would take long and prove nothing.
        self.storage.pass(Kind::Sync, &self.path)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.storage.pass(Kind::Sync, &self.path)
    }
}
