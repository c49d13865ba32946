//! What Rust tells Python: a bounded queue that Python pulls in batches, woken by an eventfd.
use bytes::Bytes;
use std::time::Duration;

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

/// A failed admin request: gRPC status code and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// gRPC status code.
    pub code: i32,
    /// Status message.
    pub message: String,
}

/// The queue and the requests that wait for an answer.
#[derive(Debug)]
pub struct Events {
    _private: (),
}
impl Events {
    /// An empty queue that holds at most `capacity` events; beyond it requests are refused with UNAVAILABLE and other
    /// events are dropped and counted, except `committed`, which waits for room.
    pub fn new(_capacity: usize) -> std::io::Result<Self> {
        todo!()
    }

    /// Queues an event. Never blocks.
    pub fn push(&self, _event: Event) {
        todo!()
    }

    /// A line for the log: one per change of state, never per message. `level` 10, 20, 30, 40.
    pub fn log(&self, _level: u64, _target: &str, _message: String, _fields: serde_json::Value) {
        todo!()
    }

    /// Hands a request to the control plane and waits for its answer, at most `timeout` (the caller's deadline) or 60 s.
    /// Cancel-safe: a dropped future forgets the request.
    ///
    /// # Errors
    /// What Python answered; DEADLINE_EXCEEDED (4) or UNAVAILABLE (14) when nobody did.
    pub async fn request(&self, _name: &str, _body: Bytes, _peer: &str, _timeout: Option<Duration>) -> Result<Bytes, Refusal> {
        todo!()
    }
}
