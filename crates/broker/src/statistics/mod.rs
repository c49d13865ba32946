//! Counters and gauges of the data plane; names and meaning in `specs/metrics.toml`.
mod calls;
mod forwarded;
mod peer_refusals;
mod publish_errors;
mod reported;

pub use calls::CallCounts;
pub(crate) use calls::Method;
pub use forwarded::Forwarded;
pub use peer_refusals::PeerRefusals;
pub use publish_errors::PublishErrors;
pub(crate) use reported::Reported;

use bascule_log::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A monotonic counter or a gauge.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);
impl Counter {
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

macro_rules! statistics {
    ($($name:ident),* $(,)?) => {
        /// All of them. A name here has a line in `specs/metrics.toml`; a test compares them.
        #[derive(Debug, Default)]
        #[allow(missing_docs)]
        pub struct Statistics {
            $(pub $name: Counter,)*
            /// From the arrival of an append to its commit.
            pub append_duration: Histogram,
            /// From the arrival of an append to the moment its partition's writer takes it.
            pub queue_wait: Histogram,
            /// Calls that have ended.
            pub calls: CallCounts,
            /// Records that were not stored.
            pub publish_errors: PublishErrors,
            /// Connections of other brokers that were refused.
            pub peer_refusals: Arc<PeerRefusals>,
            /// Appends for partitions that other brokers lead.
            pub forwarded: Forwarded,
        }

        impl Statistics {
            /// Name and value of each.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

statistics! {
    records_appended,
    bytes_appended,
    batches_appended,
    append_errors,
    records_delivered,
    bytes_delivered,
    nats_messages,
    nats_enveloped,
    nats_malformed,
    nats_headers_unusable,
    nats_refused,
    nats_stored,
    nats_dropped,
    nats_slow_consumer,
    nats_gaps,
    nats_gap_nanos,
    nats_own_copies_dropped,
    nats_acks_sent,
    nats_acks_withheld,
    jetstream_acks_sent,
    jetstream_duplicates,
    jetstream_refused,
    nats_copies_sent,
    nats_copies_dropped,
    nats_copies_skipped,
    nats_copy_headers_left_out,
    flight_rows_read,
    flight_bytes_read,
    flight_rows_written,
    subscriptions_open,
    damaged_ranges,
    damaged_offsets,
    subscriptions_refused,
    accept_errors,
    handshakes_failed,
    connections_refused,
    calls_refused,
    scrubbed_bytes,
    scrubbed_segments,
    scrubbed_partitions,
    retention_segments,
    retention_records,
    retention_bytes,
    retention_unarchived,
    retention_unread,
    compaction_runs,
    compaction_errors,
    compaction_records,
    compaction_bytes,
    compactions_open,
    linked_rows,
    links_waiting,
}
