//! From a server's INFO to the end of the connection, and on to the next.
use super::dial::{CONNECT_LIMIT, Dialed, Info, Socket, dial, lost, protocol_failure, timed_out};
use super::options::{Options, Server};
use super::protocol::{self, Frame, Operation, Step};
use super::reason::Reason;
use super::table::{Sorted, part};
use super::{Failure, Inner, Message, RETRY};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::oneshot;

/// Between two PINGs of ours; a server that leaves two unanswered is given up.
const PING: Duration = Duration::from_secs(10);
/// After so many PINGs subscriptions that were denied are asked for again.
const ASK_AGAIN: u32 = 3;
/// Room that a message gets at once; more as its bytes come.
const AT_ONCE: usize = 8 << 20;
/// Memory that is kept for what is written.
const KEPT_BYTES: usize = 4 << 20;
/// Servers that are remembered from `connect_urls`.
const MAX_SERVERS: usize = 1024;

/// The purpose of a PONG.
pub(super) enum Pong {
    /// The login succeeded, and all subscriptions are made.
    Login,
    /// The server is alive.
    Alive,
    /// Subscriptions that were denied were asked for again.
    Granted,
    /// Somebody waits for it.
    Waiter(oneshot::Sender<()>),
}

/// The purposes of the expected PONGs, in order.
pub(super) type Pongs = VecDeque<Pong>;

/// The servers to try, the next one first.
struct Pool(Mutex<VecDeque<Server>>);

impl Pool {
    fn new(options: &Options) -> Self {
        Self(Mutex::new(options.servers.iter().cloned().collect()))
    }

