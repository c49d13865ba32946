//! The HTTP body of a `DoGet` answer: chunks of framed messages, then the status as trailers.
use crate::grpc_status::trailers;
use bytes::Bytes;
use http_body::{Body, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;
use tonic::Status;

/// What a scan sends to its body: the chunks of one message, or the status that ends the call.
pub type Produced = Result<Vec<Bytes>, Status>;

/// Chunks in order, then trailers. Dropping it closes the channel, which ends the scan.
#[derive(Debug)]
pub struct ScanBody {
    chunks: VecDeque<Bytes>,
    source: Option<mpsc::Receiver<Produced>>,
}

impl ScanBody {
    /// A body of `first`, then the frames from `source`; the end of the channel is success.
    pub fn new(first: Bytes, source: mpsc::Receiver<Produced>) -> Self {
        Self {
            chunks: VecDeque::from([first]),
            source: Some(source),
        }
    }
}

impl Body for ScanBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        loop {
            if let Some(chunk) = this.chunks.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            let Some(source) = &mut this.source else {
                return Poll::Ready(None);
            };
            match ready!(source.poll_recv(context)) {
                Some(Ok(chunks)) => this.chunks.extend(chunks),
                ended => {
                    this.source = None;
                    let status = ended
                        .and_then(Result::err)
                        .unwrap_or_else(|| Status::ok(""));
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers(status)))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn chunks_come_in_order_and_the_status_last() {
        let (sender, receiver) = mpsc::channel(4);
        sender
            .send(Ok(vec![Bytes::from_static(b"b"), Bytes::from_static(b"c")]))
            .await
            .unwrap();
        sender.send(Err(Status::data_loss("gone"))).await.unwrap();
        drop(sender);
        let collected = ScanBody::new(Bytes::from_static(b"a"), receiver)
            .collect()
            .await
            .unwrap();
        assert_eq!(
            collected.trailers().unwrap().get("grpc-status").unwrap(),
            "15"
        );
        assert_eq!(collected.to_bytes(), "abc");
    }

    #[tokio::test]
    async fn the_end_of_the_channel_is_success() {
        let (sender, receiver) = mpsc::channel(1);
        drop(sender);
        let collected = ScanBody::new(Bytes::from_static(b"a"), receiver)
            .collect()
            .await
            .unwrap();
        assert_eq!(
            collected.trailers().unwrap().get("grpc-status").unwrap(),
            "0"
        );
    }
}
