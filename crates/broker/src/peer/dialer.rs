//! Connections to the other brokers, dialled again whenever they end.
use super::brokers::{Broker, Brokers};
use super::connection::{PeerError, read_frame};
use super::link::Link;
use super::stream::{self, ByteStream};
use crate::clock::now_ns;
use crate::consensus::network::{Kind, Transport};
use crate::events::{Events, Level};
use crate::tls::PeerTls;
use bascule_wire::peer::frame::{CONTROL_BYTES, DATA_BYTES, GREETING_BYTES};
use bascule_wire::peer::{Frame, FrameType, HelloAnswer, Purpose};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// For TCP, TLS and the handshake together.
const DIAL: Duration = Duration::from_secs(5);
/// Between two tries: doubled after each that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A clock of another broker that differs by more is reported, ns.
const CLOCK_SKEW_NS: u64 = 10_000_000_000;

/// What is known of the way to a broker: the connection, or why there is none.
type State = Result<Arc<Link>, Arc<str>>;

/// Keeps one connection to each other broker. Dropping it ends them.
#[derive(Debug)]
pub struct Dialer {
    brokers: Arc<Brokers>,
    links: BTreeMap<u64, (watch::Receiver<State>, AbortHandle)>,
}

impl Dialer {
    /// Begins to dial. `tls`: `None` = over loopback only. Call inside the runtime.
    pub fn start(brokers: Arc<Brokers>, tls: Option<&Arc<PeerTls>>, events: &Arc<Events>) -> Self {
        Self::start_for(Purpose::Control, brokers, tls, events)
    }

    /// The same for connections of another purpose, which report nothing: the one for control does.
    pub(crate) fn start_for(
        purpose: Purpose,
        brokers: Arc<Brokers>,
        tls: Option<&Arc<PeerTls>>,
        events: &Arc<Events>,
    ) -> Self {
        let dial = |(&id, other): (&u64, &Broker)| {
            let (state, receiver) = watch::channel(Err("it was not dialled yet".into()));
            let task = Dialling {
                brokers: brokers.clone(),
                tls: tls.cloned(),
                events: events.clone(),
                purpose,
                id,
                other: other.clone(),
                state,
            };
            (id, (receiver, tokio::spawn(task.run()).abort_handle()))
        };
        Self {
            links: brokers.others.iter().map(dial).collect(),
            brokers,
        }
    }
}

impl Dialer {
    /// The other brokers, by name, in order of their numbers: `None` = connected; else why not.
    pub fn others(&self) -> Vec<(&str, Option<Arc<str>>)> {
        let state = |id| self.links.get(id).map(|(state, _)| state.borrow().clone());
        let others = self.brokers.others.iter();
        others
            .map(|(id, other)| (other.name.as_str(), state(id).and_then(Result::err)))
            .collect()
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        for (_, task) in self.links.values() {
            task.abort();
        }
    }
}

impl Transport for Dialer {
    fn ask(
        &self,
        to: u64,
        kind: Kind,
        request: Bytes,
        _timeout: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let state = match self.links.get(&to) {
            _ if self.brokers.is_superseded() => {
                Err("this broker was replaced by a later run of it".into())
            }
            None => Err(format!("no broker with number {to} is known").into()),
            Some((state, _)) => state.borrow().clone(),
        };
        async move {
            let not_connected =
                |why: Arc<str>| io::Error::new(io::ErrorKind::NotConnected, why.to_string());
            state.map_err(not_connected)?.ask(kind, &request).await
        }
        .boxed()
    }
}

/// A connection to a broker behind its handshake, and what that answered.
pub(super) async fn dial(
    brokers: &Brokers,
    id: u64,
    other: &Broker,
    purpose: Purpose,
    tls: Option<&PeerTls>,
) -> Result<(Box<dyn ByteStream>, HelloAnswer), PeerError> {
    let (mut stream, proof) = stream::dialled(&other.address, tls).await?;
    let hello = brokers.hello(id, other, purpose, now_ns());
    stream
        .write_all(&Frame::write(FrameType::Hello, &hello, b""))
        .await?;
    stream.flush().await?;
    let frame = read_frame(&mut stream, GREETING_BYTES).await?;
    let frame = frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let answer = HelloAnswer::read(&frame)?;
    Brokers::check_answer(id, other, &answer, &proof)?;
    Ok((stream, answer))
}

struct Dialling {
    brokers: Arc<Brokers>,
    tls: Option<Arc<PeerTls>>,
    events: Arc<Events>,
    purpose: Purpose,
    id: u64,
    other: Broker,
    state: watch::Sender<State>,
}

impl Dialling {
    async fn run(self) {
        let mut pause = FIRST_PAUSE;
        while !self.brokers.is_superseded() {
            let dialled = tokio::time::timeout(DIAL, self.dial()).await;
            let failed = match dialled.unwrap_or(Err(PeerError::Silent(DIAL))) {
                Ok((link, run)) => {
                    pause = FIRST_PAUSE;
                    self.report_connected();
                    self.state.send_modify(|state| *state = Ok(Arc::new(link)));
                    run.await
                }
                Err(failed) => failed,
            };
            self.report_failed(&failed);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.fail("this broker was replaced by a later run of it".into());
    }

    async fn dial(
        &self,
    ) -> Result<(Link, impl Future<Output = PeerError> + Send + 'static), PeerError> {
        let tls = self.tls.as_deref();
        let (stream, answer) = dial(&self.brokers, self.id, &self.other, self.purpose, tls).await?;
        if self.purpose == Purpose::Control {
            self.report_clock(answer.time_ns);
            return Ok(Link::new(stream, CONTROL_BYTES));
        }
        Ok(Link::new(stream, DATA_BYTES))
    }

    fn fail(&self, why: Arc<str>) {
        self.state.send_modify(|state| *state = Err(why));
    }

    fn report_clock(&self, time_ns: i64) {
        let skew_ns = now_ns().abs_diff(time_ns);
        if skew_ns > CLOCK_SKEW_NS {
            let seconds = skew_ns / 1_000_000_000;
            let text = format!(
                "the clocks of this broker and of broker {:?} are {seconds} s apart: synchronise them",
                self.other.name
            );
            let fields = serde_json::json!({"broker": self.other.name, "seconds": seconds});
            self.events.log(Level::Warning, "peer", text, fields);
        }
    }

    fn report_connected(&self) {
        if self.purpose != Purpose::Control {
            return;
        }
        let (name, address) = (&self.other.name, &self.other.address);
        let fields = serde_json::json!({"broker": name, "address": address});
        let text = format!("broker {name:?} at {address} is connected");
        self.events.log(Level::Info, "peer", text, fields);
    }

    /// Once for each reason, not for each try.
    fn report_failed(&self, failed: &PeerError) {
        let why: Arc<str> = failed.to_string().into();
        let is_new = {
            let before = self.state.borrow();
            before.as_ref().err() != Some(&why)
        };
        self.fail(why.clone());
        // The connection for control reports it for the others.
        if is_new && self.purpose == Purpose::Control {
            let (name, address) = (&self.other.name, &self.other.address);
            let fields =
                serde_json::json!({"broker": name, "address": address, "reason": failed.reason()});
            let text = format!("broker {name:?} at {address} is not connected: {why}");
            self.events.log(Level::Warning, "peer", text, fields);
        }
    }
}
