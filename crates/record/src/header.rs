//! The 128-byte batch header.
//!
//! All integers little-endian. The same table stands in `specs/formats/batch.md`.
//!
//! | Offset | Size | Type | Meaning |
//! |---|---|---|---|
//! | 0 | 4 | bytes | magic `BSC1` |
//! | 4 | 1 | u8 | format version, 1 |
//! | 5 | 1 | u8 | codec: 0 none, 1 lz4, 2 zstd |
//! | 6 | 2 | u16 | flags: 1 SPARSE, 2 ENCRYPTED, 4 PRODUCER, 16 REWRITTEN; others written as 0, refused by readers |
//! | 8 | 8 | u64 | incarnation of the partition |
//! | 16 | 4 | u32 | partition number |
//! | 20 | 2 | u16 | column bits 0–9; others written as 0, refused by readers |
//! | 22 | 2 | u16 | reserved, 0; refused otherwise |
//! | 24 | 8 | u64 | leader epoch |
//! | 32 | 8 | u64 | base offset |
//! | 40 | 4 | u32 | span: offsets covered, at least 1 |
//! | 44 | 4 | u32 | count of records, ≤ span and ≤ 2^24; equal to span unless SPARSE |
//! | 48 | 8 | i64 | base timestamp, ns since 1970 |
//! | 56 | 8 | i64 | maximum timestamp, ns since 1970 |
//! | 64 | 8 | u64 | producer id, 0 = none (then 72 and 76 are 0 too) |
//! | 72 | 4 | u32 | producer epoch |
//! | 76 | 4 | u32 | base sequence |
//! | 80 | 4 | u32 | stored length of the payload, bytes |
//! | 84 | 4 | u32 | raw length of the payload, bytes, ≤ 2^28 |
//! | 88 | 4 | u32 | key id, ≥ 1 with ENCRYPTED, else 0 |
//! | 92 | 12 | bytes | nonce, 0 unless ENCRYPTED |
//! | 104 | 4 | u32 | CRC-32C of the stored payload |
//! | 108 | 4 | u32 | chain: link of the previous batch, 0 for the first of an incarnation |
//! | 112 | 4 | u32 | kept link, 0 unless REWRITTEN |
//! | 116 | 8 | u64 | reserved, 0; refused otherwise |
//! | 124 | 4 | u32 | CRC-32C of bytes 0–123 |
use crate::crypt::{NONCE_BYTES, TAG_BYTES};
use crate::planted_bug::{self, PlantedBug};
use crate::{Codec, DamageError};

/// Length of a batch header, bytes.
pub const HEADER_BYTES: usize = 128;
/// First four bytes of a batch, `BSC1`.
pub const MAGIC: [u8; 4] = *b"BSC1";
/// Format version written by this crate.
pub const VERSION: u8 = 1;
/// Most raw payload bytes of a batch, inclusive. Bounds what a reader allocates for one.
pub const MAX_RAW_BYTES: u32 = 256 << 20;
/// Most records of a batch, inclusive.
pub const MAX_RECORDS: u32 = 1 << 24;
/// Bytes of a header that encryption authenticates, from its start; the key id follows.
const ASSOCIATED_BYTES: usize = 64;

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
    const KNOWN: u16 = Self::SPARSE | Self::ENCRYPTED | Self::PRODUCER | Self::REWRITTEN;

    /// Whether `flag` (one of the constants) is set.
    pub fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

/// Column bits of a batch (header byte 20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns(pub u16);
impl Columns {
    /// Offset deltas, only with [`Flags::SPARSE`].
    pub const OFFSET: u16 = 1;
    /// Timestamp deltas; absent = all equal the base timestamp.
    pub const TIMESTAMP: u16 = 1 << 1;
    /// Values; absent = all empty.
    pub const VALUE: u16 = 1 << 2;
    /// Bitmap of null values; absent = none is null.
    pub const NULL: u16 = 1 << 3;
    /// Keys; absent = no record has one.
    pub const KEY: u16 = 1 << 4;
    /// Headers; absent = no record has any.
    pub const HEADER: u16 = 1 << 5;
    /// Subjects; absent = all records have the partition's own.
    pub const SUBJECT: u16 = 1 << 6;
    /// Reply subjects; absent = no record has one.
    pub const REPLY: u16 = 1 << 7;
    /// Message ids; absent = none is given.
    pub const ID: u16 = 1 << 8;
    /// Origin times; absent = none is given.
    pub const ORIGIN: u16 = 1 << 9;
    const KNOWN: u16 = (1 << 10) - 1;

    /// Whether `column` (one of the constants) is present.
    pub fn has(self, column: u16) -> bool {
        self.0 & column != 0
    }
}

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

