//! `PublishAsync` (liftbridge §3.8): a reader task takes messages in, the response body writes acks as appends commit.
//!
//! ```text
//! body ──► Intake (frames, checks, groups) ──► Partition::append ──► done ──┐
//!   ▲          │ refusals                                                   │ Outcome
//!   │ budget   └───────────────────────────────────────────────────────────►▼
//!   └──────────────────────────────────────────────────────────────── Responses ──► client
//! ```
//!
//! Bounded by a budget in bytes: a request releases its share only when its responses were passed to HTTP/2. So a client that
//! does not read, or a disk that is too slow, stops the reading of the body (HTTP/2 flow control).
use super::acks::Group;
use super::call::{Call, PULSE, outcome_unknown, shutting_down};
use super::context::LiftbridgeContext;
use super::intake::{Intake, Pending};
use super::reply::{self, Reply};
use super::responses::{Outcome, Responses};
use super::route::ack_level;
use crate::forward::Lanes;
use crate::partition::{Append, Payload, count_publish_errors};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body::Frame;
use http_body_util::BodyExt;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::Status;
use tonic::body::Body;

/// Bytes that are processed at once when more have already arrived: as many records as possible for each partition, since each
/// append has a cost. With 64 KiB, records of 1 KiB for 50 partitions went in one by one.
const GATHER_BYTES: usize = 256 << 10;

/// Starts a call. It ends with UNAVAILABLE once the outcome of a record is unknown that was handed to another broker: what follows
/// on the call would fail, too.
pub(super) fn publish_async(context: &Arc<LiftbridgeContext>, call: &Call, body: Body) -> Reply {
    let (outcomes, received) = mpsc::unbounded_channel();
    let total = u32::try_from(context.limits.queue_bytes / 4)
        .unwrap_or(u32::MAX)
        .max(1);
    let budget = Arc::new(Semaphore::new(total as usize));
    let reader = Reader {
        context: context.clone(),
        outcomes,
        budget: budget.clone(),
        total,
        intake: Intake::new(context, &call.peer),
        lanes: Lanes::new(&context.forwarder, &call.peer),
    };
    tokio::spawn(reader.run(body));
    reply::with_body(Responses::new(received, budget, &context.namespace))
}

/// Reads the request body.
struct Reader {
    context: Arc<LiftbridgeContext>,
    outcomes: mpsc::UnboundedSender<Outcome>,
    budget: Arc<Semaphore>,
    /// All of the budget.
    total: u32,
    intake: Intake,
    lanes: Lanes,
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
        // Fails only when the response body is gone, and nobody is left to receive the error.
        let _ = self.outcomes.send(Outcome::End(status));
    }

    /// Takes in what has arrived; false at the end of the body.
    async fn step(&mut self, body: &mut Body, pulse: &mut Interval) -> Result<bool, Status> {
        tokio::select! {
            frame = body.frame() => {
                let Some(frame) = frame else {
                    self.intake.end()?;
                    return Ok(false);
                };
                let taken = self.take(frame?, body);
                self.intake.resume().await;
                // Requests before a failure are published and answered.
                self.flush().await?;
                taken?;
            }
            () = self.lanes.unknown() => return Err(outcome_unknown()),
            _ = pulse.tick() => {
                self.intake.refresh();
                self.intake.check_patience()?;
                if !self.context.run_state.is_serving() {
                    return Err(shutting_down());
                }
            }
        }
        Ok(true)
    }

    /// Takes a frame in, and those behind it that are already there.
    fn take(&mut self, first: Frame<Bytes>, body: &mut Body) -> Result<(), Status> {
        self.intake.refresh();
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
        let (refused, cost) = self.intake.take_refused();
        if !refused.is_empty() {
            let cost = self.charge(cost).await?;
            let _ = self.outcomes.send(Outcome::Refused(refused, cost));
        }
        for pending in self.intake.take_pending() {
            let cost = self.charge(pending.cost).await?;
            let Pending {
                destination,
                records,
                acks,
                producer,
                ..
            } = pending;
            let (outcomes, acked) = (self.outcomes.clone(), destination.clone());
            let counted = self.context.statistics.clone();
            let append = Append {
                payload: Payload::Records(records),
                producer,
                republish: true,
                ack: ack_level(&acks),
                done: Box::new(move |outcome| {
                    count_publish_errors(&counted.publish_errors, &outcome, acks.len());
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
            let place = &destination.place;
            self.lanes.append(place, append, None).await;
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
