//! gRPC frames, both ways: 1 byte compressed flag, 4 bytes length (big-endian), message.
use crate::Error;
use bascule_wire::ErrorCode;
use bytes::{Buf, Bytes, BytesMut};

const PREFIX_BYTES: usize = 5;
/// Largest message accepted from a broker; brokers send much smaller ones.
const MESSAGE_BYTES: usize = 256 << 20;

/// Received bytes that are not yet whole messages.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pending: BytesMut,
}
impl Frames {
    /// Adds what was received.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.pending.extend_from_slice(chunk);
    }

    /// The next whole message.
    ///
    /// # Errors
    /// `internal` for compressed or oversized messages, which no broker sends.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(&[flag, a, b, c, d]) = self.pending.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if flag != 0 || length > MESSAGE_BYTES {
            return Err(Error::new(
                ErrorCode::Internal,
                format!("the broker sent a frame with flag {flag} and length {length}"),
            ));
        }
        if self.pending.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.pending.advance(PREFIX_BYTES);
        Ok(Some(self.pending.split_to(length).freeze()))
    }
}

/// Lengths of the messages of whole frames, in order.
pub(crate) fn lengths(mut frames: &[u8]) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let &[_, a, b, c, d] = frames.first_chunk::<PREFIX_BYTES>()?;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        frames = frames.get(PREFIX_BYTES + length..)?;
        Some(length)
    })
}

/// A message with its prefix.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(PREFIX_BYTES + message.len());
    out.push(0);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_split_at_every_byte_are_read_whole() {
        let body = [frame(b"first"), frame(b""), frame(&[7; 300])].concat();
        for cut in 0..=body.len() {
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            for part in [&body[..cut], &body[cut..]] {
                frames.push(part);
                while let Some(message) = frames.next().unwrap() {
                    read.push(message);
                }
            }
            assert_eq!(read, [&b"first"[..], b"", &[7; 300]], "cut at {cut}");
        }
    }

    #[test]
    fn lengths_match_the_messages() {
        let body = [frame(b"first"), frame(b""), frame(&[7; 300])].concat();
        assert_eq!(lengths(&body).collect::<Vec<_>>(), [5, 0, 300]);
        assert_eq!(lengths(&body[..body.len() - 1]).count(), 2);
    }

    #[test]
    fn compressed_and_oversized_frames_are_rejected() {
        for prefix in [[1, 0, 0, 0, 0], [0, 0xff, 0, 0, 0]] {
            let mut frames = Frames::default();
            frames.push(&prefix);
            assert_eq!(frames.next().unwrap_err().code, ErrorCode::Internal);
        }
    }
}
