//! Frames of v1 and v1b: 8 bytes of head, then the payload.
use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Bytes of a request before its payload: length u32 (of code and payload), code u32.
pub const REQUEST_HEAD_BYTES: usize = 8;
/// Bytes of a reply before its payload: status u32, length u32 (of the payload alone).
pub const REPLY_HEAD_BYTES: usize = 8;
/// Largest payload of a request after login, bytes: the largest frame that any generation allows.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;
/// Largest payload of a request before login, bytes; a login with every field at its bound takes less than 1 KiB,
/// but for its free texts.
pub const LOGIN_REQUEST_BYTES: usize = 64 << 10;

/// How a connection frames its requests; it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Heads of 8 bytes: clients of servers 0.4 to 0.8.
    Short,
    /// Headers of 256 bytes, which begin with 16 bytes of zero: clients of servers 0.9.
    Long,
}
impl Family {
    /// The family of a connection, from the first four bytes that the client sends.
    pub fn of(first: [u8; 4]) -> Self {
        if first == [0; 4] {
            Self::Long
        } else {
            Self::Short
        }
    }
}

/// Head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Number of the command.
    pub code: u32,
    /// Bytes that follow the head; at most the bound it was read with.
    pub payload_bytes: usize,
}

/// Why a head leads to no request. What follows on the connection cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The length does not even cover the code.
    #[error("the request's length is {length}, and a code alone takes 4")]
    TooShort {
        /// As announced.
        length: u32,
    },
    /// More than the connection may send now.
    #[error("a request with {bytes} bytes of payload; at most {most} are accepted")]
    TooLong {
        /// Payload as announced, bytes.
        bytes: usize,
        /// The bound, bytes.
        most: usize,
    },
}

impl RequestHead {
    /// Reads a head; nothing is allocated. `most`: payload bytes that are accepted, [`LOGIN_REQUEST_BYTES`] before login.
    ///
    /// # Errors
    /// [`FrameError`]; the connection is to be closed.
    pub fn read(head: [u8; REQUEST_HEAD_BYTES], most: usize) -> Result<Self, FrameError> {
        let head = u64::from_le_bytes(head);
        let (length, code) = (head as u32, (head >> 32) as u32);
        let bytes = length
            .checked_sub(4)
            .ok_or(FrameError::TooShort { length })? as usize;
        if bytes > most {
            return Err(FrameError::TooLong { bytes, most });
        }
        Ok(Self {
            code,
            payload_bytes: bytes,
        })
    }
}

/// Head of a reply. `status` 0 = done. A payload of one byte is never sent: clients do not read it.
pub fn write_reply_head(status: u32, payload_bytes: u32) -> [u8; REPLY_HEAD_BYTES] {
    debug_assert_ne!(payload_bytes, 1);
    (u64::from(payload_bytes) << 32 | u64::from(status)).to_le_bytes()
}

/// The reply whose payload follows [`REPLY_HEAD_BYTES`] bytes that are left free for its head.
pub(crate) fn framed(mut out: BytesMut) -> Bytes {
    let bytes = u32::try_from(out.len() - REPLY_HEAD_BYTES).unwrap_or(u32::MAX);
    out[..REPLY_HEAD_BYTES].copy_from_slice(&write_reply_head(0, bytes));
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_around_the_bounds() {
        let head = |length: u32| {
            let mut head = [0; 8];
            head[..4].copy_from_slice(&length.to_le_bytes());
            head[4..].copy_from_slice(&38_u32.to_le_bytes());
            RequestHead::read(head, 10)
        };
        for length in 0..4 {
            assert_eq!(head(length), Err(FrameError::TooShort { length }));
        }
        for length in 4..=14 {
            let payload_bytes = length as usize - 4;
            assert_eq!(
                head(length),
                Ok(RequestHead {
                    code: 38,
                    payload_bytes
                })
            );
        }
        for length in [15, 1 << 31, u32::MAX] {
            let bytes = length as usize - 4;
            assert_eq!(head(length), Err(FrameError::TooLong { bytes, most: 10 }));
        }
    }

    #[test]
    fn four_bytes_say_the_family() {
        assert_eq!(Family::of([0; 4]), Family::Long);
        assert_eq!(Family::of([4, 0, 0, 0]), Family::Short);
        assert_eq!(Family::of([0, 0, 0, 1]), Family::Short);
    }
}
