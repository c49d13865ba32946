//! `PublishAsync` (§3.8): a reader task takes messages in, the response body writes acks as appends commit.
//!
//! ```text
//! body ──► Intake (frames, checks, groups) ──► Partition::append ──► done ──┐
//!   ▲          │ refusals                                                   │ Outcome
//!   │ budget   └───────────────────────────────────────────────────────────►▼
//!   └──────────────────────────────────────────────────────────────── Responses ──► client
//! ```
//!
//! Bounded by a budget in bytes: what was taken in gives its share back only when its responses were handed to HTTP/2, so
//! a client that does not read, or a disk that does not keep up, stops the reading of the body (HTTP/2 flow control).
use super::acks::{Group, put_refusal};
use super::call::{PULSE, new_inbox, shutting_down};
use super::frames::FrameReader;
use super::reply::{self, Reply};
use super::route::{AckContext, Destination, Routes, split};
use crate::partition::{Append, IncomingRecord, Payload};
use crate::shared::SharedRef;
use bascule_wire::liftbridge::publish::PublishView;
use bytes::Bytes;
use futures_util::FutureExt;
use http_body::Frame;
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Interval, MissedTickBehavior, Sleep};
use tonic::Status;
use tonic::body::Body;

/// What is taken in at once when more has already arrived, bytes.
const GATHER_BYTES: usize = 64 << 10;
/// Charged for each message besides its length: its response and bookkeeping, bytes.
const MESSAGE_COST: usize = 192;
/// How long a half-closed call waits for outstanding acks.
const GRACE: Duration = Duration::from_secs(5);
/// Most outcomes written into one data frame.
const OUTCOMES: usize = 32;

/// Starts a call.
pub(super) fn publish_async(shared: &SharedRef, body: Body) -> Reply {
    let (outcomes, received) = mpsc::unbounded_channel();
    let total = u32::try_from(shared.limits.queue_bytes / 4)
        .unwrap_or(u32::MAX)
        .max(1);
    let budget = Arc::new(Semaphore::new(total as usize));
    let reader = Reader {
        shared: shared.clone(),
        outcomes,
        budget: budget.clone(),
        total,
        intake: Intake::new(shared),
    };
    tokio::spawn(reader.run(body));
    reply::with_body(Responses {
        outcomes: received,
        batch: Vec::new(),
        inbox: new_inbox(&shared.namespace),
        budget,
        end: None,
        finished: false,
    })
}

/// What the reader and the partitions tell the response body.
enum Outcome {
    /// An append ended. The number is its share of the budget.
    Appended(Group, u32),
    /// Framed refusals, and their share of the budget.
    Refused(Vec<u8>, u32),
    /// Nothing more will be read; the call ends with this status once no ack is outstanding.
    End(Status),
}

/// Reads the request body.
struct Reader {
    shared: SharedRef,
    outcomes: mpsc::UnboundedSender<Outcome>,
    budget: Arc<Semaphore>,
    /// All of the budget.
    total: u32,
    intake: Intake,
}
impl Reader {
    async fn run(mut self, mut body: Body) {
        let mut pulse = tokio::time::interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let status = loop {
            match self.step(&mut body, &mut pulse).await {
                Ok(true) => {}
                Ok(false) => break Status::new(tonic::Code::Ok, ""),
                Err(status) => break status,
            }
        };
        // Fails only when the response body is gone, and with it everyone who could be told.
        let _ = self.outcomes.send(Outcome::End(status));
    }

    /// Takes in what has arrived; false at the end of the body.
    async fn step(&mut self, body: &mut Body, pulse: &mut Interval) -> Result<bool, Status> {
        tokio::select! {
            frame = body.frame() => {
                let Some(frame) = frame else {
                    self.intake.frames.end()?;
                    return Ok(false);
                };
                let taken = self.take(frame?, body);
                // What came before a failure is published and answered all the same.
                self.flush().await?;
                taken?;
            }
            _ = pulse.tick() => {
                self.intake.routes.refresh();
                if !self.shared.serving.load(Ordering::Relaxed) {
                    return Err(shutting_down());
                }
            }
        }
        Ok(true)
    }

    /// Takes a frame in, and those behind it that are already there.
    fn take(&mut self, first: Frame<Bytes>, body: &mut Body) -> Result<(), Status> {
        self.intake.routes.refresh();
        let mut gathered = 0;
        let mut next = Some(first);
        while let Some(frame) = next {
            let Ok(chunk) = frame.into_data() else { break };
            gathered += chunk.len();
            self.intake.take(chunk)?;
            if gathered >= GATHER_BYTES {
                break;
            }
            next = body.frame().now_or_never().flatten().transpose()?;
        }
        Ok(())
    }

    /// Appends what was taken in, one append per partition, waiting for the budget and for room in the queues.
    async fn flush(&mut self) -> Result<(), Status> {
        if !self.intake.refused.is_empty() {
            let cost = std::mem::take(&mut self.intake.refused_cost);
            let cost = self.charge(cost).await?;
            let _ = self.outcomes.send(Outcome::Refused(
                std::mem::take(&mut self.intake.refused),
                cost,
            ));
        }
        for pending in std::mem::take(&mut self.intake.pending) {
            let cost = self.charge(pending.cost).await?;
            let Pending {
                destination,
                records,
                acks,
                ..
            } = pending;
            let (outcomes, acked) = (self.outcomes.clone(), destination.clone());
            let append = Append {
                payload: Payload::Records(records),
                producer: None,
                copy_to_nats: destination.copy_to_nats,
                done: Box::new(move |outcome| {
                    // Fails only when the client is gone.
                    let _ = outcomes.send(Outcome::Appended(
                        Group {
                            destination: acked,
                            acks,
                            outcome,
                        },
                        cost,
                    ));
                }),
            };
            destination.partition.append(append).await;
        }
        Ok(())
    }

