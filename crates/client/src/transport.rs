//! Calls over raw HTTP/2 bodies on one connection, which reconnects by itself.
use crate::Error;
use crate::error::Effect;
use crate::frames::Frames;
use crate::tls;
use bascule_wire::ErrorCode;
use bascule_wire::methods;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tonic::body::Body;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use tower::Service;

/// Response header of a broker that deduplicates producers' batches.
const PRODUCERS: &str = "bascule-producers";
/// Response header of Subscribe: the partition's incarnation, which the offsets belong to.
const INCARNATION: &str = "bascule-incarnation";
const START: &str = "bascule-start";
/// HTTP/2 windows, bytes.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Largest HTTP/2 frame accepted, bytes: chunks of frames come whole.
const FRAME: u32 = 256 << 10;
/// An idle connection is probed this often, and given up when no answer comes.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pub(crate) address: String,
    user_agent: String,
    channel: Channel,
    /// Whether the broker deduplicates producers' batches; empty = not known yet.
    once: Arc<OnceLock<bool>>,
}
impl Transport {
    /// Whether the broker deduplicates producers' batches. Asks it when that is not known yet.
    ///
    /// # Errors
    /// The connection failure; nothing was changed.
    pub(crate) async fn stores_once(&self) -> Result<bool, Error> {
        if let Some(known) = self.once.get() {
            return Ok(*known);
        }
        // A call that publishes nothing.
        let asked = self
            .send(methods::PUBLISH_ASYNC, Body::empty(), None, Effect::Read)
            .await;
        match (self.once.get(), asked) {
            (Some(known), _) => Ok(*known),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Ok(false),
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// `invalid_argument` for an address or a certificate that is not valid; `tls_failed`; `unavailable`.
    pub(crate) async fn connect(
        address: &str,
        client_id: &str,
        timeout: Duration,
        tls: Option<ClientTlsConfig>,
    ) -> Result<Self, Error> {
        let not_an_address = |error| {
            Error::new(
                ErrorCode::InvalidArgument,
                format!("`{address}` is not an address (host:port): {error}"),
            )
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint =
            Endpoint::from_shared(format!("{scheme}://{address}")).map_err(not_an_address)?;
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls).map_err(|error| {
                let text = format!(
                    "the files of the client's TLS cannot be used: {}",
                    chain(&error)
                );
                Error::new(ErrorCode::InvalidArgument, text)
            })?;
        }
        let endpoint = endpoint
            .connect_timeout(timeout)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .max_frame_size(FRAME)
            .tcp_nodelay(true);
        let channel = tokio::time::timeout(timeout, endpoint.connect()).await;
        let channel = channel
            .map_err(|_| {
                Error::new(
                    ErrorCode::Unavailable,
                    format!("broker at {address}: no connection within {timeout:?}"),
                )
            })?
            .map_err(|error| Error::from_transport(address, &error, Effect::Read))?;
        let user_agent = format!("{client_id} bascule/{}", env!("CARGO_PKG_VERSION"));
        Ok(Self {
            address: address.into(),
            user_agent,
            channel,
            once: Arc::default(),
        })
    }

    /// Sends a request; returns the response when its headers have arrived.
    ///
    /// # Errors
    /// The connection failure, or a status in the headers.
    pub(crate) async fn send(
        &self,
        path: &str,
        body: Body,
        timeout: Option<Duration>,
        effect: Effect,
    ) -> Result<http::Response<Body>, Error> {
        let mut request = http::Request::post(path)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", &self.user_agent);
        if let Some(timeout) = timeout {
            request = request.header("grpc-timeout", grpc_timeout(timeout));
        }
        let request = request.body(body).map_err(|error| {
            Error::new(
                ErrorCode::InvalidArgument,
                format!("the request cannot be sent: {error}"),
            )
        })?;
        let broken =
            |error: tonic::transport::Error| Error::from_transport(&self.address, &error, effect);
        let mut channel = self.channel.clone();
        std::future::poll_fn(|cx| channel.poll_ready(cx))
            .await
            .map_err(broken)?;
        let response = channel.call(request).await.map_err(broken)?;
        let once = response.headers().contains_key(PRODUCERS);
        let refusal = Status::from_header_map(response.headers());
        let refusal = refusal.filter(|status| status.code() != Code::Ok);
        if once || refusal.is_none() {
            // A rejection without the header may come from a proxy.
            self.once.get_or_init(|| once);
        }
        refusal.map_or(Ok(response), |status| {
            Err(Error::from_status(&status, effect))
        })
    }

    /// A unary call.
    ///
    /// # Errors
    /// As [`Self::send`], and the status of the trailers.
    pub(crate) async fn unary(
        &self,
        path: &str,
        framed: Bytes,
        timeout: Duration,
        effect: Effect,
    ) -> Result<Bytes, Error> {
        let body = Body::new(http_body_util::Full::new(framed));
        let exchange = async {
            let response = self.send(path, body, Some(timeout), effect).await?;
            let mut incoming = Incoming::new(&self.address, response.into_body());
            let message = incoming.next_message(effect).await?;
            message.ok_or_else(|| {
                Error::new(
                    ErrorCode::Internal,
                    "the broker answered with status OK and no message",
                )
            })
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .map_err(|_| Error::deadline(effect))?
    }
}

/// Messages of a response body.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The broker's address, for errors.
    address: Box<str>,
    body: Body,
    frames: Frames,
}
impl Incoming {
    pub(crate) fn new(address: &str, body: Body) -> Self {
        Self {
            address: address.into(),
            body,
            frames: Frames::default(),
        }
    }

