//! From the socket to connections.
//!
//! An address has to answer before anything is kept for it, so that limits by address count clients and not those whom
//! somebody names. Then a connection has `limits.handshake_ms` for its handshake, and counts as over TCP.
use super::transport;
use crate::engine::error::EngineError;
use crate::engine::serve::{self, Listening};
use crate::events::Level;
use crate::iggy::connection::Connection;
use crate::iggy::connection_tasks::ConnectionTasks;
use crate::iggy::context::IggyContext;
use crate::tls::{Peer, quic_config};
use bascule_wire::ErrorCode;
use bascule_wire::iggy::v1::Transport;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, VarInt};
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::timeout;

/// The code of every close: clients do not look at it.
pub(super) const CLOSED: VarInt = VarInt::from_u32(0);
/// How long clients may take to acknowledge that the broker stops.
const FAREWELL: Duration = Duration::from_millis(500);

/// A listener that runs; ends when this is dropped.
#[derive(Debug)]
pub(crate) struct QuicListening {
    endpoint: Endpoint,
    _task: Listening,
}

impl QuicListening {
    /// Closes every connection, and waits a moment for its client to hear of it.
    pub(crate) async fn close(self) {
        self.endpoint.close(CLOSED, b"the broker stops");
        // A client that does not answer finds out by itself.
        let _ = timeout(FAREWELL, self.endpoint.wait_idle()).await;
    }
}

/// Binds (port 0 = any free one) and serves frames over QUIC; returns the bound port. Call inside the runtime.
///
/// # Errors
/// `address_in_use`, `address_unusable`; `internal`: no certificate could be made.
pub(crate) fn listen_quic(
    context: Arc<IggyContext>,
    host: &str,
    port: u16,
) -> Result<(QuicListening, u16), EngineError> {
    let tls = quic_config(context.listener.tls.clone()).map_err(|error| unusable(&error))?;
    let tls = QuicServerConfig::try_from(tls).map_err(|error| unusable(&error))?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    transport::configure(&mut config, &context.limits);
    let (socket, bound) = serve::bind_udp(host, port)?;
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(config),
        socket,
        Arc::new(TokioRuntime),
    );
    let endpoint = endpoint.map_err(|error| unusable(&error))?;
    let acceptor = Acceptor {
        connections: ConnectionTasks::new(context.clone()),
        context,
    };
    let listening = QuicListening {
        _task: Listening::start(acceptor.run(endpoint.clone())),
        endpoint,
    };
    Ok((listening, bound))
}

fn unusable(error: &dyn Display) -> EngineError {
    let text = format!("QUIC cannot be served: {error}");
    EngineError::new(ErrorCode::Internal, text)
}

struct Acceptor {
    context: Arc<IggyContext>,
    connections: ConnectionTasks,
}

impl Acceptor {
    async fn run(mut self, endpoint: Endpoint) {
        loop {
            tokio::select! {
                incoming = endpoint.accept() => match incoming {
                    Some(incoming) => self.admit(incoming),
                    None => return self.report_end(),
                },
                Some(()) = self.connections.ended() => {}
            }
        }
    }

    fn admit(&mut self, incoming: Incoming) {
        if !incoming.remote_address_validated() {
            // Always possible: the address is not valid yet.
            let _ = incoming.retry();
            return;
        }
        let peer = incoming.remote_address();
        // All connections share a descriptor.
        let place = self.context.listener.admission.take_address(peer.ip(), 0);
        let Some(place) = place else {
            let text = "a connection is refused: limits.connections_per_address of its address are open; close connections, \
                        or raise the limit";
            self.context.report(Some(peer), text.to_owned());
            return incoming.refuse();
        };
        let is_known = Arc::<AtomicBool>::default();
        let (context, known) = (self.context.clone(), is_known.clone());
        self.connections.start(is_known, async move {
            serve(context, incoming, known).await;
            drop(place);
        });
    }

    /// The endpoint ends when it is closed, or with its socket.
    fn report_end(&self) {
        if self.context.run_state.is_serving() {
            let text = "Iggy's clients are not served over QUIC any more: the socket has failed; restart the broker";
            let events = &self.context.listener.events;
            events.log(Level::Error, "iggy", text.to_owned(), serde_json::json!({}));
        }
    }
}

/// Serves a connection until it ends.
async fn serve(context: Arc<IggyContext>, incoming: Incoming, is_known: Arc<AtomicBool>) {
    let address = Some(incoming.remote_address());
    let patience = Duration::from_millis(context.limits.handshake_ms);
    let shaken = timeout(patience, async { incoming.accept()?.await });
    let streams = match shaken.await {
        Ok(Ok(streams)) => streams,
        Ok(Err(error)) => {
            context.statistics.handshakes_failed.add(1);
            let (tls, events) = (&context.listener.tls, &context.listener.events);
            return tls.report_failed(events, address, &io::Error::other(error));
        }
        Err(_) => return context.statistics.handshakes_failed.add(1),
    };
    let peer = Peer {
        address,
        identity: None,
    };
    let connection = Connection::new(context, peer, Transport::Quic, is_known);
    connection.answer_streams(&streams).await;
    streams.close(CLOSED, b"");
}
