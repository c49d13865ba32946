//! The 128-byte batch header.
use crate::{Codec, DamageError};

/// Length of a batch header, bytes.
pub const HEADER_BYTES: usize = 128;
/// First four bytes of a batch, `BSC1`.
pub const MAGIC: [u8; 4] = *b"BSC1";
/// Format version written by this crate.
pub const VERSION: u8 = 1;

/// Flag bits of a batch (header byte 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);
impl Flags {
    /// Offsets have holes: column 0 is present.
    pub const SPARSE: u16 = 1;
    /// The payload is encrypted.
    pub const ENCRYPTED: u16 = 2;
    /// Producer id, epoch and sequence are set.
    pub const PRODUCER: u16 = 4;
    /// Rewritten by compaction; the kept link counts.
    pub const REWRITTEN: u16 = 16;
}

/// Column bits of a batch (header byte 20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns(pub u16);

/// Identity and sequence of an idempotent producer's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Producer id, never 0.
    pub id: u64,
    /// Generation of the producer.
    pub epoch: u32,
    /// Sequence number of the first record.
    pub base_sequence: u32,
}

/// A decoded batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How the payload is compressed.
    pub codec: Codec,
    /// Flag bits.
    pub flags: Flags,
    /// Incarnation of the partition.
    pub incarnation: u64,
    /// Partition number.
    pub partition: u32,
    /// Which columns the payload holds.
    pub columns: Columns,
    /// Leader epoch under which the batch was appended.
    pub leader_epoch: u64,
    /// Offset of the first record slot.
    pub base_offset: u64,
    /// Offsets covered; the next batch's base is `base_offset + span`.
    pub span: u32,
    /// Records present, at most `span`.
    pub count: u32,
    /// Timestamp that deltas count from, ns since 1970.
    pub base_timestamp: i64,
    /// Largest timestamp of the batch, ns since 1970.
    pub max_timestamp: i64,
    /// Idempotent producer, if any.
    pub producer: Option<Producer>,
    /// Payload bytes as stored.
    pub stored_bytes: u32,
    /// Payload bytes after decompression.
    pub raw_bytes: u32,
    /// Key id for encryption, 0 = none.
    pub key_id: u32,
    /// Nonce for encryption.
    pub nonce: [u8; 12],
    /// CRC-32C of the stored payload.
    pub payload_crc: u32,
    /// Link of the previous batch; 0 for the first of an incarnation.
    pub chain: u32,
    /// The link this batch had before compaction rewrote it; 0 unless REWRITTEN.
    pub kept_link: u32,
    /// CRC-32C of bytes 0–123.
    pub header_crc: u32,
}

impl Header {
    /// Reads and checks a header: magic, version, checksum, known codec and flags, `count ≤ span`, reserved fields zero.
    ///
    /// # Errors
    /// [`DamageError`] naming the first test that failed. Fields are used only after the checksum matched.
    pub fn read(_bytes: &[u8]) -> Result<Self, DamageError> {
        todo!()
    }

    /// What the next batch of the same history carries as `chain`.
    pub fn link(&self) -> u32 {
        todo!()
    }

    /// Header and stored payload together, bytes.
    pub fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.stored_bytes as usize
    }

    /// First offset after this batch.
    pub fn next_offset(&self) -> u64 {
        self.base_offset + u64::from(self.span)
    }
}