    /// The next message; `None` when the stream ended with status OK.
    ///
    /// # Errors
    /// The final status, or the connection failure.
    pub(crate) async fn next_message(&mut self, effect: Effect) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(message) = self.frames.next()? {
                return Ok(Some(message));
            }
            if !self.receive(effect).await? {
                return Ok(None);
            }
        }
    }

    /// The next message that is already completely received.
    ///
    /// # Errors
    /// `internal` for frames that no broker sends.
    pub(crate) fn buffered(&mut self) -> Result<Option<Bytes>, Error> {
        self.frames.next()
    }

    /// Waits for more bytes; false when the stream ended with status OK.
    ///
    /// # Errors
    /// As [`Self::next_message`].
    pub(crate) async fn receive(&mut self, effect: Effect) -> Result<bool, Error> {
        let Some(frame) = self.body.frame().await else {
            let text = "the connection closed before the call ended";
            return Err(broken(&self.address, effect, text));
        };
        let frame = frame.map_err(|status| broken(&self.address, effect, status.message()))?;
        match frame.into_data() {
            Ok(chunk) => {
                self.frames.push(&chunk);
                Ok(true)
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                match Status::from_header_map(&trailers) {
                    Some(status) if status.code() == Code::Ok => Ok(false),
                    Some(status) => Err(Error::from_status(&status, effect)),
                    None => Err(Error::new(
                        ErrorCode::Internal,
                        "the broker ended the call without a status",
                    )),
                }
            }
        }
    }
}

/// Bascule's headers of the response to Subscribe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubscribeHeaders {
    /// The partition's incarnation, which the offsets belong to; 0 = not sent.
    pub(crate) incarnation: u64,
    /// The resolved start offset.
    pub(crate) start: Option<u64>,
}
impl SubscribeHeaders {
    pub(crate) fn read(headers: &http::HeaderMap) -> Self {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.parse().ok();
        Self {
            incarnation: number(INCARNATION).unwrap_or_default(),
            start: number(START),
        }
    }
}

/// The text of an error with all its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

fn broken(address: &str, effect: Effect, text: &str) -> Error {
    if tls::is_refused(text) {
        return Error::new(
            ErrorCode::TlsFailed,
            format!("broker at {address}: it refused the TLS handshake: {text}"),
        );
    }
    let code = if effect == Effect::Write {
        ErrorCode::OutcomeUnknown
    } else {
        ErrorCode::Unavailable
    };
    Error::new(
        code,
        format!("broker at {address}: the connection broke during the call: {text}"),
    )
}

/// `grpc-timeout`: at most eight digits and a unit.
fn grpc_timeout(timeout: Duration) -> String {
    let micros = timeout.as_micros();
    if micros < 100_000_000 {
        return format!("{micros}u");
    }
    format!("{}S", timeout.as_secs().min(99_999_999))
}
