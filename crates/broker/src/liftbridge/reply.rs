//! Response bodies and heads of gRPC over raw bodies.
use super::frames::frame;
use crate::grpc_status::{bounded, trailers};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::{Code, Status};

/// The response body for hyper.
pub(super) type Reply = Response<Body>;

/// A response that carries `body`.
pub(super) fn with_body<B>(body: B) -> Reply
where
    B: http_body::Body<Data = Bytes, Error = Status> + Send + 'static,
{
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    response
}

/// One message and status OK.
pub(super) fn message(message: &[u8]) -> Reply {
    framed(frame(message))
}

/// One message, its prefix included, and status OK.
pub(super) fn framed(frame: Bytes) -> Reply {
    with_body(OneFrame {
        frame: Some(frame),
        trailers: Some(trailers(Status::new(Code::Ok, ""))),
    })
}

/// Only a status, in the headers.
pub(super) fn status(status: Status) -> Reply {
    bounded(status).into_http()
}

/// Either.
pub(super) fn result(result: Result<Reply, Status>) -> Reply {
    result.unwrap_or_else(status)
}

/// One data frame, then trailers.
struct OneFrame {
    frame: Option<Bytes>,
    trailers: Option<HeaderMap>,
}
impl http_body::Body for OneFrame {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(frame) = self.frame.take() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        Poll::Ready(
            self.trailers
                .take()
                .map(|trailers| Ok(Frame::trailers(trailers))),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.frame.is_none() && self.trailers.is_none()
    }

    /// No lower bound: an exact one would become a `content-length`.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_upper(self.frame.as_ref().map_or(0, Bytes::len) as u64);
        hint
    }
}
