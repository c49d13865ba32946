//! TLS between brokers: 1.3 only, with a certificate on both sides.
use super::Loaded;
use super::certificate::Facts;
use super::load::{TlsError, authorities, certificates, check_own, private_key};
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// The ALPN protocol of the port for brokers: nothing else is taken for one.
const PROTOCOL: &[u8] = b"bascule-peer";

/// Files of TLS between brokers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTlsSettings {
    /// PEM: this broker's certificate, for both sides of a connection; its common name is the broker's name.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: the authorities of the brokers of this cluster.
    pub authorities: PathBuf,
}

/// Both sides of connections between brokers.
pub struct PeerTls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl std::fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerTls").finish_non_exhaustive()
    }
}

impl PeerTls {
    /// Reads and checks the files. `now_s`: seconds since 1970. Blocks.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(settings: &PeerTlsSettings, now_s: u64) -> Result<(Self, Loaded), TlsError> {
        let mut notes = Vec::new();
        let chain = certificates(&settings.certificate)?;
        let facts = check_own(&settings.certificate, &chain, now_s)?;
        let key = private_key(&settings.key)?;
        let roots = Arc::new(authorities(&settings.authorities, now_s, &mut notes)?);
        let unusable = |error: rustls::Error| {
            let (key, certificate) = (settings.key.display(), settings.certificate.display());
            let text = format!(
                "the private key in {key} cannot be used with {certificate}: {error}: name the pair that was made together"
            );
            TlsError::new(&settings.key, text)
        };
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| {
                let text = format!("certificates of brokers cannot be verified: {error}");
                TlsError::new(&settings.authorities, text)
            })?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(unusable)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        // A connection that is resumed would show no certificate again.
        client.resumption = rustls::client::Resumption::disabled();
        let loaded = Loaded {
            subject: facts
                .first()
                .map_or_else(String::new, |leaf| leaf.subject.clone()),
            expires_s: facts.iter().map(|facts| facts.ends_s).min().unwrap_or(0),
            notes,
        };
        let tls = Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
        };
        Ok((tls, loaded))
    }

    /// The stream of a connection that was accepted, and the common name of the one that dialled.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(server::TlsStream<TcpStream>, Option<String>)> {
        let stream = self.acceptor.accept(stream).await?;
        let name = common_name(stream.get_ref().1.peer_certificates());
        Ok((stream, name))
    }

    /// The stream of a connection that was dialled, and the common name of the other side. `host`: what its certificate is for.
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<(client::TlsStream<TcpStream>, Option<String>)> {
        let host = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = self.connector.connect(host, stream).await?;
        let name = common_name(stream.get_ref().1.peer_certificates());
        Ok((stream, name))
    }
}

fn common_name(certificates: Option<&[CertificateDer<'static>]>) -> Option<String> {
    Facts::read(certificates?.first()?)?.common_name
}
