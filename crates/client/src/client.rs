//! One connection to one broker.
use crate::error::Effect;
use crate::frames::frame;
use crate::publish::{self, Bounds};
use crate::publish_batch::PublishBatch;
use crate::runtime::{Home, Patience};
use crate::subscription::Subscription;
use crate::tls::TlsOptions;
use crate::transport::{Incoming, SubscribeHeaders, Transport};
use crate::{Error, Notifier};
use bascule_record::Producer;
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::messages::SubscribeRequest;
use bascule_wire::methods::{self, ADMIN, API, Method};
use bascule_wire::subject::SubjectFilter;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use prost::Message as _;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::body::Body;

/// Concurrent calls of one [`Client::publish_all`].
const CALLS_AT_ONCE: usize = 32;

/// How to connect. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Longest wait for a connection and for the handshake of a subscription, ms.
    pub connect_timeout_ms: u64,
    /// Most records sent and not yet acknowledged, 1 or more.
    pub max_in_flight: usize,
    /// Most bytes sent and not yet acknowledged, 1 or more; a larger record goes alone.
    pub max_in_flight_bytes: usize,
    /// Prefix of the user agent that the broker sees.
    pub client_id: String,
    /// Absent = plain text.
    pub tls: Option<TlsOptions>,
}
impl Default for Options {
    /// 5 s, 16,384 records, 16 MiB, `python`.
    fn default() -> Self {
        Self {
            connect_timeout_ms: 5000,
            max_in_flight: 16_384,
            max_in_flight_bytes: 16 << 20,
            client_id: "python".into(),
            tls: None,
        }
    }
}
impl Options {
    /// Reads a JSON object; empty bytes are an empty object.
    ///
    /// # Errors
    /// `invalid_argument`, naming the key.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        let json = if json.is_empty() { b"{}" } else { json };
        serde_json::from_slice(json).map_err(|error| {
            Error::new(
                ErrorCode::InvalidArgument,
                format!("client options: {error}"),
            )
        })
    }

    fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }
}

/// A connected client. Safe to share between threads.
#[derive(Debug)]
pub struct Client {
    home: Home,
    options: Options,
    /// `None` once closed.
    transport: Mutex<Option<Transport>>,
}
impl Client {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// `invalid_argument` when the address is not valid; `unavailable`; `closed` when the caller interrupted.
    pub fn connect(address: &str, options: Options, patience: Patience<'_>) -> Result<Self, Error> {
        let home = Home::of_this_process()?;
        let tls = options.tls.as_ref().map(TlsOptions::config).transpose()?;
        let connecting =
            Transport::connect(address, &options.client_id, options.connect_timeout(), tls);
        let transport = home.block_on(connecting, patience)??;
        Ok(Self {
            home,
            options,
            transport: Mutex::new(Some(transport)),
        })
    }

    /// One unary call by the method's name, of either service of ours: raw protobuf in and out.
    ///
    /// # Errors
    /// The mapped status; `outcome_unknown` when a call with a side effect was not answered.
    pub fn call(
        &self,
        method: &str,
        request: &[u8],
        timeout: Duration,
        patience: Patience<'_>,
    ) -> Result<Vec<u8>, Error> {
        let found = Method::named(method)
            .filter(|found| ![methods::SUBSCRIBE, methods::PUBLISH_ASYNC].contains(&found.path));
        let Some(found) = found else {
            return Err(Error::new(
                ErrorCode::Unimplemented,
                format!("`{method}` is not a unary method of {API} or {ADMIN}"),
            ));
        };
        let effect = if found.reads {
            Effect::Read
        } else {
            Effect::Write
        };
        let transport = self.transport()?;
        let answer = transport.unary(found.path, frame(request), timeout, effect);
        self.home.block_on(answer, patience)?.map(Into::into)
    }

    /// An empty batch for [`Self::publish`].
    pub fn publish_batch(&self, stream: &str, partition: i32, ack_policy: i32) -> PublishBatch {
        PublishBatch::new(stream, partition, ack_policy, self.options.max_in_flight)
    }

