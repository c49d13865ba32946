//! First and last bytes of a piece file; the tables are in `specs/formats/stage.md`.
use super::numbers::{Digest, Token};
use super::piece::PieceId;
use super::table::Attempt;

/// Length of the header, bytes.
pub(super) const HEADER_BYTES: usize = 128;
/// Length of the footer, bytes.
pub(super) const FOOTER_BYTES: usize = 64;
const HEADER_MAGIC: [u8; 4] = *b"BSPC";
const FOOTER_MAGIC: [u8; 4] = *b"BSPF";
const VERSION: u32 = 1;

/// What a piece file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub incarnation: u64,
    pub partition: u32,
    pub id: PieceId,
}

/// What a sealed piece holds: what its file ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Batches, at least 1.
    pub batches: u32,
    /// Rows, at least 1.
    pub rows: u64,
    /// Bytes of the batches.
    pub bytes: u64,
    /// Of the rows.
    pub digest: Digest,
    /// CRC-32C of the batches, in order.
    pub crc: u32,
}

/// Why bytes are not the header or footer of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// They fail their own checksum, or begin with something else.
    #[error("its {part} fails its checksum")]
    Checksum {
        /// `header` or `footer`.
        part: &'static str,
    },
    /// A newer version wrote them.
    #[error("its {part} was written by a newer version of Bascule")]
    Newer {
        /// `header` or `footer`.
        part: &'static str,
    },
}

impl Header {
    pub fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, HEADER_MAGIC);
        put(&mut bytes, 4, VERSION.to_le_bytes());
        put(&mut bytes, 8, self.incarnation.to_le_bytes());
        put(&mut bytes, 16, self.partition.to_le_bytes());
        put(&mut bytes, 20, self.id.task.to_le_bytes());
        put(&mut bytes, 24, self.id.sink.to_le_bytes());
        put(&mut bytes, 32, self.id.attempt.generation.to_le_bytes());
        put(&mut bytes, 40, self.id.attempt.epoch.to_le_bytes());
        put(&mut bytes, 48, self.id.attempt.token.0.to_le_bytes());
        put(&mut bytes, 64, self.id.task_attempt.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FormatError> {
        let part = "header";
        let is_ours = get(bytes, 0) == HEADER_MAGIC && is_sealed(bytes);
        if !is_ours {
            return Err(FormatError::Checksum { part });
        }
        let reserved = bytes.get(72..HEADER_BYTES - 4).unwrap_or_default();
        if u32::from_le_bytes(get(bytes, 4)) != VERSION || reserved.iter().any(|byte| *byte != 0) {
            return Err(FormatError::Newer { part });
        }
        Ok(Self {
            incarnation: u64::from_le_bytes(get(bytes, 8)),
            partition: u32::from_le_bytes(get(bytes, 16)),
            id: PieceId {
                sink: u64::from_le_bytes(get(bytes, 24)),
                attempt: Attempt {
                    generation: u64::from_le_bytes(get(bytes, 32)),
                    epoch: u64::from_le_bytes(get(bytes, 40)),
                    token: Token(u128::from_le_bytes(get(bytes, 48))),
                },
                task: u32::from_le_bytes(get(bytes, 20)),
                task_attempt: u64::from_le_bytes(get(bytes, 64)),
            },
        })
    }
}

impl Contents {
    pub(super) fn write(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        put(&mut bytes, 0, FOOTER_MAGIC);
        put(&mut bytes, 4, self.batches.to_le_bytes());
        put(&mut bytes, 8, self.rows.to_le_bytes());
        put(&mut bytes, 16, self.bytes.to_le_bytes());
        put(&mut bytes, 24, self.digest.0.to_le_bytes());
        put(&mut bytes, 40, self.crc.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub(super) fn read(bytes: &[u8; FOOTER_BYTES]) -> Result<Self, FormatError> {
        let part = "footer";
        let is_ours = get(bytes, 0) == FOOTER_MAGIC && is_sealed(bytes);
        if !is_ours {
            return Err(FormatError::Checksum { part });
        }
        if get(bytes, 44) != [0; 16] {
            return Err(FormatError::Newer { part });
        }
        Ok(Self {
            batches: u32::from_le_bytes(get(bytes, 4)),
            rows: u64::from_le_bytes(get(bytes, 8)),
            bytes: u64::from_le_bytes(get(bytes, 16)),
            digest: Digest(u128::from_le_bytes(get(bytes, 24))),
            crc: u32::from_le_bytes(get(bytes, 40)),
        })
    }
}

/// Writes a field; where it lies is fixed, so that it fits.
fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    if let Some(room) = bytes.get_mut(at..at + N) {
        room.copy_from_slice(&field);
    }
}

/// A field; where it lies is fixed, so that it is there.
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        field.copy_from_slice(found);
    }
    field
}

/// Writes the checksum of all but the last 4 bytes into these.
fn seal(bytes: &mut [u8]) {
    if let Some((content, checksum)) = bytes.split_last_chunk_mut::<4>() {
        *checksum = crc32c::crc32c(content).to_le_bytes();
    }
}

fn is_sealed(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<4>()
        .is_some_and(|(content, checksum)| crc32c::crc32c(content).to_le_bytes() == *checksum)
}
