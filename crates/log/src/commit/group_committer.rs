//! Group commit: one round of syncs at a time for a whole data directory.
//!
//! A round takes every request that waits, syncs each distinct file once, then each distinct directory, then answers
//! all. What arrives during a round joins the next one; nothing waits for a timer.
//!
//! Threads: the committer runs the rounds; a second, the background worker, does what acks must not wait for (zeros ahead of the
//! tail, index files, checkpoints, removal of segments); a third, begun when it is first needed, compacts. They end when
//! the last handle is dropped and nothing waits.
//! A stepped group committer has neither: its owner calls [`GroupCommitter::step`], and everything happens in that call.
//!
//! After a failed sync the directory is failed for good: the kernel may have dropped the pages, so a
//! second sync that succeeds would prove nothing.
use crate::commit::histogram::Durations;
pub(crate) use crate::commit::sync_queue::{SyncQueue, SyncRequest};
use crate::io::files::Files;
use crate::io::jobs::{JobSender, Jobs, Worker, join};
use crate::io::storage::{OsStorage, Storage};
use crate::wal::format::Cut;
use crate::wal::{Wal, WalDamage, WalOptions};
use crate::{Error, IoOp, LogId};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Added to the niceness of the thread that compacts: beside a thread of the usual one it gets a tenth of a core.
#[cfg(target_os = "linux")]
const COMPACTION_NICE: i32 = 10;

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
    /// Rounds by their duration.
    pub durations: Durations,
    /// Rounds that synced the WAL in place of segments.
    pub wal_rounds: u64,
    /// Bytes written to the journal: they are written once more, to the segments.
    pub wal_bytes: u64,
}

/// The committer of one data directory. Owns two threads, which end when the last handle is dropped, or none.
///
/// After a failed sync the directory is failed for good: every waiting and later request gets the error.
pub struct GroupCommitter {
    queue: Arc<SyncQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
    background: Background,
    /// Compacts logs, one at a time; started by the first one.
    compactor: Mutex<Option<Worker>>,
}

/// Who does what acks must not wait for.
enum Background {
    Thread(Worker),
    /// The caller of [`GroupCommitter::step`].
    Stepped(Jobs),
    /// Nobody: the system gave no thread.
    Missing,
}

impl std::fmt::Debug for GroupCommitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCommitter")
            .field("statistics", &self.statistics())
            .field("failure", &self.queue.failure())
            .finish_non_exhaustive()
    }
}

impl GroupCommitter {
    /// Starts the threads. When the operating system gives none, the directory counts as failed.
    pub fn start() -> Arc<Self> {
        Self::start_on(Arc::new(OsStorage))
    }

    /// As [`GroupCommitter::start`], on another storage.
    pub fn start_on(storage: Arc<dyn Storage>) -> Arc<Self> {
        let background = Worker::start("log-background");
        let queue = SyncQueue::new(Files::new(storage), true, None);
        Self::with_threads(queue, background)
    }

    /// As [`GroupCommitter::start_on`], with a WAL for rounds in which many partitions are dirty. What the last life left
    /// in it is looked at now, and taken over by each log when it is opened.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::NewerFormat`] when the WAL cannot be read.
    pub fn start_with_wal(
        storage: Arc<dyn Storage>,
        options: WalOptions,
    ) -> Result<Arc<Self>, Error> {
        let background = Worker::start("log-background");
        let sender = background
            .as_ref()
            .map_or_else(|_| JobSender::closed(), Worker::sender);
        let files = Files::new(storage);
        let wal = Wal::open(options, &files, sender, true)?;
        let queue = SyncQueue::new(files, true, Some(wal));
        Ok(Self::with_threads(queue, background))
    }

    fn with_threads(queue: Arc<SyncQueue>, background: std::io::Result<Worker>) -> Arc<Self> {
        let theirs = Arc::clone(&queue);
        let thread = Builder::new()
            .name("log-commit".into())
            .spawn(move || theirs.run());
        for error in [thread.as_ref().err(), background.as_ref().err()]
            .into_iter()
            .flatten()
        {
            queue.files.fail(&Error::io(
                IoOp::StartThread,
                Path::new("the log"),
                clone_io(error),
            ));
        }
        Arc::new(Self {
            queue,
            thread: Mutex::new(thread.ok()),
            background: background.map_or(Background::Missing, Background::Thread),
            compactor: Mutex::new(None),
        })
    }

