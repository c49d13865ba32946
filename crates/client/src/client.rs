//! One connection to one broker.
use crate::error::Effect;
use crate::frames::frame;
use crate::outgoing::Outgoing;
use crate::publish::{self, Bounds};
use crate::runtime::{Home, Patience};
use crate::subscription::Subscription;
use crate::tls::TlsOptions;
use crate::transport::{Incoming, Told, Transport};
use crate::{Bell, Error};
use bascule_record::Producer;
use bascule_wire::liftbridge::messages::SubscribeRequest;
use bascule_wire::liftbridge::methods;
use bascule_wire::subject::SubjectFilter;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use prost::Message as _;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::body::Body;

/// Calls that one [`Client::publish_all`] has under way.
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
    /// Begins the user agent that the broker sees.
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
        serde_json::from_slice(json)
            .map_err(|error| Error::new("invalid_argument", format!("client options: {error}")))
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
    /// `invalid_argument` when it is no address; `unavailable`; `closed` when patience ended.
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

    /// One unary call by the method's name: raw protobuf in and out.
    ///
    /// # Errors
    /// The status, mapped; `outcome_unknown` when a call that changes something was not answered.
    pub fn call(
        &self,
        method: &str,
        request: &[u8],
        timeout: Duration,
        patience: Patience<'_>,
    ) -> Result<Vec<u8>, Error> {
        let path = format!("/{}/{method}", methods::SERVICE);
        if !methods::ALL
            .iter()
            .chain(&methods::OURS)
            .any(|known| *known == path)
            || [methods::SUBSCRIBE, methods::PUBLISH_ASYNC].contains(&path.as_str())
        {
            return Err(Error::new(
                "unimplemented",
                format!("`{method}` is not a unary method of {}", methods::SERVICE),
            ));
        }
        let effect = if method.starts_with("Fetch") || method.starts_with("Check") {
            Effect::Read
        } else {
            Effect::Write
        };
        let transport = self.transport()?;
        let answer = transport.unary(&path, frame(request), timeout, effect);
        self.home.block_on(answer, patience)?.map(Into::into)
    }

    /// An empty batch for [`Self::publish`].
    pub fn outgoing(&self, stream: &str, partition: i32, ack_policy: i32) -> Outgoing {
        Outgoing::new(stream, partition, ack_policy, self.options.max_in_flight)
    }

    /// Publishes what is not stored yet of a batch, pipelined, in order; then [`Outgoing::places`] says where it is. Cut
    /// off by patience, the outcome is unknown. `producer`: who sends it, with the sequence of the first record.
    ///
    /// # Errors
    /// The first failed record's error, its index in the details; `outcome_unknown` when the deadline passed or the
    /// connection broke. With `resend` in the details, the same call may be repeated, over any connection: what is stored
    /// already is not stored again.
    pub fn publish(
        &self,
        batch: &mut Outgoing,
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

    /// Publishes several batches at once, as [`Self::publish`] does each; the failure of each that failed, in their order.
    /// The timeout is that of all together: a batch whose turn comes later fails, and nothing of it was sent.
    ///
    /// # Errors
    /// `closed`, `forked`: nothing was sent; `closed` when patience ended: the outcome of all is unknown.
    pub fn publish_all(
        &self,
        batches: Vec<(&mut Outgoing, Option<Producer>)>,
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

    /// Opens a subscription with a raw `SubscribeRequest`; returns after the handshake. `bell` is rung whenever it has
    /// something.
    ///
    /// # Errors
    /// The status that the broker refused it with; `deadline_exceeded` when no handshake came in time.
    pub fn subscribe(
        &self,
        request: &[u8],
        bell: Option<Arc<Bell>>,
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
            let told = Told::read(response.headers());
            let mut incoming = Incoming::new(&transport.address, response.into_body());
            match incoming.next_message(Effect::Read).await? {
                Some(_) => Ok((incoming, told)),
                None => Err(Error::new(
                    "end_of_stream",
                    "the broker ended the subscription before it began",
                )),
            }
        };
        let opened = async { tokio::time::timeout(timeout, opening).await };
        let (incoming, told) = self
            .home
            .block_on(opened, patience)?
            .map_err(|_| Error::deadline(Effect::Read))??;
        Subscription::start(self.home, incoming, told, filter, bell)
    }

    /// Lets go of the connection; calls that are under way end by themselves. Idempotent.
    pub fn close(&self) {
        self.transport.lock().take();
    }

    fn transport(&self) -> Result<Transport, Error> {
        self.home.enter()?;
        self.transport
            .lock()
            .clone()
            .ok_or_else(|| Error::new("closed", "the client was closed"))
    }
}

/// The filter of a raw `SubscribeRequest`: a broker that does not know the field sends everything.
fn subject_filter(request: &[u8]) -> Result<Option<SubjectFilter>, Error> {
    let request = SubscribeRequest::decode(request).map_err(|error| {
        Error::new(
            "invalid_argument",
            format!("the subscribe request: {error}"),
        )
    })?;
    if request.subject.is_empty() {
        return Ok(None);
    }
    let filter = SubjectFilter::parse(&request.subject);
    filter
        .map(Some)
        .map_err(|error| Error::new("invalid_argument", error.to_string()))
}
