//! Copies for NATS of what was committed: by the records as they came in, or by where they lie in the log.
//!
//! Mostly nobody listens, and a copy is dropped once that is known. So small appends of one group that lie side by side are
//! one copy, to be read from the log, until somebody is heard of; then each goes out as it came.
use super::commit::InFlight;
use super::{IncomingRecord, Partition, Rejected};
use crate::nats::NatsCopy;
use std::sync::atomic::{AtomicBool, Ordering};

/// From so many records on an append's copy is made from the log.
const LARGE: usize = 16;

/// Whether the copies of a partition have listeners.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Somebody listens, as far as is known.
    now: AtomicBool,
}

impl Heard {
    /// What a copy for NATS needs of the records of an append. The others need not wait for the sync.
    pub fn to_copy(
        &self,
        copy: NatsCopy,
        records: Vec<IncomingRecord>,
        rejected: &[Rejected],
    ) -> Vec<IncomingRecord> {
        let is_unheard = !self.now.load(Ordering::Relaxed);
        let is_stored = (records.len() >= LARGE || is_unheard) && rejected.is_empty();
        if copy == NatsCopy::None || is_stored {
            Vec::new()
        } else {
            records
        }
    }
}

/// Copies that are made from the log: mode, offset of the first and how many.
type Stored = (NatsCopy, u64, u32);

impl Partition {
    /// Tells whether somebody listens to its copies.
    pub(crate) fn set_heard(&self, is_heard: bool) {
        let heard = &self.0.heard.now;
        if heard.load(Ordering::Relaxed) != is_heard {
            heard.store(is_heard, Ordering::Relaxed);
        }
    }

    /// Queues copies of a group that was committed, in offset order.
    pub(super) fn copy_group(&self, group: &[InFlight]) {
        let mut stored: Option<Stored> = None;
        for append in group.iter().filter(|append| append.is_copied()) {
            let mode = append.copy;
            match &mut stored {
                _ if !append.records.is_empty() => {
                    self.copy_stored(stored.take());
                    let (records, rejected) = (&append.records, &append.rejected);
                    self.copy_records(mode, append.base_offset, records, rejected);
                }
                Some((of, base, count))
                    if *of == mode && *base + u64::from(*count) == append.base_offset =>
                {
                    *count += append.count;
                }
                _ => self.copy_stored(stored.replace((mode, append.base_offset, append.count))),
            }
        }
        self.copy_stored(stored);
    }

    fn copy_stored(&self, stored: Option<Stored>) {
        if let Some((mode, base, count)) = stored {
            let nats = &self.0.shared.nats;
            nats.try_copy_stored(self, mode, base, count);
        }
    }

    fn copy_records(
        &self,
        mode: NatsCopy,
        base: u64,
        records: &[IncomingRecord],
        rejected: &[Rejected],
    ) {
        let nats = &self.0.shared.nats;
        if rejected.is_empty() {
            nats.try_copy(self, mode, base, records);
            return;
        }
        let refused = |index: usize| {
            rejected
                .binary_search_by_key(&index, |one| one.index as usize)
                .is_ok()
        };
        let kept: Vec<_> = records
            .iter()
            .enumerate()
            .filter(|(i, _)| !refused(*i))
            .map(|(_, record)| record.clone())
            .collect();
        nats.try_copy(self, mode, base, &kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::RejectReason;

    #[test]
    fn records_are_kept_for_copies_that_somebody_waits_for() {
        let records = |count| vec![IncomingRecord::default(); count];
        let kept = |heard: &Heard, count| {
            let copy = NatsCopy::Envelope;
            heard.to_copy(copy, records(count), &[]).len()
        };
        let heard = Heard::default();
        assert_eq!(kept(&heard, 1), 0);
        heard.now.store(true, Ordering::Relaxed);
        assert_eq!((kept(&heard, 1), kept(&heard, LARGE)), (1, 0));
        assert_eq!(heard.to_copy(NatsCopy::None, records(1), &[]).len(), 0);
        let rejected = [Rejected {
            index: 1,
            reason: RejectReason::TooLarge,
        }];
        let unheard = Heard::default();
        let left = unheard.to_copy(NatsCopy::Value, records(2), &rejected);
        assert_eq!(left.len(), 2, "offsets do not tell which");
    }
}