    /// A group committer without threads: nothing is synced, answered or prepared but in [`GroupCommitter::step`], and in the
    /// calls of a log that wait for what was asked before ([`crate::Log::close`], [`crate::Log::delete`] and a change of
    /// class). The same calls in the same order do the same to the storage.
    pub fn stepped(storage: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            queue: SyncQueue::new(Files::new(storage), false, None),
            thread: Mutex::new(None),
            background: Background::Stepped(Jobs::default()),
            compactor: Mutex::new(None),
        })
    }

    /// As [`GroupCommitter::stepped`], with a WAL; its segments are synced after so many bytes or rounds.
    ///
    /// # Errors
    /// As [`GroupCommitter::start_with_wal`].
    pub fn stepped_with_wal(
        storage: Arc<dyn Storage>,
        options: WalOptions,
    ) -> Result<Arc<Self>, Error> {
        let (files, jobs) = (Files::new(storage), Jobs::default());
        let wal = Wal::open(options, &files, jobs.sender(), false)?;
        Ok(Arc::new(Self {
            queue: SyncQueue::new(files, false, Some(wal)),
            thread: Mutex::new(None),
            background: Background::Stepped(jobs),
            compactor: Mutex::new(None),
        }))
    }

    /// Of a stepped group committer: runs one round for all requests that wait, then every job that waits, those handed in
    /// meanwhile included. Returns whether there was anything to do. Of one with threads: does nothing, `false`.
    pub fn step(&self) -> bool {
        let Background::Stepped(jobs) = &self.background else {
            return false;
        };
        let any = self.queue.run_once();
        jobs.run_all() || any
    }

    /// Whether its owner does the work by [`GroupCommitter::step`].
    pub(crate) fn is_stepped(&self) -> bool {
        matches!(self.background, Background::Stepped(_))
    }

    /// The files of the data directory.
    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.queue.files
    }

    /// Sets how many segments are kept open, at least 1; 512 when nothing was set. Those with unsynced writes stay open
    /// beyond it.
    pub fn set_open_segments(&self, segments: usize) {
        self.queue.files.set_limit(segments);
    }

    /// Closes the files of segments that were neither read nor written since the last call and have nothing unsynced; they
    /// are opened again when they are used.
    pub fn close_idle_files(&self) {
        self.queue.files.close_idle();
    }

    /// What was done so far.
    pub fn statistics(&self) -> SyncStatistics {
        self.queue.statistics()
    }

    /// Damage of the WAL that was found when it was opened, in the order in which it was written. [`crate::Log::open`] returns
    /// what it costs a log.
    pub fn wal_damages(&self) -> Vec<WalDamage> {
        let wal = self.queue.wal();
        wal.map_or_else(Vec::new, |wal| wal.damages().to_vec())
    }

    /// Records in the WAL that a log ends at `offset` from now on, under leader epoch `epoch`: no start replays anything from
    /// there on that was written before. Durable when it returns; the segments are cut after it. `false`: there was no room,
    /// try again. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`]: then the directory has failed.
    pub fn record_cut(&self, log: LogId, offset: u64, epoch: u64) -> Result<bool, Error> {
        self.check_usable()?;
        let Some(wal) = self.queue.wal() else {
            return Ok(true);
        };
        let written = wal.cut(&Cut { log, offset, epoch });
        if let Err(error) = &written {
            self.queue.files.fail(error);
        }
        written
    }

    /// Syncs the segments whose batches only the WAL has, once all logs are closed; nothing in a directory that has failed.
    /// Blocks.
    pub fn flush_wal(&self) {
        let wal = self.queue.wal();
        if let Some(wal) = wal.filter(|_| self.queue.failure().is_none()) {
            wal.flush();
        }
    }

    /// The first failure, if any: then nothing is acked from this directory until restart.
    pub fn failure(&self) -> Option<String> {
        self.queue
            .failure()
            .map(|failure| failure.to_error().to_string())
    }

    /// Has `listener` told of the failure with a sentence, once: at once when it has happened before. It runs on the thread
    /// that found out and must not block; no good answer to a commit is given while it runs or later.
    pub fn on_failure(&self, listener: Box<dyn Fn(&str) + Send + Sync>) {
        self.queue.files.health().listen(listener);
    }

    /// The first failure as an error for the one who asks.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        self.queue
            .failure()
            .map_or(Ok(()), |failure| Err(failure.to_error()))
    }

    /// The committer's side.
    pub(crate) fn sync_queue(&self) -> &Arc<SyncQueue> {
        &self.queue
    }

    /// Where work that acks must not wait for is handed in.
    pub(crate) fn background(&self) -> JobSender {
        match &self.background {
            Background::Thread(worker) => worker.sender(),
            Background::Stepped(jobs) => jobs.sender(),
            Background::Missing => JobSender::closed(),
        }
    }

    /// Where compactions are handed in. Without a thread for them they are dropped, and may be tried again.
    pub(crate) fn compactor(&self) -> JobSender {
        if !matches!(self.background, Background::Thread(_)) {
            return self.background();
        }
        let mut worker = self.compactor.lock();
        if worker.is_none() {
            *worker = Worker::start("log-compact").ok();
            if let Some(worker) = &*worker {
                worker.sender().submit(Box::new(let_others_first));
            }
        }
        worker
            .as_ref()
            .map_or_else(JobSender::closed, Worker::sender)
    }
}

impl Drop for GroupCommitter {
    fn drop(&mut self) {
        self.queue.close();
        if self.is_stepped() {
            self.queue.forget_waiting();
        }
        join(self.thread.get_mut().take());
    }
}

/// Lowers the priority of this thread: nobody waits for it, and many wait for the others.
fn let_others_first() {
    // Elsewhere it would be that of the whole process. Refused it costs time only.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(COMPACTION_NICE);
}

fn clone_io(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), error.to_string())
}
