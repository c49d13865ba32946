//! What Rust tells Python: a bounded queue that Python pulls in batches, woken by an eventfd.
//!
//! The eventfd is written once when the queue stops being empty and read when it is empty again. What the metadata log
//! says is never dropped (proposals are bounded where they enter); requests beyond the capacity are refused, other events
//! dropped and counted. An eighth of the capacity is kept from requests, so that a flood of them hides no event.
use crate::grpc_status::{Coded, usual_code};
use bascule_wire::ErrorCode;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::{Code, Status};

/// How long a request without a deadline waits for the control plane.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
const REQUEST: &str = "request";
/// Most requests without an answer, and most bytes of their bodies that wait, unless told otherwise.
const REQUESTS: usize = 1024;
const REQUEST_BYTES: usize = 64 << 20;
/// Answers to the proposer: losing one would leave it waiting.
const NEVER_DROPPED: [&str; 3] = ["committed", "failed", "barrier"];

/// One event, as `_native.pyi` describes it.
#[derive(Clone, Debug)]
pub struct Event {
    /// Kind.
    pub kind: &'static str,
    /// Id.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Body.
    pub body: Bytes,
    /// Text.
    pub text: String,
    /// Number.
    pub number: i64,
}

/// A failed admin request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// gRPC status code.
    pub status: i32,
    /// Status message.
    pub message: String,
    /// Code of the error; `None` = the usual one of the status.
    pub code: Option<ErrorCode>,
    /// Values of the message by name: an object.
    pub details: Value,
}

