//! TLS on the listeners: the broker's certificate, the accepted client certificates, and the identity of a client.
//!
//! There is one configuration at a time, replaced as a whole: connections after their handshake keep the old one, later ones
//! get the new one. A configuration that cannot be used is rejected, and the old one stays.
//!
//! * [`load`]: from files to a configuration, with one sentence for each thing that can be wrong with them.
//! * [`certificate`]: the fields of a certificate: subject, common name, validity.
//! * [`quic`]: what QUIC is served with, which has TLS without a certificate file too.
//! * [`PeerTls`]: both sides of connections between brokers.
//! * [`mod@handshake`]: a connection's first bytes, and reports of those that fail.
mod certificate;
mod handshake;
mod load;
mod peers;
mod quic;

pub(crate) use handshake::handshake;
pub use load::{TlsError, TlsSettings};
pub use peers::{PeerTls, PeerTlsSettings};
pub(crate) use quic::quic_config;

use crate::events::{Caller, LogLimiter};
use arc_swap::ArcSwapOption;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// The TLS of a broker's port.
#[derive(Default)]
pub struct Tls {
    /// `None` = connections are in plain text.
    acceptor: ArcSwapOption<TlsAcceptor>,
    /// The same without certificates of clients.
    open_acceptor: ArcSwapOption<TlsAcceptor>,
    failures: LogLimiter,
}

/// Whom a connection is with. Cheap to clone: every request of it gets one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// Where it comes from.
    pub(crate) address: Option<SocketAddr>,
    /// Common name of the client's certificate, which has been verified; `None` = it showed none, or one without a name.
    pub(crate) identity: Option<Arc<str>>,
}

/// The loaded certificates, for the log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Loaded {
    /// Subject of the broker's certificate.
    pub subject: String,
    /// End of its validity, and of those that it depends on, seconds since 1970.
    pub expires_s: u64,
    /// Warnings for the operator.
    pub notes: Vec<String>,
}

impl Tls {
    /// Reads the files and uses them for every connection from now on.
    ///
    /// # Errors
    /// [`TlsError`]; what was in use stays in use.
    pub(crate) fn load(&self, settings: &TlsSettings, now_s: u64) -> Result<Loaded, TlsError> {
        let (config, open, loaded) = load::load(settings, now_s)?;
        let stored = |config| Some(Arc::new(TlsAcceptor::from(Arc::new(config))));
        self.open_acceptor.store(stored(open));
        self.acceptor.store(stored(config));
        Ok(loaded)
    }
}

impl Peer {
    /// As requests to the control plane carry it.
    pub(crate) fn to_caller(&self) -> Caller {
        let address = self.address.map(|address| address.to_string());
        Caller {
            address: address.unwrap_or_default(),
            name: self.identity.as_ref().map(ToString::to_string),
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_on = self.acceptor.load().is_some();
        f.debug_struct("Tls")
            .field("is_on", &is_on)
            .finish_non_exhaustive()
    }
}
