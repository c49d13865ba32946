//! Queues of jobs, run by a thread or by the owner of the queue, in order of submission; a job of [`JobSender::submit_first`]
//! runs before all others. The thread ends when its handle is dropped and the queue is empty.
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// One unit of work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// The handle that owns the thread.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(name: &str) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || theirs.run())?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// A handle to submit jobs, which does not keep the thread alive.
    pub fn sender(&self) -> JobSender {
        JobSender(Arc::clone(&self.shared))
    }
}

/// Jobs that their owner runs, without a thread.
#[derive(Default)]
pub(crate) struct Jobs(Arc<Shared>);

impl Jobs {
    /// A handle to submit jobs.
    pub fn sender(&self) -> JobSender {
        JobSender(Arc::clone(&self.0))
    }

    /// Runs all queued jobs, including those submitted meanwhile. Returns whether there were any.
    pub fn run_all(&self) -> bool {
        let mut any = false;
        while let Some(job) = self.0.next() {
            any = true;
            run(job);
        }
        any
    }
}

impl Drop for Jobs {
    /// Drops the queued jobs: a job may hold a sender of this queue.
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closing = true;
        let unrun = std::mem::take(&mut queue.jobs);
        drop(queue);
        drop(unrun);
    }
}

/// Submits jobs.
#[derive(Clone)]
pub(crate) struct JobSender(Arc<Shared>);

impl std::fmt::Debug for JobSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSender").finish_non_exhaustive()
    }
}

impl JobSender {
    /// A sender without a thread: submitted jobs are dropped.
    pub fn closed() -> Self {
        let shared = Shared::default();
        shared.queue.lock().closing = true;
        Self(Arc::new(shared))
    }

    /// Queues a job. After the worker was dropped, the job is dropped unrun.
    pub fn submit(&self, job: Job) {
        self.put(job, VecDeque::push_back);
    }

    /// Queues a job before all others; it must not depend on any of them.
    pub fn submit_first(&self, job: Job) {
        self.put(job, VecDeque::push_front);
    }

    /// Queued jobs.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.0.queue.lock().jobs.len()
    }

    fn put(&self, job: Job, push: fn(&mut VecDeque<Job>, Job)) {
        let mut queue = self.0.queue.lock();
        if !queue.closing {
            push(&mut queue.jobs, job);
            drop(queue);
            self.0.wake.notify_one();
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.take() {
            run(job);
        }
    }

    fn next(&self) -> Option<Job> {
        self.queue.lock().jobs.pop_front()
    }

    fn take(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closing {
                return None;
            }
            self.wake.wait(&mut queue);
        }
    }
}

/// Runs a job. A panic is a bug of that job and must not stop the others.
fn run(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_one();
        join(self.thread.get_mut().take());
    }
}

/// Waits for a thread to end, unless it is the caller.
pub(crate) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && thread.thread().id() != std::thread::current().id()
    {
        // An error is a panic that the thread could not catch; there is no one left to report it to.
        let _ = thread.join();
    }
}
