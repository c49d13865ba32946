//! A running subscription: committed records of one partition as chunks of frames, until it ends.
//!
//! Owns one chunk being written (64 KiB, or one larger message) and one read of the log (256 KiB, or one larger batch).
//! Less of both when so many are open that all together could hold more than `limits.delivery_bytes`.
//! Driven only by the response body, so a subscriber that does not read costs nothing more than that.
use super::call::{PULSE, shutting_down};
use super::context::LiftbridgeContext;
use super::damaged::damaged;
use super::position::Range;
use super::wanted::Wanted;
use crate::access::Authorization;
use crate::groups::Membership;
use crate::grpc_status::Coded;
use crate::partition::{EndReason, Partition, Subscriber};
use crate::run_state::RunState;
use crate::subscriptions::Slot;
use bascule_log::{Cursor, LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches, DamageError, Header};
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::delivery::DeliveryEncoder;
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};

/// Frames are gathered up to about this many bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes asked of the log at once.
const READ_BYTES: usize = 256 << 10;

/// See the module.
pub(super) struct Subscription {
    context: Arc<LiftbridgeContext>,
    partition: Partition,
    high_watermark: watch::Receiver<u64>,
    reader: LogReader,
    /// `None` only while a blocking read has it.
    cursor: Option<Cursor>,
    encoder: DeliveryEncoder,
    /// The high watermark that the last reads were bounded by, exclusive.
    committed: u64,
    /// Next offset to deliver.
    position: u64,
    /// Last offset to deliver, inclusive.
    stop: Option<u64>,
    /// Batches that were read and not yet decoded.
    fetched: Batches,
    /// The batch being delivered, and its next record.
    batch: Option<(Batch, usize)>,
    /// Maximum and current size of a chunk, bytes.
    most_chunk: usize,
    chunk_bytes: usize,
    /// The error of the next call.
    failed: Option<Status>,
    deadline: Option<Instant>,
    /// Of a consumer group, when it reads for one.
    membership: Option<Membership>,
    wanted: Wanted,
    authorization: Authorization,
    _slot: Slot,
    _subscriber: Subscriber,
}

/// The outcome of writing frames.
enum Written {
    /// The chunk has enough.
    Full,
    /// Nothing is left in memory that may be delivered now.
    NeedsMore,
}

impl Subscription {
    /// Begins at `range.start`.
    pub(super) fn new(
        context: &Arc<LiftbridgeContext>,
        (slot, authorization): (Slot, Authorization),
        partition: &Partition,
        range: Range,
        deadline: Option<Instant>,
    ) -> Self {
        let identity = partition.identity();
        Self {
            context: context.clone(),
            high_watermark: partition.watch(),
            cursor: Some(partition.reader().cursor(range.start)),
            reader: partition.reader(),
            encoder: DeliveryEncoder::new(
                &identity.stream,
                identity.number as i32,
                &identity.subject,
            ),
            committed: 0,
            position: range.start,
            stop: range.stop,
            fetched: Batches::new(Bytes::new()),
            batch: None,
            most_chunk: CHUNK_BYTES.min(context.limits.subscription_bytes).max(1),
            chunk_bytes: CHUNK_BYTES,
            failed: None,
            deadline,
            membership: None,
            wanted: Wanted::default(),
            partition: partition.clone(),
            authorization,
            _slot: slot,
            _subscriber: partition.subscribe(),
        }
    }

    /// Ends, with status OK, when another member of the group takes the place.
    pub(super) fn with_membership(mut self, membership: Option<Membership>) -> Self {
        self.membership = membership;
        self
    }

