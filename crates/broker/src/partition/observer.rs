//! What a partition reports of its commits.
use super::commit::InFlight;
use super::{IncomingRecord, NatsCopy, Partition, Rejected};
use std::fmt::Debug;

/// Is notified of committed appends. Called on the committer's thread: must not block.
pub trait CommitObserver: Debug + Send + Sync {
    /// These appends, ascending by offset, were committed and are to be republished.
    fn on_commit(
        &self,
        partition: &Partition,
        appends: &mut dyn Iterator<Item = CommittedAppend<'_>>,
    );
}

/// A committed append that is to be republished.
#[derive(Debug)]
pub struct CommittedAppend<'a> {
    /// How it is republished; not [`NatsCopy::None`].
    pub mode: NatsCopy,
    /// Offset of its first record.
    pub base_offset: u64,
    /// Number of records, ≥ 1.
    pub count: u32,
    /// All records, the rejected ones included; empty = read them from the log.
    pub records: &'a [IncomingRecord],
    /// Rejected records, ascending by index into `records`.
    pub rejected: &'a [Rejected],
}

impl<'a> CommittedAppend<'a> {
    pub(super) fn of(append: &'a InFlight) -> Option<Self> {
        let is_new = !append.duplicate && append.count > 0;
        (append.mode != NatsCopy::None && is_new).then_some(Self {
            mode: append.mode,
            base_offset: append.base_offset,
            count: append.count,
            records: &append.records,
            rejected: &append.rejected,
        })
    }
}
