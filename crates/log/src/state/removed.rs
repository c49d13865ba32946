//! Counts of what retention and trims removed.
use crate::segment::Segment;
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
}