impl Producer {
    /// Ids from here on are those of exactly-once sinks: nobody else appends under them, and clients are refused.
    pub const FIRST_SINK_ID: u64 = 1 << 63;
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
    /// Offsets covered, at least 1; the next batch's base is `base_offset + span`.
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
    /// Payload bytes after decompression, at most [`MAX_RAW_BYTES`].
    pub raw_bytes: u32,
    /// Key id for encryption, 0 = none.
    pub key_id: u32,
    /// Nonce for encryption.
    pub nonce: [u8; NONCE_BYTES],
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
    /// Reads and checks a header, which are the first 128 bytes of `bytes`: magic, checksum, then version, codec, flags,
    /// column bits, reserved fields, counts and lengths. The checksum comes before everything but the magic, so that a
    /// damaged byte is never taken for a newer version. An ENCRYPTED header reads well; its payload does not.
    ///
    /// # Errors
    /// [`DamageError`] naming the first test that failed; see [`DamageError::is_unsupported`].
    pub fn read(bytes: &[u8]) -> Result<Self, DamageError> {
        let short = DamageError::Short {
            need: HEADER_BYTES,
            have: bytes.len(),
        };
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(short)?;
        let found = field::<0, 4>(bytes);
        // As numbers: two words of memory would be compared by a call.
        if u32::from_le_bytes(found) != u32::from_le_bytes(MAGIC) {
            return Err(DamageError::Magic { found });
        }
        let (stored, computed) = (
            u32::from_le_bytes(field::<124, 4>(bytes)),
            crc32c::crc32c(&bytes[..124]),
        );
        if stored != computed && !planted_bug::is_active(PlantedBug::HeaderChecksumIgnored) {
            return Err(DamageError::HeaderChecksum { stored, computed });
        }
        let header = Self::decode(bytes, stored)?;
        header.check_flag_fields()?;
        header.check_bounds()?;
        Ok(header)
    }

    /// What the next batch of the same history carries as `chain`: the header checksum, or the kept link when REWRITTEN.
    pub fn link(&self) -> u32 {
        if self.flags.has(Flags::REWRITTEN) {
            self.kept_link
        } else {
            self.header_crc
        }
    }