    /// The next server, which becomes the last.
    fn next(&self) -> Option<Server> {
        let mut servers = self.0.lock();
        let server = servers.pop_front()?;
        servers.push_back(server.clone());
        Some(server)
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Remembers the servers of a cluster.
    fn learn(&self, from: &Server, addresses: &[String]) {
        let mut servers = self.0.lock();
        for sibling in addresses.iter().filter_map(|text| from.sibling(text)) {
            let is_known = servers.iter().any(|known| known.is_at(&sibling));
            if !is_known && servers.len() < MAX_SERVERS {
                servers.push_back(sibling);
            }
        }
    }
}

/// Keeps a connection for ever.
pub(super) async fn run(inner: &Inner, options: &Options) {
    let pool = Pool::new(options);
    let mut tried = 0;
    while let Some(server) = pool.next() {
        let begun = Instant::now();
        let (failure, was_connected) = connection(inner, options, &pool, &server).await;
        let shown = server.to_string();
        inner.observer.on_failure(&shown, &failure, was_connected);
        // After a loss the next attempt is made at once; not when the server ends each connection at once.
        tried = if was_connected && begun.elapsed() > RETRY {
            0
        } else {
            tried + 1
        };
        if tried >= pool.len() {
            tried = 0;
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// One connection, from dialing to its end: why it ended, and whether it was connected.
async fn connection(
    inner: &Inner,
    options: &Options,
    pool: &Pool,
    server: &Server,
) -> (Failure, bool) {
    let Dialed {
        socket,
        info,
        is_tls,
        rest,
    } = match dial(server, options).await {
        Ok(dialed) => dialed,
        Err(failure) => return (failure, false),
    };
    let connect = match options.connect_line(server, is_tls, &info.nonce) {
        Ok(connect) => connect,
        Err(failure) => return (failure, false),
    };
    let serving = Serving {
        inner,
        pool,
        server,
        last_error: Mutex::default(),
    };
    serving.begin(connect, &info);
    serving.learn(&info);
    let (reader, writer) = tokio::io::split(socket);
    let failure = tokio::select! {
        failure = serving.read(reader, rest) => failure,
        failure = serving.write(writer) => failure,
        failure = serving.watch() => failure,
    };
    let was_connected = inner.outgoing.is_open();
    inner.outgoing.close();
    // Callers that wait for an answer get an error.
    inner.pongs.lock().clear();
    let refused = serving.last_error.lock().take();
    (refused.unwrap_or(failure), was_connected)
}

/// A connection from its login on.
struct Serving<'a> {
    inner: &'a Inner,
    pool: &'a Pool,
    server: &'a Server,
    /// The last error that the server reported: why it ends the connection, when it does.
    last_error: Mutex<Option<Failure>>,
}

impl Serving<'_> {
    /// Queues the login, all subscriptions and the PING whose answer says that both were taken.
    fn begin(&self, connect: String, info: &Info) {
        let table = self.inner.table.lock();
        let mut pongs = self.inner.pongs.lock();
        let mut first = connect.into_bytes();
        table.put_all(&mut first);
        first.extend_from_slice(b"PING\r\n");
        pongs.clear();
        pongs.push_back(Pong::Login);
        self.inner.outgoing.begin(&first, max_payload(info));
    }

    fn learn(&self, info: &Info) {
        self.pool.learn(
            self.server,
            info.connect_urls.as_deref().unwrap_or_default(),
        );
    }

    async fn write(&self, mut writer: WriteHalf<Box<dyn Socket>>) -> Failure {
        let mut bytes = Vec::new();
        loop {
            self.inner.outgoing.next(&mut bytes).await;
            let written = async {
                writer.write_all(&bytes).await?;
                writer.flush().await
            };
            if let Err(error) = written.await {
                return lost(&error);
            }
            self.inner.outgoing.on_written(bytes.len());
            bytes.clear();
            bytes.shrink_to(KEPT_BYTES);
        }
    }

    /// Ends the connection when the server answers neither the login nor PINGs.
    async fn watch(&self) -> Failure {
        tokio::time::sleep(CONNECT_LIMIT).await;
        if !self.inner.outgoing.is_open() {
            return timed_out("it did not answer the login");
        }
        for round in 1.. {
            tokio::time::sleep(PING).await;
            let waiting = self.inner.pongs.lock().len();
            if waiting > 0 && self.is_silent() {
                return Failure::new(
                    Reason::Lost,
                    format!("it answered no PING for {:?}", 2 * PING),
                );
            }
            self.inner.ping(Pong::Alive);
            if u32::is_multiple_of(round, ASK_AGAIN) {
                self.ask_again();
            }
        }
        // Not reached in a lifetime.
        timed_out("it was not given up")
    }

    /// Whether two PINGs of [`Serving::watch`] have no answer.
    fn is_silent(&self) -> bool {
        let pongs = self.inner.pongs.lock();
        let unanswered = pongs.iter().filter(|pong| matches!(pong, Pong::Alive));
        unanswered.count() >= 2
    }

    fn ask_again(&self) {
        let table = self.inner.table.lock();
        let mut lines = Vec::new();
        if table.put_denied(&mut lines) {
            self.inner
                .outgoing
                .put_line(|out| out.extend_from_slice(&lines));
            self.inner.ping(Pong::Granted);
        }
    }

    /// Reads and hands on until the connection ends.
    async fn read(&self, mut reader: ReadHalf<Box<dyn Socket>>, rest: Vec<u8>) -> Failure {
        let buffers = &self.inner.buffers;
        let mut buffer = buffers.take();
        buffer.extend_from_slice(&rest);
        let (mut frames, mut sorted) = (Vec::new(), Sorted::default());
        loop {
            let (end, needed) = match self.parse(&buffer, &mut frames) {
                Ok(parsed) => parsed,
                Err(failure) => return failure,
            };
            if frames.is_empty() {
                buffer.drain(..end);
            } else {
                self.deliver(buffers.hand_on(&mut buffer, end), &mut frames, &mut sorted);
            }
            // A large message gets room as it comes, not as it is announced.
            let missing = needed.saturating_sub(buffer.len());
            buffer.reserve(missing.min(buffer.len().max(AT_ONCE)));
            match reader.read_buf(&mut buffer).await {
                Ok(0) => {
                    let text = "it closed the connection".to_owned();
                    return Failure::new(Reason::Lost, text);
                }
                Ok(_) => {}
                Err(error) => return lost(&error),
            }
        }
    }

    /// Collects the messages at the start of what was read and handles everything else: where they end, and how many bytes
    /// the next operation takes at least.
    fn parse(&self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(usize, usize), Failure> {
        let mut at = 0;
        loop {
            let step = protocol::next(bytes, at)
                .map_err(|error| protocol_failure(&format!("it sent {error}")))?;
            match step {
                Step::Incomplete(needed) => return Ok((at, needed)),
                Step::Complete(Operation::Message(frame), end) => {
                    frames.push(frame);
                    at = end;
                }
                Step::Complete(other, end) => {
                    self.on_operation(&other, bytes)?;
                    at = end;
                }
            }
        }
    }

    fn deliver(&self, bytes: bytes::Bytes, frames: &mut Vec<Frame>, sorted: &mut Sorted) {
        {
            let table = self.inner.table.lock();
            for frame in frames.drain(..) {
                sorted.add(&table, frame.sid, || Message {
                    subject: part(&bytes, frame.subject),
                    reply: part(&bytes, frame.reply),
                    headers: part(&bytes, frame.headers),
                    payload: part(&bytes, frame.payload),
                });
            }
        }
        // The messages alone keep what was read.
        drop(bytes);
        sorted.deliver();
    }

    fn on_operation(&self, operation: &Operation, bytes: &[u8]) -> Result<(), Failure> {
        let inner = self.inner;
        match operation {
            Operation::Ping => inner
                .outgoing
                .put_line(|out| out.extend_from_slice(b"PONG\r\n")),
            Operation::Pong => self.on_pong(),
            Operation::Info(json) => {
                let info = Info::parse(bytes.get(json.clone()).unwrap_or_default())?;
                self.learn(&info);
                if info.max_payload.is_some() {
                    inner.outgoing.set_max_payload(max_payload(&info));
                }
                if info.is_lame_duck {
                    inner.observer.on_lame_duck(&self.server.to_string());
                }
            }
            Operation::Error(text) => {
                let text = bytes.get(text.clone()).unwrap_or_default();
                self.on_error(&String::from_utf8_lossy(text));
            }
            Operation::Ok | Operation::Message(_) => {}
        }
        Ok(())
    }

    fn on_pong(&self) {
        let pong = self.inner.pongs.lock().pop_front();
        match pong {
            Some(Pong::Login) => {
                self.inner.outgoing.open();
                self.inner.observer.on_connected(&self.server.to_string());
                self.grant();
            }
            Some(Pong::Granted) => self.grant(),
            Some(Pong::Waiter(waiter)) => {
                // A caller that timed out has dropped its receiver.
                let _ = waiter.send(());
            }
            Some(Pong::Alive) | None => {}
        }
    }

    fn grant(&self) {
        let granted = self.inner.table.lock().grant();
        for inbox in granted {
            inbox.on_granted();
        }
    }

    fn on_error(&self, text: &str) {
        let denied = self.inner.table.lock().deny(text);
        if let Some(inboxes) = denied {
            for inbox in inboxes {
                inbox.on_denied(text);
            }
        } else if is_passing(text) {
            self.inner.observer.on_error(text);
        } else {
            *self.last_error.lock() = Some(refusal(text));
        }
    }
}

/// Whether an error leaves the connection as it is.
fn is_passing(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.starts_with("permissions violation")
        || text.starts_with("invalid")
        || text.starts_with("maximum subscriptions exceeded")
}

/// The meaning of a server's error that ends the connection.
pub(super) fn refusal(text: &str) -> Failure {
    let lower = text.to_ascii_lowercase();
    let is_login = ["authorization", "authentication", "account", "credentials"]
        .iter()
        .any(|word| lower.contains(word));
    let reason = if is_login {
        Reason::LoginRefused
    } else if lower.contains("tls") {
        Reason::TlsFailed
    } else {
        Reason::Protocol
    };
    let what = if is_login {
        "it refused the login"
    } else {
        "it ended the connection"
    };
    Failure::new(reason, format!("{what}: {text}"))
}

fn max_payload(info: &Info) -> usize {
    // Servers always say it; this is what they have by default.
    usize::try_from(info.max_payload.unwrap_or(1 << 20)).unwrap_or(usize::MAX)
}
