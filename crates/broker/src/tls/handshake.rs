//! A connection's first bytes.
use super::certificate::Facts;
use super::{Peer, Tls};
use crate::events::Events;
use crate::events::Level;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

impl Tls {
    /// What the next connection is served with; `None` = plain text.
    pub(crate) fn acceptor(&self) -> Option<Arc<TlsAcceptor>> {
        self.acceptor.load_full()
    }

    /// As [`Self::acceptor`], for clients that show no certificate.
    pub(crate) fn open_acceptor(&self) -> Option<Arc<TlsAcceptor>> {
        self.open_acceptor.load_full()
    }

    /// Reports a failed handshake, unless one was reported a moment ago.
    pub(crate) fn report_failed(&self, events: &Events, peer: Option<SocketAddr>, why: &io::Error) {
        let Some(more) = self.failures.take() else {
            return;
        };
        let address = peer.map_or_else(String::new, |peer| peer.to_string());
        let fields = serde_json::json!({"peer": address, "others": more});
        events.log(
            Level::Warning,
            "tls",
            format!("a TLS handshake failed: {why}"),
            fields,
        );
    }
}

/// Shakes hands. Not bounded in time: the caller's part.
pub(crate) async fn handshake(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> io::Result<(Box<TlsStream<TcpStream>>, Peer)> {
    let address = stream.peer_addr().ok();
    let stream = acceptor.accept(stream).await?;
    let (_, session) = stream.get_ref();
    let leaf = session.peer_certificates().and_then(<[_]>::first);
    let name = leaf.and_then(Facts::read).and_then(|leaf| leaf.common_name);
    let identity = name.map(Arc::from);
    Ok((Box::new(stream), Peer { address, identity }))
}
