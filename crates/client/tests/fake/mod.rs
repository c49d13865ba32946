//! A small fake broker; the stream's name selects its behaviour.
use bascule_wire::liftbridge::acks::{AckFields, AckTemplate, put_async_error_frame};
use bascule_wire::liftbridge::messages::{Header, Message, SubscribeRequest};
use bascule_wire::liftbridge::publish::PublishView;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use prost::Message as _;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::body::Body;
use tonic::{Code, Status};

type Frames = mpsc::UnboundedSender<Result<Frame<Bytes>, Status>>;

/// Serves on a free port until the process ends; returns the address.
pub fn start() -> String {
    start_as(Fake { once: false })
}

/// As [`start`], but a broker that deduplicates producers' batches.
pub fn start_once() -> String {
    start_as(Fake { once: true })
}

fn start_as(fake: Fake) -> String {
    let (sender, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender
                .send(listener.local_addr().unwrap().to_string())
                .unwrap();
            let incoming = TcpListenerStream::new(listener);
            tonic::transport::Server::builder()
                .add_service(fake)
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        });
    });
    address.recv().unwrap()
}

#[derive(Clone)]
struct Fake {
    once: bool,
}
impl tonic::server::NamedService for Fake {
    const NAME: &'static str = "proto.API";
}
impl tower::Service<Request<Body>> for Fake {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let once = self.once;
        Box::pin(async move {
            let method = request
                .uri()
                .path()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let (frames, received) = mpsc::unbounded_channel();
            tokio::spawn(serve(method, request.into_body(), frames));
            let mut response = Response::new(Body::new(StreamBody::new(
                UnboundedReceiverStream::new(received),
            )));
            response
                .headers_mut()
                .insert("content-type", "application/grpc".parse().unwrap());
            if once {
                response
                    .headers_mut()
                    .insert("bascule-producers", "1".parse().unwrap());
            }
            Ok(response)
        })
    }
}

async fn serve(method: String, body: Body, frames: Frames) {
    let status = match method.as_str() {
        "Publish" | "PublishAsync" => publish(body, &frames, method == "PublishAsync").await,
        "Subscribe" => subscribe(body, &frames).await,
        "FetchMetadata" => echo(body, &frames).await,
        "PauseStream" => {
            // The body breaks: the client sees a reset in place of trailers.
            let _ = frames.send(Err(Status::internal("cut")));
            return;
        }
        _ => Status::unimplemented("unknown method"),
    };
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).unwrap();
    let _ = frames.send(Ok(Frame::trailers(trailers)));
}

fn messages(body: Body) -> impl tokio_stream::Stream<Item = Bytes> + Unpin {
    let mut pending = BytesMut::new();
    let frames = body.into_data_stream().map(move |chunk| {
        pending.extend_from_slice(&chunk.unwrap_or_default());
        let mut whole = Vec::new();
        while pending.len() >= 5 {
            let length =
                u32::from_be_bytes([pending[1], pending[2], pending[3], pending[4]]) as usize;
            if pending.len() < 5 + length {
                break;
            }
            pending.advance(5);
            whole.push(pending.split_to(length).freeze());
        }
        whole
    });
    Box::pin(futures_util::StreamExt::flat_map(
        frames,
        tokio_stream::iter,
    ))
}

async fn publish(body: Body, frames: &Frames, pipelined: bool) -> Status {
    let template = AckTemplate::new("stream", "subject", "subject");
    let (mut received, mut offset) = (messages(body), 0);
    while let Some(message) = received.next().await {
        let request = PublishView::read(message).unwrap();
        let mut out = Vec::new();
        match request.stream_name() {
            "silent" => std::future::pending().await,
            "going" if offset == 3 => return Status::unavailable("broker is shutting down"),
            "missing" if pipelined => {
                put_async_error_frame(
                    &mut out,
                    &request.correlation_id,
                    2,
                    "no such stream: missing",
                    "",
                );
            }
            "missing" => return Status::not_found("no such stream: missing"),
            "picky" if request.value == "bad" => {
                put_async_error_frame(
                    &mut out,
                    &request.correlation_id,
                    1,
                    "message exceeds max replication size",
                    "",
                );
            }
            _ if request.ack_policy == 2 => {}
            _ => {
                let fields = AckFields {
                    offset,
                    correlation_id: &request.correlation_id,
                    reception_timestamp: 1000 + offset,
                    ..AckFields::default()
                };
                template.put_response_frame(&mut out, &fields, pipelined);
                offset += 1;
            }
        }
        if !pipelined && out.is_empty() {
            out.extend_from_slice(&[0; 5]);
        }
        let _ = frames.send(Ok(Frame::data(out.into())));
    }
    Status::new(Code::Ok, "")
}

async fn subscribe(body: Body, frames: &Frames) -> Status {
    let request = SubscribeRequest::decode(messages(body).next().await.unwrap()).unwrap();
    match request.stream.as_str() {
        "missing" => return Status::not_found("No such partition"),
        "mute" => std::future::pending::<()>().await,
        _ => {}
    }
    let mut out = vec![0; 5];
    for offset in 0..request.stop_offset {
        let headers = [("subject", "s"), ("reply", ""), ("mine", "yes")];
        let message = Message {
            offset,
            key: if offset % 2 == 0 {
                Bytes::new()
            } else {
                Bytes::from_static(b"k")
            },
            value: format!("value {offset}").into(),
            timestamp: 1000 + offset,
            subject: "s".into(),
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
                .into(),
            ..Message::default()
        };
        let message = match request.stream.as_str() {
            "odd" => odd(message),
            "subjects" => Message {
                subject: format!("s.{offset}.{}", if offset % 2 == 0 { "x" } else { "y" }),
                ..message
            },
            _ => message,
        };
        out.push(0);
        out.extend_from_slice(&(message.encoded_len() as u32).to_be_bytes());
        out.extend_from_slice(&message.encode_to_vec());
        if offset % 7 == 0 {
            // Chunks that end anywhere.
            let rest = out.split_off(out.len() - 3);
            let _ = frames.send(Ok(Frame::data(std::mem::replace(&mut out, rest).into())));
        }
    }
    let _ = frames.send(Ok(Frame::data(out.into())));
    Status::resource_exhausted("Stop offset reached")
}

/// A null value, and headers that a map cannot represent.
fn odd(message: Message) -> Message {
    let header = |name: &'static [u8], value: &'static [u8]| Header {
        name: Bytes::from_static(name),
        value: Bytes::from_static(value),
    };
    if message.offset == 0 {
        return Message {
            value: Bytes::new(),
            null_value: true,
            ..message
        };
    }
    Message {
        value: Bytes::new(),
        header_list: vec![
            header(b"a", b"1"),
            header(b"\xe9", b"2"),
            header(b"a", b"3"),
        ],
        reply_subject: "answer.here".into(),
        origin_time: Some(-7),
        ..message
    }
}

async fn echo(body: Body, frames: &Frames) -> Status {
    let message = messages(body).next().await.unwrap();
    let mut out = vec![0];
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(&message);
    let _ = frames.send(Ok(Frame::data(out.into())));
    Status::new(Code::Ok, "")
}
