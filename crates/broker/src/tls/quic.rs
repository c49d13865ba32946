//! What QUIC is served with.
//!
//! QUIC has no plain text: without a certificate file the broker shows one of its own, for `localhost`, which it makes at
//! each start and keeps in memory. Its key is ECDSA on P-256, because clients of Iggy that do not verify certificates accept
//! no other signature. For those it is shown beside a configured certificate of another kind as well, which would only
//! refuse them; a client that verifies accepts other signatures too, and is shown the configured one.
use super::Tls;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring::{default_provider, sign};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ServerConfig};

/// The name in the broker's own certificate: what clients of Iggy ask for by default.
const NAME: &str = "localhost";

/// Why there is no certificate to serve QUIC with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCertificate {
    /// It could not be made.
    #[error("{0}")]
    Made(#[from] rcgen::Error),
    /// It cannot be used.
    #[error("{0}")]
    Used(#[from] rustls::Error),
}

/// TLS 1.3 without ALPN and without certificates of clients. A certificate that is loaded later is shown from then on.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn quic_config(tls: Arc<Tls>) -> Result<ServerConfig, NoCertificate> {
    let resolver = Resolver {
        tls,
        own: Arc::new(self_signed()?),
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    Ok(builder
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver)))
}

fn self_signed() -> Result<CertifiedKey, NoCertificate> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let key = sign::any_ecdsa_type(&key)?;
    Ok(CertifiedKey::new(vec![made.cert.der().clone()], key))
}

#[derive(Debug)]
struct Resolver {
    tls: Arc<Tls>,
    /// The broker's own.
    own: Arc<CertifiedKey>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let accepted = hello.signature_schemes().to_vec();
        let configured = self.tls.open_acceptor();
        let configured =
            configured.and_then(|acceptor| acceptor.config().cert_resolver.resolve(hello));
        let usable = configured.filter(|found| found.key.choose_scheme(&accepted).is_some());
        Some(usable.unwrap_or_else(|| self.own.clone()))
    }
}
