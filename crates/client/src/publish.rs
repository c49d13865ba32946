//! A batch over one PublishAsync call: pipelined in order, at most so many records in flight.
use crate::Error;
use crate::error::{Effect, async_code};
use crate::outgoing::{Chunk, Outgoing};
use crate::transport::{Incoming, Transport};
use bascule_wire::liftbridge::acks::{AckView, ResponseView};
use bascule_wire::liftbridge::methods;
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

/// Publishes and waits for every ack; with policy NONE only until the broker took everything in.
///
/// # Errors
/// The error of the first record that has one, its index in the details; `outcome_unknown` when the deadline passed or the
/// connection broke with acks outstanding.
pub(crate) async fn publish(
    transport: &Transport,
    batch: Outgoing,
    in_flight: usize,
    timeout: Duration,
) -> Result<Vec<(i64, i64)>, Error> {
    let deadline = Instant::now() + timeout;
    let unacknowledged = batch.is_unacknowledged();
    let mut acks = Acks::new(batch.len(), unacknowledged);
    let outcome = if batch.len() == 1 {
        tokio::time::timeout_at(deadline, one(transport, batch, timeout, &mut acks)).await
    } else {
        tokio::time::timeout_at(deadline, many(transport, batch, in_flight, &mut acks)).await
    };
    match outcome.unwrap_or_else(|_| Err(Error::deadline(Effect::Write))) {
        _ if acks.failure.is_some() || acks.is_complete() => acks.finish(),
        Ok(()) if unacknowledged => Ok(Vec::new()),
        Ok(()) => Err(acks.cut_short(Error::new(
            "outcome_unknown",
            "the broker ended the call before all acks came",
        ))),
        Err(error) => Err(acks.cut_short(error)),
    }
}

/// A single record is cheaper as a unary call.
async fn one(
    transport: &Transport,
    batch: Outgoing,
    timeout: Duration,
    acks: &mut Acks,
) -> Result<(), Error> {
    let Some(chunk) = batch.into_chunks().pop_front() else {
        return Ok(());
    };
    let answer = transport
        .unary(methods::PUBLISH, chunk.frames, timeout, Effect::Write)
        .await;
    let answer = answer.inspect_err(|error| acks.fail_definite(error))?;
    if let Some(ack) = ResponseView::read(answer).and_then(|response| response.ack) {
        acks.take_ack(0, &ack);
    }
    Ok(())
}

async fn many(
    transport: &Transport,
    batch: Outgoing,
    in_flight: usize,
    acks: &mut Acks,
) -> Result<(), Error> {
    let window = Arc::new(Window {
        answered: AtomicUsize::new(0),
        changed: Notify::new(),
    });
    let sender = Sender {
        chunks: batch.into_chunks(),
        sent: 0,
        in_flight,
        window: window.clone(),
        wait: !acks.is_unacknowledged,
    };
    let body = Body::new(StreamBody::new(stream::unfold(sender, Sender::next)));
    let response = transport
        .send(methods::PUBLISH_ASYNC, body, None, Effect::Write)
        .await?;
    let mut incoming = Incoming::new(response.into_body());
    while !acks.is_complete() {
        let more = incoming
            .receive(Effect::Write)
            .await
            .map_err(unknown_when_broken)?;
        while let Some(message) = incoming.buffered()? {
            acks.take(message)?;
        }
        window.answered.store(acks.answered, Ordering::Release);
        window.changed.notify_one();
        if !more {
            break;
        }
    }
    Ok(())
}

/// Once records are on their way, a broker that goes away leaves their outcome open.
fn unknown_when_broken(mut error: Error) -> Error {
    if error.code == "unavailable" {
        error.code = "outcome_unknown";
    }
    error
}

/// How far the answers are, as the sender sees it.
struct Window {
    answered: AtomicUsize,
    changed: Notify,
}

