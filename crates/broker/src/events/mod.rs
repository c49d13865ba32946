//! Events for the control plane: a bounded queue that Python pulls in batches, woken by an eventfd.
//!
//! The eventfd is written once when the queue stops being empty and read when it is empty again. What the metadata log
//! says is never dropped (proposals are bounded where they enter); requests beyond the capacity are refused, other events
//! dropped and counted. An eighth of the capacity is kept from requests, so that a flood of them hides no event.
mod kinds;
mod limiter;

use bascule_wire::ErrorCode;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Code;

pub use kinds::{Caller, Event, Level, NatsChange, PartitionChange, Rejection, Request};
pub(crate) use limiter::LogLimiter;

/// How long a request without a deadline waits for the control plane.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Most requests without an answer, and most bytes of their bodies that wait, unless set otherwise.
const REQUESTS: usize = 1024;
const REQUEST_BYTES: usize = 64 << 20;

type Reply = oneshot::Sender<Result<Bytes, Rejection>>;

/// The queue and the requests that wait for an answer.
#[derive(Debug)]
pub struct Events {
    queue: Mutex<Queue>,
    requests: Mutex<HashMap<u64, Reply>>,
    next_request: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    capacity: usize,
    most_requests: usize,
    most_request_bytes: usize,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// In bodies of requests.
    request_bytes: usize,
    signalled: bool,
    closed: bool,
}

/// Forgets a request whose caller went away.
struct Registered<'a> {
    events: &'a Events,
    id: u64,
}
impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.events.requests.lock().remove(&self.id);
    }
}

impl Events {
    /// An empty queue that holds at most `capacity` events, beside those that are never dropped.
    ///
    /// # Errors
    /// When the system gives no eventfd.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        Ok(Self {
            queue: Mutex::default(),
            requests: Mutex::default(),
            next_request: AtomicU64::new(1),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            capacity,
            most_requests: REQUESTS,
            most_request_bytes: REQUEST_BYTES,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The same with other bounds of requests: how many may be without an answer, and how many bytes of their bodies may wait.
    #[must_use]
    pub fn with_requests(mut self, most: usize, bytes: usize) -> Self {
        self.most_requests = most;
        self.most_request_bytes = bytes;
        self
    }

    /// Requests without an answer.
    pub fn requests_open(&self) -> usize {
        self.requests.lock().len()
    }

    /// Requests that found no room so far.
    pub fn requests_refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The eventfd's number, for an event loop.
    pub fn descriptor(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Queues an event. Never blocks.
    pub fn push(&self, event: Event) {
        self.try_push(event);
    }

    fn try_push(&self, event: Event) -> bool {
        let mut queue = self.queue.lock();
        if queue.closed || !self.has_room(&queue, &event) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        queue.request_bytes += event.request_bytes().unwrap_or(0);
        queue.events.push_back(event);
        if !queue.signalled {
            // a full counter is readable all the same
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
            queue.signalled = true;
        }
        true
    }

    fn has_room(&self, queue: &Queue, event: &Event) -> bool {
        let count = queue.events.len();
        if let Some(bytes) = event.request_bytes() {
            let bytes = queue.request_bytes.saturating_add(bytes);
            let fits = queue.request_bytes == 0 || bytes <= self.most_request_bytes;
            return fits && count < self.capacity - self.capacity / 8;
        }
        count < self.capacity || event.is_never_dropped()
    }

    /// Whether somebody still waits for the answer to a request.
    pub fn is_awaited(&self, id: u64) -> bool {
        self.requests.lock().contains_key(&id)
    }

    /// Takes up to `most` events, oldest first. Requests whose caller has gone count, and are left out.
    pub fn poll(&self, most: usize) -> Vec<Event> {
        let mut taken = self.take(most);
        let requests = self.requests.lock();
        taken.retain(|event| match event {
            Event::Request(request) => requests.contains_key(&request.id),
            _ => true,
        });
        taken
    }

    fn take(&self, most: usize) -> Vec<Event> {
        let mut queue = self.queue.lock();
        let count = most.min(queue.events.len());
        let taken: Vec<Event> = queue.events.drain(..count).collect();
        let bytes: usize = taken.iter().filter_map(Event::request_bytes).sum();
        queue.request_bytes -= bytes;
        if queue.events.is_empty() && queue.signalled {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            queue.signalled = false;
        }
        taken
    }

    /// Events that have not been taken yet.
    pub fn waiting(&self) -> usize {
        self.queue.lock().events.len()
    }

    /// Events that found no room so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// A line for the log: one per change of state, never per message.
    pub fn log(&self, level: Level, target: &str, message: String, fields: Value) {
        let target = target.to_owned();
        self.push(Event::Log {
            level,
            target,
            message,
            fields,
        });
    }

    /// Hands a request to the control plane and waits for its answer, at most `timeout` (the caller's deadline) or 60 s.
    /// Cancel-safe: a dropped future forgets the request.
    ///
    /// # Errors
    /// The answer of Python; `DEADLINE_EXCEEDED` (4) or UNAVAILABLE (14) when there was none.
    pub async fn request(
        &self,
        method: &str,
        body: Bytes,
        caller: Caller,
        timeout: Option<Duration>,
    ) -> Result<Bytes, Rejection> {
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        if !self.register(id, reply) {
            return Err(self.full());
        }
        let _registered = Registered { events: self, id };
        let pushed = self.try_push(Event::Request(Request {
            id,
            method: method.to_owned(),
            body,
            caller,
            timeout,
        }));
        if !pushed {
            return Err(self.full());
        }
        match tokio::time::timeout(timeout.unwrap_or(REQUEST_TIMEOUT), answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(stopping()),
            Err(_) => Err(Rejection::new(
                Code::DeadlineExceeded,
                ErrorCode::DeadlineExceeded,
                "the control plane did not answer in time",
            )),
        }
    }

    /// Takes note of a request; false when there are too many already.
    fn register(&self, id: u64, reply: Reply) -> bool {
        let mut requests = self.requests.lock();
        let fits = requests.len() < self.most_requests;
        if fits {
            requests.insert(id, reply);
        }
        fits
    }

    fn full(&self) -> Rejection {
        if self.queue.lock().closed {
            return stopping();
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "limits.admin_requests ({}) or limits.admin_request_bytes ({}) of admin requests wait: try again later",
            self.most_requests, self.most_request_bytes
        );
        Rejection::new(Code::ResourceExhausted, ErrorCode::Busy, text)
    }

    /// Answers a request; unknown ids are ignored.
    pub fn respond(&self, id: u64, outcome: Result<Bytes, Rejection>) {
        if let Some(reply) = self.requests.lock().remove(&id) {
            let _ = reply.send(outcome);
        }
    }

    /// Refuses what waits and what comes from now on.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.requests.lock().clear();
    }
}

fn stopping() -> Rejection {
    Rejection::new(
        Code::Unavailable,
        ErrorCode::Unavailable,
        "the broker is stopping",
    )
}

#[cfg(test)]
mod tests;
