//! From the listening socket to connections that completed the preface handshake.
//!
//! A task accepts. Each connection then has `limits.handshake_ms` for the TLS handshake, when there is TLS, and the whole
//! client preface of HTTP/2 (24 fixed bytes and a SETTINGS frame of at most 1 KiB); anything else closes it at once. At
//! most `limits.handshakes` connections are in this phase: a further one closes the oldest, so idle connections cannot keep
//! out active ones. The phase reads only these bytes and allocates no HTTP/2 state.
//!
//! A lack of descriptors is waited out, without spinning and without ending the server.
use super::Admission;
use super::caller::{Caller, Identity};
use super::connection::{Connection, Stream};
use super::shares::Piece;
use crate::events::{Events, Level};
use crate::tls::{Peer, Tls, handshake};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// After an accept that failed.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two lines in the log about accepts that fail.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// Connections that completed the preface handshake and that the server has not taken over yet.
const WAITING: usize = 64;
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const SETTINGS: u8 = 4;
/// Largest first SETTINGS frame, bytes: some forty settings.
const SETTINGS_BYTES: usize = 1024;
/// `ENHANCE_YOUR_CALM`.
const CALM: u32 = 11;

/// Dependencies of accepting connections.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) admission: Arc<Admission>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) events: Arc<Events>,
    /// Whether clients are known by certificates where `tls.client_auth` says so; others log in.
    pub(crate) asks_for_certificates: bool,
}

impl Listener {
    fn acceptor(&self) -> Option<Arc<TlsAcceptor>> {
        if self.asks_for_certificates {
            self.tls.acceptor()
        } else {
            self.tls.open_acceptor()
        }
    }
}

/// Accepts until the handle is aborted or the receiver dropped. Call inside the runtime.
pub(crate) fn accept(
    listener: Listener,
    socket: TcpListener,
) -> (mpsc::Receiver<io::Result<Connection>>, AbortHandle) {
    let (ready, receiver) = mpsc::channel(WAITING);
    let acceptor = Acceptor {
        listener,
        ready,
        preface: VecDeque::new(),
        last_line: None,
    };
    let task = tokio::spawn(acceptor.run(socket));
    (receiver, task.abort_handle())
}

struct Acceptor {
    listener: Listener,
    ready: mpsc::Sender<io::Result<Connection>>,
    /// Newest last; those that are done are among them.
    preface: VecDeque<AbortHandle>,
    last_line: Option<Instant>,
}

