//! Whether small appends keep their records in memory until they are committed, to be republished.
//!
//! Mostly nobody subscribes, and then no record is published again. So records are kept only while a subscriber is known;
//! otherwise they are read from the log once there is one.
use super::{IncomingRecord, NatsCopy, Partition, Rejected};
use std::sync::atomic::{AtomicBool, Ordering};

/// Appends of this many records and more are republished from the log.
const LARGE: usize = 16;

/// Whether the republished records of a partition have a subscriber.
#[derive(Debug, Default)]
pub(super) struct SubscriberHint {
    is_subscribed: AtomicBool,
}

impl SubscriberHint {
    /// The records of an append to keep in memory until the commit.
    pub fn keep(
        &self,
        mode: NatsCopy,
        records: Vec<IncomingRecord>,
        rejected: &[Rejected],
    ) -> Vec<IncomingRecord> {
        let has_none = !self.is_subscribed.load(Ordering::Relaxed);
        // Offsets alone do not tell which records were rejected.
        let is_read_back = (records.len() >= LARGE || has_none) && rejected.is_empty();
        if mode == NatsCopy::None || is_read_back {
            Vec::new()
        } else {
            records
        }
    }
}

impl Partition {
    /// Sets whether the republished records have a subscriber.
    pub(crate) fn set_subscribed(&self, is_subscribed: bool) {
        let known = &self.0.subscriber_hint.is_subscribed;
        if known.load(Ordering::Relaxed) != is_subscribed {
            known.store(is_subscribed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::RejectReason;

    #[test]
    fn small_appends_keep_their_records_while_there_may_be_a_subscriber() {
        let records = |count| vec![IncomingRecord::default(); count];
        let kept = |hint: &SubscriberHint, count| {
            let mode = NatsCopy::Envelope;
            hint.keep(mode, records(count), &[]).len()
        };
        let hint = SubscriberHint::default();
        assert_eq!(kept(&hint, 1), 0);
        hint.is_subscribed.store(true, Ordering::Relaxed);
        assert_eq!((kept(&hint, 1), kept(&hint, LARGE)), (1, 0));
        assert_eq!(hint.keep(NatsCopy::None, records(1), &[]).len(), 0);
        let rejected = [Rejected {
            index: 1,
            reason: RejectReason::TooLarge,
        }];
        let without = SubscriberHint::default();
        let left = without.keep(NatsCopy::Value, records(2), &rejected);
        assert_eq!(left.len(), 2, "offsets do not tell which was rejected");
    }
}
