//! Group commit: one round of syncs at a time for a whole data directory.
//!
//! A round takes all queued requests, syncs each distinct file once, then each distinct directory, then answers all
//! requests. A request that arrives during a round joins the next one; no timer delays a round.
//!
//! Threads: the committer runs the rounds. The background worker does what acks must not wait for: preallocation, index
//! files, checkpoints, removal of segments. The compactor, started by the first compaction, compacts. The threads end when
//! the last handle is dropped and their queues are empty. A stepped group committer has no threads: its owner calls
//! [`GroupCommitter::step`], which does all of the work.
//!
//! After a failed sync the directory stays failed: the kernel may have dropped the dirty pages, so a second sync that
//! succeeds proves nothing.
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
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// Added to the niceness of the compactor: beside a thread of normal priority it gets a tenth of a core.
#[cfg(target_os = "linux")]
const COMPACTION_NICE: i32 = 10;

/// How often a cut of a log is tried while the WAL has no room for it, and how long between two tries.
const CUT_TRIES: u32 = 600;
const CUT_PAUSE: Duration = Duration::from_millis(50);

/// Counts and times of syncs since start, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncStatistics {
    /// Rounds completed.
    pub rounds: u64,
    /// Files synced.
    pub files: u64,
    /// Requests answered.
    pub requests: u64,
    /// Time spent in rounds, ns.
    pub nanos: u64,
    /// Longest round, ns.
    pub longest_nanos: u64,
    /// Rounds by their duration.
    pub durations: Durations,
    /// Rounds that synced the WAL in place of segments.
    pub wal_rounds: u64,
    /// Bytes written to the WAL, in addition to the segments.
    pub wal_bytes: u64,
}

/// Group commit for one data directory.
///
/// After a failed sync every queued and later request gets the error, until the directory is opened by a new process.
pub struct GroupCommitter {
    queue: Arc<SyncQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
    background: Background,
    /// Compacts one log at a time; started by the first compaction.
    compactor: Mutex<Option<Worker>>,
}

/// Who runs the background jobs.
enum Background {
    Thread(Worker),
    /// The caller of [`GroupCommitter::step`].
    Stepped(Jobs),
    /// Nobody: the operating system refused the thread.
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
    /// Starts the threads. When the operating system refuses one, the directory counts as failed.
    pub fn start() -> Arc<Self> {
        Self::start_on(Arc::new(OsStorage))
    }

    /// As [`GroupCommitter::start`], on another storage.
    pub fn start_on(storage: Arc<dyn Storage>) -> Arc<Self> {
        let background = Worker::start("log-background");
        let queue = SyncQueue::new(Files::new(storage), true, None);
        Self::with_threads(queue, background)
    }

    /// As [`GroupCommitter::start_on`], with a WAL for rounds in which many partitions are dirty. The WAL of the last
    /// run is scanned now, and replayed into each log when it is opened.
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

    /// A group committer without threads. All work is done in [`GroupCommitter::step`], and in the calls of a log that wait for
    /// earlier work ([`crate::Log::close`], [`crate::Log::delete`] and a change of durability). The same calls in the same order
    /// make the same calls to the storage.
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

    /// Runs one round for all queued requests, then all queued jobs, including those submitted meanwhile. Returns whether there
    /// was anything to do. With threads it does nothing and returns `false`.
    pub fn step(&self) -> bool {
        let Background::Stepped(jobs) = &self.background else {
            return false;
        };
        let any = self.queue.run_once();
        jobs.run_all() || any
    }

    /// Returns whether the owner does the work by [`GroupCommitter::step`].
    pub(crate) fn is_stepped(&self) -> bool {
        matches!(self.background, Background::Stepped(_))
    }

    /// The files of the data directory.
    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.queue.files
    }

    /// Sets how many segments are kept open, at least 1; the default is 512. Segments with unsynced writes stay open beyond
    /// this limit.
    pub fn set_open_segments(&self, segments: usize) {
        self.queue.files.set_limit(segments);
    }

    /// Closes the files of segments that were neither read nor written since the last call and have nothing unsynced. They are
    /// reopened on use.
    pub fn close_idle_files(&self) {
        self.queue.files.close_idle();
    }

    /// Counts and times since the start.
    pub fn statistics(&self) -> SyncStatistics {
        self.queue.statistics()
    }

    /// A number that is odd while a round of syncs waits for the disk, and another one after each of its calls: an odd one that
    /// stays shows a call that does not end.
    pub fn progress(&self) -> u64 {
        self.queue.progress()
    }

    /// Damage of the WAL that was found when it was opened, in the order in which it was written. [`crate::Log::open`] returns
    /// the records that a log lost by it.
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

    /// As [`GroupCommitter::record_cut`] of the log in `directory`; waits for room.
    ///
    /// # Errors
    /// [`Error::Full`]: there was none within half a minute. [`Error::Io`].
    pub(crate) fn wait_for_cut(
        &self,
        directory: &Path,
        log: LogId,
        offset: u64,
        epoch: u64,
    ) -> Result<(), Error> {
        for _ in 0..CUT_TRIES {
            if self.record_cut(log, offset, epoch)? {
                return Ok(());
            }
            if !self.step() && !self.is_stepped() {
                thread::sleep(CUT_PAUSE);
            }
        }
        Err(Error::Full {
            path: directory.to_path_buf(),
        })
    }

    /// Syncs the segments whose batches only the WAL has, once all logs are closed; nothing in a directory that has failed.
    /// Blocks.
    pub fn flush_wal(&self) {
        let wal = self.queue.wal();
        if let Some(wal) = wal.filter(|_| self.queue.failure().is_none()) {
            wal.flush();
        }
    }

    /// The first failure, if any: then nothing from this directory is acknowledged until a restart.
    pub fn failure(&self) -> Option<String> {
        self.queue
            .failure()
            .map(|failure| failure.to_error().to_string())
    }

    /// Calls `listener` once with the text of the first failure; immediately if it has happened already. The call is on the
    /// thread that met the failure and must not block. No commit succeeds while it runs or later.
    pub fn on_failure(&self, listener: Box<dyn Fn(&str) + Send + Sync>) {
        self.queue.files.health().listen(listener);
    }

    /// [`Error::Failed`] once the directory has failed.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        self.queue
            .failure()
            .map_or(Ok(()), |failure| Err(failure.to_error()))
    }

    /// The queue of sync requests.
    pub(crate) fn sync_queue(&self) -> &Arc<SyncQueue> {
        &self.queue
    }

    /// Submits jobs to the background worker.
    pub(crate) fn background(&self) -> JobSender {
        match &self.background {
            Background::Thread(worker) => worker.sender(),
            Background::Stepped(jobs) => jobs.sender(),
            Background::Missing => JobSender::closed(),
        }
    }

    /// Submits jobs to the compactor. Without a thread for it jobs are dropped and may be submitted again.
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

/// Lowers the priority of this thread: no client waits for it.
fn let_others_first() {
    // On other systems this changes the whole process. A refusal costs time only.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(COMPACTION_NICE);
}

fn clone_io(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), error.to_string())
}
