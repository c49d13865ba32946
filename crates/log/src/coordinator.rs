//! Group commit: one round of syncs at a time for a whole data directory.
//!
//! A round takes every request that waits, syncs each distinct file once, then each distinct directory, then answers
//! all. What arrives during a round joins the next one; nothing waits for a timer.
//!
//! Threads: the committer runs the rounds; a second, the preparer, does what acks must not wait for (zeros ahead of the
//! tail, index files, checkpoints, removal of segments); a third, begun when it is first needed, compacts. They end when
//! the last handle is dropped and nothing waits.
//! A stepped coordinator has neither: its owner calls [`Coordinator::step`], and everything happens in that call.
//!
//! After a failed sync the directory is failed for good: the kernel may have dropped the pages, so a
//! second sync that succeeds would prove nothing.
use crate::Error;
use crate::disk::{SyncFile, is_lost, is_passing};
use crate::failpoint;
use crate::files::Files;
use crate::storage::{OsStorage, Storage};
use crate::worker::{Door, Jobs, Worker, join};
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Dirty files from which on a round syncs in parallel, and how many syncs run at once then.
const PARALLEL: usize = 4;

/// Counts and times of syncs since start, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncStatistics {
    /// Rounds (barriers) done.
    pub rounds: u64,
    /// Files synced.
    pub files: u64,
    /// Requests answered.
    pub requests: u64,
    /// Time in syncs, ns.
    pub nanos: u64,
    /// Longest round, ns.
    pub longest_nanos: u64,
}

/// The first failure of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    operation: &'static str,
    path: PathBuf,
    reason: String,
}

impl Failure {
    /// The error for whoever asks from now on.
    pub fn to_error(&self) -> Error {
        Error::Failed {
            path: self.path.clone(),
            operation: self.operation,
            reason: self.reason.clone(),
        }
    }
}

type Answer = Box<dyn FnOnce(Result<(), &Failure>) + Send>;

/// What has to be durable before `answer` is told so.
pub(crate) struct SyncRequest {
    /// The file to sync first.
    pub file: Option<Arc<SyncFile>>,
    /// One more.
    pub also: Option<Arc<SyncFile>>,
    /// A directory to sync after the files.
    pub directory: Option<Arc<SyncFile>>,
    /// Called on the committer's thread.
    pub answer: Answer,
}

#[derive(Default)]
struct Queue {
    requests: Vec<SyncRequest>,
    closing: bool,
}

/// The state that outlives the handle for as long as a thread needs it.
pub(crate) struct Rounds {
    /// The files, and where they are.
    pub files: Arc<Files>,
    /// Whether a round may use threads of its own.
    threads: bool,
    queue: Mutex<Queue>,
    wake: Condvar,
    failure: OnceLock<Failure>,
    finished: AtomicU64,
    synced_files: AtomicU64,
    requests: AtomicU64,
    nanos: AtomicU64,
    longest_nanos: AtomicU64,
}

/// The committer of one data directory. Owns two threads, which end when the last handle is dropped, or none.
///
/// After a failed sync the directory is failed for good: every waiting and later request gets the error.
pub struct Coordinator {
    rounds: Arc<Rounds>,
    committer: Mutex<Option<JoinHandle<()>>>,
    preparer: Preparer,
    /// Compacts logs, one at a time; started by the first one.
    compactor: Mutex<Option<Worker>>,
}

/// Who does what acks must not wait for.
enum Preparer {
    Thread(Worker),
    /// The caller of [`Coordinator::step`].
    Stepped(Jobs),
    /// Nobody: the system gave no thread.
    Missing,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator")
            .field("statistics", &self.statistics())
            .field("failure", &self.rounds.failure())
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Starts the threads. When the operating system gives none, the directory counts as failed.
    pub fn start() -> Arc<Self> {
        Self::start_on(Arc::new(OsStorage))
    }

    /// As [`Coordinator::start`], on another storage.
    pub fn start_on(storage: Arc<dyn Storage>) -> Arc<Self> {
        let rounds = Arc::new(Rounds::new(storage, true));
        let theirs = Arc::clone(&rounds);
        let committer = Builder::new()
            .name("log-commit".into())
            .spawn(move || theirs.run());
        let preparer = Worker::start("log-prepare");
        for error in [committer.as_ref().err(), preparer.as_ref().err()]
            .into_iter()
            .flatten()
        {
            rounds.fail(&Error::io(
                "start a thread for",
                Path::new("the log"),
                clone_io(error),
            ));
        }
        Arc::new(Self {
            rounds,
            committer: Mutex::new(committer.ok()),
            preparer: preparer.map_or(Preparer::Missing, Preparer::Thread),
            compactor: Mutex::new(None),
        })
    }

