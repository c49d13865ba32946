//! Calls over raw bodies, so that the driver costs as little as it can, and PublishAsync.
use crate::arguments::Arguments;
use crate::report::{Clock, Failure, with_latencies};
use bascule_wire::liftbridge::acks::ResponseView;
use bascule_wire::liftbridge::publish::{PublishFields, put_request_frame};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::unfold;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::Notify;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::{Service, ServiceExt};

/// Messages sent at once on a PublishAsync stream.
const CHUNK: u64 = 128;

/// Connects to `address`.
pub async fn connect(arguments: &Arguments) -> Result<Channel, Failure> {
    let address = arguments.text("address", "127.0.0.1:9292");
    let tls = protection(arguments)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint: Endpoint = format!("{scheme}://{address}").parse()?;
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls)?;
    }
    let window = 4 << 20;
    Ok(endpoint
        .initial_stream_window_size(window)
        .initial_connection_window_size(window * 2)
        .tcp_nodelay(true)
        .connect()
        .await?)
}

/// TLS with the files `tls_ca`, `tls_cert` and `tls_key`, when the first is named.
fn protection(arguments: &Arguments) -> Result<Option<ClientTlsConfig>, Failure> {
    let ca = arguments.text("tls_ca", "");
    if ca.is_empty() {
        return Ok(None);
    }
    let cert = std::fs::read(arguments.text("tls_cert", ""))?;
    let key = std::fs::read(arguments.text("tls_key", ""))?;
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(std::fs::read(ca)?))
        .identity(Identity::from_pem(cert, key));
    Ok(Some(config))
}

/// A call of `method` with a ready body; the deadline makes unary Publish wait for its ack.
pub async fn call(
    channel: &mut Channel,
    method: &str,
    body: Body,
) -> Result<http::Response<Body>, Failure> {
    let request = http::Request::post(format!("/proto.API/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", "600S")
        .body(body)?;
    Ok(channel.ready().await?.call(request).await?)
}

/// Fails when the trailers (or headers) carry a status other than OK.
pub fn check_status(headers: Option<&http::HeaderMap>) -> Result<(), Failure> {
    let status = headers.and_then(Status::from_header_map);
    match status {
        Some(status) if status.code() != tonic::Code::Ok => Err(Failure::new(format!(
            "{:?}: {}",
            status.code(),
            status.message()
        ))),
        _ => Ok(()),
    }
}

/// A framed request of Publish or PublishAsync for one partition.
pub fn request_frame(arguments: &Arguments, partition: u64, value: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let fields = PublishFields {
        value,
        stream: arguments.text("stream", "bench"),
        partition: partition as i32,
        correlation_id: "0123456789abcdef",
        expected_offset: -1,
        ..PublishFields::default()
    };
    put_request_frame(&mut frame, &fields);
    frame
}

#[derive(Default)]
struct Window {
    sent: AtomicU64,
    acked: AtomicU64,
    room: Notify,
    /// (sent so far, when) of each chunk, to time its last ack.
    chunks: Mutex<VecDeque<(u64, Instant)>>,
}

/// One stream, a window of `in_flight`.
pub async fn publish_async(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let mut channel = connect(arguments).await?;
    let window = Arc::new(Window::default());
    let clock = Clock::start();
    let body = requests(arguments, window.clone());
    let mut answers = call(&mut channel, "PublishAsync", body).await?.into_body();
    let (mut micros, mut pending) = (Vec::new(), BytesMut::new());
    while let Some(frame) = answers.frame().await {
        match frame?.into_data() {
            Ok(data) => count_acks(&window, &mut pending, &data, &mut micros)?,
            Err(trailers) => check_status(trailers.trailers_ref())?,
        }
    }
    let (sent, acked) = (
        window.sent.load(Ordering::Relaxed),
        window.acked.load(Ordering::Relaxed),
    );
    if sent != acked {
        return Err(Failure::new(format!("{acked} of {sent} were acked")));
    }
    Ok(with_latencies(clock.report(acked), micros))
}

/// Requests made once and sent again and again: one record for each partition in turn, so that they are all dirty at once.
struct Requests {
    partitions: u64,
    bytes: Bytes,
    /// Where each request begins, and the end.
    begins: Vec<usize>,
}

impl Requests {
    fn new(arguments: &Arguments) -> Self {
        let (partitions, value) = (arguments.partitions(), arguments.value());
        let (mut bytes, mut begins) = (Vec::new(), vec![0]);
        for number in 0..partitions + CHUNK {
            bytes.extend(request_frame(arguments, number % partitions, &value));
            begins.push(bytes.len());
        }
        Self {
            partitions,
            bytes: bytes.into(),
            begins,
        }
    }

    /// `count` <= [`CHUNK`] of them, when so many went before.
    fn chunk(&self, before: u64, count: u64) -> Bytes {
        let first = (before % self.partitions) as usize;
        let (begin, end) = (self.begins[first], self.begins[first + count as usize]);
        self.bytes.slice(begin..end)
    }
}

fn requests(arguments: &Arguments, window: Arc<Window>) -> Body {
    let requests = Arc::new(Requests::new(arguments));
    let in_flight = arguments.number("in_flight", 512);
    let end = Instant::now() + arguments.duration();
    Body::new(StreamBody::new(unfold((), move |()| {
        let (window, requests) = (window.clone(), requests.clone());
        async move {
            loop {
                if Instant::now() > end {
                    return None;
                }
                let outstanding =
                    window.sent.load(Ordering::Relaxed) - window.acked.load(Ordering::Relaxed);
                let room = in_flight.saturating_sub(outstanding).min(CHUNK);
                if room > 0 {
                    let before = window.sent.fetch_add(room, Ordering::Relaxed);
                    if let Ok(mut chunks) = window.chunks.lock() {
                        chunks.push_back((before + room, Instant::now()));
                    }
                    let chunk = requests.chunk(before, room);
                    return Some((Ok::<_, Status>(Frame::data(chunk)), ()));
                }
                window.room.notified().await;
            }
        }
    })))
}

fn count_acks(
    window: &Window,
    pending: &mut BytesMut,
    data: &[u8],
    micros: &mut Vec<u32>,
) -> Result<(), Failure> {
    pending.extend_from_slice(data);
    let mut count = 0;
    while let Some(message) = next_frame(pending) {
        let response = ResponseView::read(message)
            .ok_or_else(|| Failure::new("the answer is not a valid PublishResponse"))?;
        if response.ack.as_ref().is_none_or(|ack| ack.ack_error != 0)
            || response.async_error.is_some()
        {
            return Err(Failure::new(format!("refused: {response:?}")));
        }
        count += 1;
    }
    let acked = window.acked.fetch_add(count, Ordering::Relaxed) + count;
    if let Ok(mut chunks) = window.chunks.lock() {
        while chunks.front().is_some_and(|(sent, _)| *sent <= acked) {
            if let Some((_, start)) = chunks.pop_front() {
                micros.push(start.elapsed().as_micros() as u32);
            }
        }
    }
    window.room.notify_one();
    Ok(())
}

/// The next whole gRPC message, without its prefix.
pub fn next_frame(pending: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(pending.get(1..5)?.try_into().ok()?) as usize;
    if pending.len() < 5 + length {
        return None;
    }
    pending.advance(5);
    Some(pending.split_to(length).freeze())
}
