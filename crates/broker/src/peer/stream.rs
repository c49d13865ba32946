//! The byte stream below: TCP, and TLS off loopback.
use super::connection::PeerError;
use super::handshake::Proof;
use crate::tls::PeerTls;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A peer whose machine is gone is found after 10 s of silence and three probes.
const KEEPALIVE: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A stream, and who the other side proved to be.
pub(super) type Opened = (Box<dyn ByteStream>, Proof);

/// The stream of a connection that was accepted.
pub(super) async fn accepted(
    stream: TcpStream,
    tls: Option<&PeerTls>,
) -> Result<Opened, PeerError> {
    configure(&stream)?;
    let Some(tls) = tls else {
        return plain(stream);
    };
    let (stream, name) = tls.accept(stream).await?;
    Ok((Box::new(stream), Proof::Certificate(name)))
}

/// Dials `host:port`.
pub(super) async fn dialled(address: &str, tls: Option<&PeerTls>) -> Result<Opened, PeerError> {
    let stream = TcpStream::connect(address).await?;
    configure(&stream)?;
    let Some(tls) = tls else {
        return plain(stream);
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let (stream, name) = tls.connect(host, stream).await?;
    Ok((Box::new(stream), Proof::Certificate(name)))
}

fn plain(stream: TcpStream) -> Result<Opened, PeerError> {
    check_loopback(stream.peer_addr()?)?;
    Ok((Box::new(stream), Proof::Loopback))
}

/// Without certificates brokers meet over loopback only.
pub(super) fn check_loopback(address: SocketAddr) -> Result<(), PeerError> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(PeerError::Address(format!(
        "{address} is not a loopback address, and no certificate is configured: brokers meet there with TLS only"
    )))
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(PROBE)
        .with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
