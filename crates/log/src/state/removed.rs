//! Counts of what retention and trims removed.
use crate::segment::Segment;
use crate::{ArchiveWait, ReaderHold};
use std::sync::Arc;

/// Segments that retention and trims have removed from a log since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many.
    pub segments: u64,
    /// Their records.
    pub records: u64,
    /// Their bytes of batches.
    pub bytes: u64,
    /// Records of those that an archive did not have when the wait for it ended ([`ArchiveWait`]).
    pub unarchived: u64,
    /// Records of those that a reader had not processed when its hold ended ([`ReaderHold`]).
    pub unread: u64,
}

impl Removed {
    /// Counts segments.
    pub(crate) fn add(&mut self, segments: &[Arc<Segment>]) {
        self.segments += segments.len() as u64;
        self.records += segments
            .iter()
            .map(|segment| segment.records())
            .sum::<u64>();
        self.bytes += segments
            .iter()
            .map(|segment| segment.batch_bytes())
            .sum::<u64>();
    }

    /// Counts records of segments that retention removes before an archive has them, or readers have processed them.
    pub(crate) fn add_needed(
        &mut self,
        segments: &[Arc<Segment>],
        archive: Option<ArchiveWait>,
        hold: Option<ReaderHold>,
    ) {
        if let Some(wait) = archive {
            self.unarchived += records_from(segments, wait.archived_to);
        }
        if let Some(hold) = hold {
            self.unread += records_from(segments, hold.unread_from);
        }
    }
}

/// How many records have an offset of `from` or higher; of a segment that compaction has rewritten at most so many.
fn records_from(segments: &[Arc<Segment>], from: u64) -> u64 {
    let each = segments.iter().map(|segment| {
        let from = segment.base_offset.max(from);
        segment
            .records()
            .min(segment.next_offset().saturating_sub(from))
    });
    each.sum()
}
