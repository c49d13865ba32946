//! TLS of a client: trusted authorities and its own certificate.
use crate::Error;
use bascule_wire::ErrorCode;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 4 << 20;

/// `tls` in the client's options. Files are PEM.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// Trusted certificate authorities; absent = the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain; requires `key`.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The name that the broker's certificate must have; absent = the host of the address.
    pub server_name: Option<String>,
}

impl TlsOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// `invalid_argument`: one cannot be read, or one of the pair is missing.
    pub(crate) fn config(&self) -> Result<ClientTlsConfig, Error> {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca {
            Some(file) => config.ca_certificate(Certificate::from_pem(read(file, CERTIFICATE)?)),
            None => config.with_native_roots(),
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let (cert, key) = (read(cert, CERTIFICATE)?, read(key, KEY)?);
                config = config.identity(Identity::from_pem(cert, key));
            }
            (None, None) => {}
            _ => {
                let text = "a client's certificate and its private key go together: name both cert and key";
                return Err(Error::new(ErrorCode::InvalidArgument, text));
            }
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        Ok(config)
    }
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

/// Reads a PEM file that contains the wanted kind of object.
fn read(file: &Path, wanted: &str) -> Result<Vec<u8>, Error> {
    let shown = file.display();
    let refused = |reason: String| Error::new(ErrorCode::InvalidArgument, reason);
    let size = std::fs::metadata(file).map(|found| found.len());
    let bytes = size.and_then(|size| {
        if size > MAX_BYTES {
            return Err(std::io::Error::other(format!(
                "it is larger than {MAX_BYTES} bytes"
            )));
        }
        std::fs::read(file)
    });
    let bytes = bytes.map_err(|error| refused(format!("{shown} cannot be read: {error}")))?;
    let has = bytes
        .windows(wanted.len())
        .any(|window| window == wanted.as_bytes());
    if !has {
        return Err(refused(format!(
            "{shown} is not what is wanted: a PEM file with {wanted:?} in it"
        )));
    }
    Ok(bytes)
}

/// Whether an error's text is about a rejected TLS handshake: a retry cannot help, and nothing was done.
pub(crate) fn is_refused(text: &str) -> bool {
    text.contains("invalid peer certificate") || text.contains("received fatal alert")
}
