//! A batch over one PublishAsync call: pipelined in order, a bounded part of it in flight.
//!
//! Against a broker that stores a producer's batches once (it says so in every answer) what was not answered may be sent
//! again, over another connection or to another life of the broker: [`Details::resend`](crate::error::Details) says when
//! that is so. The broker remembers the last five batches of a producer, so no more are ever unanswered.
use crate::Error;
use crate::error::Effect;
use crate::publish_batch::{Chunk, PublishBatch};
use crate::transport::{Incoming, Transport};
use bascule_record::Producer;
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::acks::ResponseView;
use bascule_wire::methods;
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

/// Most unanswered batches of one producer: as many as the broker remembers.
const WINDOW: usize = 5;
/// Error codes after which the same batch may be sent again.
const PASSING: [ErrorCode; 4] = [
    ErrorCode::Unavailable,
    ErrorCode::NotLeader,
    ErrorCode::Busy,
    ErrorCode::NatsUnavailable,
];

/// Bounds on what is sent and not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// Publishes the records that are not stored yet and waits for every ack; with policy NONE until the broker has received all.
///
/// # Errors
/// The error of the first record that has one, its index in the details; `outcome_unknown` when the deadline passed or the
/// connection broke with acks outstanding. `resend` in the details: the call may be repeated with the same arguments.
pub(crate) async fn publish(
    transport: &Transport,
    batch: &mut PublishBatch,
    producer: Option<Producer>,
    bounds: Bounds,
    deadline: Instant,
) -> Result<(), Error> {
    if Instant::now() >= deadline {
        // The deadline has passed before anything was sent.
        return Err(Error::deadline(Effect::Read));
    }
    let wanted = producer.filter(|_| !batch.is_unacknowledged());
    let asked = async {
        match wanted {
            Some(_) => transport.stores_once().await,
            None => Ok(false),
        }
    };
    // Nothing was sent yet.
    let once = tokio::time::timeout_at(deadline, asked)
        .await
        .map_err(|_| Error::deadline(Effect::Read))??;
    if batch.is_stamped() && !once {
        let text = "the broker that answers now cannot tell what another one has stored of this";
        return Err(batch
            .acks
            .cut_short(Error::new(ErrorCode::OutcomeUnknown, text)));
    }
    batch.stamp(wanted.filter(|_| once));
    let outcome = if batch.len() == 1 {
        tokio::time::timeout_at(deadline, one(transport, batch, deadline)).await
    } else {
        tokio::time::timeout_at(deadline, many(transport, batch, producer, bounds, once)).await
    };
    let in_time = outcome.is_ok();
    let mut error = match outcome.unwrap_or_else(|_| Err(Error::deadline(Effect::Write))) {
        _ if batch.acks.stored() == batch.len() => return Ok(()),
        _ if let Some(refusal) = batch.failure() => refusal,
        Ok(()) if batch.is_unacknowledged() => return Ok(()),
        Ok(()) => batch.acks.cut_short(Error::new(
            ErrorCode::OutcomeUnknown,
            "the broker ended the call before all acks came",
        )),
        Err(error) => batch.acks.cut_short(error),
    };
    let passing = error.code == ErrorCode::OutcomeUnknown || PASSING.contains(&error.code);
    error.details.resend = (once && in_time && passing).then_some(true);
    Err(error)
}

/// A single record is cheaper as a unary call.
async fn one(
    transport: &Transport,
    batch: &mut PublishBatch,
    deadline: Instant,
) -> Result<(), Error> {
    let Some(frames) = batch
        .unanswered()
        .map(|(_, chunk)| chunk.frames.clone())
        .next()
    else {
        return Ok(());
    };
    let timeout = deadline.saturating_duration_since(Instant::now());
    let answer = transport
        .unary(methods::PUBLISH, frames, timeout, Effect::Write)
        .await;
    let answer = answer.inspect_err(|error| {
        // A status rejects the one record; without one its outcome is unknown.
        if error.code != ErrorCode::OutcomeUnknown {
            batch.acks.refuse(0, error.clone());
        }
    })?;
    if let Some(ack) = ResponseView::read(answer).and_then(|response| response.ack) {
        batch.acks.take_ack(0, &ack);
    }
    Ok(())
}

