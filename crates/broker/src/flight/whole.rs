//! Whether the messages of a call came to their end, or the call was given up before.
//!
//! Below, a stream that the client resets looks like one that it ended. What only counts when it is whole asks here.
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// Whether a body was read to its end; an extension of its request.
#[derive(Clone, Debug, Default)]
pub struct BodyEnd(Arc<AtomicBool>);

impl BodyEnd {
    /// Whether the client has sent all that it wanted to, and all of it was read.
    pub fn is_reached(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Watches the body of a request.
    pub fn watch(request: http::Request<Body>) -> http::Request<Body> {
        let end = Self::default();
        let (mut head, body) = request.into_parts();
        head.extensions.insert(end.clone());
        http::Request::from_parts(head, Body::new(WatchedBody { body, end }))
    }
}

struct WatchedBody {
    body: Body,
    end: BodyEnd,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // Only this distinguishes a reset from an end.
        if frame.is_ready() && self.body.is_end_stream() {
            self.end.0.store(true, Ordering::Release);
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
