//! Readers of a log: lock-free, any number, on any thread.
use crate::ReadError;
use crate::read::cursor::Cursor;
use crate::read::lookup::{self, Predecessor};
use crate::read::produced::ProducedScan;
use crate::segment::NO_TIME;
use crate::segment::damage::Damage;
use crate::state::shared::Shared;
use bascule_record::crypt::KeyRing;
use bascule_record::{Batch, DamageError, Header};
use bytes::Bytes;
use std::sync::Arc;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Only what is in the page cache (`preadv2` with `RWF_NOWAIT`; falls back to blocking where unsupported).
    NoWait,
    /// Wait for the disk.
    Blocking,
}

/// A cheap, cloneable view of a log. Offsets are u64; ends are exclusive.
#[derive(Clone, Debug)]
pub struct LogReader {
    pub(crate) shared: Arc<Shared>,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// First readable offset.
    pub fn log_start(&self) -> u64 {
        self.shared.log_start()
    }

    /// Next offset to be written.
    pub fn log_end(&self) -> u64 {
        self.shared.log_end()
    }

    /// End up to which everything is synced.
    pub fn durable_end(&self) -> u64 {
        self.shared.durable_end()
    }

    /// End of the committed records, which readers may see.
    pub fn high_watermark(&self) -> u64 {
        self.shared.high_watermark()
    }

    /// Timestamp of the last appended record, ns; `None` when nothing was ever appended.
    pub fn last_timestamp(&self) -> Option<i64> {
        Some(self.shared.last_timestamp()).filter(|time| *time != NO_TIME)
    }

    /// Bytes on disk (batches, all segments).
    pub fn bytes(&self) -> u64 {
        self.shared
            .segments()
            .iter()
            .map(|segment| segment.batch_bytes())
            .sum()
    }

    /// Bytes of batches on disk from about `offset` to the log end: from the last entry of the sparse index at or before it, so
    /// up to one index interval (64 KiB) and one batch too many. Reads nothing from the disk.
    pub fn bytes_from(&self, offset: u64) -> u64 {
        let segments = self.shared.segments();
        let reached = segments
            .iter()
            .filter(|segment| segment.next_offset() > offset);
        reached.map(|segment| segment.bytes_from(offset)).sum()
    }

    /// Base offset of the first segment, at most the log start, which may lie inside of a segment.
    pub fn first_stored(&self) -> u64 {
        let segments = self.shared.segments();
        let first = segments.first().map(|first| first.base_offset);
        first.unwrap_or_else(|| self.shared.log_end())
    }

    /// First offset of the active segment; retention and compaction may remove records below it.
    pub fn active_base_offset(&self) -> u64 {
        self.shared
            .segments()
            .last()
            .map_or(0, |segment| segment.base_offset)
    }

    /// Segments on disk, the active one included; at least 1.
    pub fn segment_count(&self) -> usize {
        self.shared.segments().len()
    }

    /// First offset of each segment on disk, ascending; the last one is the active one's.
    pub fn segment_starts(&self) -> Vec<u64> {
        let segments = self.shared.segments();
        segments.iter().map(|each| each.base_offset).collect()
    }

    /// Returns whether the log was closed or deleted.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// First offset below the high watermark whose timestamp is ≥ `timestamp`; `None` when there is none. May wait for the disk.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] and [`ReadError::Locked`] for the batch that decides; [`ReadError::Io`]; [`ReadError::Closed`].
    pub fn offset_at_or_after(&self, timestamp: i64) -> Result<Option<u64>, ReadError> {
        lookup::first_at_or_after(&self.shared, timestamp)
    }

    /// Last offset below the high watermark whose timestamp is ≤ `timestamp`; `None` when there is none. May wait for the disk.
    ///
    /// # Errors
    /// As [`LogReader::offset_at_or_after`].
    pub fn offset_at_or_before(&self, timestamp: i64) -> Result<Option<u64>, ReadError> {
        lookup::last_at_or_before(&self.shared, timestamp)
    }

    /// The identity of the record before `offset`, by which a reader that stored the offset can detect later that the log was
    /// replaced. `None` when there is no such record, or when retention, compaction or damage removed it. May wait for the disk.
    ///
    /// # Errors
    /// [`ReadError::Io`]; [`ReadError::Closed`].
    pub fn before(&self, offset: u64) -> Result<Option<Predecessor>, ReadError> {
        lookup::before(&self.shared, offset)
    }

    /// A scan that counts the committed records from the offset `from` on that the producer `id` stored under `epoch`, each with its
    /// number as sequence, from 0 and below 2^32. It reads the log from there to the high watermark, in parts.
    pub fn produced(&self, id: u64, epoch: u32, from: u64) -> ProducedScan {
        ProducedScan::new(Arc::clone(&self.shared), id, epoch, from)
    }

    /// The error for a batch that was read and whose payload is damaged. The caller that checks payloads reports damage by this
    /// call, so that it is recorded and shown.
    pub fn damaged(&self, header: &Header) -> ReadError {
        lookup::whole_batch(&self.shared, header)
    }

    /// The known damaged ranges from the log start on, ordered by offset.
    pub fn quarantine(&self) -> Vec<Damage> {
        self.shared.quarantine.list(self.shared.log_start())
    }

    /// Sets the listener for new damage, called once for each range on the thread that met it. Only the first listener of a log
    /// counts.
    pub fn on_damage(&self, listener: impl Fn(&Damage) + Send + Sync + 'static) {
        self.shared.quarantine.listen(Box::new(listener));
    }

    /// The keys of this log as they are now.
    pub fn keys(&self) -> KeyRing {
        self.shared.keys()
    }

    /// A checked view of one batch (of [`bascule_record::Batches`]) that a cursor of this log returned.
    ///
    /// # Errors
    /// See [`Batch::open`]. [`DamageError::is_locked`]: the batch is intact and needs a key that is missing.
    pub fn open(&self, bytes: &Bytes) -> Result<Batch, DamageError> {
        Batch::open(bytes, &self.keys())
    }

    /// A position for sequential reading that starts at `offset` (or the next existing one).
    /// `offset` below the log start starts at the log start; beyond the high watermark is allowed (waits for it).
    pub fn cursor(&self, offset: u64) -> Cursor {
        Cursor::new(Arc::clone(&self.shared), offset)
    }
}
