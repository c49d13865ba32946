//! A request body whose unfinished messages are charged to `limits.request_bytes`.
//!
//! A message within one chunk of HTTP/2 is not charged. Any other is charged by the bytes that have arrived, never by the
//! length in its prefix, because a prefix costs the sender nothing. The charge is released when the body is dropped, or when
//! the service polls again after the end of the message, because it has processed the message then. A message that has begun
//! must end within [`PATIENCE`], so that no caller holds a share for ever. Before the first message the call may be evicted
//! ([`Request`]).
use super::Admission;
use super::request::Request;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

/// How long one message, or one batch of a producer, may take from its first byte to its last.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
const PREFIX_BYTES: usize = 5;

/// See the module.
pub(super) struct BoundedBody {
    admission: Arc<Admission>,
    body: Body,
    position: FramePosition,
    /// Of the message that is arriving.
    charge: Option<OwnedSemaphorePermit>,
    /// Of the messages that have arrived since the last poll of the service.
    settled: Vec<OwnedSemaphorePermit>,
    /// Time limit of a message, and the timer of the one that is arriving.
    longest: Duration,
    patience: Option<Pin<Box<Sleep>>>,
    /// `None` = nothing ends the call while it waits.
    request: Option<Request>,
}

/// Position in the sequence of gRPC prefixes and messages.
#[derive(Debug, Default)]
struct FramePosition {
    prefix: [u8; PREFIX_BYTES],
    have: usize,
    /// Bytes of the message still to come, once the prefix is whole.
    left: usize,
}

impl FramePosition {
    fn is_between_messages(&self) -> bool {
        self.have == 0
    }

    /// Passes over `chunk`: how many bytes at its end belong to a message that is not whole, and whether the message it
    /// began in has ended.
    fn pass(&mut self, mut chunk: &[u8]) -> (usize, bool) {
        let mut ended = false;
        let mut open = 0;
        while !chunk.is_empty() {
            if self.have < PREFIX_BYTES {
                let (taken, rest) = chunk.split_at((PREFIX_BYTES - self.have).min(chunk.len()));
                for (to, from) in self.prefix.iter_mut().skip(self.have).zip(taken) {
                    *to = *from;
                }
                self.have += taken.len();
                open += taken.len();
                chunk = rest;
                if self.have == PREFIX_BYTES {
                    let [_, a, b, c, d] = self.prefix;
                    self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                }
            } else {
                let (taken, rest) = chunk.split_at(self.left.min(chunk.len()));
                self.left -= taken.len();
                open += taken.len();
                chunk = rest;
            }
            if self.have == PREFIX_BYTES && self.left == 0 {
                (self.have, open, ended) = (0, 0, true);
            }
        }
        (open, ended)
    }
}

/// A share of `limits.request_bytes`, given back when it is dropped.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` when there is not so much left.
pub(crate) fn charge(admission: &Admission, bytes: usize) -> Result<OwnedSemaphorePermit, Status> {
    let budget = Arc::clone(&admission.request_bytes);
    let count = u32::try_from(bytes).unwrap_or(u32::MAX);
    budget.try_acquire_many_owned(count).map_err(|_| {
        admission.statistics.calls_refused.add(1);
        let most = admission.limits.request_bytes;
        Status::resource_exhausted(format!(
            "limits.request_bytes ({most}) bytes of requests are arriving: send again later, send smaller messages, or raise it"
        ))
    })
}

impl BoundedBody {
    pub(super) fn new(admission: Arc<Admission>, body: Body) -> Self {
        Self {
            admission,
            body,
            position: FramePosition::default(),
            charge: None,
            settled: Vec::new(),
            longest: PATIENCE,
            patience: None,
            request: None,
        }
    }