impl Rejection {
    fn new(status: Code, code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            status: status as i32,
            message: message.into(),
            code: Some(code),
            details: json!({}),
        }
    }

    /// As the call ends.
    pub(crate) fn into_status(self) -> Status {
        let status = Code::from(self.status);
        let code = self.code.unwrap_or_else(|| usual_code(status));
        Status::new(status, self.message).detailed(code, self.details)
    }
}

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
        if event.kind == REQUEST {
            queue.request_bytes += event.body.len();
        }
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
        if event.kind == REQUEST {
            let bytes = queue.request_bytes.saturating_add(event.body.len());
            let fits = queue.request_bytes == 0 || bytes <= self.most_request_bytes;
            return fits && count < self.capacity - self.capacity / 8;
        }
        count < self.capacity || NEVER_DROPPED.contains(&event.kind)
    }

    /// Takes up to `most` events, oldest first.
    pub fn poll(&self, most: usize) -> Vec<Event> {
        let mut queue = self.queue.lock();
        let count = most.min(queue.events.len());
        let taken: Vec<Event> = queue.events.drain(..count).collect();
        let requests = taken.iter().filter(|event| event.kind == REQUEST);
        let bytes: usize = requests.map(|event| event.body.len()).sum();
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

    /// A line for the log: one per change of state, never per message. `level` 10, 20, 30, 40.
    #[allow(clippy::needless_pass_by_value)] // callers make the fields on the spot
    pub fn log(&self, level: u64, target: &str, message: String, fields: serde_json::Value) {
        self.push(Event {
            kind: "log",
            id: level,
            name: target.into(),
            body: fields.to_string().into(),
            text: message,
            number: 0,
        });
    }

    /// Hands a request to the control plane and waits for its answer, at most `timeout` (the caller's deadline) or 60 s.
    /// Cancel-safe: a dropped future forgets the request.
    ///
    /// # Errors
    /// What Python answered; `DEADLINE_EXCEEDED` (4) or UNAVAILABLE (14) when nobody did.
    pub async fn request(
        &self,
        name: &str,
        body: Bytes,
        peer: &str,
        timeout: Option<Duration>,
    ) -> Result<Bytes, Rejection> {
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        if !self.register(id, reply) {
            return Err(self.full());
        }
        let _registered = Registered { events: self, id };
        let pushed = self.try_push(Event {
            kind: REQUEST,
            id,
            name: name.into(),
            body,
            text: peer.into(),
            number: timeout.map_or(-1, |left| {
                i64::try_from(left.as_millis()).unwrap_or(i64::MAX)
            }),
        });
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
mod tests {
    use super::*;

    fn event(kind: &'static str, id: u64) -> Event {
        Event {
            kind,
            id,
            name: String::new(),
            body: Bytes::new(),
            text: String::new(),
            number: 0,
        }
    }

    #[test]
    fn events_come_out_in_order_and_overflow_is_counted() {
        let events = Events::new(2).unwrap();
        for id in 0..3 {
            events.push(event("log", id));
        }
        events.push(event("committed", 9));
        let ids: Vec<_> = events.poll(10).iter().map(|event| event.id).collect();
        assert_eq!(ids, [0, 1, 9]);
        assert_eq!(events.dropped(), 1);
    }

    #[test]
    fn requests_leave_room_for_events_and_bodies_are_bounded() {
        let events = Events::new(16).unwrap();
        let request = |bytes: usize| {
            let mut request = event(REQUEST, 1);
            request.body = Bytes::from(vec![0; bytes]);
            events.try_push(request)
        };
        assert!(request(REQUEST_BYTES + 1));
        assert!(!request(1));
        events.poll(1);
        assert!((0..14).all(|_| request(1)));
        assert!(!request(1));
        events.push(event("log", 2));
        assert_eq!(events.poll(99).last().map(|event| event.kind), Some("log"));
        assert!(request(1));
    }

    #[test]
    fn answers_to_the_proposer_are_never_dropped() {
        let events = Events::new(8).unwrap();
        for id in 0..20 {
            events.push(event(["committed", "failed", "barrier"][id % 3], id as u64));
        }
        assert_eq!(events.poll(99).len(), 20);
        assert_eq!(events.dropped(), 0);
    }

    #[test]
    fn the_eventfd_is_readable_exactly_while_events_wait() {
        let events = Events::new(10).unwrap();
        let readable = || {
            let mut fds = [rustix::event::PollFd::new(
                &events.wake,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
        };
        assert!(!readable());
        events.push(event("log", 1));
        events.push(event("log", 2));
        assert!(readable());
        events.poll(1);
        assert!(readable());
        events.poll(1);
        assert!(!readable());
    }

    #[tokio::test]
    async fn a_request_gets_its_answer_and_a_late_one_is_ignored() {
        let events = std::sync::Arc::new(Events::new(10).unwrap());
        let asking = {
            let events = events.clone();
            tokio::spawn(async move {
                events
                    .request("x/Y", Bytes::from_static(b"in"), "peer", None)
                    .await
            })
        };
        let asked = loop {
            if let Some(event) = events.poll(1).pop() {
                break event;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(
            (asked.name.as_str(), &asked.body[..], asked.number),
            ("x/Y", &b"in"[..], -1)
        );
        events.respond(asked.id, Ok(Bytes::from_static(b"out")));
        assert_eq!(asking.await.unwrap().unwrap(), "out");
        events.respond(asked.id, Ok(Bytes::new()));
    }

    #[tokio::test]
    async fn requests_beyond_the_bound_are_refused_and_counted() {
        let events = Events::new(100).unwrap().with_requests(1, 100);
        let short = Some(Duration::from_millis(50));
        let ask = || events.request("x/Y", Bytes::new(), "peer", short);
        let (first, second) = tokio::join!(ask(), ask());
        assert_eq!(first.unwrap_err().status, Code::DeadlineExceeded as i32);
        let refused = second.unwrap_err();
        assert_eq!(refused.code, Some(ErrorCode::Busy));
        assert!(refused.message.contains("limits.admin_requests (1)"));
        assert_eq!((events.requests_open(), events.requests_refused()), (0, 1));
    }

    #[tokio::test]
    async fn a_request_that_nobody_answers_ends_with_its_deadline() {
        let events = Events::new(10).unwrap();
        let outcome = events
            .request("x/Y", Bytes::new(), "peer", Some(Duration::from_millis(10)))
            .await;
        assert_eq!(outcome.unwrap_err().status, Code::DeadlineExceeded as i32);
        assert!(events.requests.lock().is_empty());
    }
}
