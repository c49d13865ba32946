//! Reading towards lower offsets (liftbridge §3.5, reverse): committed records of one partition, newest first, until
//! the oldest or the stop offset. Nothing is waited for.
//!
//! The log reads forward only, so windows below the place reached are read and turned round. A window is so large that
//! it holds about [`HELD_BYTES`], found by doubling and halving.
use super::call::shutting_down;
use super::context::LiftbridgeContext;
use super::position::Range;
use super::subscription::read_failed;
use super::wanted::Wanted;
use crate::access::Authorization;
use crate::grpc_status::Coded;
use crate::partition::{Partition, decode_batch};
use crate::subscriptions::Slot;
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches};
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::delivery::DeliveryEncoder;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::Status;

/// Frames are gathered up to about this many bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of batches held at once, or one larger batch.
const HELD_BYTES: usize = 1 << 20;
const FIRST_WINDOW: u64 = 256;
const LARGEST_WINDOW: u64 = 1 << 20;

/// See the module.
pub(super) struct ReverseSubscription {
    context: Arc<LiftbridgeContext>,
    partition: Partition,
    encoder: DeliveryEncoder,
    /// Records below are still to be delivered, exclusive.
    below: u64,
    /// Lowest offset to deliver, inclusive.
    stop: u64,
    stops: bool,
    /// Ascending; the last one is delivered next.
    held: Vec<Batch>,
    window: u64,
    wanted: Wanted,
    authorization: Authorization,
    _slot: Slot,
}

/// The content of a window.
struct Window {
    batches: Vec<Batch>,
    /// Batches at its beginning were left out: too many bytes.
    cut: bool,
}

impl ReverseSubscription {
    /// Begins at `range.start`, which is below the high watermark, and ends with `range.stop`.
    pub(super) fn new(
        context: &Arc<LiftbridgeContext>,
        (slot, authorization): (Slot, Authorization),
        partition: &Partition,
        range: Range,
        wanted: Wanted,
    ) -> Self {
        let identity = partition.identity();
        Self {
            context: context.clone(),
            encoder: DeliveryEncoder::new(
                &identity.stream,
                identity.number as i32,
                &identity.subject,
            ),
            partition: partition.clone(),
            below: range.start.saturating_add(1),
            stop: range.stop.unwrap_or(0),
            stops: range.stop.is_some(),
            held: Vec::new(),
            window: FIRST_WINDOW,
            wanted,
            authorization,
            _slot: slot,
        }
    }

    /// The next frames, one or more.
    ///
    /// # Errors
    /// The status that the stream ends with.
    pub(super) async fn next_chunk(&mut self) -> Result<Bytes, Status> {
        let permitted = self.authorization.renew(&self.context.access);
        permitted.map_err(|denied| denied.status())?;
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        while out.len() < CHUNK_BYTES {
            if self.held.is_empty() && !self.fetch().await? {
                break;
            }
            self.write(&mut out);
        }
        if out.is_empty() {
            let text = if self.stops {
                "Stop offset reached"
            } else {
                "EOF"
            };
            return Err(Status::resource_exhausted(text).coded(ErrorCode::EndOfStream));
        }
        Ok(out.into())
    }

    /// Writes the records of the last batch held that are still to be delivered, downwards.
    fn write(&mut self, out: &mut Vec<u8>) {
        let Some(batch) = self.held.last() else {
            return;
        };
        // Retention and trimming may have taken the beginning of the batch.
        let stop = self.stop.max(self.partition.reader().log_start());
        let (lowest, mut next) = (batch.seek(stop), batch.seek(self.below));
        if !self.wanted.judge(batch) {
            next = lowest;
        }
        while next > lowest && out.len() < CHUNK_BYTES {
            next -= 1;
            self.below = batch.offset(next);
            if self.wanted.has(batch, next) {
                let before = out.len();
                self.encoder.put_frame(out, batch, next);
                let statistics = &self.context.statistics;
                statistics.records_delivered.add(1);
                statistics.bytes_delivered.add((out.len() - before) as u64);
            }
        }
        if next <= lowest {
            self.below = self.below.min(batch.header().base_offset);
            self.held.pop();
        }
    }

    /// Reads the next window that has records; false when there is none.
    async fn fetch(&mut self) -> Result<bool, Status> {
        loop {
            if !self.context.run_state.is_serving() {
                return Err(shutting_down());
            }
            let reader = self.partition.reader();
            let lowest = self.stop.max(reader.log_start());
            if self.below <= lowest {
                return Ok(false);
            }
            let from = self.below.saturating_sub(self.window).max(lowest);
            let below = self.below;
            let read = tokio::task::spawn_blocking(move || read_window(&reader, from, below));
            let window = read
                .await
                .map_err(|error| Status::internal(format!("reading the log failed: {error}")))?
                .map_err(|error| read_failed(&self.context.run_state, &self.partition, &error))?;
            self.window = if window.cut {
                (self.window / 2).max(1)
            } else {
                (self.window * 2).min(LARGEST_WINDOW)
            };
            if !window.batches.is_empty() {
                self.held = window.batches;
                return Ok(true);
            }
            self.below = from;
        }
    }
}

/// The batches with records in `[from, below)`, the highest ones when they are too many. Waits for the disk.
fn read_window(reader: &LogReader, from: u64, below: u64) -> Result<Window, ReadError> {
    let mut held: VecDeque<Batch> = VecDeque::new();
    let (mut bytes, mut cut) = (0, false);
    let mut cursor = reader.cursor(from);
    while let Some(read) = cursor.next(below, HELD_BYTES, ReadMode::Blocking)? {
        for batch in Batches::new(read) {
            let batch = decode_batch(reader, batch)?;
            if batch.seek(from) >= batch.seek(below) {
                continue;
            }
            bytes += batch.header().batch_bytes();
            held.push_back(batch);
            while bytes > HELD_BYTES && held.len() > 1 {
                bytes -= held
                    .pop_front()
                    .map_or(0, |batch| batch.header().batch_bytes());
                cut = true;
            }
        }
    }
    Ok(Window {
        batches: held.into(),
        cut,
    })
}
