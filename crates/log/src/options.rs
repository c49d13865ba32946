//! Settings of a log.
use bascule_record::crypt::KeyRing;
use bascule_record::{Codec, Header};

/// When a record is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When it is synced to disk.
    #[default]
    Disk,
    /// When it is in the page cache.
    Memory,
}

/// Identifies a log. Stored in every batch and segment and checked on open.
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
    /// Size in bytes at which the active segment is sealed: 1 to 2^31. A value outside this range is replaced by the nearest
    /// bound. Batches are not split, so a segment may be larger by up to one batch; it is larger still while no space or file
    /// descriptor is left for the next segment.
    pub segment_bytes: u64,
    /// Age of the first record, in ns, at which the active segment is sealed; 0 or less = no age limit.
    pub segment_age_ns: i64,
    /// How far zeros are written ahead of the end of the active segment, bytes. A segment with fewer bytes than that gets as
    /// many zeros as it has bytes, at least 256 KiB; zeros never exceed `segment_bytes`. 0 = no zeros ahead.
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

/// Limits beyond which whole sealed segments are removed from the start of a log. A limit of 0 does not apply; a segment is
/// removed when any other limit requires it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Maximum age of the last record of a segment, ns. If its time is unknown, the time since the segment was sealed or the
    /// log was opened counts.
    pub age_ns: i64,
    /// Maximum size of the log in bytes of batches. Segments are counted from the newest back, the active one included; the
    /// first one with which the sum exceeds the limit is removed with all older ones. The newest segment with records stays,
    /// however large (liftbridge §5.5).
    pub bytes: u64,
    /// Maximum number of records; segments are counted as for `bytes`.
    pub messages: u64,
    /// Minimum time before any limit removes a segment, ns of monotonic time. It begins when the segment is sealed, or when the
    /// log is opened if an earlier run sealed it.
    pub min_age_ns: i64,
    /// Which records wait for an archive; `None` = none.
    pub archive: Option<ArchiveWait>,
    /// Which records readers need; `None` = none.
    pub hold: Option<ReaderHold>,
}

/// Records that retention keeps, whatever its limits, until an archive has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveWait {
    /// The archive has every record below this offset.
    pub archived_to: u64,
    /// The wait ends for segments beyond this size of the log, counted as for [`Retention::bytes`]; 0 = never.
    pub max_bytes: u64,
}

/// Records that retention keeps, whatever its limits, because readers have not processed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderHold {
    /// Records from this offset on stay.
    pub from: u64,
    /// A reader is known not to have processed the records from this offset on: if such records are removed, they are counted.
    pub unread_from: u64,
    /// The hold ends for segments beyond this size of the log, counted as for [`Retention::bytes`]; 0 = never.
    pub max_bytes: u64,
}

impl LogOptions {
    /// A copy with values outside their ranges replaced by the nearest bound.
    pub(crate) fn bounded(mut self) -> Self {
        self.segment_bytes = self.segment_bytes.clamp(1, 2 << 30);
        self
    }
}