    /// Header and stored payload together, bytes.
    pub fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.stored_bytes as usize
    }

    /// Checks the checksum of the stored payload. `batch`: the batch of this header, header included.
    ///
    /// # Errors
    /// [`DamageError::PayloadChecksum`].
    pub fn check_payload(&self, batch: &[u8]) -> Result<(), DamageError> {
        let computed = crc32c::crc32c(batch.get(HEADER_BYTES..).unwrap_or_default());
        if computed == self.payload_crc {
            return Ok(());
        }
        Err(DamageError::PayloadChecksum {
            stored: self.payload_crc,
            computed,
        })
    }

    /// First offset after this batch. Does not overflow for a header that was read.
    pub fn next_offset(&self) -> u64 {
        self.base_offset + u64::from(self.span)
    }

    /// Fields as they stand, once everything unknown was refused.
    #[inline]
    fn decode(bytes: &[u8; HEADER_BYTES], header_crc: u32) -> Result<Self, DamageError> {
        if bytes[4] != VERSION {
            return Err(DamageError::Version { found: bytes[4] });
        }
        let codec = Codec::from_byte(bytes[5]).ok_or(DamageError::Codec { found: bytes[5] })?;
        let flags = Flags(u16::from_le_bytes(field::<6, 2>(bytes)));
        if flags.0 & !Flags::KNOWN != 0 {
            return Err(DamageError::Flags {
                unknown: flags.0 & !Flags::KNOWN,
            });
        }
        let columns = Columns(u16::from_le_bytes(field::<20, 2>(bytes)));
        if columns.0 & !Columns::KNOWN != 0 {
            return Err(DamageError::Columns {
                unknown: columns.0 & !Columns::KNOWN,
            });
        }
        if field::<22, 2>(bytes) != [0; 2] {
            return Err(DamageError::Reserved { at: 22 });
        }
        if field::<116, 8>(bytes) != [0; 8] {
            return Err(DamageError::Reserved { at: 116 });
        }
        let producer = Producer {
            id: u64::from_le_bytes(field::<64, 8>(bytes)),
            epoch: u32::from_le_bytes(field::<72, 4>(bytes)),
            base_sequence: u32::from_le_bytes(field::<76, 4>(bytes)),
        };
        let is_set = producer.id != 0;
        if is_set != flags.has(Flags::PRODUCER)
            || (!is_set && (producer.epoch | producer.base_sequence) != 0)
        {
            return Err(DamageError::FlagField {
                at: 64,
                flags: flags.0,
            });
        }
        Ok(Self {
            codec,
            flags,
            incarnation: u64::from_le_bytes(field::<8, 8>(bytes)),
            partition: u32::from_le_bytes(field::<16, 4>(bytes)),
            columns,
            leader_epoch: u64::from_le_bytes(field::<24, 8>(bytes)),
            base_offset: u64::from_le_bytes(field::<32, 8>(bytes)),
            span: u32::from_le_bytes(field::<40, 4>(bytes)),
            count: u32::from_le_bytes(field::<44, 4>(bytes)),
            base_timestamp: i64::from_le_bytes(field::<48, 8>(bytes)),
            max_timestamp: i64::from_le_bytes(field::<56, 8>(bytes)),
            producer: is_set.then_some(producer),
            stored_bytes: u32::from_le_bytes(field::<80, 4>(bytes)),
            raw_bytes: u32::from_le_bytes(field::<84, 4>(bytes)),
            key_id: u32::from_le_bytes(field::<88, 4>(bytes)),
            nonce: field::<92, 12>(bytes),
            payload_crc: u32::from_le_bytes(field::<104, 4>(bytes)),
            chain: u32::from_le_bytes(field::<108, 4>(bytes)),
            kept_link: u32::from_le_bytes(field::<112, 4>(bytes)),
            header_crc,
        })
    }

    /// Fields that only a flag allows.
    fn check_flag_fields(&self) -> Result<(), DamageError> {
        let contradiction = |at| {
            Err(DamageError::FlagField {
                at,
                flags: self.flags.0,
            })
        };
        if self.columns.has(Columns::OFFSET) != self.flags.has(Flags::SPARSE) {
            return contradiction(20);
        }
        if self.flags.has(Flags::ENCRYPTED) != (self.key_id != 0) {
            return contradiction(88);
        }
        if !self.flags.has(Flags::ENCRYPTED) && self.nonce != [0; 12] {
            return contradiction(92);
        }
        if !self.flags.has(Flags::REWRITTEN) && self.kept_link != 0 {
            return contradiction(112);
        }
        Ok(())
    }

    /// Counts and lengths.
    fn check_bounds(&self) -> Result<(), DamageError> {
        let Self {
            count,
            span,
            base_offset,
            stored_bytes: stored,
            raw_bytes: raw,
            ..
        } = *self;
        let is_dense = !self.flags.has(Flags::SPARSE);
        if span == 0 || count > span || count > MAX_RECORDS || (is_dense && count != span) {
            return Err(DamageError::Count {
                count,
                span,
                flags: self.flags.0,
            });
        }
        if base_offset.checked_add(u64::from(span)).is_none() {
            return Err(DamageError::Offsets { base_offset, span });
        }
        let tag = if self.flags.has(Flags::ENCRYPTED) {
            TAG_BYTES as u32
        } else {
            0
        };
        let is_possible = stored.checked_sub(tag).is_some_and(|stored| {
            if self.codec == Codec::None {
                stored == raw
            } else {
                stored < raw
            }
        });
        if raw > MAX_RAW_BYTES || !is_possible {
            return Err(DamageError::Lengths { stored, raw });
        }
        Ok(())
    }

    /// Writes all fields and a fresh checksum over `out`, and sets `header_crc` to it.
    pub(crate) fn write(&mut self, out: &mut [u8; HEADER_BYTES]) {
        let producer = self.producer.unwrap_or(Producer {
            id: 0,
            epoch: 0,
            base_sequence: 0,
        });
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.codec.to_byte();
        out[6..8].copy_from_slice(&self.flags.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        out[16..20].copy_from_slice(&self.partition.to_le_bytes());
        out[20..22].copy_from_slice(&self.columns.0.to_le_bytes());
        out[22..24].fill(0);
        out[24..32].copy_from_slice(&self.leader_epoch.to_le_bytes());
        out[32..40].copy_from_slice(&self.base_offset.to_le_bytes());
        out[40..44].copy_from_slice(&self.span.to_le_bytes());
        out[44..48].copy_from_slice(&self.count.to_le_bytes());
        out[48..56].copy_from_slice(&self.base_timestamp.to_le_bytes());
        out[56..64].copy_from_slice(&self.max_timestamp.to_le_bytes());
        out[64..72].copy_from_slice(&producer.id.to_le_bytes());
        out[72..76].copy_from_slice(&producer.epoch.to_le_bytes());
        out[76..80].copy_from_slice(&producer.base_sequence.to_le_bytes());
        out[80..84].copy_from_slice(&self.stored_bytes.to_le_bytes());
        out[84..88].copy_from_slice(&self.raw_bytes.to_le_bytes());
        out[88..92].copy_from_slice(&self.key_id.to_le_bytes());
        out[92..104].copy_from_slice(&self.nonce);
        out[104..108].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[108..112].copy_from_slice(&self.chain.to_le_bytes());
        out[112..116].copy_from_slice(&self.kept_link.to_le_bytes());
        out[116..124].fill(0);
        self.header_crc = crc32c::crc32c(&out[..124]);
        out[124..128].copy_from_slice(&self.header_crc.to_le_bytes());
    }
}

/// What encryption authenticates beside the payload: bytes 0–63 of the header and the key id, little-endian.
pub(crate) fn associated_data(
    header: &[u8; HEADER_BYTES],
    key_id: u32,
) -> [u8; ASSOCIATED_BYTES + 4] {
    let mut data = [0; ASSOCIATED_BYTES + 4];
    data[..ASSOCIATED_BYTES].copy_from_slice(&header[..ASSOCIATED_BYTES]);
    data[ASSOCIATED_BYTES..].copy_from_slice(&key_id.to_le_bytes());
    data
}

/// N bytes at AT; out of range does not compile.
#[inline]
fn field<const AT: usize, const N: usize>(bytes: &[u8; HEADER_BYTES]) -> [u8; N] {
    const { assert!(AT + N <= HEADER_BYTES) };
    let mut out = [0; N];
    out.copy_from_slice(&bytes[AT..AT + N]);
    out
}
