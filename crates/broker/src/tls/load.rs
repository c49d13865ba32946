//! From files to a configuration.
use super::Loaded;
use super::certificate::{Facts, Validity};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{WantsServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    self, ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion,
};

/// Largest file that is read, bytes: some thousand certificates.
const MAX_BYTES: u64 = 4 << 20;
/// The ALPN protocol of the port.
const HTTP2: &[u8] = b"h2";
/// A certificate that expires within this time is reported, seconds.
const SOON_S: u64 = 14 * 86_400;
const DAY_S: u64 = 86_400;
static FROM_TLS12: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static FROM_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];

/// `Engine.load_tls` (`specs/formats/seam.md`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// PEM: the broker's certificate, then those that lead to its authority.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// Whether TLS 1.2 is spoken too.
    #[serde(default)]
    pub allow_tls12: bool,
    /// Whether clients must show a certificate.
    #[serde(default)]
    pub require_client: bool,
    /// PEM: the authorities whose client certificates are taken; absent = the system's.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

/// An error of a certificate or key file: the file, the fault and the remedy, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsError {
    /// The file; empty when it is none.
    pub file: PathBuf,
    /// The sentence.
    pub text: String,
}

impl TlsError {
    pub(super) fn new(file: &Path, text: String) -> Self {
        Self {
            file: file.to_owned(),
            text,
        }
    }
}

/// Reads and checks everything. `now_s`: seconds since 1970.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn load(
    settings: &TlsSettings,
    now_s: u64,
) -> Result<(ServerConfig, ServerConfig, Loaded), TlsError> {
    let mut notes = Vec::new();
    let chain = certificates(&settings.certificate)?;
    let facts = check_own(&settings.certificate, &chain, now_s)?;
    let key = private_key(&settings.key)?;
    let expires_s = facts.iter().map(|facts| facts.ends_s).min().unwrap_or(0);
    let subject = facts
        .first()
        .map_or_else(String::new, |leaf| leaf.subject.clone());
    if expires_s - now_s < SOON_S {
        let days = (expires_s - now_s) / DAY_S;
        notes.push(format!(
            "{} expires in {days} days: renew it and send SIGHUP",
            settings.certificate.display()
        ));
    }
    let provider = Arc::new(ring::default_provider());
    let versions: &'static [&SupportedProtocolVersion] = if settings.allow_tls12 {
        &FROM_TLS12
    } else {
        &FROM_TLS13
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| unusable(settings, &error))?;
    let open = builder.clone().with_no_client_auth();
    let builder = if settings.require_client {
        builder.with_client_cert_verifier(verifier(settings, &provider, now_s, &mut notes)?)
    } else {
        builder.with_no_client_auth()
    };
    let finished = |builder: ConfigBuilder<ServerConfig, WantsServerCert>| {
        let mut config = builder
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| unusable(settings, &error))?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(config)
    };
    let (config, open) = (finished(builder)?, finished(open)?);
    let loaded = Loaded {
        subject,
        expires_s,
        notes,
    };
    Ok((config, open, loaded))
}

/// The broker's own certificates must be valid now: clients would refuse them one by one otherwise.
pub(super) fn check_own(
    file: &Path,
    chain: &[CertificateDer<'_>],
    now_s: u64,
) -> Result<Vec<Facts>, TlsError> {
    let shown = file.display();
    let mut all = Vec::with_capacity(chain.len());
    for (index, der) in chain.iter().enumerate() {
        let Some(facts) = Facts::read(der) else {
            let number = index + 1;
            let text = format!(
                "certificate {number} in {shown} is damaged: write the file again from its source"
            );
            return Err(TlsError::new(file, text));
        };
        let subject = &facts.subject;
        match facts.validity(now_s) {
            Validity::Valid => all.push(facts),
            Validity::Expired => {
                let days = (now_s - facts.ends_s).div_ceil(DAY_S);
                let text = format!(
                    "the certificate of {subject:?} in {shown} expired {days} days ago: renew it"
                );
                return Err(TlsError::new(file, text));
            }
            Validity::NotYet => {
                let days = (facts.begins_s - now_s).div_ceil(DAY_S);
                let text = format!(
                    "the certificate of {subject:?} in {shown} becomes valid in {days} days: use the one before, or set this machine's clock"
                );
                return Err(TlsError::new(file, text));
            }
        }
    }
    Ok(all)
}

/// Accepts clients with a certificate of one of the authorities.
fn verifier(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    now_s: u64,
    notes: &mut Vec<String>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let (roots, file) = match &settings.client_ca {
        Some(file) => (authorities(file, now_s, notes)?, file.as_path()),
        None => (system_authorities(notes)?, Path::new("")),
    };
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| {
            TlsError::new(
                file,
                format!("clients' certificates cannot be verified: {error}"),
            )
        })
}

