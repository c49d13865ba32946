//! Counters and gauges of the data plane; names and meaning in `specs/metrics.toml`.
use std::sync::atomic::{AtomicU64, Ordering};

/// A monotonic counter or a gauge.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);
impl Cell {
    /// Adds.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    /// Takes away (gauges).
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }
    /// Reads.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All of them. Add a field here and a line in `specs/metrics.toml` together.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Statistics {
    pub records_appended: Cell,
    pub bytes_appended: Cell,
    pub append_errors: Cell,
    pub records_delivered: Cell,
    pub nats_messages: Cell,
    pub nats_enveloped: Cell,
    pub nats_dropped: Cell,
    pub nats_slow_consumer: Cell,
    pub nats_own_copies_dropped: Cell,
    pub nats_acks_sent: Cell,
    pub nats_acks_withheld: Cell,
    pub nats_copies_sent: Cell,
    pub nats_copies_dropped: Cell,
    pub nats_copies_skipped: Cell,
    pub flight_rows_read: Cell,
    pub flight_rows_written: Cell,
    pub subscriptions_open: Cell,
    pub events_dropped: Cell,
    pub inflight_bytes: Cell,
}
