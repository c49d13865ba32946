//! Memory bounds for waiting and uncommitted appends, of one partition and of the whole broker.
//!
//! Bytes are counted; every record costs at least its share of the record bound, so one number bounds both.
use super::{Append, AppendError, Payload};
use crate::limits::Limits;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a record occupies in memory beside its bytes, about.
const RECORD_OVERHEAD: usize = 256;

/// Budget that an append holds until it is answered.
#[derive(Debug)]
pub(super) struct AppendReservation {
    _partition: OwnedSemaphorePermit,
    _broker: OwnedSemaphorePermit,
}

/// The two budgets.
#[derive(Debug)]
pub(super) struct AppendBudget {
    partition: Arc<Semaphore>,
    broker: Arc<Semaphore>,
    record_share: usize,
    most: u32,
}

impl AppendBudget {
    /// `broker`: the budget that all partitions share.
    pub fn new(limits: &Limits, broker: Arc<Semaphore>) -> Self {
        let most = limits
            .queue_bytes
            .min(limits.inflight_bytes)
            .min(u32::MAX as usize);
        Self {
            partition: Arc::new(Semaphore::new(limits.queue_bytes)),
            broker,
            record_share: limits.queue_bytes / limits.queue_records.max(1),
            most: most as u32,
        }
    }

    /// Waits until `cost` ([`AppendBudget::cost`]) is free, and reserves it. Fair: callers get it in the order they asked.
    pub async fn reserve(&self, cost: u32) -> Result<AppendReservation, AppendError> {
        let partition = self
            .partition
            .clone()
            .acquire_many_owned(cost)
            .await
            .map_err(|_| AppendError::Closed)?;
        let broker = self
            .broker
            .clone()
            .acquire_many_owned(cost)
            .await
            .map_err(|_| AppendError::Closed)?;
        Ok(AppendReservation {
            _partition: partition,
            _broker: broker,
        })
    }

    /// Reserves the cost of an append if that much is free.
    pub fn try_reserve(&self, append: &Append) -> Option<AppendReservation> {
        let cost = self.cost(append);
        let partition = self.partition.clone().try_acquire_many_owned(cost).ok()?;
        let broker = self.broker.clone().try_acquire_many_owned(cost).ok()?;
        Some(AppendReservation {
            _partition: partition,
            _broker: broker,
        })
    }

    /// Refuses all further appends, and those that wait.
    pub fn close(&self) {
        self.partition.close();
    }

    /// What an append occupies. Never more than the whole budget, so that any single append can enter an idle partition.
    pub fn cost(&self, append: &Append) -> u32 {
        let (bytes, records) = match &append.payload {
            Payload::Sealed(batch) => (batch.batch_bytes(), 1),
            Payload::Records(records) => (
                records
                    .iter()
                    .map(|record| record.received_bytes as usize + RECORD_OVERHEAD)
                    .sum(),
                records.len(),
            ),
        };
        let cost = bytes.max(records * self.record_share);
        u32::try_from(cost).unwrap_or(u32::MAX).clamp(1, self.most)
    }
}
