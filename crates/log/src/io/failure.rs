//! The first failure of a data directory, and its order among the answers to commits.
//!
//! A failed sync fails the directory before its caller gets the error ([`WatchedStorage`]), and by then no earlier answer is
//! still being given. So a caller that sees a failed sync knows that nothing is acknowledged any more.
//!
//! The lock is held while an answer is given: a callback must not take a lock that is held by a caller of the log.
use crate::io::storage::{FileWrapper, OpenMode, Storage, StorageFile, StorageWrapper};
use crate::{Error, IoOp};
use bascule_record::planted_bug::{self, PlantedBug};
use parking_lot::ReentrantMutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The first failure of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// What failed.
    pub operation: IoOp,
    /// On what.
    pub path: PathBuf,
    /// The text of the operating system.
    pub reason: String,
}

impl Failure {
    /// The error of every later request.
    pub fn to_error(&self) -> Error {
        Error::Failed {
            path: self.path.clone(),
            operation: self.operation,
            reason: self.reason.clone(),
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let (operation, path, reason) = match error {
            Error::Io {
                operation,
                path,
                source,
            } => (*operation, path.clone(), source.to_string()),
            Error::Full { path } => (IoOp::Write, path.clone(), "no space left".into()),
            other => (IoOp::Write, PathBuf::from("the log"), other.to_string()),
        };
        Self {
            operation,
            path,
            reason,
        }
    }
}

/// Called with the text of the failure.
pub(crate) type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// Whether a directory has failed.
#[derive(Default)]
pub(crate) struct Health {
    failure: OnceLock<Failure>,
    /// Held while an answer is given and while a failure is recorded. One thread may do both.
    order: ReentrantMutex<()>,
    listener: OnceLock<Listener>,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Health").field(&self.failure).finish()
    }
}

impl Health {
    /// The first failure.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Fails the directory for good; only the first reason is kept. When it returns, no good answer is given any more.
    pub fn fail(&self, failure: Failure) {
        let _order = self.order.lock();
        let text = failure.to_error().to_string();
        if self.failure.set(failure).is_ok()
            && let Some(listener) = self.listener.get()
        {
            listener(&text);
        }
    }

    /// Gives an answer: a good one only while nothing has failed, and nothing fails before it is given.
    pub fn answer(&self, answer: impl FnOnce(Result<(), &Failure>)) {
        let _order = self.order.lock();
        answer(self.failure().map_or(Ok(()), Err));
    }

    /// Sets the listener; only the first one counts. An earlier failure is reported to it immediately.
    pub fn listen(&self, listener: Listener) {
        let _order = self.order.lock();
        if let Some(failure) = self.failure() {
            listener(&failure.to_error().to_string());
        }
        // The first one stands.
        let _ = self.listener.set(listener);
    }
}

/// A storage whose failed syncs fail the directory.
#[derive(Debug)]
pub(crate) struct WatchedStorage {
    storage: Arc<dyn Storage>,
    health: Arc<Health>,
}

impl WatchedStorage {
    /// Watches all files opened through it.
    pub fn new(storage: Arc<dyn Storage>, health: &Arc<Health>) -> Arc<Self> {
        Arc::new(Self {
            storage,
            health: Arc::clone(health),
        })
    }
}

impl StorageWrapper for WatchedStorage {
    fn inner(&self) -> &dyn Storage {
        &*self.storage
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(WatchedFile {
            file: self.storage.open(path, mode)?,
            path: path.to_path_buf(),
            health: Arc::clone(&self.health),
        }))
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    health: Arc<Health>,
}

impl WatchedFile {
    /// Returns the outcome of a sync, after a failure has failed the directory.
    fn reported(&self, outcome: io::Result<()>) -> io::Result<()> {
        outcome.inspect_err(|error| {
            if planted_bug::is_active(PlantedBug::SyncErrorIgnored)
                || planted_bug::is_active(PlantedBug::SyncRetried)
            {
                return;
            }
            self.health.fail(Failure {
                operation: IoOp::Sync,
                path: self.path.clone(),
                reason: error.to_string(),
            });
        })
    }
}

impl FileWrapper for WatchedFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_cached_at(buffer, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.reported(self.file.sync_data())
    }

    fn forget_cached(&self, from: u64) -> io::Result<()> {
        self.reported(self.file.forget_cached(from))
    }

    fn drop_cached(&self, position: u64, bytes: u64) {
        self.file.drop_cached(position, bytes);
    }

    fn sync_all(&self) -> io::Result<()> {
        self.reported(self.file.sync_all())
    }
}
