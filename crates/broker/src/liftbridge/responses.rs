//! The response body of a PublishAsync call: acks and errors as appends commit, the status at the end.
use super::acks::Group;
use super::call::new_inbox;
use super::intake::MESSAGE_COST;
use crate::grpc_status::trailers;
use bytes::Bytes;
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Sleep;
use tonic::Status;

/// How long a half-closed call waits for outstanding acks.
const GRACE: Duration = Duration::from_secs(5);
/// Most outcomes written into one data frame.
const OUTCOMES: usize = 32;

/// Messages of the reader and the partitions to the response body.
pub(super) enum Outcome {
    /// An append ended. The number is its share of the budget.
    Appended(Group, u32),
    /// Framed refusals, and their share of the budget.
    Refused(Vec<u8>, u32),
    /// Nothing more will be read; the call ends with this status once no ack is outstanding.
    End(Status),
}

/// The response body: acks and errors as they come, the status at the end.
pub(super) struct Responses {
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    batch: Vec<Outcome>,
    inbox: String,
    budget: Arc<Semaphore>,
    /// The final status, and until when outstanding acks are waited for.
    end: Option<(Status, Pin<Box<Sleep>>)>,
    finished: bool,
}
impl Responses {
    /// `budget` gets back what outcomes had taken from it.
    pub(super) fn new(
        outcomes: mpsc::UnboundedReceiver<Outcome>,
        budget: Arc<Semaphore>,
        namespace: &str,
    ) -> Self {
        Self {
            outcomes,
            batch: Vec::new(),
            inbox: new_inbox(namespace),
            budget,
            end: None,
            finished: false,
        }
    }

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
        Frame::trailers(trailers(status))
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
