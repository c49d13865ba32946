//! From an address to a server that has said what it is.
use super::options::{Options, Server};
use super::protocol::{self, Operation, Step};
use super::reason::Reason;
use super::{Failure, tls};
use serde::Deserialize;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

/// How long connecting may take up to INFO, and the login from there.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Read at once until INFO is complete.
const READ_BYTES: usize = 4 << 10;

/// A connection, in plain text or not.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// The INFO of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    pub(super) max_payload: Option<u64>,
    pub(super) tls_required: bool,
    pub(super) tls_available: bool,
    pub(super) nonce: String,
    /// `host:port` of the servers of its cluster.
    pub(super) connect_urls: Option<Vec<String>>,
    #[serde(rename = "ldm")]
    pub(super) is_lame_duck: bool,
}

impl Info {
    pub(super) fn parse(json: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(json)
            .map_err(|error| protocol_failure(&format!("its INFO cannot be read: {error}")))
    }
}

/// A server that has answered.
pub(super) struct Dialed {
    pub(super) socket: Box<dyn Socket>,
    pub(super) info: Info,
    pub(super) is_tls: bool,
    /// Bytes that were read after INFO.
    pub(super) rest: Vec<u8>,
}

/// Connects to a server up to its INFO.
///
/// # Errors
/// The reason; after [`CONNECT_LIMIT`] [`Reason::TimedOut`].
pub(super) async fn dial(server: &Server, options: &Options) -> Result<Dialed, Failure> {
    let dialing = async {
        let host = (server.host.as_str(), server.port);
        let addresses = tokio::net::lookup_host(host).await.map_err(|error| {
            Failure::new(
                Reason::AddressUnknown,
                format!("its name does not resolve: {error}"),
            )
        })?;
        let mut failure =
            Failure::new(Reason::AddressUnknown, "its name has no address".to_owned());
        for address in addresses {
            match connect(address, server, options).await {
                Ok(dialed) => return Ok(dialed),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    };
    tokio::time::timeout(CONNECT_LIMIT, dialing)
        .await
        .unwrap_or_else(|_| Err(timed_out("it did not answer")))
}

/// The step that timed out.
pub(super) fn timed_out(what: &str) -> Failure {
    Failure::new(Reason::TimedOut, format!("{what} within {CONNECT_LIMIT:?}"))
}

async fn connect(
    address: SocketAddr,
    server: &Server,
    options: &Options,
) -> Result<Dialed, Failure> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| unreachable(&error))?;
    stream
        .set_nodelay(true)
        .map_err(|error| unreachable(&error))?;
    let tls = options.tls.clone();
    let is_first = tls.as_ref().is_some_and(|tls| tls.first);
    let is_required = server.requires_tls || tls.as_ref().is_some_and(|tls| tls.required);
    if is_first {
        let mut socket = tls::encrypt(stream, &server.tls_name, tls).await?;
        let (info, rest) = read_info(&mut socket).await?;
        return Ok(Dialed {
            socket: Box::new(socket),
            info,
            is_tls: true,
            rest,
        });
    }
    let mut stream = stream;
    let (info, rest) = read_info(&mut stream).await?;
    if !info.tls_required && !is_required {
        return Ok(Dialed {
            socket: Box::new(stream),
            info,
            is_tls: false,
            rest,
        });
    }
    if !info.tls_required && !info.tls_available {
        return Err(Failure::new(
            Reason::TlsFailed,
            "it offers no TLS, which the settings require".to_owned(),
        ));
    }
    if !rest.is_empty() {
        // Somebody on the way could have put it there.
        return Err(protocol_failure(
            "it sent more than INFO before the TLS handshake",
        ));
    }
    let socket = tls::encrypt(stream, &server.tls_name, tls).await?;
    Ok(Dialed {
        socket: Box::new(socket),
        info,
        is_tls: true,
        rest,
    })
}

async fn read_info<S: Socket>(socket: &mut S) -> Result<(Info, Vec<u8>), Failure> {
    let mut bytes = Vec::with_capacity(READ_BYTES);
    loop {
        bytes.reserve(READ_BYTES);
        match socket.read_buf(&mut bytes).await {
            Ok(0) => return Err(protocol_failure("it closed the connection at once")),
            Ok(_) => {}
            Err(error) => return Err(lost(&error)),
        }
        match protocol::next(&bytes, 0) {
            Ok(Step::Incomplete(_)) => {}
            Ok(Step::Complete(Operation::Info(json), end)) => {
                let info = Info::parse(bytes.get(json).unwrap_or_default())?;
                return Ok((info, bytes.split_off(end)));
            }
            Ok(Step::Complete(Operation::Error(text), _)) => {
                let text = bytes.get(text).unwrap_or_default();
                return Err(super::serve::refusal(&String::from_utf8_lossy(text)));
            }
            _ => return Err(protocol_failure("what answers is not a NATS server")),
        }
    }
}

/// A failure of the protocol.
pub(super) fn protocol_failure(text: &str) -> Failure {
    Failure::new(Reason::Protocol, text.to_owned())
}

/// A connection that broke.
pub(super) fn lost(error: &io::Error) -> Failure {
    Failure::new(Reason::Lost, format!("the connection broke: {error}"))
}

fn unreachable(error: &io::Error) -> Failure {
    let reason = match error.kind() {
        io::ErrorKind::TimedOut => Reason::TimedOut,
        _ => Reason::Unreachable,
    };
    Failure::new(reason, error.to_string())
}