    /// A coordinator without threads: nothing is synced, answered or prepared but in [`Coordinator::step`], and in the
    /// calls of a log that wait for what was asked before ([`crate::Log::close`], [`crate::Log::delete`] and a change of
    /// class). The same calls in the same order do the same to the storage.
    pub fn stepped(storage: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            rounds: Arc::new(Rounds::new(storage, false)),
            committer: Mutex::new(None),
            preparer: Preparer::Stepped(Jobs::default()),
            compactor: Mutex::new(None),
        })
    }

    /// Of a stepped coordinator: runs one round for all requests that wait, then every job that waits, those handed in
    /// meanwhile included. Returns whether there was anything to do. Of one with threads: does nothing, `false`.
    pub fn step(&self) -> bool {
        let Preparer::Stepped(jobs) = &self.preparer else {
            return false;
        };
        let mut requests = std::mem::take(&mut self.rounds.queue.lock().requests);
        let any = !requests.is_empty();
        if any {
            self.rounds.round(&mut requests);
        }
        jobs.run_all() || any
    }

    /// Whether its owner does the work by [`Coordinator::step`].
    pub(crate) fn is_stepped(&self) -> bool {
        matches!(self.preparer, Preparer::Stepped(_))
    }

    /// The files of the data directory.
    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.rounds.files
    }

    /// Sets how many sealed segments are kept open for readers, at least 1; 512 when nothing was set. Active segments are
    /// always open and not counted.
    pub fn set_open_segments(&self, segments: usize) {
        self.rounds.files.set_limit(segments);
    }

    /// What was done so far.
    pub fn statistics(&self) -> SyncStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SyncStatistics {
            rounds: read(&self.rounds.finished),
            files: read(&self.rounds.synced_files),
            requests: read(&self.rounds.requests),
            nanos: read(&self.rounds.nanos),
            longest_nanos: read(&self.rounds.longest_nanos),
        }
    }

    /// The first failure, if any: then nothing is acked from this directory until restart.
    pub fn failure(&self) -> Option<String> {
        self.rounds
            .failure()
            .map(|failure| failure.to_error().to_string())
    }

    /// The first failure as an error for the one who asks.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        self.rounds
            .failure()
            .map_or(Ok(()), |failure| Err(failure.to_error()))
    }

    /// The committer's side.
    pub(crate) fn rounds(&self) -> &Arc<Rounds> {
        &self.rounds
    }

    /// Where work that acks must not wait for is handed in.
    pub(crate) fn preparer(&self) -> Door {
        match &self.preparer {
            Preparer::Thread(worker) => worker.door(),
            Preparer::Stepped(jobs) => jobs.door(),
            Preparer::Missing => Door::closed(),
        }
    }

    /// Where compactions are handed in. Without a thread for them they are dropped, and may be tried again.
    pub(crate) fn compactor(&self) -> Door {
        if !matches!(self.preparer, Preparer::Thread(_)) {
            return self.preparer();
        }
        let mut worker = self.compactor.lock();
        if worker.is_none() {
            *worker = Worker::start("log-compact").ok();
        }
        worker.as_ref().map_or_else(Door::closed, Worker::door)
    }
}

impl std::fmt::Debug for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rounds")
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.rounds.queue.lock().closing = true;
        self.rounds.wake.notify_one();
        join(self.committer.get_mut().take());
    }
}

impl Rounds {
    fn new(storage: Arc<dyn Storage>, threads: bool) -> Self {
        Self {
            files: Files::new(storage),
            threads,
            queue: Mutex::default(),
            wake: Condvar::new(),
            failure: OnceLock::new(),
            finished: AtomicU64::new(0),
            synced_files: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            longest_nanos: AtomicU64::new(0),
        }
    }

    /// Where files are.
    pub fn storage(&self) -> &dyn Storage {
        self.files.storage()
    }

    /// Queues a request; never blocks.
    pub fn submit(&self, request: SyncRequest) {
        let mut queue = self.queue.lock();
        if queue.closing {
            drop(queue);
            let failure = Failure {
                operation: "shutdown",
                path: PathBuf::from("the log"),
                reason: "the coordinator has ended".into(),
            };
            (request.answer)(Err(&failure));
            return;
        }
        queue.requests.push(request);
        // The committer looks at the queue before it waits, so only the first request has to wake it.
        let wake = queue.requests.len() == 1;
        drop(queue);
        if wake {
            self.wake.notify_one();
        }
    }

