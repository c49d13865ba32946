//! A client that knows only frames.
use crate::iggy::tests::{LIMIT, OK, Served, frame, login};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream, VarInt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

/// As Iggy's clients are by default: they verify nothing, and accept one kind of signature.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// A connection, with the runtime that drives it.
pub(super) struct Client {
    pub(super) connection: Connection,
    _endpoint: Endpoint,
    pub(super) runtime: Runtime,
}

pub(super) fn serve(served: &Served) -> u16 {
    served.engine.serve_iggy_quic("127.0.0.1", 0).unwrap()
}

impl Client {
    /// `roots`: the authorities that the client verifies with; `None` = it trusts everybody.
    pub(super) fn try_connect(
        port: u16,
        roots: Option<RootCertStore>,
    ) -> Result<Self, ConnectionError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13]).unwrap();
        let config = match roots {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Trusting)),
        };
        let crypto = QuicClientConfig::try_from(config.with_no_client_auth()).unwrap();
        let config = ClientConfig::new(Arc::new(crypto));
        let connected = runtime.block_on(async {
            let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let connecting = endpoint.connect_with(config, address, "localhost").unwrap();
            let connected = tokio::time::timeout(LIMIT, connecting).await.unwrap();
            connected.map(|connection| (endpoint, connection))
        });
        let (endpoint, connection) = connected?;
        Ok(Self {
            connection,
            _endpoint: endpoint,
            runtime,
        })
    }

    pub(super) fn connect(port: u16) -> Self {
        Self::try_connect(port, None).unwrap()
    }

    pub(super) fn logged_in(port: u16) -> Self {
        let client = Self::connect(port);
        let user = (OK, vec![1, 0, 0, 0]);
        assert_eq!(client.ask(38, &login("secret")), user);
        client
    }

    pub(super) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        let limited = async { tokio::time::timeout(LIMIT, what).await };
        self.runtime.block_on(limited).expect("it comes")
    }

    pub(super) fn open(&self) -> (SendStream, RecvStream) {
        self.wait(self.connection.open_bi()).unwrap()
    }

    /// The reply, whole, to a stream of these bytes.
    pub(super) fn say(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut send, mut receive) = self.open();
        self.finish(&mut send, bytes);
        self.reply(&mut receive)
    }

    pub(super) fn finish(&self, send: &mut SendStream, bytes: &[u8]) {
        // A stream that is refused early takes no more.
        let _ = self.wait(send.write_all(bytes));
        let _ = send.finish();
    }

    pub(super) fn reply(&self, receive: &mut RecvStream) -> Vec<u8> {
        self.wait(receive.read_to_end(64 << 20)).unwrap()
    }

    /// Status and payload of the reply.
    pub(super) fn ask(&self, code: u32, payload: &[u8]) -> (u32, Vec<u8>) {
        split(&self.say(&frame(code, payload)))
    }

    /// Why the connection has ended.
    pub(super) fn ended(&self) -> ConnectionError {
        self.wait(self.connection.closed())
    }

    pub(super) fn close(&self) {
        self.connection.close(VarInt::from_u32(0), b"");
    }
}

/// Waits until something is so.
pub(super) fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "it does not come about");
        std::thread::yield_now();
    }
}

/// Status and payload of a reply.
pub(super) fn split(reply: &[u8]) -> (u32, Vec<u8>) {
    let number = |at: usize| u32::from_le_bytes(reply[at..at + 4].try_into().unwrap());
    assert_eq!(number(4) as usize, reply.len() - 8);
    (number(0), reply[8..].to_vec())
}
