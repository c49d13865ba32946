//! Frames over a byte stream.
use bascule_wire::peer::{Frame, FrameError, FrameType, Preamble};
use bytes::BytesMut;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Memory is taken in such pieces, as bytes arrive.
const PIECE_BYTES: usize = 64 << 10;

/// Why a connection between brokers ended, or did not come to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A frame cannot be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame that does not belong there.
    #[error("a frame of type {0:?} is not expected here")]
    Unexpected(FrameType),
    /// The handshake was refused, by this side or the other.
    #[error("{text}")]
    Refused {
        /// [`bascule_wire::peer::RefusalCode`], or one of a later version.
        code: u32,
        /// The sentence.
        text: String,
    },
    /// The other side says nothing.
    #[error("the other side sent nothing within {0:?}")]
    Silent(std::time::Duration),
    /// Off loopback without TLS, or a host that is not a name.
    #[error("{0}")]
    Address(String),
    /// The operating system or TLS.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PeerError {
    /// A short word for counting.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Frame(FrameError::Length { .. }) => "length",
            Self::Frame(FrameError::Checksum { .. }) => "checksum",
            Self::Frame(FrameError::Type(_)) | Self::Unexpected(_) => "type",
            Self::Frame(_) => "malformed",
            Self::Refused { .. } => "refused",
            Self::Silent(_) => "silent",
            Self::Address(_) => "address",
            Self::Io(_) => "io",
        }
    }
}

/// The next frame, at most `most` bytes long; `None` when the other side closed before its first byte. Not cancel-safe.
pub(super) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> Result<Option<Frame>, PeerError> {
    match read_preamble(stream, most).await? {
        Some(preamble) => Ok(Some(read_payload(stream, preamble).await?)),
        None => Ok(None),
    }
}

/// The begin of the next frame, at most `most` bytes long; `None` when the other side closed before its first byte. Not
/// cancel-safe.
pub(super) async fn read_preamble(
    stream: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> Result<Option<Preamble>, PeerError> {
    let mut preamble = [0; Preamble::BYTES];
    let mut have = 0;
    while let Some(rest) = preamble.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => have += read,
        }
    }
    Ok(Some(Preamble::read(preamble, most)?))
}

/// The rest of a frame. Memory is taken as bytes arrive. Not cancel-safe.
pub(super) async fn read_payload(
    stream: &mut (impl AsyncRead + Unpin),
    preamble: Preamble,
) -> Result<Frame, PeerError> {
    let mut payload = BytesMut::new();
    while payload.len() < preamble.payload_bytes {
        let missing = preamble.payload_bytes - payload.len();
        payload.reserve(missing.min(PIECE_BYTES.max(payload.len())));
        if (&mut *stream)
            .take(missing as u64)
            .read_buf(&mut payload)
            .await?
            == 0
        {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(preamble.with_payload(payload.freeze())?)
}
