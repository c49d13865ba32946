//! TLS to a NATS server; every file is read at each connect, so that a renewed certificate needs no restart.
use super::Failure;
use super::reason::Reason;
use super::settings::NatsTls;
use rustls_native_certs::load_native_certs;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Encrypts a connection; the server's certificate must be valid for `name`.
///
/// # Errors
/// [`Reason::Settings`] for a file that cannot be used, [`Reason::TlsFailed`] for the handshake.
pub(super) async fn encrypt(
    stream: TcpStream,
    name: &str,
    tls: Option<NatsTls>,
) -> Result<TlsStream<TcpStream>, Failure> {
    let name = ServerName::try_from(name.to_owned()).map_err(|error| {
        failed(format!(
            "{name:?} cannot be the name of a certificate: {error}"
        ))
    })?;
    let loaded = tokio::task::spawn_blocking(move || config(&tls.unwrap_or_default())).await;
    let config = loaded.map_err(|error| failed(format!("reading TLS files failed: {error}")))??;
    let connector = TlsConnector::from(Arc::new(config));
    connector
        .connect(name, stream)
        .await
        .map_err(|error| failed(format!("the TLS handshake failed: {error}")))
}

fn config(tls: &NatsTls) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(file) => {
            for certificate in certificates(file)? {
                roots
                    .add(certificate)
                    .map_err(|error| unusable(file, &error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let (Some(certificate), Some(key)) = (&tls.cert, &tls.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let private = read(key)?;
    let private = PrivateKeyDer::from_pem_slice(&private)
        .map_err(|error| unusable(key, &error.to_string()))?;
    builder
        .with_client_auth_cert(certificates(certificate)?, private)
        .map_err(|error| unusable(certificate, &error.to_string()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(file)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unusable(file, "it holds no certificate in PEM form")),
        Err(error) => Err(unusable(file, &error.to_string())),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| unusable(file, &error.to_string()))
}

fn unusable(file: &Path, why: &str) -> Failure {
    Failure::new(
        Reason::Settings,
        format!("{} cannot be used: {why}", file.display()),
    )
}

fn failed(text: String) -> Failure {
    Failure::new(Reason::TlsFailed, text)
}
