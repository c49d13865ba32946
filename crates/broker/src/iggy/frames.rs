//! Requests out of the bytes of a connection.
//!
//! The length of a request is checked before anything is read of it. The buffer grows with the bytes that arrive, never with
//! the length announced, and what it holds beyond a first piece is counted in `limits.request_bytes`.
use crate::admission::{Admission, PATIENCE, charge};
use bascule_wire::iggy::v2::{HEADER_BYTES, HeaderError, RequestHeader};
use bascule_wire::iggy::{Family, FrameError, REQUEST_HEAD_BYTES, RequestHead};
use bytes::{Bytes, BytesMut};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// Bytes read at once, and bytes of a request that are not counted: an open connection costs as much.
const PIECE: usize = 16 << 10;

/// A request, and its share of `limits.request_bytes`.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: Head,
    pub(super) payload: Bytes,
    pub(super) share: Option<OwnedSemaphorePermit>,
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Head {
    /// The code of v1 and v1b.
    Short(u32),
    /// The header of v2.
    Long(RequestHeader),
}

/// Why nothing more can be read of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFailure {
    /// The client has closed it, or it broke.
    #[error("{0}")]
    Gone(#[from] io::Error),
    /// What follows cannot be framed.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// What follows cannot be framed, of v2.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// No room for its bytes.
    #[error("{0}")]
    Budget(String),
    /// It began and did not end.
    #[error("a request did not arrive within {} s", PATIENCE.as_secs())]
    Late,
    /// A stream of one request has more.
    #[error("bytes follow the request on its stream")]
    Behind,
    /// A connection keeps its way of framing.
    #[error("requests of the connection were framed otherwise")]
    Family,
}

/// The bytes that have arrived and are not part of a request yet.
#[derive(Debug)]
pub(super) struct Frames {
    admission: Arc<Admission>,
    buffer: BytesMut,
    /// Known from the first bytes on.
    family: Option<Family>,
}

impl Frames {
    pub(super) fn new(admission: Arc<Admission>) -> Self {
        Self {
            admission,
            buffer: BytesMut::new(),
            family: None,
        }
    }

    /// The next request with at most `most` bytes of payload. Waits without a limit for its first byte.
    ///
    /// # Errors
    /// [`ReadFailure`]: close the connection.
    pub(super) async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Result<Request, ReadFailure> {
        if self.buffer.is_empty() {
            // What the last request left is not kept while nothing comes.
            self.buffer = BytesMut::new();
            self.read(stream).await?;
        }
        let whole = timeout(PATIENCE, self.rest(stream, most));
        whole.await.map_err(|_| ReadFailure::Late)?
    }

    /// The one request of a stream, which ends behind it, with at most `most` bytes of payload.
    ///
    /// # Errors
    /// [`ReadFailure`]: nothing more can be read of the stream.
    pub(super) async fn only(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Result<Request, ReadFailure> {
        let whole = timeout(PATIENCE, async {
            let request = self.rest(stream, most).await?;
            if !self.buffer.is_empty() || stream.read(&mut [0]).await? > 0 {
                return Err(ReadFailure::Behind);
            }
            Ok(request)
        });
        whole.await.map_err(|_| ReadFailure::Late)?
    }

    /// How the client frames its requests, once the first bytes have come.
    pub(super) fn family(&self) -> Option<Family> {
        self.family
    }

    async fn rest(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Result<Request, ReadFailure> {
        let family = if let Some(family) = self.family {
            family
        } else {
            self.fill(stream, 4, &mut None).await?;
            let first = self.buffer.first_chunk().copied().unwrap_or_default();
            *self.family.insert(Family::of(first))
        };
        let (head, bytes) = match family {
            Family::Short => {
                let head: [u8; REQUEST_HEAD_BYTES] = self.head(stream).await?;
                let head = RequestHead::read(head, most)?;
                (Head::Short(head.code), head.payload_bytes)
            }
            Family::Long => {
                let head: [u8; HEADER_BYTES] = self.head(stream).await?;
                let head = RequestHeader::read(&head, most)?;
                (Head::Long(head), head.body_bytes)
            }
        };
        let mut share = None;
        self.fill(stream, bytes, &mut share).await?;
        Ok(Request {
            head,
            payload: self.buffer.split_to(bytes).freeze(),
            share,
        })
    }

    /// The next `N` bytes.
    async fn head<const N: usize>(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<[u8; N], ReadFailure> {
        self.fill(stream, N, &mut None).await?;
        let head = self.buffer.split_to(N);
        Ok(head.first_chunk().copied().unwrap_or([0; N]))
    }

    /// Reads until `bytes` are there.
    async fn fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        bytes: usize,
        share: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(), ReadFailure> {
        while self.buffer.len() < bytes {
            let read = self.read(stream).await?;
            if self.buffer.len() > PIECE {
                let more = charge(&self.admission, read);
                let more = more.map_err(|full| ReadFailure::Budget(full.message().to_owned()))?;
                match share {
                    Some(share) => share.merge(more),
                    None => *share = Some(more),
                }
            }
        }
        Ok(())
    }

    async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<usize, ReadFailure> {
        // A larger buffer is only made when so much has come already.
        let piece = PIECE.max(self.buffer.len().min(1 << 20));
        self.buffer.reserve(piece);
        match stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => Ok(read),
        }
    }
}