impl Acceptor {
    async fn run(mut self, socket: TcpListener) {
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer),
                    Err(error) => self.wait_out(&error).await,
                },
                () = self.ready.closed() => return,
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let admission = &self.listener.admission;
        let refused = &admission.statistics.connections_refused;
        // With TLS nothing can be sent before the handshake.
        let refuse = |stream: &TcpStream, text: &str| {
            if self.listener.tls.acceptor().is_none() {
                // A peer that does not read it sees the connection close.
                let _ = stream.try_write(&refusal(text));
            }
        };
        if stream.as_raw_fd() as u64 >= admission.descriptors {
            refused.add(1);
            return refuse(
                &stream,
                "the broker has no descriptor to spare: close connections, raise its limit of open files, or lower limits.descriptor_reserve",
            );
        }
        let Some(from) = admission.addresses.take(Identity::at(peer.ip())) else {
            refused.add(1);
            let most = admission.limits.connections_per_address;
            return refuse(
                &stream,
                &format!(
                    "limits.connections_per_address ({most}) connections are open from this address: reuse one, or try again later"
                ),
            );
        };
        let preface = preface_handshake(self.listener.clone(), stream, from, self.ready.clone());
        self.preface.push_back(tokio::spawn(preface).abort_handle());
        if self.preface.len() > admission.limits.handshakes
            && let Some(oldest) = self.preface.pop_front()
            && !oldest.is_finished()
        {
            oldest.abort();
            admission.statistics.handshakes_failed.add(1);
        }
    }

    /// Mostly a lack of descriptors, which lasts: without a pause this would spin.
    async fn wait_out(&mut self, error: &io::Error) {
        let Listener {
            admission, events, ..
        } = &self.listener;
        admission.statistics.accept_errors.add(1);
        if self
            .last_line
            .is_none_or(|last| last.elapsed() > LOG_INTERVAL)
        {
            self.last_line = Some(Instant::now());
            let text = format!("connections cannot be accepted, and wait: {error}");
            events.log(Level::Error, "grpc", text, serde_json::json!({}));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits for the preface and hands the connection on.
async fn preface_handshake(
    listener: Listener,
    stream: TcpStream,
    from: Piece,
    ready: mpsc::Sender<io::Result<Connection>>,
) {
    let admission: &Admission = &listener.admission;
    let patience = Duration::from_millis(admission.limits.handshake_ms);
    // Fails only for a connection that is gone.
    let _ = stream.set_nodelay(true);
    let handshake = timeout(patience, async {
        let (mut stream, peer) = opened(&listener, stream).await?;
        let preface = read_preface(&mut stream).await?;
        Some((stream, peer, preface))
    });
    let Ok(Some((mut stream, peer, preface))) = handshake.await else {
        admission.statistics.handshakes_failed.add(1);
        return;
    };
    let Ok(place) = Arc::clone(&admission.connections).try_acquire_owned() else {
        admission.statistics.connections_refused.add(1);
        let most = admission.limits.connections;
        let text = format!(
            "limits.connections ({most}) connections are open: try again later, or raise it"
        );
        // Bounded by the place among those at their handshake. A peer that does not read it sees the connection close.
        let _ = timeout(patience, stream.write_all(&refusal(&text))).await;
        return;
    };
    let connection = Connection {
        stream,
        caller: Caller::of(&peer),
        preface,
        given: 0,
        turn: 0,
        _place: place,
        _from: from,
    };
    // Fails only when the server stops.
    let _ = ready.send(Ok(connection)).await;
}

/// The connection behind its TLS handshake, when there is TLS. `None` when that failed, which ends this connection only.
pub(crate) async fn opened(listener: &Listener, stream: TcpStream) -> Option<(Stream, Peer)> {
    let address = stream.peer_addr().ok();
    let Some(acceptor) = listener.acceptor() else {
        let peer = Peer {
            address,
            identity: None,
        };
        return Some((Stream::Plain(stream), peer));
    };
    match handshake(&acceptor, stream).await {
        Ok((stream, peer)) => Some((Stream::Tls(stream), peer)),
        Err(error) => {
            let Listener { tls, events, .. } = listener;
            tls.report_failed(events, address, &error);
            None
        }
    }
}

/// The client's preface, whole; `None` when something else came, or the end.
async fn read_preface(stream: &mut Stream) -> Option<Vec<u8>> {
    let mut preface = vec![0; PREFACE.len() + FRAME_HEAD];
    let mut have = 0;
    while have < preface.len() {
        let read = stream.read(preface.get_mut(have..)?).await.ok()?;
        have += read;
        let is_preface = |(got, wanted): (&u8, &u8)| got == wanted;
        if read == 0 || !preface.iter().take(have).zip(PREFACE).all(is_preface) {
            return None;
        }
    }
    let &[a, b, c, kind, ..] = preface.get(PREFACE.len()..)? else {
        return None;
    };
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if kind != SETTINGS || length > SETTINGS_BYTES {
        return None;
    }
    let head = preface.len();
    preface.resize(head + length, 0);
    stream.read_exact(preface.get_mut(head..)?).await.ok()?;
    Some(preface)
}

/// Why, in the words of HTTP/2: sent before the connection is closed.
fn refusal(text: &str) -> Vec<u8> {
    let mut out = vec![0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
    let length = (8 + text.len()) as u32;
    out.extend_from_slice(length.to_be_bytes().get(1..).unwrap_or_default());
    out.extend_from_slice(&[7, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.extend_from_slice(&CALM.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}
