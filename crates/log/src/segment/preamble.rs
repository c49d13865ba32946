//! The first 64 bytes of a segment (`specs/formats/segment.md`).
use crate::LogId;
use crate::io::fields::{i64_at, seal, u32_at, u64_at, unseal};
use crate::io::storage::Storage;

/// Length of a preamble, bytes; the first batch begins here.
pub(crate) const PREAMBLE_BYTES: u64 = 64;
/// Segment format written by this crate, and the newest it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 4] = *b"BSCS";

/// The fields of a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    /// Format version of the file.
    pub version: u32,
    /// Whose segment it is.
    pub identity: LogId,
    /// Link of the batch before.
    pub chain: u32,
    /// Offset of the first record.
    pub base_offset: u64,
    /// Time of creation, ns since 1970.
    pub created: i64,
    /// Latest timestamp before, `i64::MIN` = none.
    pub last_timestamp: i64,
    /// Leader epoch of the batch before.
    pub epoch: u64,
}

impl Preamble {
    /// The preamble of a log's first segment.
    pub fn first(storage: &dyn Storage, identity: LogId, base_offset: u64) -> Self {
        Self {
            version: FORMAT_VERSION,
            identity,
            chain: 0,
            base_offset,
            created: storage.wall_clock_ns(),
            last_timestamp: i64::MIN,
            epoch: 0,
        }
    }

    /// The 64 bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PREAMBLE_BYTES as usize);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.identity.incarnation.to_le_bytes());
        out.extend_from_slice(&self.identity.partition.to_le_bytes());
        out.extend_from_slice(&self.chain.to_le_bytes());
        out.extend_from_slice(&self.base_offset.to_le_bytes());
        out.extend_from_slice(&self.created.to_le_bytes());
        out.extend_from_slice(&self.last_timestamp.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        seal(&mut out);
        out
    }

    /// Reads the preamble; `None` when it is short, has another magic, or its checksum does not match.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let body = unseal(bytes.get(..PREAMBLE_BYTES as usize)?)?;
        if body.get(..4)? != MAGIC {
            return None;
        }
        let identity = LogId {
            incarnation: u64_at(body, 8)?,
            partition: u32_at(body, 16)?,
        };
        Some(Self {
            version: u32_at(body, 4)?,
            identity,
            chain: u32_at(body, 20)?,
            base_offset: u64_at(body, 24)?,
            created: i64_at(body, 32)?,
            last_timestamp: i64_at(body, 40)?,
            epoch: u64_at(body, 48)?,
        })
    }
}
