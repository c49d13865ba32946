//! Headers: 256 bytes before every body.
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 256;
/// The protocol number of 0.11.0: major · 2^20 + minor · 2^10 + patch.
pub const PROTOCOL: u32 = 11 << 10;

const SIZE_AT: usize = 48;
const COMMAND_AT: usize = 60;
const REQUEST: u8 = 5;
const REPLY: u8 = 8;
const EVICTION: u8 = 13;

/// Header of a request. Fields that only servers among themselves use are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bytes that follow the header; at most the bound it was read with.
    pub body_bytes: usize,
    /// Number that the client chose for itself at its login; never 0.
    pub client: u128,
    /// XXH3-64 of the body for a login, a logout and changes of metadata; else 0. It is returned, and distinguishes two requests.
    pub checksum: u128,
    /// Returned as it came.
    pub timestamp: u64,
    /// Number of the request in its session.
    pub request: u64,
    /// Number of the operation.
    pub operation: u8,
    /// What the login returned; 0 before.
    pub session: u64,
    /// Number of the command of operation 2.
    pub code: u32,
}

/// Why a header leads to no request. What follows on the connection cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Not a message that clients send.
    #[error("the header's command is {command}, and that of a request is {REQUEST}")]
    Command {
        /// As it came.
        command: u8,
    },
    /// The size does not even cover the header.
    #[error("the request's size is {size}, and a header alone takes {HEADER_BYTES}")]
    TooShort {
        /// As announced, bytes.
        size: u32,
    },
    /// More than the connection may send now.
    #[error("a request with {bytes} bytes of body; at most {most} are accepted")]
    TooLong {
        /// Body as announced, bytes.
        bytes: usize,
        /// The bound, bytes.
        most: usize,
    },
    /// Clients choose a number.
    #[error("the header's client is 0, which no client has")]
    NoClient,
}

impl RequestHeader {
    /// Reads a header; nothing is allocated. `most`: bytes of body that are accepted.
    ///
    /// # Errors
    /// [`HeaderError`]; the connection is to be closed.
    pub fn read(header: &[u8; HEADER_BYTES], most: usize) -> Result<Self, HeaderError> {
        let command = u8::from_le_bytes(at(header, COMMAND_AT));
        if command != REQUEST {
            return Err(HeaderError::Command { command });
        }
        let size = u32::from_le_bytes(at(header, SIZE_AT));
        let bytes = (size as usize).checked_sub(HEADER_BYTES);
        let bytes = bytes.ok_or(HeaderError::TooShort { size })?;
        if bytes > most {
            return Err(HeaderError::TooLong { bytes, most });
        }
        let client = u128::from_le_bytes(at(header, 128));
        if client == 0 {
            return Err(HeaderError::NoClient);
        }
        Ok(Self {
            body_bytes: bytes,
            client,
            checksum: u128::from_le_bytes(at(header, 144)),
            timestamp: u64::from_le_bytes(at(header, 160)),
            request: u64::from_le_bytes(at(header, 168)),
            operation: u8::from_le_bytes(at(header, 176)),
            session: u64::from_le_bytes(at(header, 184)),
            code: u32::from_le_bytes(at(header, 196)),
        })
    }
}

/// What distinguishes the bodies of two requests: their XXH3-64.
pub fn body_checksum(body: &[u8]) -> u64 {
    xxh3_64(body)
}

/// The header of a reply to `to`. `status` 0 = done. `body_bytes`: that follow it.
pub fn write_reply(to: &RequestHeader, status: u32, body_bytes: u32) -> [u8; HEADER_BYTES] {
    let mut out = begun(REPLY, body_bytes);
    put(&mut out, 128, to.checksum.to_le_bytes());
    put(&mut out, 160, to.client.to_le_bytes());
    put(&mut out, 192, to.timestamp.to_le_bytes());
    put(&mut out, 200, to.request.to_le_bytes());
    put(&mut out, 208, [to.operation]);
    put(&mut out, 216, status.to_le_bytes());
    out
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Eviction {
    /// The request is of a session that is not there.
    NoSession = 1,
    /// The token is unknown, or has expired.
    BadToken = 10,
    /// The client speaks a protocol that is not spoken; it is shown which is.
    Version = 14,
    /// The login is malformed, or that of an older generation.
    Malformed = 15,
}

/// The whole frame that ends the session of `client`.
pub fn write_eviction(client: u128, reason: Eviction) -> [u8; HEADER_BYTES] {
    let mut out = begun(EVICTION, 0);
    put(&mut out, 128, client.to_le_bytes());
    if reason == Eviction::Version {
        put(&mut out, 144, (PROTOCOL | PATCHES).to_le_bytes());
        put(&mut out, 148, PROTOCOL.to_le_bytes());
    }
    put(&mut out, 255, [reason as u8]);
    out
}

/// The bits of a protocol number that the patch has: every patch is spoken.
pub(super) const PATCHES: u32 = (1 << 10) - 1;

fn begun(command: u8, body_bytes: u32) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    let size = body_bytes.saturating_add(HEADER_BYTES as u32);
    put(&mut out, SIZE_AT, size.to_le_bytes());
    put(&mut out, COMMAND_AT, [command]);
    out
}

/// Bytes of a field; its place is within the header.
fn at<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let field = header.get(at..).and_then(|rest| rest.first_chunk());
    field.copied().unwrap_or([0; N])
}

fn put<const N: usize>(header: &mut [u8; HEADER_BYTES], at: usize, field: [u8; N]) {
    if let Some(place) = header.get_mut(at..at + N) {
        place.copy_from_slice(&field);
    }
}
