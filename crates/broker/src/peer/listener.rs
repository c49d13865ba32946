//! The port for other brokers.
//!
//! A connection has [`HELLO`] for TLS and its hello, and at most [`GREETINGS`] are in this phase: a further one closes the
//! oldest. After that a broker has one for each [`Purpose`]: a further one closes the older, which may be half open.
use super::brokers::Brokers;
use super::connection::{PeerError, read_frame};
use super::founding::Founding;
use super::handshake::{Proof, short};
use super::publishes;
use super::session::FetchSession;
use super::stream::{self, ByteStream};
use crate::clock::now_ns;
use crate::consensus::network::{Answer, Kind};
use crate::events::{Events, Level, LogLimiter};
use crate::statistics::PeerRefusals;
use crate::tls::PeerTls;
use bascule_wire::peer::frame::{CONTROL_BYTES, GREETING_BYTES};
use bascule_wire::peer::{
    Frame, FrameType, Hello, HelloAnswer, Join, Purpose, RaftHead, RefusalCode,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

const HELLO: Duration = Duration::from_secs(5);
const GREETINGS: usize = 32;
/// Requests of one connection that are answered at the same time; further ones wait in its socket.
const ANSWERING: usize = 16;
/// The same of one for reads: as many as the other broker has without an answer. What waits for a commit stops nothing else;
/// [`RequestServer`](crate::client_requests::RequestServer) bounds their memory.
const ANSWERING_READS: usize = 256;
/// After an accept that failed: mostly a lack of descriptors, which lasts.
const PAUSE: Duration = Duration::from_millis(50);

/// Why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not a loopback address, and no TLS.
    #[error(transparent)]
    Address(#[from] PeerError),
    /// The operating system refused.
    #[error("{address} cannot be listened on: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// The open port. Dropping it closes it, with its connections.
#[derive(Debug)]
pub struct PeerListener {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    /// `None`: whoever asks for a cluster is not answered.
    founding: Option<Arc<Founding>>,
    group: OnceLock<Group>,
    tls: Option<Arc<PeerTls>>,
    events: Arc<Events>,
    connections: Mutex<BTreeMap<(u64, Purpose), AbortHandle>>,
    refused: Arc<PeerRefusals>,
    lines: LogLimiter,
}

/// The brokers that are let in, and who answers them.
#[derive(Debug)]
struct Group {
    brokers: Arc<Brokers>,
    answers: Arc<dyn Answer>,
}

/// What a connection turned out to be.
enum Greeted {
    /// Of this broker, and what it is for.
    Broker(Box<dyn ByteStream>, u64, Purpose),
    /// A question about the cluster, answered.
    Asked,
}

impl PeerListener {
    /// Listens for a broker that is of no cluster yet: it says so, until [`PeerListener::found`]. `tls`: `None` = loopback only. Call inside
    /// the runtime.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn open_unfounded(
        address: SocketAddr,
        founding: Arc<Founding>,
        tls: Option<Arc<PeerTls>>,
        events: Arc<Events>,
        refused: Arc<PeerRefusals>,
    ) -> Result<Self, ListenError> {
        let group = Err(founding);
        Self::start(address, group, tls, events, refused).await
    }

    /// Lets these brokers in from now on. Only the first call counts.
    pub fn found(&self, brokers: Arc<Brokers>, answers: Arc<dyn Answer>) {
        // A second group would be another run's.
        let _ = self.shared.group.set(Group { brokers, answers });
    }

    /// Listens. `tls`: `None` = loopback only. Call inside the runtime.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn open(
        address: SocketAddr,
        brokers: Arc<Brokers>,
        tls: Option<Arc<PeerTls>>,
        answers: Arc<dyn Answer>,
        events: Arc<Events>,
    ) -> Result<Self, ListenError> {
        let group = Ok(Group { brokers, answers });
        Self::start(address, group, tls, events, Arc::default()).await
    }

    async fn start(
        address: SocketAddr,
        group: Result<Group, Arc<Founding>>,
        tls: Option<Arc<PeerTls>>,
        events: Arc<Events>,
        refused: Arc<PeerRefusals>,
    ) -> Result<Self, ListenError> {
        let (group, founding) = match group {
            Ok(group) => (OnceLock::from(group), None),
            Err(founding) => (OnceLock::new(), Some(founding)),
        };
        if tls.is_none() {
            stream::check_loopback(address)?;
        }
        let failed = |source| ListenError::Io { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            founding,
            group,
            tls,
            events,
            connections: Mutex::default(),
            refused,
            lines: LogLimiter::default(),
        });
        let task = tokio::spawn(shared.clone().accept(socket)).abort_handle();
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were refused or broke the protocol, by [`PeerError::reason`].
    pub fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.shared.refused.all()
    }

    /// Connections behind their handshake, by the broker's number.
    pub fn connections(&self) -> BTreeMap<u64, usize> {
        let mut open = BTreeMap::new();
        for ((id, _), connection) in &*self.shared.connections.lock() {
            *open.entry(*id).or_default() += usize::from(!connection.is_finished());
        }
        open
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.task.abort();
        for connection in self.shared.connections.lock().values() {
            connection.abort();
        }
    }
}

