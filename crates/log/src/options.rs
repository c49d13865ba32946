//! Settings of a log.
use bascule_record::crypt::KeyRing;
use bascule_record::{Codec, Header};

/// What an acknowledgement of this log means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Synced to disk.
    #[default]
    Disk,
    /// In the page cache.
    Memory,
}

/// Which log this is. Stored in every batch and segment and checked on open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogId {
    /// Unique id of this creation of the partition.
    pub incarnation: u64,
    /// Partition number.
    pub partition: u32,
}

impl LogId {
    /// The log that a batch belongs to.
    pub(crate) fn of(header: &Header) -> Self {
        Self {
            incarnation: header.incarnation,
            partition: header.partition,
        }
    }
}

/// Settings of one log. All may change between opens.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Durability class.
    pub durability: Durability,
    /// A segment is sealed when it has at least this many bytes (a batch is never split, so it overshoots); 1 to 2 GiB,
    /// values outside are taken as the nearest bound.
    pub segment_bytes: u64,
    /// A non-empty active segment is sealed when its first record is older, ns; 0 = never by age.
    pub segment_age_ns: i64,
    /// Step in which the active segment is written ahead with zeros, bytes.
    pub preallocate_bytes: u64,
    /// Compression of batches that the log itself seals (the metadata log); partitions seal before they append.
    pub codec: Codec,
    /// Keys of the stream. With a current one new batches are encrypted; without any they are not.
    pub keys: KeyRing,
}
impl Default for LogOptions {
    /// 256 MiB segments, never by age, zeros in steps of 16 MiB, durability `disk`, no compression, no
    /// encryption.
    fn default() -> Self {
        Self {
            durability: Durability::Disk,
            segment_bytes: 256 << 20,
            segment_age_ns: 0,
            preallocate_bytes: 16 << 20,
            codec: Codec::None,
            keys: KeyRing::default(),
        }
    }
}

/// What may be removed from the start of a log, whole sealed segments only. 0 = unlimited, each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Remove segments whose last record is older, ns.
    pub age_ns: i64,
    /// Keep at most this many bytes (rule of liftbridge §5.5: the segment that exceeds goes).
    pub bytes: u64,
    /// Keep at most this many records, by the same rule.
    pub messages: u64,
    /// A segment stays, whatever the limits, until this log has had its last batch for this time, ns of monotonic time; a batch
    /// of an earlier run counts from the opening.
    pub min_age_ns: i64,
}

impl LogOptions {
    /// A copy with values outside their ranges replaced by the nearest bound.
    pub(crate) fn bounded(mut self) -> Self {
        self.segment_bytes = self.segment_bytes.clamp(1, 2 << 30);
        self
    }
}
