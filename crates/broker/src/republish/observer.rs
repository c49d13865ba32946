//! Queues the commits of a partition: the records as they arrived, or their position in the log.
//!
//! Adjacent appends whose records are not kept become one job, which reads them from the log once there is a subscriber;
//! the others are republished as they came.
use super::job::RepublishJobs;
use crate::partition::{CommittedAppend, IncomingRecord, NatsCopy, Partition, Rejected};

impl RepublishJobs {
    /// Queues jobs for appends that were committed, in offset order.
    pub(crate) fn on_commit(
        &self,
        partition: &Partition,
        appends: &mut dyn Iterator<Item = CommittedAppend<'_>>,
    ) {
        let mut pending: Option<Range> = None;
        for append in appends {
            let next = Range::of(&append);
            if append.records.is_empty()
                && let Some(range) = pending.as_mut().filter(|range| range.is_before(&next))
            {
                range.count += next.count;
                continue;
            }
            if let Some(range) = pending.take() {
                self.offer_range(partition, &range);
            }
            if append.records.is_empty() {
                pending = Some(next);
            } else {
                let records = accepted(append.records, append.rejected);
                self.offer(partition, append.mode, append.base_offset, records);
            }
        }
        if let Some(range) = pending {
            self.offer_range(partition, &range);
        }
    }

    fn offer_range(&self, partition: &Partition, range: &Range) {
        let Range { mode, base, count } = *range;
        self.offer_stored(partition, mode, base, count);
    }
}

/// Records that are read from the log.
struct Range {
    mode: NatsCopy,
    /// Offset of the first one.
    base: u64,
    count: u32,
}

impl Range {
    fn of(append: &CommittedAppend<'_>) -> Self {
        Self {
            mode: append.mode,
            base: append.base_offset,
            count: append.count,
        }
    }

    /// Whether `next` continues this one.
    fn is_before(&self, next: &Self) -> bool {
        self.mode == next.mode && self.base + u64::from(self.count) == next.base
    }
}

/// The records that were not rejected.
fn accepted(records: &[IncomingRecord], rejected: &[Rejected]) -> Vec<IncomingRecord> {
    if rejected.is_empty() {
        return records.to_vec();
    }
    let is_rejected = |index: usize| {
        rejected
            .binary_search_by_key(&index, |one| one.index as usize)
            .is_ok()
    };
    let accepted = records.iter().enumerate();
    accepted
        .filter(|(index, _)| !is_rejected(*index))
        .map(|(_, record)| record.clone())
        .collect()
}