pub(super) fn authorities(
    file: &Path,
    now_s: u64,
    notes: &mut Vec<String>,
) -> Result<RootCertStore, TlsError> {
    let shown = file.display();
    let mut roots = RootCertStore::empty();
    for der in certificates(file)? {
        let Some(facts) = Facts::read(&der) else {
            let text = format!(
                "a certificate in {shown} is damaged: write the file again from its source"
            );
            return Err(TlsError::new(file, text));
        };
        let subject = &facts.subject;
        if facts.validity(now_s) != Validity::Valid {
            notes.push(format!(
                "the authority {subject:?} in {shown} is not valid now and is left out: renew it, or remove it"
            ));
            continue;
        }
        roots.add(der).map_err(|error| {
            let text =
                format!("{subject:?} in {shown} cannot be an authority: {error}: remove it there");
            TlsError::new(file, text)
        })?;
    }
    if roots.is_empty() {
        let text = format!(
            "no authority in {shown} is valid now: renew them, or no client can be verified"
        );
        return Err(TlsError::new(file, text));
    }
    Ok(roots)
}

fn system_authorities(notes: &mut Vec<String>) -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let text = "the system has no certificates of authorities to verify clients with: name a file in tls.client_ca_file";
        return Err(TlsError::new(Path::new(""), text.to_owned()));
    }
    notes.push("clients are verified with the system's authorities: whoever has a certificate of a public authority comes in; name your own in tls.client_ca_file".to_owned());
    Ok(roots)
}

/// The certificates of a PEM file, at least one.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let shown = file.display();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsError::new(
            file,
            format!(
                "{shown} holds no certificate: a PEM file with -----BEGIN CERTIFICATE----- is wanted"
            ),
        )),
        Err(error) => {
            let text = format!("{shown} is damaged: {error}: write the file again from its source");
            Err(TlsError::new(file, text))
        }
    }
}

/// The first private key of a PEM file. Its bytes are wiped when it is dropped.
pub(super) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = zeroize::Zeroizing::new(read(file)?);
    let shown = file.display();
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            let is_encrypted = bytes
                .windows(ENCRYPTED.len())
                .any(|window| window == ENCRYPTED);
            let text = if is_encrypted {
                format!(
                    "the private key in {shown} is protected by a password: write it without one, readable by the broker alone"
                )
            } else {
                format!(
                    "{shown} holds no private key: a PEM file with -----BEGIN PRIVATE KEY----- is wanted"
                )
            };
            Err(TlsError::new(file, text))
        }
        // Without the reason, which may quote the file.
        Err(_) => {
            let text = format!(
                "the private key in {shown} is damaged: write the file again from its source"
            );
            Err(TlsError::new(file, text))
        }
    }
}

const ENCRYPTED: &[u8] = b"ENCRYPTED PRIVATE KEY";

/// A file, whole. Errors say nothing of its bytes.
fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let shown = file.display();
    let failed = |error: io::Error| {
        TlsError::new(
            file,
            format!("{shown} cannot be read: {error}: name a file that the broker may read"),
        )
    };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(failed)?;
    opened
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        let text =
            format!("{shown} is larger than {MAX_BYTES} bytes: name a PEM file of certificates");
        return Err(TlsError::new(file, text));
    }
    Ok(bytes)
}

/// Certificate and key are each fine, and do not go together.
fn unusable(settings: &TlsSettings, error: &rustls::Error) -> TlsError {
    let (certificate, key) = (settings.certificate.display(), settings.key.display());
    let text = match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the private key in {key} does not belong to the first certificate in {certificate}: name the pair that was made together, the broker's certificate before those of its authorities"
        ),
        error => {
            format!(
                "the private key in {key} cannot be used with {certificate}: {error}: make a new pair"
            )
        }
    };
    TlsError::new(&settings.key, text)
}
