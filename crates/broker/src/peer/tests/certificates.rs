//! Authorities and certificates of brokers, and what TLS refuses.
use super::{PeerListener, answered, dialer, local, port, refused, until};
use crate::clock::now_ns;
use crate::peer::ListenError;
use crate::tls::{PeerTls, PeerTlsSettings};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An authority for brokers on this machine.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// TLS of a broker with this name, which believes the brokers of that authority.
    pub fn tls(&self, name: &str, believed: &Self) -> Arc<PeerTls> {
        let directory = tempfile::tempdir().unwrap();
        let settings = self.write(directory.path(), name, believed);
        let now_s = now_ns() as u64 / 1_000_000_000;
        Arc::new(PeerTls::load(&settings, now_s).unwrap().0)
    }

    fn write(&self, directory: &Path, name: &str, believed: &Self) -> PeerTlsSettings {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let write = |file: &str, pem: &str| {
            let path = directory.join(file);
            std::fs::write(&path, pem).unwrap();
            path
        };
        PeerTlsSettings {
            certificate: write("certificate.pem", &certificate.pem()),
            key: write("key.pem", &key.serialize_pem()),
            authorities: write("authorities.pem", &believed.pem),
        }
    }
}

#[tokio::test]
async fn brokers_with_certificates_of_their_names_meet() {
    let authority = Authority::new();
    let port = port(local(0), Some(authority.tls("b2", &authority))).await;
    let dialer = dialer(1, port.address(), Some(&authority.tls("b1", &authority)));
    assert_eq!(answered(&dialer).await, "1:hello");
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused_on_both_sides() {
    let authority = Authority::new();
    let of_two = port(local(0), Some(authority.tls("b2", &authority))).await;
    let as_three = dialer(1, of_two.address(), Some(&authority.tls("b3", &authority)));
    refused(&as_three, "\"b1\" shows the certificate of \"b3\"").await;
    let of_three = port(local(0), Some(authority.tls("b3", &authority))).await;
    let dialer = dialer(
        1,
        of_three.address(),
        Some(&authority.tls("b1", &authority)),
    );
    refused(&dialer, "\"b2\" shows the certificate of \"b3\"").await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_on_both_sides() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let port = port(local(0), Some(ours.tls("b2", &ours))).await;
    let foreign = dialer(1, port.address(), Some(&theirs.tls("b1", &ours)));
    until("a refusal", || port.refused().contains_key("io")).await;
    refused(&foreign, "").await;
    let strict = dialer(1, port.address(), Some(&ours.tls("b1", &theirs)));
    refused(&strict, "invalid peer certificate").await;
    assert!(port.connections().values().all(|open| *open == 0));
}

#[tokio::test]
async fn plain_text_to_a_port_with_tls_is_closed() {
    let authority = Authority::new();
    let port = port(local(0), Some(authority.tls("b2", &authority))).await;
    let mut stream = TcpStream::connect(port.address()).await.unwrap();
    stream.write_all(&[0xB9; 64]).await.unwrap();
    let mut rest = Vec::new();
    // An alert or a reset, and then the end.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < 64, "{rest:?}");
    until("a refusal", || port.refused().contains_key("io")).await;
    let good = dialer(1, port.address(), Some(&authority.tls("b1", &authority)));
    assert_eq!(answered(&good).await, "1:hello");
}

#[tokio::test]
async fn off_loopback_nobody_listens_without_certificates() {
    let any = "0.0.0.0:0".parse().unwrap();
    let brokers = Arc::new(super::brokers(2, &std::collections::BTreeMap::new()));
    let refused = PeerListener::open(any, brokers, None, Arc::new(super::Echo), super::events());
    let refused = refused.await.unwrap_err();
    assert!(matches!(refused, ListenError::Address(_)), "{refused}");
}

#[test]
fn a_key_of_another_certificate_is_named() {
    let authority = Authority::new();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut settings = authority.write(one.path(), "b1", &authority);
    settings.key = authority.write(two.path(), "b2", &authority).key;
    let now_s = now_ns() as u64 / 1_000_000_000;
    let refused = PeerTls::load(&settings, now_s).unwrap_err();
    assert_eq!(refused.file, settings.key);
}