    /// The same for a call that awaits its request.
    pub(super) fn with_request(mut self, request: Request) -> Self {
        self.request = Some(request);
        self
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Status> {
        let (open, ended) = self.position.pass(chunk);
        if ended {
            self.settled.extend(self.charge.take());
            self.patience = None;
            if let Some(request) = &mut self.request {
                request.on_message();
            }
        }
        if open > 0 {
            self.charge(open)?;
        }
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Status> {
        let more = charge(&self.admission, bytes)?;
        match &mut self.charge {
            Some(charge) => charge.merge(more),
            none => *none = Some(more),
        }
        if self.patience.is_none() {
            self.patience = Some(Box::pin(sleep(self.longest)));
        }
        Ok(())
    }

    fn is_out_of_patience(&mut self, cx: &mut Context<'_>) -> bool {
        let patience = self.patience.as_mut();
        patience.is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready())
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        this.settled.clear();
        if let Some(lost) = this.request.as_ref().and_then(Request::lost) {
            this.admission.statistics.calls_refused.add(1);
            return Poll::Ready(Some(Err(lost)));
        }
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(chunk) = frame.data_ref()
                    && let Err(refused) = this.take(chunk)
                {
                    return Poll::Ready(Some(Err(refused)));
                }
            }
            Poll::Pending
                if !this.position.is_between_messages() && this.is_out_of_patience(cx) =>
            {
                let seconds = this.longest.as_secs();
                let text =
                    format!("a message of the request took longer than {seconds} s to arrive");
                return Poll::Ready(Some(Err(Status::deadline_exceeded(text))));
            }
            Poll::Pending => {
                let is_idle = this.position.is_between_messages();
                let request = this.request.as_mut();
                if let Some(ended) = request.and_then(|request| request.poll(cx, is_idle)) {
                    this.admission.statistics.calls_refused.add(1);
                    return Poll::Ready(Some(Err(ended)));
                }
            }
            Poll::Ready(_) => {}
        }
        if matches!(frame, Poll::Ready(None)) || this.body.is_end_stream() {
            this.request = None;
        }
        frame
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};

    fn message(length: usize) -> Vec<u8> {
        let mut out = vec![0];
        out.extend_from_slice(&(length as u32).to_be_bytes());
        out.resize(PREFIX_BYTES + length, 7);
        out
    }

    fn admission(request_bytes: usize) -> Arc<Admission> {
        let limits = Limits {
            request_bytes,
            ..Limits::default()
        };
        Arc::new(Admission::new(limits, Arc::default()))
    }

    fn body(admission: &Arc<Admission>, chunks: Vec<Vec<u8>>) -> BoundedBody {
        let frames = chunks
            .into_iter()
            .map(|chunk| Ok::<_, Status>(Frame::data(Bytes::from(chunk))));
        BoundedBody::new(
            admission.clone(),
            Body::new(StreamBody::new(stream::iter(frames))),
        )
    }

    #[test]
    fn open_bytes_are_counted_wherever_a_chunk_ends() {
        let whole = [message(0), message(3), message(10)].concat();
        for cut in 0..=whole.len() {
            let mut position = FramePosition::default();
            let (open, _) = position.pass(&whole[..cut]);
            let starts = [0, 5, 13, 28];
            let start = starts.iter().rev().find(|start| **start <= cut).unwrap();
            assert_eq!(open, cut - start, "cut at {cut}");
            assert_eq!(
                position.pass(&whole[cut..]),
                (0, cut < whole.len()),
                "{cut}"
            );
        }
    }

    #[tokio::test]
    async fn messages_are_charged_while_they_arrive_and_given_back() {
        let admission = admission(1000);
        let long = message(500);
        let mut body = body(
            &admission,
            vec![
                message(400),
                long[..300].to_vec(),
                long[300..].to_vec(),
                vec![],
            ],
        );
        let mut charged = Vec::new();
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            charged.push(admission.request_bytes());
        }
        assert_eq!(charged, [0, 300, 300, 0]);
    }

    #[tokio::test]
    async fn beyond_the_bound_the_call_is_refused_and_gives_everything_back() {
        let admission = admission(100);
        let mut body = body(&admission, vec![message(500)[..90].to_vec(), vec![7; 20]]);
        body.frame().await.unwrap().unwrap();
        let refused = body.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("limits.request_bytes (100)"));
        drop(body);
        assert_eq!(admission.request_bytes(), 0);
    }

    #[tokio::test]
    async fn a_message_that_does_not_end_is_given_up() {
        let admission = admission(1000);
        let begun =
            stream::once(async { Ok::<_, Status>(Frame::data(Bytes::from_static(&[0; 3]))) });
        let never = futures_util::StreamExt::chain(begun, stream::pending());
        let mut body = BoundedBody::new(admission.clone(), Body::new(StreamBody::new(never)));
        body.longest = Duration::from_millis(20);
        body.frame().await.unwrap().unwrap();
        let refused = body.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), tonic::Code::DeadlineExceeded);
    }
}