    /// Delivers only records that are wanted.
    pub(super) fn with_wanted(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    /// The next frames, one or more. Waits for commits.
    ///
    /// # Errors
    /// The status that the stream ends with (liftbridge §3.5, end of stream).
    pub(super) async fn next_chunk(&mut self) -> Result<Bytes, Status> {
        self.chunk_bytes = self
            .most_chunk
            .min(self.context.subscriptions.delivery_share() / 4);
        let mut out = Vec::new();
        loop {
            // A subscriber that keeps up, or wants little of what there is, must not keep a thread of the runtime to itself.
            tokio::task::coop::consume_budget().await;
            if self
                .membership
                .as_ref()
                .is_some_and(Membership::is_superseded)
            {
                // Dropped frames: the other member reads these records.
                return Err(Status::new(Code::Ok, ""));
            }
            let permitted = self.authorization.renew(&self.context.access);
            permitted.map_err(|denied| denied.status())?;
            let limit = self.limit();
            if let Some(failed) = self.failed.take() {
                return Err(failed);
            }
            match self.write(&mut out, limit) {
                Ok(Written::Full) => return Ok(out.into()),
                Ok(Written::NeedsMore) => {}
                // The frames before the invalid batch are delivered first.
                Err(failed) if !out.is_empty() => {
                    self.failed = Some(failed);
                    return Ok(out.into());
                }
                Err(failed) => return Err(failed),
            }
            match self.fetch(limit, ReadMode::NoWait) {
                Ok(true) => {}
                Ok(false) | Err(ReadError::WouldBlock) if !out.is_empty() => return Ok(out.into()),
                Ok(false) => self.wait().await?,
                Err(ReadError::WouldBlock) => self.fetch_blocking(limit).await?,
                // The gathered frames are delivered first; the next call gets the error again.
                Err(_) if !out.is_empty() => return Ok(out.into()),
                Err(error) => return Err(self.read_failed(&error)),
            }
        }
    }

    /// End of what may be delivered now, exclusive.
    fn limit(&mut self) -> u64 {
        self.committed = *self.high_watermark.borrow_and_update();
        self.stop.map_or(self.committed, |stop| {
            self.committed.min(stop.saturating_add(1))
        })
    }

    /// Writes frames of records below `limit` from what is in memory.
    fn write(&mut self, out: &mut Vec<u8>, limit: u64) -> Result<Written, Status> {
        loop {
            let Some((batch, next)) = &mut self.batch else {
                match self.fetched.next() {
                    Some(bytes) => self.open_batch(bytes)?,
                    None => return Ok(Written::NeedsMore),
                }
                continue;
            };
            if *next >= batch.len() {
                let header = batch.header();
                self.position = self
                    .position
                    .max(header.base_offset + u64::from(header.span));
                self.batch = None;
                continue;
            }
            let end = batch.seek(limit);
            if *next >= end {
                return Ok(Written::NeedsMore);
            }
            if out.capacity() == 0 {
                out.reserve(self.chunk_bytes + (self.chunk_bytes >> 4));
            }
            let before = out.len();
            let (written, delivered) = if self.wanted.is_everything() {
                let written = self
                    .encoder
                    .put_frames(out, batch, *next, end, self.chunk_bytes);
                (written, written - *next)
            } else {
                put_wanted(
                    &self.wanted,
                    &mut self.encoder,
                    out,
                    (batch, *next..end),
                    self.chunk_bytes,
                )
            };
            let statistics = &self.context.statistics;
            statistics.records_delivered.add(delivered as u64);
            statistics.bytes_delivered.add((out.len() - before) as u64);
            if let Some(last) = written.checked_sub(1) {
                self.position = batch.offset(last) + 1;
            }
            *next = written;
            if out.len() >= self.chunk_bytes {
                return Ok(Written::Full);
            }
        }
    }

    fn open_batch(&mut self, bytes: Result<Bytes, DamageError>) -> Result<(), Status> {
        let bytes = bytes.map_err(|error| self.unreadable(&error))?;
        let batch = match self.reader.open(&bytes) {
            Ok(batch) => batch,
            Err(error) => return Err(self.refused(&bytes, &error)),
        };
        let first = if self.wanted.judge(&batch) {
            batch.seek(self.position)
        } else {
            batch.len()
        };
        self.batch = Some((batch, first));
        Ok(())
    }

    /// The status for a batch that fails its checksum; reported to the log.
    fn refused(&self, bytes: &[u8], error: &DamageError) -> Status {
        if error.is_locked() {
            return Status::failed_precondition(format!(
                "batch at or after offset {} cannot be decrypted: {error}",
                self.position
            ))
            .detailed(
                ErrorCode::EncryptionKeyMissing,
                json!({"start": self.position}),
            );
        }
        match Header::read(bytes) {
            Ok(header) => self.read_failed(&self.reader.damaged(&header)),
            Err(_) => self.unreadable(error),
        }
    }

    /// Bytes of the cursor that are not a batch: a defect.
    fn unreadable(&self, error: &DamageError) -> Status {
        Status::internal(format!(
            "reading the log at offset {} failed: {error}",
            self.position
        ))
    }

    /// Reads on, below `limit`; false when there is nothing (yet). A batch in memory comes first.
    fn fetch(&mut self, limit: u64, mode: ReadMode) -> Result<bool, ReadError> {
        if self.batch.is_some() || self.position >= limit {
            return Ok(false);
        }
        let cursor = self.cursor.as_mut().ok_or(ReadError::Closed)?;
        let Some(bytes) = cursor.next(
            limit,
            READ_BYTES.min(self.context.subscriptions.delivery_share()),
            mode,
        )?
        else {
            return Ok(false);
        };
        self.fetched = Batches::new(bytes);
        Ok(true)
    }

    /// The same on a thread that may wait for the disk.
    async fn fetch_blocking(&mut self, limit: u64) -> Result<(), Status> {
        let Some(mut cursor) = self.cursor.take() else {
            return Err(Status::internal("an earlier read of the log failed"));
        };
        let most = READ_BYTES.min(self.context.subscriptions.delivery_share());
        let read = tokio::task::spawn_blocking(move || {
            let bytes = cursor.next(limit, most, ReadMode::Blocking);
            (cursor, bytes)
        });
        let (cursor, bytes) = read
            .await
            .map_err(|error| Status::internal(format!("reading the log failed: {error}")))?;
        self.cursor = Some(cursor);
        let bytes = bytes.map_err(|error| self.read_failed(&error))?;
        self.fetched = Batches::new(bytes.unwrap_or_default());
        Ok(())
    }

    fn read_failed(&self, error: &ReadError) -> Status {
        read_failed(&self.context.run_state, &self.partition, error)
    }

    /// Waits until more is committed than was delivered.
    async fn wait(&mut self) -> Result<(), Status> {
        if let Some(stop) = self.stop
            && (self.position > stop || self.committed > stop)
        {
            // Also when compaction or retention removed the last of the range.
            return Err(
                Status::resource_exhausted("Stop offset reached").coded(ErrorCode::EndOfStream)
            );
        }
        if self.high_watermark.has_changed().is_err() {
            return Err(ended(&self.context.run_state, &self.partition));
        }
        if !self.context.run_state.is_serving() {
            return Err(shutting_down());
        }
        // The flag is read first: when it is set, everything taken before it is visible.
        if self.partition.is_readonly() && self.position >= self.partition.reader().log_end() {
            return Err(Status::resource_exhausted("End of readonly partition")
                .coded(ErrorCode::EndOfStream));
        }
        self.idle().await
    }

    /// Until the next commit, pulse, or deadline.
    async fn idle(&mut self) -> Result<(), Status> {
        let pulse = Instant::now() + PULSE;
        let until = self.deadline.map_or(pulse, |deadline| deadline.min(pulse));
        let membership = &mut self.membership;
        let superseded = async {
            match membership {
                Some(membership) => membership.superseded().await,
                None => std::future::pending().await,
            }
        };
        let changed = async {
            tokio::select! {
                changed = self.high_watermark.changed() => changed,
                // Seen by the caller's loop.
                () = superseded => Ok(()),
            }
        };
        match tokio::time::timeout_at(until, changed).await {
            Ok(Err(_)) => Err(ended(&self.context.run_state, &self.partition)),
            Err(_)
                if self
                    .deadline
                    .is_some_and(|deadline| deadline <= Instant::now()) =>
            {
                Err(Status::deadline_exceeded("context deadline exceeded"))
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// Writes frames of the wanted records in `range` until `out` has at least `limit` bytes. Returns the first record that was
/// not examined, and how many were written.
fn put_wanted(
    wanted: &Wanted,
    encoder: &mut DeliveryEncoder,
    out: &mut Vec<u8>,
    (batch, range): (&Batch, std::ops::Range<usize>),
    limit: usize,
) -> (usize, usize) {
    let mut delivered = 0;
    for i in range.clone() {
        if out.len() >= limit {
            return (i, delivered);
        }
        if wanted.has(batch, i) {
            encoder.put_frame(out, batch, i);
            delivered += 1;
        }
    }
    (range.end, delivered)
}

/// The status of a subscription that cannot read on.
pub(super) fn read_failed(
    run_state: &RunState,
    partition: &Partition,
    error: &ReadError,
) -> Status {
    match error {
        ReadError::Closed => ended(run_state, partition),
        ReadError::Damaged(damage) => damaged(partition.identity(), damage),
        ReadError::Locked { start, end, .. } => Status::failed_precondition(error.to_string())
            .detailed(
                ErrorCode::EncryptionKeyMissing,
                json!({"start": start, "end": end}),
            ),
        _ => Status::internal(format!("reading the log failed: {error}"))
            .coded(ErrorCode::StorageFailed),
    }
}

/// The status of a subscription to a partition that is no longer served.
fn ended(run_state: &RunState, partition: &Partition) -> Status {
    match partition.end() {
        EndReason::Deleted => deleted(),
        EndReason::Paused => paused(),
        EndReason::Open | EndReason::Closed if !run_state.is_serving() => shutting_down(),
        EndReason::Open | EndReason::Closed => {
            Status::internal("commit log was closed").coded(ErrorCode::Unavailable)
        }
    }
}

/// The partition was deleted, or purged: its records are gone.
pub(super) fn deleted() -> Status {
    Status::not_found("commit log was deleted").because(ErrorCode::StreamNotFound, "deleted")
}

/// The partition is paused, and the caller did not ask to resume it.
pub(super) fn paused() -> Status {
    Status::failed_precondition("commit log was closed")
        .because(ErrorCode::FailedPrecondition, "paused")
}
