//! One gRPC port: Liftbridge, health, Flight.
use super::EngineError;
use crate::shared::SharedRef;
use crate::{flight, liftbridge};
use futures_util::StreamExt;
use std::net::{SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};

const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Largest HTTP/2 data frame that clients may send: a chunk of many messages arrives as one.
const FRAME: u32 = 256 << 10;
const KEEPALIVE: Duration = Duration::from_secs(30);
const STREAMS_PER_CONNECTION: u32 = 4096;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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

/// Binds and serves; returns the bound port. Call inside the runtime.
pub(super) fn serve(
    shared: &SharedRef,
    host: &str,
    port: u16,
) -> Result<(Serving, u16), EngineError> {
    let listener = bind(host, port)?;
    let bound = listener
        .local_addr()
        .map_err(|error| refused(host, port, &error))?
        .port();
    let listener = TcpListener::from_std(listener).map_err(|error| refused(host, port, &error))?;
    let places = Arc::new(Semaphore::new(shared.limits.connections));
    let incoming = TcpListenerStream::new(listener).filter_map(move |accepted| {
        let place = places.clone().try_acquire_owned().ok();
        async move {
            let Ok(stream) = accepted else {
                // Mostly a lack of descriptors, which lasts: without a pause this would spin.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                return None;
            };
            // A connection beyond the bound is closed at once.
            let place = place?;
            stream.set_nodelay(true).ok()?;
            Some(Ok::<_, std::io::Error>(Connection {
                stream,
                _place: place,
            }))
        }
    });
    let router = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_frame_size(Some(FRAME))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .add_service(liftbridge::service(shared))
        .add_service(liftbridge::health(shared))
        .add_service(flight::service(shared));
    let (stop, stopped) = oneshot::channel::<()>();
    let events = shared.clone();
    let task = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        if let Err(error) = router
            .serve_with_incoming_shutdown(incoming, shutdown)
            .await
        {
            events.events.log(
                40,
                "grpc",
                format!("the server ended: {error}"),
                serde_json::json!({}),
            );
        }
    });
    Ok((
        Serving {
            stop: Some(stop),
            task,
        },
        bound,
    ))
}

fn bind(host: &str, port: u16) -> Result<StdListener, EngineError> {
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| refused(host, port, &error))?
        .collect();
    let listener =
        StdListener::bind(&addresses[..]).map_err(|error| refused(host, port, &error))?;
    listener
        .set_nonblocking(true)
        .map_err(|error| refused(host, port, &error))?;
    Ok(listener)
}

fn refused(host: &str, port: u16, error: &std::io::Error) -> EngineError {
    let details = serde_json::json!({"host": host, "port": port});
    if error.kind() == std::io::ErrorKind::AddrInUse {
        let text =
            format!("{host}:{port} is in use: stop what listens there or choose another port");
        return EngineError::new("address_in_use", text).with(details);
    }
    let text = format!("cannot listen on {host}:{port}: {error}");
    EngineError::new("address_unusable", text).with(details)
}

/// A connection that holds its place.
struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;
    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}
impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}
impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
