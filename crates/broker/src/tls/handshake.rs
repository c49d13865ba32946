//! A connection's first bytes.
use super::certificate::Facts;
use super::{Peer, Tls};
use crate::events::Events;
use crate::events::Level;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Minimum time between two log lines about failed handshakes, so that rejected clients cannot fill the disk.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Failures since the last line, and when that was.
#[derive(Debug, Default)]
pub(super) struct FailureLogLimiter(Mutex<(u64, Option<Instant>)>);

impl Tls {
    /// What the next connection is served with; `None` = plain text.
    pub(crate) fn acceptor(&self) -> Option<Arc<TlsAcceptor>> {
        self.acceptor.load_full()
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

impl FailureLogLimiter {
    /// The number of unreported failures before this one, when this one is to be reported.
    fn take(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let (unreported, last) = &mut *state;
        if last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            *unreported += 1;
            return None;
        }
        *last = Some(Instant::now());
        Some(std::mem::take(unreported))
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