async fn many(
    transport: &Transport,
    batch: &mut PublishBatch,
    producer: Option<Producer>,
    bounds: Bounds,
    once: bool,
) -> Result<(), Error> {
    let window = Arc::new(Window::default());
    window.note(batch, once);
    let sender = Sender {
        chunks: batch
            .unanswered()
            .map(|(number, chunk)| (batch.acks.left(number), chunk.clone()))
            .collect(),
        sent: batch.acks.progress().0,
        sent_chunks: 0,
        sent_bytes: 0,
        bounds,
        most_chunks: if once { WINDOW } else { usize::MAX },
        // A broker accepts any first sequence of an unknown producer: the first batch goes alone.
        introduces: producer.is_some_and(|producer| once && producer.base_sequence == 0),
        window: window.clone(),
        wait: !batch.is_unacknowledged(),
    };
    let body = Body::new(StreamBody::new(stream::unfold(sender, Sender::next)));
    let response = transport
        .send(methods::PUBLISH_ASYNC, body, None, Effect::Write)
        .await?;
    let mut incoming = Incoming::new(&transport.address, response.into_body());
    while !batch.acks.is_complete() {
        let more = incoming
            .receive(Effect::Write)
            .await
            .map_err(unknown_when_broken)?;
        while let Some(message) = incoming.buffered()? {
            batch.acks.take(message)?;
        }
        window.note(batch, once);
        if !more {
            break;
        }
    }
    Ok(())
}

/// A connection failure after records were sent leaves their outcome unknown.
fn unknown_when_broken(mut error: Error) -> Error {
    if error.code == ErrorCode::Unavailable {
        error.code = ErrorCode::OutcomeUnknown;
    }
    error
}

/// Progress of the answers, as the sender sees it.
#[derive(Default)]
struct Window {
    answered: AtomicUsize,
    whole_chunks: AtomicUsize,
    whole_bytes: AtomicUsize,
    /// Stop sending: later batches would not be in sequence.
    refused: AtomicBool,
    changed: Notify,
}
impl Window {
    fn note(&self, batch: &PublishBatch, once: bool) {
        let refused = once && batch.acks.is_refused();
        self.refused.store(refused, Ordering::Release);
        let (answered, chunks, bytes) = batch.acks.progress();
        self.answered.store(answered, Ordering::Release);
        self.whole_chunks.store(chunks, Ordering::Release);
        self.whole_bytes.store(bytes, Ordering::Release);
        self.changed.notify_one();
    }
}

/// The request body.
struct Sender {
    /// With the number of unanswered records.
    chunks: VecDeque<(usize, Chunk)>,
    sent: usize,
    sent_chunks: usize,
    sent_bytes: usize,
    bounds: Bounds,
    /// Most unanswered chunks.
    most_chunks: usize,
    /// Whether the first chunk must be answered before the next is sent.
    introduces: bool,
    window: Arc<Window>,
    /// Whether acks bound what is in flight; without acks HTTP/2 alone does.
    wait: bool,
}
impl Sender {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Status>, Self)> {
        let Some((records, chunk)) = self.chunks.pop_front() else {
            // Half-closed only once everything was answered: the broker waits for outstanding acks a few seconds only.
            while self.wait && self.window.answered.load(Ordering::Acquire) < self.sent {
                self.window.changed.notified().await;
            }
            return None;
        };
        while self.wait && self.is_full(records, chunk.frames.len()) {
            self.window.changed.notified().await;
        }
        if self.window.refused.load(Ordering::Acquire) {
            return None;
        }
        self.sent += records;
        self.sent_chunks += 1;
        self.sent_bytes += chunk.frames.len();
        Some((Ok(Frame::data(chunk.frames)), self))
    }

    fn is_full(&self, records: usize, bytes: usize) -> bool {
        let left = |sent: usize, answered: &AtomicUsize| {
            sent.saturating_sub(answered.load(Ordering::Acquire))
        };
        let waiting = left(self.sent, &self.window.answered);
        waiting > 0
            && (waiting + records > self.bounds.records
                || left(self.sent_bytes, &self.window.whole_bytes) + bytes > self.bounds.bytes
                || (self.introduces && self.sent_chunks == 1)
                || left(self.sent_chunks, &self.window.whole_chunks) >= self.most_chunks)
    }
}
