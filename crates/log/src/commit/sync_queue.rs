//! The rounds of a group committer: take the queued requests, make their data durable, answer them.
//!
//! With few dirty segments a round usually syncs each file; with many it writes to the [`Wal`] instead, if there is one.
use crate::commit::group_committer::SyncStatistics;
use crate::commit::histogram::Histogram;
use crate::commit::progress::Progress;
use crate::failpoint;
use crate::io::disk::SyncFile;
use crate::io::failure::Failure;
use crate::io::files::Files;
use crate::wal::{Wal, WalWrite};
use crate::{Error, IoOp};
use bascule_record::planted_bug::{self, PlantedBug};
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Instant;

/// A round syncs in parallel from this number of dirty files on, with as many threads.
const PARALLEL: usize = 4;

type Answer = Box<dyn FnOnce(Result<(), &Failure>) + Send>;

/// What has to be durable before `answer` is called.
pub(crate) struct SyncRequest {
    /// The file to sync first.
    pub file: Option<Arc<SyncFile>>,
    /// One more.
    pub also: Option<Arc<SyncFile>>,
    /// The range that a log adds to its active segment: synced there or in the WAL.
    pub range: Option<WalWrite>,
    /// A directory to sync after the files.
    pub directory: Option<Arc<SyncFile>>,
    /// Called on the committer's thread.
    pub answer: Answer,
}

#[derive(Default)]
struct Waiting {
    requests: Vec<SyncRequest>,
    closing: bool,
}

/// Sync requests of one data directory. Outlives the handle for as long as a thread needs it.
pub(crate) struct SyncQueue {
    /// The files, and where they are.
    pub files: Arc<Files>,
    /// Whether a round may use threads of its own.
    threads: bool,
    wal: Option<Arc<Wal>>,
    waiting: Mutex<Waiting>,
    wake: Condvar,
    finished: AtomicU64,
    synced_files: AtomicU64,
    wal_rounds: AtomicU64,
    wal_bytes: AtomicU64,
    requests: AtomicU64,
    nanos: AtomicU64,
    longest_nanos: AtomicU64,
    durations: Histogram,
    progress: Progress,
}

impl std::fmt::Debug for SyncQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncQueue")
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

impl SyncQueue {
    /// A queue over these files. With `threads` a round may use threads of its own.
    pub fn new(files: Arc<Files>, threads: bool, wal: Option<Arc<Wal>>) -> Arc<Self> {
        Arc::new(Self {
            files,
            threads,
            wal,
            waiting: Mutex::default(),
            wake: Condvar::new(),
            finished: AtomicU64::new(0),
            synced_files: AtomicU64::new(0),
            wal_rounds: AtomicU64::new(0),
            wal_bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            longest_nanos: AtomicU64::new(0),
            durations: Histogram::default(),
            progress: Progress::default(),
        })
    }