    /// The first failure.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Fails the directory for good; only the first reason is kept.
    pub fn fail(&self, error: &Error) {
        let (operation, path, reason) = match error {
            Error::Io {
                operation,
                path,
                source,
            } => (*operation, path.clone(), source.to_string()),
            Error::Full { path } => ("write", path.clone(), "no space left".into()),
            other => ("write", PathBuf::from("the log"), other.to_string()),
        };
        // Already failed: the first reason stands.
        let _ = self.failure.set(Failure {
            operation,
            path,
            reason,
        });
    }

    /// As [`Rounds::fail`], unless the error is a lack of space or descriptors.
    pub fn fail_unless_passing(&self, error: &Error) {
        if !is_passing(error) {
            self.fail(error);
        }
    }

    /// Fails the directory when the error means that something may not be on disk.
    pub fn fail_if_lost(&self, error: &Error) {
        if is_lost(error) {
            self.fail(error);
        }
    }

    fn run(&self) {
        let mut requests = Vec::new();
        while self.take(&mut requests) {
            self.round(&mut requests);
        }
    }

    /// Waits for requests; `false` when there will be none.
    fn take(&self, requests: &mut Vec<SyncRequest>) -> bool {
        let mut queue = self.queue.lock();
        while queue.requests.is_empty() {
            if queue.closing {
                return false;
            }
            self.wake.wait(&mut queue);
        }
        std::mem::swap(&mut queue.requests, requests);
        true
    }

    fn round(&self, requests: &mut Vec<SyncRequest>) {
        let round = self.finished.load(Ordering::Relaxed) + 1;
        if self.failure().is_none() {
            let started = Instant::now();
            match self.sync_all(round, requests) {
                Ok(files) => {
                    failpoint::pass("publish.synced");
                    self.synced_files.fetch_add(files as u64, Ordering::Relaxed);
                }
                Err(error) => self.fail(&error),
            }
            let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.nanos.fetch_add(nanos, Ordering::Relaxed);
            self.longest_nanos.fetch_max(nanos, Ordering::Relaxed);
        }
        self.finished.store(round, Ordering::Relaxed);
        self.requests
            .fetch_add(requests.len() as u64, Ordering::Relaxed);
        let result = self.failure().map_or(Ok(()), Err);
        for request in requests.drain(..) {
            // A callback that panics is a bug of its owner; the others must still be told.
            let _ = catch_unwind(AssertUnwindSafe(|| (request.answer)(result)));
        }
    }

    /// Syncs every distinct file, then every distinct directory. Returns the number of files.
    fn sync_all(&self, round: u64, requests: &[SyncRequest]) -> Result<usize, Error> {
        failpoint::check("publish.before_sync")
            .map_err(|source| Error::io("sync", Path::new("the log"), source))?;
        let files: Vec<&SyncFile> = requests
            .iter()
            .flat_map(|request| [request.file.as_deref(), request.also.as_deref()])
            .flatten()
            .filter(|file| file.first_in(round))
            .collect();
        if !self.threads || files.len() < PARALLEL {
            files.iter().try_for_each(|file| file.sync())?;
        } else {
            sync_parallel(&files)?;
        }
        requests
            .iter()
            .filter_map(|request| request.directory.as_deref())
            .filter(|directory| directory.first_in(round))
            .try_for_each(SyncFile::sync_names)?;
        Ok(files.len())
    }
}

fn sync_parallel(files: &[&SyncFile]) -> Result<(), Error> {
    let each = |chunk: &[&SyncFile]| chunk.iter().try_for_each(|file| file.sync());
    std::thread::scope(|scope| {
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        for chunk in files.chunks(files.len().div_ceil(PARALLEL)) {
            // One chunk, and what finds no thread, is done here.
            let thread = (others.len() + 1 < PARALLEL)
                .then(|| Builder::new().spawn_scoped(scope, move || each(chunk)));
            match thread {
                Some(Ok(thread)) => others.push(thread),
                _ => mine.push(chunk),
            }
        }
        let mut result = mine.into_iter().try_for_each(each);
        for other in others {
            let outcome = other.join().unwrap_or_else(|_| {
                let source = std::io::Error::other("the syncing thread panicked");
                Err(Error::io("sync", Path::new("the log"), source))
            });
            result = result.and(outcome);
        }
        result
    })
}

fn clone_io(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), error.to_string())
}