impl Shared {
    async fn accept(self: Arc<Self>, socket: TcpListener) {
        let mut greetings = Greetings::default();
        loop {
            match socket.accept().await {
                Ok((stream, address)) => {
                    let greeted = tokio::spawn(self.clone().greet(stream, address));
                    if greetings.add(greeted.abort_handle()) {
                        self.refuse(address, &PeerError::Silent(HELLO));
                    }
                }
                Err(error) => {
                    let text =
                        format!("connections of brokers cannot be accepted, and wait: {error}");
                    self.line(|_| text);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn greet(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let greeted = tokio::time::timeout(HELLO, self.handshake(stream)).await;
        match greeted.unwrap_or(Err(PeerError::Silent(HELLO))) {
            Ok(Greeted::Asked) => {}
            Ok(Greeted::Broker(stream, from, purpose)) => {
                let shared = self.clone();
                let serve = tokio::spawn(async move {
                    let served = match purpose {
                        Purpose::Publishes => shared.serve_publishes(stream).await,
                        Purpose::Control | Purpose::Records | Purpose::Reads => {
                            shared.serve(stream, from, purpose).await
                        }
                    };
                    if let Err(error) = served {
                        shared.refuse(address, &error);
                    }
                });
                self.keep(from, purpose, serve.abort_handle());
            }
            Err(error) => self.refuse(address, &error),
        }
    }

    /// A connection that said who it is, and was let in.
    async fn handshake(&self, stream: TcpStream) -> Result<Greeted, PeerError> {
        let (mut stream, proof) = stream::accepted(stream, self.tls.as_deref()).await?;
        let frame = read_frame(&mut stream, GREETING_BYTES).await?;
        let frame = frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        if let (FrameType::Join, Some(founding)) = (frame.kind, &self.founding) {
            let join = Join::read(&frame)?;
            return answer_join(founding, &join, &proof, stream).await;
        }
        let hello = Hello::read(&frame)?;
        let Some(group) = self.group.get() else {
            let text = "this broker is of no cluster yet".to_owned();
            let code = RefusalCode::NotFounded as u32;
            let answer = HelloAnswer {
                code,
                text: text.clone(),
                ..HelloAnswer::default()
            };
            last(stream, Frame::write(FrameType::HelloAnswer, &answer, b"")).await?;
            return Err(PeerError::Refused { code, text });
        };
        let judged = group.brokers.judge(&hello, &proof);
        let answer = group.brokers.answer(&judged, now_ns());
        let frame = Frame::write(FrameType::HelloAnswer, &answer, b"");
        match judged {
            Ok(_) => {
                stream.write_all(&frame).await?;
                stream.flush().await?;
                Ok(Greeted::Broker(stream, hello.raft_id, hello.purpose()))
            }
            Err(refusal) => {
                last(stream, frame).await?;
                Err(PeerError::Refused {
                    code: refusal.code as u32,
                    text: refusal.text,
                })
            }
        }
    }

    fn keep(&self, from: u64, purpose: Purpose, connection: AbortHandle) {
        let older = self.connections.lock().insert((from, purpose), connection);
        if let Some(older) = older {
            older.abort();
        }
    }

    /// Takes publishes of another broker's clients until the connection ends.
    async fn serve_publishes(&self, stream: Box<dyn ByteStream>) -> Result<(), PeerError> {
        let group = self.group.get();
        let server = group.and_then(|group| Some((group, group.answers.publishes()?)));
        match server {
            Some((group, server)) => publishes::serve(stream, &server, &group.brokers).await,
            None => Err(PeerError::Unexpected(FrameType::Forward)),
        }
    }

    /// Answers until the connection ends.
    async fn serve(
        self: &Arc<Self>,
        stream: Box<dyn ByteStream>,
        from: u64,
        purpose: Purpose,
    ) -> Result<(), PeerError> {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let (at_once, queued) = match purpose {
            // What is queued has no share of any budget.
            Purpose::Reads => (ANSWERING_READS, 1),
            _ => (ANSWERING, ANSWERING),
        };
        let (answers, mut outgoing) = mpsc::channel::<Vec<u8>>(queued);
        let write = async move {
            while let Some(frame) = outgoing.recv().await {
                writing.write_all(&frame).await?;
                writing.flush().await?;
            }
            Ok::<(), PeerError>(())
        };
        let permits = Arc::new(Semaphore::new(at_once));
        let (fetches, fetched) = mpsc::channel(ANSWERING);
        let session = self.serve_fetches(from, fetched, answers.clone());
        let read = async {
            while let Some(frame) = read_frame(&mut reading, CONTROL_BYTES).await? {
                if frame.kind == FrameType::Fetch {
                    // Fails only when the session has ended, and the connection with it.
                    let _ = fetches.send(frame).await;
                    continue;
                }
                let head = RaftHead::read(&frame)?;
                let (kind, answer) =
                    request_of(frame.kind).ok_or(PeerError::Unexpected(frame.kind))?;
                // Closed never.
                let permit = permits
                    .clone()
                    .acquire_owned()
                    .await
                    .map_err(io::Error::other)?;
                let (shared, answers) = (self.clone(), answers.clone());
                tokio::spawn(async move {
                    let body = shared.ask(from, kind, &frame.body).await;
                    // Its budget counts it until its frame is queued.
                    let held = body.as_ref().ok().cloned();
                    // Fails only when the connection has ended.
                    let _ = answers.send(to_frame(answer, head.request, body)).await;
                    drop((held, permit));
                });
            }
            Ok(())
        };
        tokio::select! {
            read = read => read,
            written = write => written,
            failed = session => failed,
        }
    }

    /// Serves a follower until its connection ends.
    async fn serve_fetches(
        &self,
        from: u64,
        mut fetched: mpsc::Receiver<Frame>,
        answers: mpsc::Sender<Vec<u8>>,
    ) -> Result<(), PeerError> {
        let group = self.group.get();
        if let Some(context) = group.and_then(|group| group.answers.partitions()) {
            return FetchSession::new(context, from).run(fetched, answers).await;
        }
        match fetched.recv().await {
            Some(frame) => Err(PeerError::Unexpected(frame.kind)),
            None => Ok(()),
        }
    }

    async fn ask(&self, from: u64, kind: Kind, request: &[u8]) -> io::Result<Bytes> {
        match self.group.get() {
            Some(group) if !group.brokers.is_superseded() => {
                group.answers.answer(from, kind, request).await
            }
            _ => Err(io::Error::other(
                "this broker was replaced by a later run of it",
            )),
        }
    }

    fn refuse(&self, address: SocketAddr, error: &PeerError) {
        self.refused.add(error.reason());
        self.line(|refused| {
            let all: u64 = refused.values().sum();
            format!("a connection from {address} was ended: {error} ({all} since the start)")
        });
    }

    fn line(&self, text: impl FnOnce(&BTreeMap<&'static str, u64>) -> String) {
        if self.lines.take().is_none() {
            return;
        }
        let refused = self.refused.all();
        let fields = serde_json::json!({"refused": refused});
        self.events
            .log(Level::Warning, "peer", text(&refused), fields);
    }
}

/// The last frame of a connection: it is read before the end of the connection is.
async fn last(mut stream: Box<dyn ByteStream>, frame: Vec<u8>) -> io::Result<()> {
    stream.write_all(&frame).await?;
    stream.flush().await?;
    stream.shutdown().await
}

async fn answer_join(
    founding: &Founding,
    join: &Join,
    proof: &Proof,
    stream: Box<dyn ByteStream>,
) -> Result<Greeted, PeerError> {
    let (answer, body) = founding.answer(join, proof);
    last(stream, Frame::write(FrameType::JoinAnswer, &answer, &body)).await?;
    match answer.code {
        0 => Ok(Greeted::Asked),
        code => Err(PeerError::Refused {
            code,
            text: answer.text,
        }),
    }
}

/// Connections that have not said who they are; newest last, those that are done among them.
#[derive(Default)]
struct Greetings(VecDeque<AbortHandle>);

impl Greetings {
    /// Adds one; returns whether the oldest had to go for it.
    fn add(&mut self, greeting: AbortHandle) -> bool {
        self.0.retain(|one| !one.is_finished());
        self.0.push_back(greeting);
        if self.0.len() <= GREETINGS {
            return false;
        }
        self.0.pop_front().inspect(AbortHandle::abort).is_some()
    }
}

impl Drop for Greetings {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// The kind of a request and the type of its answer; `None` for what is not a request.
fn request_of(kind: FrameType) -> Option<(Kind, FrameType)> {
    let asked = match kind {
        FrameType::Position => Kind::Position,
        FrameType::Propagate => Kind::Propagate,
        FrameType::Append => Kind::Append,
        FrameType::Vote => Kind::Vote,
        FrameType::PreVote => Kind::PreVote,
        FrameType::Snapshot => Kind::Snapshot,
        FrameType::Heartbeat => Kind::Heartbeat,
        FrameType::Range => Kind::Range,
        FrameType::ClientRequest => Kind::ClientRequest,
        _ => return None,
    };
    Some((asked, kind.answer()?))
}

fn to_frame(kind: FrameType, request: u64, answer: io::Result<Bytes>) -> Vec<u8> {
    let (error, body) = match answer {
        Ok(body) => (String::new(), body),
        // An answer with a text has failed, so the text is never empty.
        Err(error) => (short(&format!("failed: {error}")), Bytes::new()),
    };
    Frame::write(kind, &RaftHead { request, error }, &body)
}
