//! How long a call's request may take to begin, and what ends it before it has arrived.
use super::places::Arrival;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

/// A request on its way in.
#[derive(Debug)]
pub(super) struct Request {
    /// Held until it has arrived: a call of one message when its body has ended, any other with its first message.
    arrival: Option<Arrival>,
    /// Whether the method takes one message.
    is_single: bool,
    longest: Duration,
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Request {
    /// One that begins now. One message must be there, and the end behind it, within `longest`; the first of several may
    /// take any time.
    pub(super) fn new(arrival: Arrival, is_single: bool, longest: Duration) -> Self {
        Self {
            arrival: Some(arrival),
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
            self.arrival = None;
        }
    }

    /// Why the call ends before its request has arrived.
    pub(super) fn lost(&self) -> Option<Status> {
        let arrival = self.arrival.as_ref()?;
        arrival.is_lost().then(|| {
            Status::resource_exhausted(
                "the call gave way to another before its request had arrived: limits.calls calls are open, or the share of the client; send again later",
            )
        })
    }

    /// The same while nothing comes; wakes the task when that changes. `is_idle`: no message has begun.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_idle: bool) -> Option<Status> {
        self.arrival.as_ref()?.register(cx.waker());
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