    /// Publishes the records of a batch that are not stored yet, pipelined, in order; [`PublishBatch::places`] then has their
    /// offsets. The outcome is unknown when the caller interrupts. `producer`: who sends it, with the sequence of the first record.
    ///
    /// # Errors
    /// The first failed record's error, its index in the details; `outcome_unknown` when the deadline passed or the
    /// connection broke. With `resend` in the details, the same call may be repeated, over any connection: what is stored
    /// already is not stored twice.
    pub fn publish(
        &self,
        batch: &mut PublishBatch,
        producer: Option<Producer>,
        timeout: Duration,
        patience: Patience<'_>,
    ) -> Result<(), Error> {
        let transport = self.transport()?;
        let bounds = Bounds {
            records: self.options.max_in_flight.max(1),
            bytes: self.options.max_in_flight_bytes.max(1),
        };
        let deadline = Instant::now() + timeout;
        let published = publish::publish(&transport, batch, producer, bounds, deadline);
        self.home.block_on(published, patience)?
    }

    /// Publishes several batches concurrently, each as [`Self::publish`] does; returns their failures in order.
    /// One timeout covers all of them: a batch that could not start in time fails without being sent.
    ///
    /// # Errors
    /// `closed`, `forked`: nothing was sent; `closed` when the caller interrupted: the outcome of all is unknown.
    pub fn publish_all(
        &self,
        batches: Vec<(&mut PublishBatch, Option<Producer>)>,
        timeout: Duration,
        patience: Patience<'_>,
    ) -> Result<Vec<Option<Error>>, Error> {
        let transport = &self.transport()?;
        let bounds = Bounds {
            records: self.options.max_in_flight.max(1),
            bytes: self.options.max_in_flight_bytes.max(1),
        };
        let deadline = Instant::now() + timeout;
        let publishing = batches.into_iter().map(|(batch, producer)| async move {
            let published = publish::publish(transport, batch, producer, bounds, deadline);
            published.await.err()
        });
        let all = stream::iter(publishing).buffered(CALLS_AT_ONCE).collect();
        self.home.block_on(all, patience)
    }

    /// Opens a subscription with a raw `SubscribeRequest`; returns after the handshake. `notifier` is notified whenever it has
    /// something.
    ///
    /// # Errors
    /// The broker's status; `deadline_exceeded` when no handshake arrived in time.
    pub fn subscribe(
        &self,
        request: &[u8],
        notifier: Option<Arc<Notifier>>,
        patience: Patience<'_>,
    ) -> Result<Subscription, Error> {
        let transport = self.transport()?;
        let filter = subject_filter(request)?;
        let body = Body::new(http_body_util::Full::new(frame(request)));
        let timeout = self.options.connect_timeout();
        let opening = async {
            let response = transport
                .send(methods::SUBSCRIBE, body, None, Effect::Read)
                .await?;
            let headers = SubscribeHeaders::read(response.headers());
            let mut incoming = Incoming::new(&transport.address, response.into_body());
            match incoming.next_message(Effect::Read).await? {
                Some(_) => Ok((incoming, headers)),
                None => Err(Error::new(
                    ErrorCode::EndOfStream,
                    "the broker ended the subscription before it began",
                )),
            }
        };
        let opened = async { tokio::time::timeout(timeout, opening).await };
        let (incoming, headers) = self
            .home
            .block_on(opened, patience)?
            .map_err(|_| Error::deadline(Effect::Read))??;
        Subscription::start(self.home, incoming, headers, filter, notifier)
    }

    /// Closes the connection; calls in progress complete. Idempotent.
    pub fn close(&self) {
        self.transport.lock().take();
    }

    fn transport(&self) -> Result<Transport, Error> {
        self.home.enter()?;
        self.transport
            .lock()
            .clone()
            .ok_or_else(|| Error::new(ErrorCode::Closed, "the client was closed"))
    }
}

/// The filter of a raw `SubscribeRequest`, applied here too: a broker that does not know the field sends everything.
fn subject_filter(request: &[u8]) -> Result<Option<SubjectFilter>, Error> {
    let request = SubscribeRequest::decode(request).map_err(|error| {
        Error::new(
            ErrorCode::InvalidArgument,
            format!("the subscribe request: {error}"),
        )
    })?;
    if request.subject.is_empty() {
        return Ok(None);
    }
    let filter = SubjectFilter::parse(&request.subject);
    filter
        .map(Some)
        .map_err(|error| Error::new(ErrorCode::InvalidArgument, error.to_string()))
}
