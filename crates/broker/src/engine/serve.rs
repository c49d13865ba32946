//! One gRPC port: Liftbridge, health, Flight.
use super::EngineError;
use crate::admission::{CallLayer, accept};
use crate::liftbridge::reflection;
use crate::shared::SharedRef;
use crate::{flight, liftbridge};
use std::net::{SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

const STREAM_WINDOW: u32 = 1 << 20;
/// Largest HTTP/2 data frame that clients may send: a chunk of many messages arrives as one.
const FRAME: u32 = 256 << 10;
/// An idle connection is asked for a sign of life so often …
const KEEPALIVE: Duration = Duration::from_secs(30);
/// … and closed when it gives none for so long.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);
/// All header fields of one request, decoded, bytes.
const HEADER_BYTES: u32 = 16 << 10;
/// Streams that were reset by the peer before they were served, before a connection is closed.
const RESETS: usize = 64;
/// Streams that this side reset for a fault in them, in a connection's whole life, before it is closed. What a peer still
/// sends on a call that was refused early counts too, so an honest client reaches dozens.
const FAULTS: usize = 1024;

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
    let limits = &shared.limits;
    let (accepted, acceptor) = accept(shared, listener);
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
        .layer(CallLayer::new(shared))
        .add_service(liftbridge::service(shared))
        .add_service(liftbridge::health(shared))
        .add_service(reflection::v1().map_err(|error| undescribed(&error))?)
        .add_service(reflection::v1alpha().map_err(|error| undescribed(&error))?)
        .add_service(flight::service(shared));
    let (stop, stopped) = oneshot::channel::<()>();
    let events = shared.clone();
    let task = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
            acceptor.abort();
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

/// The API's descriptors are part of the program: only a build that went wrong gets here.
fn undescribed(error: &tonic_reflection::server::Error) -> EngineError {
    EngineError::new("internal", format!("the API cannot be described: {error}"))
}

pub(crate) fn bind(host: &str, port: u16) -> Result<StdListener, EngineError> {
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

pub(crate) fn refused(host: &str, port: u16, error: &std::io::Error) -> EngineError {
    let details = serde_json::json!({"host": host, "port": port});
    if error.kind() == std::io::ErrorKind::AddrInUse {
        let text =
            format!("{host}:{port} is in use: stop what listens there or choose another port");
        return EngineError::new("address_in_use", text).with(details);
    }
    let text = format!("cannot listen on {host}:{port}: {error}");
    EngineError::new("address_unusable", text).with(details)
}
