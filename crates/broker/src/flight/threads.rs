//! Threads for work that may wait for the disk: the one that was used last is used first.
//!
//! tokio's blocking threads take turns. A scan hands one megabyte after the other from them to the connection, and each
//! thread has a heap of its own, in which freed buffers stay: one scan kept 200 MiB in them. Here a lone scan stays on one
//! thread. Threads end when they were idle for [`KEEP_ALIVE`], and their memory goes back.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, available_parallelism};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// How long an idle thread stays.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Most threads; beyond them tokio's are used, which queue what is too much.
const MOST: usize = 256;

/// Does its work and returns what delivers the outcome.
type Job = Box<dyn FnOnce() -> Delivery + Send>;
type Delivery = Box<dyn FnOnce() + Send>;

/// The work was not done, or not to its end: it panicked, or no thread could be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its thread ended")]
pub struct Lost;

/// A waiting thread.
struct Idle {
    id: usize,
    jobs: Sender<Job>,
}

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static NEXT_ID: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` where it may block. Not cancel-safe: when the future is dropped the work is done all the same.
///
/// # Errors
/// [`Lost`].
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Lost> {
    let (sender, receiver) = oneshot::channel();
    let job: Job = Box::new(move || {
        let outcome = work();
        Box::new(move || {
            // This fails when nobody waits any more.
            let _ = sender.send(outcome);
        })
    });
    hand_over(job)?;
    receiver.await.map_err(|_| Lost)
}

/// Answers that are computed at once: half of the processors, so that publishes and reads have the others.
static ANSWERING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new((processors / 2).max(1)))
});

/// [`run`] for an answer that takes milliseconds of a processor: few at once, the others wait without a thread.
///
/// # Errors
/// [`Lost`].
pub async fn answer<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Lost> {
    let permit = ANSWERING.clone().acquire_owned().await.map_err(|_| Lost)?;
    run(move || {
        let answer = work();
        drop(permit);
        answer
    })
    .await
}

fn hand_over(job: Job) -> Result<(), Lost> {
    let idle = idle().pop();
    let refused = match idle {
        Some(thread) => match thread.jobs.send(job) {
            Ok(()) => return Ok(()),
            Err(refused) => refused.0,
        },
        None => job,
    };
    if RUNNING.fetch_add(1, Ordering::AcqRel) >= MOST {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
        tokio::task::spawn_blocking(move || refused()());
        return Ok(());
    }
    let place = Place;
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let started = Builder::new()
        .name("flight".to_owned())
        .spawn(move || work_until_idle(place, id, refused));
    started.map(drop).map_err(|_| Lost)
}

/// One of [`MOST`]; given back on drop, also when a job panics.
struct Place;

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

#[allow(clippy::needless_pass_by_value)] // the thread owns its place
fn work_until_idle(_place: Place, id: usize, first: Job) {
    let (jobs, queue) = channel();
    let mut job = first;
    loop {
        let deliver = job();
        idle().push(Idle {
            id,
            jobs: jobs.clone(),
        });
        // Whoever gets the outcome finds this thread waiting for more.
        deliver();
        let Some(next) = next_job(id, &queue) else {
            return;
        };
        job = next;
    }
}

/// The next job; `None` when none came in time.
fn next_job(id: usize, queue: &Receiver<Job>) -> Option<Job> {
    if let Ok(job) = queue.recv_timeout(KEEP_ALIVE) {
        return Some(job);
    }
    {
        let mut waiting = idle();
        if let Some(at) = waiting.iter().position(|thread| thread.id == id) {
            waiting.remove(at);
            return None;
        }
    }
    // Somebody has just taken this thread, and sends its job.
    queue.recv().ok()
}

fn idle() -> MutexGuard<'static, Vec<Idle>> {
    // The list is whole at every point where a panic could be.
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[tokio::test]
    async fn work_one_after_the_other_stays_on_one_thread_and_beside_each_other_does_not() {
        let first = run(|| thread::current().id()).await.unwrap();
        for _ in 0..100 {
            assert_eq!(run(|| thread::current().id()).await.unwrap(), first);
        }
        let (go, wait) = channel::<()>();
        let blocked = tokio::spawn(run(move || wait.recv().is_ok()));
        tokio::task::yield_now().await;
        let other = run(|| thread::current().id()).await.unwrap();
        assert_ne!(other, first, "its thread is busy");
        go.send(()).unwrap();
        assert!(blocked.await.unwrap().unwrap());
        assert_eq!(run(|| panic!("a defect")).await, Err::<(), _>(Lost));
        assert_eq!(run(|| 5).await, Ok(5));
    }
}
