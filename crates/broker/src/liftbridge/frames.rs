//! gRPC frames out of the chunks of an HTTP/2 body: 1 byte compressed flag, 4 bytes length (big-endian), message.
//!
//! Messages that lie whole in a chunk are slices of it; only those that straddle chunks are copied, once.
use crate::grpc_status::Coded;
use bascule_wire::ErrorCode;
use bytes::{Buf, Bytes, BytesMut};
use serde_json::json;
use tonic::Status;

/// Bytes before each message.
pub(super) const PREFIX_BYTES: usize = 5;

/// Why a body cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    /// Larger than `limits.message_bytes`.
    #[error("grpc: received message larger than max ({size} vs. {max})")]
    TooLarge {
        /// Announced length.
        size: usize,
        /// Limit, inclusive.
        max: usize,
    },
    /// The compressed flag is set.
    #[error(
        "grpc: compressed messages are not supported by this broker, send with encoding identity"
    )]
    Compressed,
    /// The flag is neither 0 nor 1.
    #[error("grpc: received message with invalid compressed flag {0}")]
    BadFlag(u8),
    /// The body ended inside a frame.
    #[error("grpc: the request ended inside a message")]
    Truncated,
}
impl From<FrameError> for Status {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::TooLarge { size, max } => Self::resource_exhausted(error.to_string())
                .detailed(
                    ErrorCode::TooLarge,
                    json!({"message_bytes": size, "limit": max}),
                ),
            FrameError::Compressed => Self::unimplemented(error.to_string()),
            FrameError::BadFlag(_) | FrameError::Truncated => Self::internal(error.to_string()),
        }
    }
}

/// Splits chunks into messages. Holds at most one incomplete frame.
#[derive(Debug)]
pub(super) struct FrameReader {
    partial: BytesMut,
    max: usize,
}
impl FrameReader {
    /// `max`: largest message accepted, bytes, inclusive.
    pub(super) fn new(max: usize) -> Self {
        Self {
            partial: BytesMut::new(),
            max,
        }
    }

    /// The next whole message; `None` once `chunk` is used up (a started frame is kept for the next chunk).
    ///
    /// # Errors
    /// [`FrameError`], except `Truncated`; the reader is of no use afterwards.
    pub(super) fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, FrameError> {
        if !self.partial.is_empty() {
            return self.finish_partial(chunk);
        }
        let Some(length) = self.length(chunk)? else {
            self.partial.extend_from_slice(chunk);
            chunk.clear();
            return Ok(None);
        };
        if chunk.len() < PREFIX_BYTES + length {
            self.partial.extend_from_slice(chunk);
            chunk.clear();
            return Ok(None);
        }
        chunk.advance(PREFIX_BYTES);
        Ok(Some(chunk.split_to(length)))
    }

    /// Checks that the body did not end inside a frame.
    ///
    /// # Errors
    /// [`FrameError::Truncated`].
    pub(super) fn end(&self) -> Result<(), FrameError> {
        if self.partial.is_empty() {
            Ok(())
        } else {
            Err(FrameError::Truncated)
        }
    }

    fn finish_partial(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, FrameError> {
        self.fill(chunk, PREFIX_BYTES);
        let Some(length) = self.length(&self.partial)? else {
            return Ok(None);
        };
        self.fill(chunk, PREFIX_BYTES + length);
        if self.partial.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        let mut frame = self.partial.split().freeze();
        frame.advance(PREFIX_BYTES);
        Ok(Some(frame))
    }

    /// Moves bytes from `chunk` until the partial frame has `target` bytes or the chunk is empty.
    fn fill(&mut self, chunk: &mut Bytes, target: usize) {
        let wanted = target.saturating_sub(self.partial.len()).min(chunk.len());
        self.partial.extend_from_slice(&chunk.split_to(wanted));
    }

    /// Length of the message whose frame begins `bytes`; `None` when the prefix is not whole.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        match bytes.first() {
            None | Some(0) => {}
            Some(1) => return Err(FrameError::Compressed),
            Some(&flag) => return Err(FrameError::BadFlag(flag)),
        }
        let Some(&[_, a, b, c, d]) = bytes.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        if size > self.max {
            return Err(FrameError::TooLarge {
                size,
                max: self.max,
            });
        }
        Ok(Some(size))
    }
}

/// A message with its prefix.
pub(super) fn frame(message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(PREFIX_BYTES + message.len());
    out.push(0);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out.into()
}
