//! Errors of batches, and of records that cannot go into one.
use crate::crypt::KeyLack;

/// Stored bytes that are not a whole, undamaged batch that this version understands.
///
/// The bytes are either damaged, or intact and of a newer writer. [`DamageError::is_unsupported`] distinguishes the two; check
/// it before you truncate or quarantine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageError {
    /// Fewer bytes than a header or than the header promises.
    #[error("batch is cut short: {have} of {need} bytes")]
    Short {
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// More bytes than the header promises.
    #[error("batch of {need} bytes is followed by others: {have} were given")]
    Long {
        /// Bytes of the batch.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// The bytes do not begin with `BSC1`.
    #[error("not a batch: it begins with {found:02x?}")]
    Magic {
        /// First four bytes.
        found: [u8; 4],
    },
    /// The header checksum does not match; no other field of the header can be trusted.
    #[error("header checksum is {computed:#010x}, stored is {stored:#010x}")]
    HeaderChecksum {
        /// Stored at byte 124.
        stored: u32,
        /// Of bytes 0–123.
        computed: u32,
    },
    /// A valid header of an unknown format version.
    #[error(
        "batch format version {found} is not supported, only {} is",
        crate::VERSION
    )]
    Version {
        /// Version byte.
        found: u8,
    },
    /// A valid header with an unknown codec.
    #[error("codec {found} is not supported")]
    Codec {
        /// Codec byte.
        found: u8,
    },
    /// A valid header with unknown flag bits.
    #[error("flag bits {unknown:#06x} are not supported")]
    Flags {
        /// The unknown bits.
        unknown: u16,
    },
    /// A valid header with unknown column bits.
    #[error("column bits {unknown:#06x} are not supported")]
    Columns {
        /// The unknown bits.
        unknown: u16,
    },
    /// A valid header with a value in a field that this version writes as zero.
    #[error("reserved header field at byte {at} is not zero")]
    Reserved {
        /// Position of the field.
        at: usize,
    },
    /// The payload is encrypted, and its data key is missing.
    #[error("batch is encrypted with data key {key_id}: {lack}")]
    Encrypted {
        /// Key id of the header.
        key_id: u32,
        /// Why there is no such key.
        lack: KeyLack,
    },
    /// The checksums match, the authentication tag does not: a different key has the same number, or header or payload were
    /// changed together with their checksums.
    #[error("batch does not open with data key {key_id}: its authentication tag does not match")]
    Authentication {
        /// Key id of the header.
        key_id: u32,
    },
    /// A header field that contradicts the flags.
    #[error("header field at byte {at} contradicts the flags {flags:#06x}")]
    FlagField {
        /// Position of the field.
        at: usize,
        /// Flag bits.
        flags: u16,
    },
    /// Record count and span contradict each other, the flags, or the bound of 2^24 records.
    #[error("{count} records in {span} offsets with flags {flags:#06x}")]
    Count {
        /// Records.
        count: u32,
        /// Offsets covered.
        span: u32,
        /// Flag bits.
        flags: u16,
    },
    /// The offsets run over the end of u64.
    #[error("{span} offsets from {base_offset} overflow")]
    Offsets {
        /// First offset.
        base_offset: u64,
        /// Offsets covered.
        span: u32,
    },
    /// Payload lengths out of bounds, or that do not fit the codec.
    #[error(
        "payload of {stored} stored and {raw} raw bytes is not possible (limit {})",
        crate::MAX_RAW_BYTES
    )]
    Lengths {
        /// Stored length.
        stored: u32,
        /// Raw length.
        raw: u32,
    },
    /// The payload checksum does not match.
    #[error("payload checksum is {computed:#010x}, stored is {stored:#010x}")]
    PayloadChecksum {
        /// Stored in the header.
        stored: u32,
        /// Of the stored payload.
        computed: u32,
    },
    /// The payload does not decompress to exactly the raw length.
    #[error("payload of {stored} bytes does not decompress to {raw} bytes")]
    Decompress {
        /// Stored length.
        stored: u32,
        /// Raw length, which is also the bound for decompression.
        raw: u32,
    },
    /// A column runs over the end of the payload.
    #[error("{column} column needs payload bytes up to {need} of {have}")]
    ColumnShort {
        /// Which column.
        column: &'static str,
        /// First byte position after it.
        need: usize,
        /// Raw payload bytes.
        have: usize,
    },
    /// The columns end before the payload does.
    #[error("columns take {used} of {raw} payload bytes")]
    Unused {
        /// Bytes used.
        used: usize,
        /// Raw payload bytes.
        raw: usize,
    },
    /// The array of a column violates its rule: order, range or padding.
    #[error("{column} column breaks its rule ({rule}) at element {at}")]
    Column {
        /// Which column.
        column: &'static str,
        /// The rule.
        rule: &'static str,
        /// First element that violates it.
        at: usize,
    },
    /// The last timestamp does not match the header's.
    #[error("the last timestamp is {base} + {last}, the header's maximum is {stored}")]
    MaxTimestamp {
        /// Maximum timestamp of the header, ns.
        stored: i64,
        /// Base timestamp of the header, ns.
        base: i64,
        /// Delta of the last record, ns; 0 when there is no such column.
        last: u32,
    },
}

impl DamageError {
    /// Whether the bytes are intact (their header checksum matched) but need a version or a feature that this one lacks. Never
    /// truncate such bytes as a torn tail or quarantine them as damage.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::Version { .. }
                | Self::Codec { .. }
                | Self::Flags { .. }
                | Self::Columns { .. }
                | Self::Reserved { .. }
        ) || self.is_locked()
    }

    /// Whether the bytes are intact (their checksums matched) but none of the keys opens them. This is not damage: with the right
    /// key they are readable.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Encrypted { .. } | Self::Authentication { .. })
    }
}

/// A record that cannot go into a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The batch is full: seal it and push the record into a new one.
    #[error("batch is full")]
    Full,
    /// One record alone is larger than a batch may be.
    #[error("record of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Size of the record.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// A header key is longer than its length field allows.
    #[error("header key of {bytes} bytes is larger than the limit of 65535")]
    HeaderKeyTooLarge {
        /// Size of the key.
        bytes: usize,
    },
}
