//! Scrubs of open partitions, at a rate, and what is known of their damage.
use super::{Engine, EngineError};
use crate::clock::now_ns;
use crate::tools::damage_json;
use bascule_log::integrity::Scrubbed;
use bascule_wire::ErrorCode;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval at which a paused scrub checks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

impl Engine {
    /// Reads and checks every sealed segment of an open partition, about `bytes_per_second` (at least 64 KiB). Blocks until
    /// all is read, or the partition closes. Waits while scrubs are paused.
    ///
    /// # Errors
    /// `partition_not_found` when it is not open; `storage_failed`.
    pub fn scrub(&self, incarnation: u64, bytes_per_second: u64) -> Result<Scrubbed, EngineError> {
        let known = self.state.lock().partitions.get(&incarnation).cloned();
        let Some(partition) = known else {
            let text = format!("partition {incarnation} is not open");
            return Err(EngineError::new(ErrorCode::PartitionNotFound, text));
        };
        let reader = partition.reader();
        let statistics = &self.parts.statistics;
        let rate = bytes_per_second.max(64 << 10) as f64;
        let (mut read, mut began) = (0_u64, Instant::now());
        let mut pace = |bytes: u64| {
            statistics.scrubbed_bytes.add(bytes);
            read += bytes;
            loop {
                if reader.is_closed() {
                    return false;
                }
                if self.scrub_paused.load(Ordering::Relaxed) {
                    // Time that was waited must not be made up for.
                    (read, began) = (0, Instant::now() + LOOK);
                    std::thread::sleep(LOOK);
                    continue;
                }
                let ahead =
                    Duration::from_secs_f64(read as f64 / rate).saturating_sub(began.elapsed());
                if ahead.is_zero() {
                    return true;
                }
                std::thread::sleep(ahead.min(LOOK));
            }
        };
        let done = reader.scrub(now_ns(), &mut pace);
        match done {
            Ok(done) => {
                statistics.scrubbed_segments.add(done.segments);
                statistics.scrubbed_partitions.add(u64::from(done.complete));
                Ok(done)
            }
            Err(bascule_log::ReadError::Closed) => Ok(Scrubbed::default()),
            Err(error) => Err(EngineError::new(
                ErrorCode::StorageFailed,
                error.to_string(),
            )),
        }
    }

    /// Pauses scrubs, or resumes them.
    pub fn pause_scrubs(&self, paused: bool) {
        self.scrub_paused.store(paused, Ordering::Relaxed);
    }

    /// For each open partition: the end of its last complete scrub, the number of segments that a scrub would read, and the
    /// damaged offsets.
    pub fn damage(&self, incarnations: &[u64]) -> Value {
        let state = self.state.lock();
        let of = |incarnation: &u64| {
            let reader = state.partitions.get(incarnation)?.reader();
            Some(json!({
                "incarnation": incarnation,
                "scrubbed_ns": reader.scrubbed(),
                "sealed_segments": reader.segment_count().saturating_sub(1),
                "damaged": reader.quarantine().iter().map(damage_json).collect::<Vec<_>>(),
            }))
        };
        incarnations.iter().filter_map(of).collect()
    }
}
