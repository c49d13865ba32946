//! Which certificate is shown to whom.
use super::client::{Client, serve};
use crate::iggy::tests::{OK, Served};
use crate::tls::TlsSettings;
use rcgen::{KeyPair, SignatureAlgorithm};
use serde_json::json;
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;

type Certificate = CertificateDer<'static>;

/// Loads a certificate for `localhost` that is its own authority; returns it.
fn load(served: &Served, directory: &Path, algorithm: &'static SignatureAlgorithm) -> Certificate {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let made = params.self_signed(&key).unwrap();
    let file = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let settings = TlsSettings {
        certificate: file("cert.pem", made.pem()),
        key: file("key.pem", key.serialize_pem()),
        allow_tls12: false,
        require_client: false,
        client_ca: None,
    };
    served.engine.load_tls(&settings).unwrap();
    made.der().clone()
}

fn shown(client: &Client) -> Certificate {
    let identity = client.connection.peer_identity().unwrap();
    let chain = identity.downcast::<Vec<Certificate>>().unwrap();
    assert_eq!(chain.len(), 1);
    chain[0].clone()
}

fn trusting(certificate: &Certificate) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    roots
}

#[test]
fn without_a_certificate_the_broker_shows_its_own_for_localhost() {
    let served = Served::start(&json!({}));
    let port = serve(&served);
    let client = Client::connect(port);
    let own = shown(&client);
    assert_eq!(shown(&Client::connect(port)), own, "one for each start");
    let verifying = Client::try_connect(port, Some(trusting(&own))).unwrap();
    assert_eq!(verifying.ask(1, &[]).0, OK, "its name is localhost");
    let data = client.connection.handshake_data().unwrap();
    let data = data.downcast::<quinn::crypto::rustls::HandshakeData>();
    assert_eq!(data.unwrap().protocol, None);
}

#[test]
fn a_loaded_certificate_is_shown_from_then_on_to_those_who_accept_it() {
    let served = Served::start(&json!({}));
    let port = serve(&served);
    let own = shown(&Client::connect(port));
    let directory = tempfile::tempdir().unwrap();
    let first = load(&served, directory.path(), &rcgen::PKCS_ECDSA_P256_SHA256);
    assert_eq!(shown(&Client::connect(port)), first);
    let second = load(&served, directory.path(), &rcgen::PKCS_ECDSA_P384_SHA384);
    let verifying = Client::try_connect(port, Some(trusting(&second))).unwrap();
    assert_eq!(shown(&verifying), second);
    // Iggy's clients that verify nothing accept P-256 alone.
    assert_eq!(shown(&Client::connect(port)), own);
}

#[test]
fn a_client_that_verifies_is_not_served_with_another_certificate() {
    let served = Served::start(&json!({}));
    let port = serve(&served);
    let directory = tempfile::tempdir().unwrap();
    let loaded = load(&served, directory.path(), &rcgen::PKCS_ECDSA_P256_SHA256);
    let other = load(&served, directory.path(), &rcgen::PKCS_ED25519);
    assert!(Client::try_connect(port, Some(trusting(&loaded))).is_err());
    assert!(Client::try_connect(port, Some(trusting(&other))).is_ok());
}