    /// Takes `cost` bytes (at most the whole) from the budget; fails when the client is gone.
    async fn charge(&self, cost: usize) -> Result<u32, Status> {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX).min(self.total);
        let permits = self
            .budget
            .acquire_many(cost)
            .await
            .map_err(|_| Status::cancelled("the caller went away"))?;
        permits.forget();
        Ok(cost)
    }
}

/// Messages taken in and not yet appended.
struct Intake {
    frames: FrameReader,
    routes: Routes,
    pending: Vec<Pending>,
    refused: Vec<u8>,
    refused_cost: usize,
}

/// Records of one partition, in order.
struct Pending {
    destination: Arc<Destination>,
    records: Vec<IncomingRecord>,
    acks: Vec<AckContext>,
    cost: usize,
}

impl Intake {
    fn new(shared: &SharedRef) -> Self {
        Self {
            frames: FrameReader::new(shared.limits.message_bytes),
            routes: Routes::new(shared),
            pending: Vec::new(),
            refused: Vec::new(),
            refused_cost: 0,
        }
    }

    /// Takes in every message that is whole with this chunk.
    fn take(&mut self, mut chunk: Bytes) -> Result<(), Status> {
        while let Some(message) = self.frames.next(&mut chunk)? {
            self.take_message(message)?;
        }
        Ok(())
    }

    fn take_message(&mut self, message: Bytes) -> Result<(), Status> {
        let length = message.len();
        let cost = length + MESSAGE_COST;
        let view = PublishView::read(message).ok_or_else(|| {
            Status::internal("grpc: error unmarshalling request: malformed PublishRequest")
        })?;
        match self
            .routes
            .find(&view.stream, view.partition)
            .check(view.ack_policy)
        {
            Err(refusal) => {
                put_refusal(&mut self.refused, &view.correlation_id, &refusal);
                self.refused_cost += cost;
            }
            Ok(destination) => {
                let pending = pending_of(&mut self.pending, destination);
                let (record, ack) = split(view, length);
                pending.records.push(record);
                pending.acks.push(ack);
                pending.cost += cost;
            }
        }
        Ok(())
    }
}

/// The group of a destination, made when there is none. Few partitions are written at once, and mostly the last one again.
fn pending_of<'a>(groups: &'a mut Vec<Pending>, destination: &Arc<Destination>) -> &'a mut Pending {
    let found = groups
        .iter()
        .rposition(|group| Arc::ptr_eq(&group.destination, destination));
    let index = found.unwrap_or_else(|| {
        groups.push(Pending {
            destination: destination.clone(),
            records: Vec::new(),
            acks: Vec::new(),
            cost: 0,
        });
        groups.len() - 1
    });
    &mut groups[index]
}

/// The response body: acks and errors as they come, the status at the end.
struct Responses {
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    batch: Vec<Outcome>,
    inbox: String,
    budget: Arc<Semaphore>,
    /// The final status, and until when outstanding acks are waited for.
    end: Option<(Status, Pin<Box<Sleep>>)>,
    finished: bool,
}
impl Responses {
    /// Writes the batch of outcomes into one buffer and gives their share of the budget back.
    fn write_batch(&mut self) -> Bytes {
        let mut out = Vec::new();
        let mut returned = 0_usize;
        for outcome in self.batch.drain(..) {
            match outcome {
                Outcome::Appended(group, cost) => {
                    out.reserve(group.acks.len() * MESSAGE_COST);
                    group.put_responses(&mut out, self.inbox.as_bytes());
                    returned += cost as usize;
                }
                Outcome::Refused(frames, cost) => {
                    out.extend_from_slice(&frames);
                    returned += cost as usize;
                }
                Outcome::End(status) => {
                    self.end = Some((status, Box::pin(tokio::time::sleep(GRACE))));
                }
            }
        }
        self.budget.add_permits(returned);
        out.into()
    }

    fn finish(&mut self) -> Frame<Bytes> {
        self.finished = true;
        let status = self.end.take().map_or_else(
            || Status::internal("reading the request failed"),
            |(status, _)| status,
        );
        Frame::trailers(reply::trailers(&status))
    }
}
impl http_body::Body for Responses {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.finished {
            return Poll::Ready(None);
        }
        loop {
            match this.outcomes.poll_recv_many(cx, &mut this.batch, OUTCOMES) {
                Poll::Ready(0) => return Poll::Ready(Some(Ok(this.finish()))),
                Poll::Ready(_) => {
                    let frames = this.write_batch();
                    if !frames.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(frames))));
                    }
                }
                Poll::Pending => break,
            }
        }
        if let Some((_, grace)) = &mut this.end
            && grace.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Ok(this.finish())));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.finished
    }
}
impl Drop for Responses {
    /// Wakes a reader that waits for a budget nobody will give back.
    fn drop(&mut self) {
        self.budget.close();
    }
}
