//! Open subscriptions and scans of all protocols: how many there may be, and how much each may read ahead.
use crate::limits::Limits;
use crate::statistics::Statistics;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Least that a subscription reads ahead, bytes.
const MIN_SHARE: usize = 16 << 10;

/// The places of one broker: `limits.subscriptions`.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    open: AtomicUsize,
    most: usize,
    /// `limits.delivery_bytes`.
    delivery_bytes: usize,
    statistics: Arc<Statistics>,
}

impl Subscriptions {
    /// All places free.
    pub(crate) fn new(limits: &Limits, statistics: Arc<Statistics>) -> Self {
        Self {
            open: AtomicUsize::new(0),
            most: limits.subscriptions,
            delivery_bytes: limits.delivery_bytes,
            statistics,
        }
    }

    /// A place until the slot is dropped.
    ///
    /// # Errors
    /// How many there are, when all are taken; counted.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Slot, usize> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        self.statistics.subscriptions_open.add(1);
        let slot = Slot(self.clone());
        if before < self.most {
            return Ok(slot);
        }
        self.statistics.subscriptions_refused.add(1);
        Err(self.most)
    }

    /// Bytes that one subscription or scan may read ahead: an equal share of `limits.delivery_bytes`, with a minimum that lets it
    /// make progress.
    pub(crate) fn delivery_share(&self) -> usize {
        let open = self.open.load(Ordering::Relaxed).max(1);
        (self.delivery_bytes / open).max(MIN_SHARE)
    }
}

/// One of the places.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Subscriptions>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.statistics.subscriptions_open.sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_what_is_read_ahead_is_shared_by_those_that_are_open() {
        let limits = Limits {
            subscriptions: 2,
            delivery_bytes: 4 * MIN_SHARE,
            ..Limits::default()
        };
        let statistics = Arc::new(Statistics::default());
        let subscriptions = Arc::new(Subscriptions::new(&limits, statistics.clone()));
        let _first = subscriptions.take().unwrap();
        assert_eq!(subscriptions.delivery_share(), 4 * MIN_SHARE);
        let second = subscriptions.take().unwrap();
        assert_eq!(subscriptions.delivery_share(), 2 * MIN_SHARE);
        assert_eq!(subscriptions.take().unwrap_err(), 2);
        assert_eq!(statistics.subscriptions_refused.get(), 1);
        assert_eq!(statistics.subscriptions_open.get(), 2);
        drop(second);
        subscriptions.take().unwrap();
    }
}
