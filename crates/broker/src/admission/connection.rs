//! A connection that completed the handshake and holds its places until it is dropped.
use super::caller::Caller;
use super::shares::Piece;
use futures_util::task::AtomicWaker;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// Bytes that a connection reads before others get their turn. What it reads becomes requests, whose headers are in memory
/// until their tasks have their turn too.
const TURN_BYTES: usize = 256 << 10;

/// The byte stream of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Closes a connection from outside of its task.
#[derive(Debug, Default)]
pub(crate) struct Closer {
    is_closed: AtomicBool,
    waker: AtomicWaker,
}

impl Closer {
    /// Ends the connection, with all of its calls.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn check(&self) -> io::Result<()> {
        if self.is_closed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) stream: Stream,
    pub(super) caller: Caller,
    /// Bytes that the handshake read, and how many of them were passed on.
    pub(super) preface: Vec<u8>,
    pub(super) given: usize,
    /// Read in this turn.
    pub(super) turn: usize,
    pub(super) _place: OwnedSemaphorePermit,
    pub(super) _from: Piece,
}

impl Connected for Connection {
    type ConnectInfo = Caller;
    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}
impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.caller.closer.waker.register(cx.waker());
        this.caller.closer.check()?;
        let rest = this.preface.get(this.given..).unwrap_or_default();
        if rest.is_empty() {
            if this.turn >= TURN_BYTES {
                this.turn = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let before = buf.filled().len();
            let read = Pin::new(&mut this.stream).poll_read(cx, buf);
            match read {
                Poll::Pending => this.turn = 0,
                Poll::Ready(_) => this.turn += buf.filled().len() - before,
            }
            return read;
        }
        let length = rest.len().min(buf.remaining());
        buf.put_slice(rest.get(..length).unwrap_or_default());
        this.given += length;
        if this.given == this.preface.len() {
            this.preface = Vec::new();
            this.given = 0;
        }
        Poll::Ready(Ok(()))
    }
}
impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.caller.closer.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.caller.closer.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.caller.closer.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}
impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }
    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::caller::Identity;
    use crate::admission::shares::Shares;
    use crate::tls::Peer;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn a_connection_that_is_closed_from_outside_ends_reads_and_writes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let _client = client.unwrap();
        let caller = Caller::of(&Peer::default());
        let closer = caller.closer.clone();
        let mut connection = Connection {
            stream: Stream::Plain(accepted.unwrap().0),
            caller,
            preface: Vec::new(),
            given: 0,
            turn: 0,
            _place: Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(),
            _from: Shares::new(1).take(Identity::Nobody).unwrap(),
        };
        let mut buffer = [0; 8];
        let waiting = tokio::time::timeout(Duration::ZERO, connection.read(&mut buffer));
        assert!(waiting.await.is_err(), "nothing comes");
        let closing = tokio::spawn(async move {
            tokio::task::yield_now().await;
            closer.close();
        });
        let ended = tokio::time::timeout(Duration::from_mins(1), connection.read(&mut buffer));
        let ended = ended.await.expect("the read ends").unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert!(connection.write_all(b"x").await.is_err());
        closing.await.unwrap();
    }
}
