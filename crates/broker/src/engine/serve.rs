//! One gRPC port: Liftbridge, administration, health, Flight.
use super::error::EngineError;
use crate::admission::{CallLayer, Listener, accept};
use crate::events::Level;
use crate::flight::FlightRouter;
use crate::liftbridge::{AdminMethods, HealthMethods, LiftbridgeMethods, RawService, reflection};
use crate::limits::Limits;
use bascule_wire::ErrorCode;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

const STREAM_WINDOW: u32 = 1 << 20;
/// Connections that the kernel accepts ahead of the broker.
const BACKLOG: u32 = 1024;
/// Largest HTTP/2 data frame that clients may send: a chunk of many messages arrives as one.
const FRAME: u32 = 256 << 10;
/// An idle connection gets a keep-alive ping so often …
const KEEPALIVE: Duration = Duration::from_secs(30);
/// … and is closed when it does not answer for so long.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);
/// All header fields of one request, decoded, bytes.
const HEADER_BYTES: u32 = 16 << 10;
/// Streams that were reset by the peer before they were served, before a connection is closed.
const RESETS: usize = 64;
/// Streams that this side reset for a fault in them, in a connection's whole life, before it is closed. What a peer still
/// sends on a call that was refused early counts too, so an honest client reaches dozens.
const FAULTS: usize = 1024;

/// The services of the port, and the listener for it.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) limits: Limits,
    pub(crate) listener: Listener,
    pub(crate) liftbridge: RawService<LiftbridgeMethods>,
    pub(crate) admin: RawService<AdminMethods>,
    pub(crate) health: RawService<HealthMethods>,
    pub(crate) flight: FlightRouter,
}

/// A running server.
#[derive(Debug)]
pub(super) struct Serving {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Accepts no more connections; the calls that run may end.
    pub fn stop_accepting(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for the calls to end, at most until `limit`.
    pub async fn wait(&mut self, limit: Instant) {
        if !self.task.is_finished() {
            // Too late is what `abort` is for.
            let _ = tokio::time::timeout_at(limit.into(), &mut self.task).await;
        }
    }

    /// Ends the calls that are left.
    pub fn abort(&self) {
        self.task.abort();
    }
}

/// A port that is reserved, while the kernel still refuses connections to it.
#[derive(Debug)]
pub(super) struct BoundPort {
    socket: TcpSocket,
    host: String,
    port: u16,
}

impl BoundPort {
    /// Binds the first usable address of `host`; port 0 = any free one.
    ///
    /// # Errors
    /// `address_in_use`: somebody listens there. A socket that is bound but does not listen yet is only detected by
    /// [`serve`]. `address_unusable`.
    pub fn bind(host: &str, port: u16) -> Result<Self, EngineError> {
        let addresses = resolve(host, port).map_err(|error| refused(host, port, &error))?;
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        for address in addresses {
            match bind_one(address) {
                Ok((socket, port)) => {
                    return Ok(Self {
                        socket,
                        host: host.to_owned(),
                        port,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(refused(host, port, &last))
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn bind_one(address: SocketAddr) -> io::Result<(TcpSocket, u16)> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Connections of an earlier run in TIME_WAIT do not hold the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

/// Listens and serves. Call inside the runtime.
///
/// # Errors
/// `address_in_use`: somebody else listens on the port since it was bound; `address_unusable`.
pub(super) fn serve(services: Services, bound: BoundPort) -> Result<Serving, EngineError> {
    let BoundPort { socket, host, port } = bound;
    let listener = socket
        .listen(BACKLOG)
        .map_err(|error| refused(&host, port, &error))?;
    let Services {
        limits,
        listener: from,
        liftbridge,
        admin,
        health,
        flight,
    } = services;
    let (admission, events) = (from.admission.clone(), from.events.clone());
    let (accepted, acceptor) = accept(from, listener);
    let incoming = ReceiverStream::new(accepted);
    let router = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW.min(limits.connection_window_bytes))
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_frame_size(FRAME)
        .max_concurrent_streams(limits.streams_per_connection)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_max_pending_accept_reset_streams(Some(RESETS))
        .http2_max_local_error_reset_streams(Some(FAULTS))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_ANSWER))
        .layer(CallLayer::new(&admission))
        .add_service(liftbridge)
        .add_service(admin)
        .add_service(health)
        .add_service(reflection::v1().map_err(|error| undescribed(&error))?)
        .add_service(reflection::v1alpha().map_err(|error| undescribed(&error))?)
        .add_service(flight);
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
            acceptor.abort();
        };
        if let Err(error) = router
            .serve_with_incoming_shutdown(incoming, shutdown)
            .await
        {
            events.log(
                Level::Error,
                "grpc",
                format!("the server ended: {error}"),
                serde_json::json!({}),
            );
        }
    });
    Ok(Serving {
        stop: Some(stop),
        task,
    })
}

/// The API's descriptors are part of the program: only a build that went wrong gets here.
fn undescribed(error: &tonic_reflection::server::Error) -> EngineError {
    EngineError::new(
        ErrorCode::Internal,
        format!("the API cannot be described: {error}"),
    )
}

/// A listener that runs as a task; ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Listening(JoinHandle<()>);

impl Listening {
    /// Runs it. Call inside the runtime.
    pub(crate) fn start(listener: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(listener))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens on `host`; port 0 = any free one. Returns the bound port too. Call inside the runtime.
///
/// # Errors
/// `address_in_use`, `address_unusable`.
pub(crate) fn listen(host: &str, port: u16) -> Result<(TcpListener, u16), EngineError> {
    let failed = |error: io::Error| refused(host, port, &error);
    let listener = bind(host, port)?;
    let bound = listener.local_addr().map_err(failed)?.port();
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    Ok((listener, bound))
}

/// A UDP socket on `host`; port 0 = any free one. Returns the bound port too.
///
/// # Errors
/// `address_in_use`, `address_unusable`.
pub(crate) fn bind_udp(host: &str, port: u16) -> Result<(UdpSocket, u16), EngineError> {
    let failed = |error: io::Error| refused(host, port, &error);
    let addresses = resolve(host, port).map_err(failed)?;
    let socket = UdpSocket::bind(&addresses[..]).map_err(failed)?;
    let bound = socket.local_addr().map_err(failed)?.port();
    Ok((socket, bound))
}

fn bind(host: &str, port: u16) -> Result<StdListener, EngineError> {
    let failed = |error: io::Error| refused(host, port, &error);
    let addresses = resolve(host, port).map_err(failed)?;
    let listener = StdListener::bind(&addresses[..]).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

fn refused(host: &str, port: u16, error: &io::Error) -> EngineError {
    let details = serde_json::json!({"host": host, "port": port});
    if error.kind() == io::ErrorKind::AddrInUse {
        let text =
            format!("{host}:{port} is in use: stop what listens there or choose another port");
        return EngineError::new(ErrorCode::AddressInUse, text).with(details);
    }
    let text = format!("cannot listen on {host}:{port}: {error}");
    EngineError::new(ErrorCode::AddressUnusable, text).with(details)
}
