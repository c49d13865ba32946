//! A thread that runs jobs in the order they were handed in. It ends when its handle is dropped and the queue is empty.
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
    pub fn door(&self) -> Door {
        Door(Arc::clone(&self.shared))
    }
}

/// Hands in jobs.
#[derive(Clone)]
pub(crate) struct Door(Arc<Shared>);

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

impl Door {
    /// A door behind which no thread works: what is handed in is dropped.
    pub fn closed() -> Self {
        let shared = Shared::default();
        shared.queue.lock().closing = true;
        Self(Arc::new(shared))
    }

    /// Queues a job. After the worker was dropped, the job is dropped unrun.
    pub fn submit(&self, job: Job) {
        let mut queue = self.0.queue.lock();
        if !queue.closing {
            queue.jobs.push_back(job);
            drop(queue);
            self.0.wake.notify_one();
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.take() {
            // A job that panics is a bug of that job; the others still have to be done.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
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