/// The request body.
struct Sender {
    chunks: VecDeque<Chunk>,
    sent: usize,
    in_flight: usize,
    window: Arc<Window>,
    /// Whether acks bound what is in flight; without acks HTTP/2 alone does.
    wait: bool,
}
impl Sender {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Status>, Self)> {
        let Some(chunk) = self.chunks.pop_front() else {
            // Half-closed only once everything was answered: the broker waits for outstanding acks a few seconds only.
            while self.wait && self.window.answered.load(Ordering::Acquire) < self.sent {
                self.window.changed.notified().await;
            }
            return None;
        };
        while self.wait && self.is_full(chunk.records) {
            self.window.changed.notified().await;
        }
        self.sent += chunk.records;
        Some((Ok(Frame::data(chunk.frames)), self))
    }

    fn is_full(&self, records: usize) -> bool {
        let waiting = self.sent - self.window.answered.load(Ordering::Acquire).min(self.sent);
        waiting > 0 && waiting + records > self.in_flight
    }
}

/// Answers as they come, by record.
struct Acks {
    /// (offset, timestamp ns); offset −1 = not yet.
    places: Vec<(i64, i64)>,
    /// Records answered, well or badly.
    answered: usize,
    stored: usize,
    /// The failure with the lowest index.
    failure: Option<(usize, Error)>,
    is_unacknowledged: bool,
}

/// Says in `places` that a record was refused.
const REFUSED: i64 = -2;

impl Acks {
    fn new(records: usize, is_unacknowledged: bool) -> Self {
        Self {
            places: vec![(-1, 0); records],
            answered: 0,
            stored: 0,
            failure: None,
            is_unacknowledged,
        }
    }

    fn is_complete(&self) -> bool {
        self.answered == self.places.len()
    }

    /// One response of PublishAsync. Late, repeated and unknown ones are ignored.
    fn take(&mut self, message: Bytes) -> Result<(), Error> {
        let response = ResponseView::read(message)
            .ok_or_else(|| Error::new("internal", "the broker sent a malformed PublishResponse"))?;
        let index = std::str::from_utf8(response.answered())
            .ok()
            .and_then(|text| text.parse::<usize>().ok());
        let Some(index) = index else { return Ok(()) };
        if let Some(failure) = &response.async_error {
            let text = String::from_utf8_lossy(&failure.message);
            self.refuse(
                index,
                Error::new(async_code(failure.code, &text), text.clone()),
            );
        } else if let Some(ack) = &response.ack {
            self.take_ack(index, ack);
        }
        Ok(())
    }

    fn take_ack(&mut self, index: usize, ack: &AckView) {
        if let Some(place) = self.places.get_mut(index).filter(|place| place.0 == -1) {
            *place = (ack.offset, ack.reception_timestamp);
            self.answered += 1;
            self.stored += 1;
        }
    }

    fn refuse(&mut self, index: usize, error: Error) {
        let Some(place) = self.places.get_mut(index).filter(|place| place.0 == -1) else {
            return;
        };
        place.0 = REFUSED;
        self.answered += 1;
        if self
            .failure
            .as_ref()
            .is_none_or(|(first, _)| index < *first)
        {
            self.failure = Some((index, error));
        }
    }

    /// A unary call that failed with an answer refused its one record; otherwise nothing is known.
    fn fail_definite(&mut self, error: &Error) {
        if error.code != "outcome_unknown" {
            self.refuse(0, error.clone());
        }
    }

    fn finish(self) -> Result<Vec<(i64, i64)>, Error> {
        match self.failure {
            None => Ok(self.places),
            Some((index, mut error)) => {
                error.details.index = Some(index);
                error.details.acknowledged = Some(self.stored);
                Err(error)
            }
        }
    }

    /// What is said when the call ended with acks outstanding: about the first record without an answer.
    fn cut_short(&self, mut error: Error) -> Error {
        error.details.index = self.places.iter().position(|place| place.0 == -1);
        error.details.acknowledged = Some(self.stored);
        error
    }
}