    /// What was done so far.
    pub fn statistics(&self) -> SyncStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SyncStatistics {
            rounds: read(&self.finished),
            files: read(&self.synced_files),
            requests: read(&self.requests),
            nanos: read(&self.nanos),
            longest_nanos: read(&self.longest_nanos),
            durations: self.durations.durations(),
            wal_rounds: read(&self.wal_rounds),
            wal_bytes: read(&self.wal_bytes),
        }
    }

    /// Odd while a round waits for the disk; another number after each of its calls.
    pub fn progress(&self) -> u64 {
        self.progress.value()
    }

    /// The WAL, where there is one.
    pub fn wal(&self) -> Option<&Arc<Wal>> {
        self.wal.as_ref()
    }

    /// Ends the committer once the queue is empty; later requests are refused.
    pub fn close(&self) {
        self.waiting.lock().closing = true;
        self.wake.notify_one();
    }

    /// Drops queued requests without an answer, as the end of a process does: a request may hold what holds this queue.
    pub fn forget_waiting(&self) {
        let unanswered = std::mem::take(&mut self.waiting.lock().requests);
        drop(unanswered);
    }

    /// Runs one round on this thread. Returns whether there were requests.
    pub fn run_once(&self) -> bool {
        let mut requests = std::mem::take(&mut self.waiting.lock().requests);
        let any = !requests.is_empty();
        if any {
            self.round(&mut requests);
        }
        any
    }

    /// Queues a request; never blocks.
    pub fn submit(&self, request: SyncRequest) {
        let mut waiting = self.waiting.lock();
        if waiting.closing {
            drop(waiting);
            let failure = Failure {
                operation: IoOp::Sync,
                path: PathBuf::from("the log"),
                reason: "the group committer has stopped".into(),
            };
            (request.answer)(Err(&failure));
            return;
        }
        waiting.requests.push(request);
        // The committer looks at the queue before it waits, so only the first request has to wake it.
        let wake = waiting.requests.len() == 1;
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
    }

    /// The first failure.
    pub fn failure(&self) -> Option<&Failure> {
        self.files.health().failure()
    }

    /// Runs rounds until closed.
    pub fn run(&self) {
        let mut requests = Vec::new();
        while self.take(&mut requests) {
            self.round(&mut requests);
        }
    }

    /// Waits for requests; `false` when the queue is closed and empty.
    fn take(&self, requests: &mut Vec<SyncRequest>) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.requests.is_empty() {
            if waiting.closing {
                return false;
            }
            match self.wal.as_ref().and_then(|wal| wal.due_in()) {
                None => self.wake.wait(&mut waiting),
                Some(pause) => {
                    if self.wake.wait_for(&mut waiting, pause).timed_out() {
                        drop(waiting);
                        self.flush_when_due();
                        waiting = self.waiting.lock();
                    }
                }
            }
        }
        std::mem::swap(&mut waiting.requests, requests);
        true
    }

    fn round(&self, requests: &mut Vec<SyncRequest>) {
        let round = self.finished.load(Ordering::Relaxed) + 1;
        if self.failure().is_none() {
            let started = Instant::now();
            self.progress.begin();
            let synced = self.sync_all(round, requests);
            self.progress.end();
            match synced {
                Ok(files) => {
                    failpoint::pass("publish.synced");
                    self.synced_files.fetch_add(files as u64, Ordering::Relaxed);
                }
                Err(_) if planted_bug::is_active(PlantedBug::SyncErrorIgnored) => {}
                Err(error) => self.files.fail(&error),
            }
            let elapsed = started.elapsed();
            self.durations.record(elapsed);
            let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
            self.nanos.fetch_add(nanos, Ordering::Relaxed);
            self.longest_nanos.fetch_max(nanos, Ordering::Relaxed);
        }
        self.finished.store(round, Ordering::Relaxed);
        self.requests
            .fetch_add(requests.len() as u64, Ordering::Relaxed);
        for request in requests.drain(..) {
            // A callback that panics is a bug of its owner; the other requests must still be answered.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.files.health().answer(request.answer);
            }));
        }
        self.flush_when_due();
    }

    fn flush_when_due(&self) {
        if let Some(wal) = self.wal.as_ref().filter(|_| self.failure().is_none()) {
            wal.flush_when_due();
        }
    }

    /// Syncs every distinct file, or the WAL in place of the segments, then every distinct directory. Returns the number of
    /// files.
    fn sync_all(&self, round: u64, requests: &[SyncRequest]) -> Result<usize, Error> {
        failpoint::check("publish.before_sync")
            .map_err(|source| Error::io(IoOp::Sync, Path::new("the log"), source))?;
        let mut files: Vec<&SyncFile> = requests
            .iter()
            .flat_map(|request| [request.file.as_deref(), request.also.as_deref()])
            .flatten()
            .filter(|file| file.first_in(round))
            .collect();
        let ranges: Vec<&WalWrite> = requests
            .iter()
            .filter_map(|request| request.range.as_ref())
            .collect();
        let dirty: Vec<&SyncFile> = ranges
            .iter()
            .map(|range| &*range.file)
            .filter(|file| file.first_in(round))
            .collect();
        let mut synced = files.len();
        let bytes = ranges.iter().map(|range| range.bytes()).sum();
        let wal = self.wal.as_ref().filter(|wal| wal.wants(&dirty, bytes));
        if wal.is_some() {
            // Sealed segments first: a frame of the WAL implies that everything before it was synced.
            self.sync_files(&std::mem::take(&mut files))?;
        }
        let in_wal = wal.map_or(Ok(false), |wal| self.write(wal, &ranges))?;
        if !in_wal {
            synced += dirty.len();
            files.extend(dirty);
        }
        self.sync_files(&files)?;
        requests
            .iter()
            .filter_map(|request| request.directory.as_deref())
            .filter(|directory| directory.first_in(round))
            .try_for_each(|directory| {
                self.progress.passed();
                directory.sync_names()
            })?;
        for range in ranges {
            range.shared.set_in_wal(in_wal);
            if !in_wal {
                range.shared.raise_segment_synced_end(range.end);
            }
        }
        Ok(synced + usize::from(in_wal))
    }

    fn sync_files(&self, files: &[&SyncFile]) -> Result<(), Error> {
        if !self.threads || files.len() < PARALLEL {
            files.iter().try_for_each(|file| self.sync(file))
        } else {
            self.sync_parallel(files)
        }
    }

    /// Returns whether the WAL took the ranges.
    fn write(&self, wal: &Arc<Wal>, ranges: &[&WalWrite]) -> Result<bool, Error> {
        let Some(bytes) = wal.write(ranges)? else {
            return Ok(false);
        };
        self.progress.passed();
        self.wal_rounds.fetch_add(1, Ordering::Relaxed);
        self.wal_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(true)
    }

    fn sync(&self, file: &SyncFile) -> Result<(), Error> {
        let synced = file.sync();
        self.progress.passed();
        synced
    }

    fn sync_parallel(&self, files: &[&SyncFile]) -> Result<(), Error> {
        let each = |chunk: &[&SyncFile]| chunk.iter().try_for_each(|file| self.sync(file));
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
                    Err(Error::io(IoOp::Sync, Path::new("the log"), source))
                });
                result = result.and(outcome);
            }
            result
        })
    }
}
