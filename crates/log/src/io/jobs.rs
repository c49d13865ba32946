//! Jobs run in the order they were handed in, but for those that are handed in first: by a thread, which ends when its handle is dropped and the queue is empty,
//! or by whoever owns them.
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

    /// A handle to hand in jobs with, which does not keep the thread alive.
    pub fn sender(&self) -> JobSender {
        JobSender(Arc::clone(&self.shared))
    }
}

/// Jobs that no thread runs: their owner does.
#[derive(Default)]
pub(crate) struct Jobs(Arc<Shared>);

impl Jobs {
    /// A handle to hand in jobs with.
    pub fn sender(&self) -> JobSender {
        JobSender(Arc::clone(&self.0))
    }

    /// Runs what waits, and what is handed in meanwhile. Returns whether there was anything.
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
    /// What was not run never will be: a job may hold whatever hands in jobs.
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closing = true;
        let unrun = std::mem::take(&mut queue.jobs);
        drop(queue);
        drop(unrun);
    }
}

/// Hands in jobs.
#[derive(Clone)]
pub(crate) struct JobSender(Arc<Shared>);

impl std::fmt::Debug for JobSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSender").finish_non_exhaustive()
    }
}

impl JobSender {
    /// A door behind which no thread works: what is handed in is dropped.
    pub fn closed() -> Self {
        let shared = Shared::default();
        shared.queue.lock().closing = true;
        Self(Arc::new(shared))
    }

    /// Queues a job. After the worker was dropped, the job is dropped unrun.
    pub fn submit(&self, job: Job) {
        self.put(job, VecDeque::push_back);
    }

    /// The same before all that waits: it must not depend on any of that.
    pub fn submit_first(&self, job: Job) {
        self.put(job, VecDeque::push_front);
    }

    /// How many jobs wait.
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

/// A job that panics is a bug of that job; the others still have to be done.
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

/// Waits for a thread to end, unless it is the one that asks.
pub(crate) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && thread.thread().id() != std::thread::current().id()
    {
        // An error here is a panic that the thread could not catch; there is nobody left to tell.
        let _ = thread.join();
    }
}
