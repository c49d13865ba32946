//! The time limit for the request of a call, and the errors that end a call before its request has arrived.
use super::call_limiter::PendingRequest;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

/// A request that is arriving.
#[derive(Debug)]
pub(super) struct Request {
    /// Held until it has arrived: a call of one message when its body has ended, any other with its first message.
    pending: Option<PendingRequest>,
    /// Whether the method takes one message.
    is_single: bool,
    longest: Duration,
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Request {
    /// A request that begins now. A method with one message must get the message and the end of the request within `longest`;
    /// the first of several messages may take any time.
    pub(super) fn new(pending: PendingRequest, is_single: bool, longest: Duration) -> Self {
        Self {
            pending: Some(pending),
            is_single,
            longest,
            since: Instant::now(),
            timer: None,
        }
    }

    /// A message is whole.
    pub(super) fn on_message(&mut self) {
        if self.is_single {
            self.since = Instant::now();
            self.timer = None;
        } else {
            self.pending = None;
        }
    }

    /// The error of an evicted call.
    pub(super) fn lost(&self) -> Option<Status> {
        let pending = self.pending.as_ref()?;
        pending.is_evicted().then(|| {
            Status::resource_exhausted(
                "the call gave way to another before its request had arrived: limits.calls calls are open, or the share of the client; send again later",
            )
        })
    }

    /// The error of an evicted or late call; wakes the task when there is one. `is_idle`: no message has begun.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_idle: bool) -> Option<Status> {
        self.pending.as_ref()?.register(cx.waker());
        if let Some(lost) = self.lost() {
            return Some(lost);
        }
        if !self.is_single || !is_idle {
            return None;
        }
        let until = self.since + self.longest;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        let Poll::Ready(()) = timer.as_mut().poll(cx) else {
            return None;
        };
        let longest = self.longest.as_millis();
        let text = format!(
            "the request did not arrive within limits.first_message_ms ({longest}): send one message and end the request, or raise it"
        );
        Some(Status::deadline_exceeded(text))
    }
}
