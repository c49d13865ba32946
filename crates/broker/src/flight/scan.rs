//! Reads the batches of a range, gathers them into record batches, encodes these as messages.
//!
//! Synchronous: the caller decides on which thread a step may run. A step does a bounded amount of work.
use super::context::FlightContext;
use super::frame::FrameEncoder;
use super::refusal::{internal, key_unavailable, out_of_range, read_failed};
use crate::partition::Partition;
use bascule_log::{Cursor, LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches, Header};
use bascule_wire::flight::gather::{Gather, GatherLimits, GatherSource};
use bascule_wire::flight::schema::Projection;
use bascule_wire::subject::SubjectFilter;
use bytes::Bytes;
use std::sync::Arc;
use tonic::Status;

/// Bytes asked of the log at once.
const READ_BYTES: usize = 512 << 10;
/// A step that found nothing for the caller gives the thread back after this many bytes of the log.
const STEP_BYTES: usize = 8 << 20;

/// What a step did.
#[derive(Debug)]
pub enum Step {
    /// The chunks of the next message.
    Message(Vec<Bytes>),
    /// A part of the range was read without a matching record: continue.
    Scanned,
    /// Nothing more is committed: wait for the high watermark to pass [`Scan::next_offset`].
    CaughtUp,
    /// Everything was returned.
    Complete,
    /// With [`ReadMode::NoWait`]: take the step again where it may wait for the disk.
    WouldBlock,
}

/// The reading half of a call.
#[derive(Debug)]
pub struct Scan {
    context: Arc<FlightContext>,
    what: String,
    reader: LogReader,
    cursor: Cursor,
    batches: Batches,
    /// The batch being gathered from, and the index of the next record of it.
    current: Option<(Batch, usize)>,
    next: u64,
    gather: Gather,
    encoder: FrameEncoder,
    rows_left: u64,
    bytes_left: u64,
    /// What the next step ends with.
    failed: Option<Status>,
}

impl Scan {
    /// A scan that starts at `start`, and its schema message.
    ///
    /// # Errors
    /// INTERNAL when the schema cannot be encoded.
    pub fn open(
        context: &Arc<FlightContext>,
        partition: &Partition,
        projection: Projection,
        filter: Option<SubjectFilter>,
        start: u64,
    ) -> Result<(Self, Bytes), Status> {
        let encoded = FrameEncoder::new(projection.schema());
        let (encoder, first) = encoded.map_err(|error| internal(error.to_string()))?;
        let identity = partition.identity();
        let source = GatherSource {
            stream: identity.stream.as_str().into(),
            partition: identity.number as i32,
            subject: identity.subject.as_str().into(),
        };
        let reader = partition.reader();
        let scan = Self {
            context: context.clone(),
            what: format!(
                "{}/{}/{}",
                identity.namespace, identity.stream, identity.number
            ),
            cursor: reader.cursor(start),
            reader,
            batches: Batches::new(Bytes::new()),
            current: None,
            next: start,
            gather: Gather::new(projection, source, filter, GatherLimits::default()),
            encoder,
            rows_left: u64::MAX,
            bytes_left: u64::MAX,
            failed: None,
        };
        Ok((scan, first))
    }

    /// Bounds what is returned: at most `rows` rows, and no further message once `bytes` bytes were sent.
    #[must_use]
    pub fn bounded(mut self, rows: Option<u64>, bytes: Option<u64>) -> Self {
        self.rows_left = rows.unwrap_or(u64::MAX);
        self.bytes_left = bytes.unwrap_or(u64::MAX);
        self
    }

    /// Every committed record below this was returned or filtered out.
    pub fn next_offset(&self) -> u64 {
        self.next
    }

    /// Works until a message is ready, the committed part of `[next, until)` is read, or enough was done.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` when retention overtook the scan; `DATA_LOSS` for a damaged range; `FAILED_PRECONDITION` for one
    /// whose key is missing; INTERNAL.
    pub fn step(&mut self, until: u64, mode: ReadMode) -> Result<Step, Status> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        match self.work(until, mode) {
            // What was gathered before the range that cannot be read is returned first.
            Err(failed) if self.gather.rows() > 0 => {
                self.failed = Some(failed);
                self.message()
            }
            outcome => outcome,
        }
    }

    fn work(&mut self, until: u64, mode: ReadMode) -> Result<Step, Status> {
        let mut scanned = 0;
        loop {
            if self.is_message_due(until) {
                return self.message();
            }
            if self.next >= until || self.rows_left == 0 || self.bytes_left == 0 {
                return Ok(Step::Complete);
            }
            if let Some((batch, at)) = self.current.take() {
                self.gather_from(batch, at, until);
            } else if let Some(bytes) = self.batches.next() {
                let bytes = bytes.map_err(|error| self.unreadable(&error))?;
                scanned += bytes.len();
                self.current = self.open_batch(&bytes)?;
            } else if scanned >= STEP_BYTES {
                return if self.gather.rows() == 0 {
                    Ok(Step::Scanned)
                } else {
                    self.message()
                };
            } else {
                match self.cursor.next(
                    until,
                    READ_BYTES.min(self.context.subscriptions.delivery_share()),
                    mode,
                ) {
                    Ok(Some(bytes)) => self.batches = Batches::new(bytes),
                    Ok(None) if self.gather.rows() == 0 => return Ok(Step::CaughtUp),
                    Ok(None) => return self.message(),
                    Err(ReadError::WouldBlock) => return Ok(Step::WouldBlock),
                    Err(error) => return Err(read_failed(&self.what, &error)),
                }
            }
        }
    }

    fn is_message_due(&self, until: u64) -> bool {
        let rows = self.gather.rows();
        rows > 0 && (self.gather.is_full() || self.next >= until || rows as u64 >= self.rows_left)
    }

    /// The batch and the index of its first record that was not returned yet; `None` when it lies before `next`.
    fn open_batch(&self, bytes: &Bytes) -> Result<Option<(Batch, usize)>, Status> {
        let header = Header::read(bytes).map_err(|error| self.unreadable(&error))?;
        if header.base_offset > self.next {
            // The cursor continues at the log start when retention has removed its position; a scan does not.
            let (log_start, high_watermark) =
                (self.reader.log_start(), self.reader.high_watermark());
            return Err(out_of_range(
                &self.what,
                self.next,
                log_start.max(header.base_offset),
                high_watermark,
            ));
        }
        if header.next_offset() <= self.next {
            return Ok(None);
        }
        let (start, end) = (header.base_offset, header.next_offset());
        let batch = self.reader.open(bytes).map_err(|error| {
            if error.is_locked() {
                key_unavailable(&self.what, start, end, &error)
            } else {
                self.damage(&header)
            }
        })?;
        let at = batch.seek(self.next);
        Ok(Some((batch, at)))
    }

    /// Takes records of `batch` from index `at`, below `until` and while there is room.
    fn gather_from(&mut self, batch: Batch, at: usize, until: u64) {
        let end = if batch.header().next_offset() <= until {
            batch.len()
        } else {
            batch.seek(until)
        };
        let rows_left = usize::try_from(self.rows_left).unwrap_or(usize::MAX) - self.gather.rows();
        let stop = end.min(at.saturating_add(rows_left));
        let at = self.gather.push(&batch, at, stop);
        if at >= end {
            self.next = batch.header().next_offset().min(until);
        } else {
            self.next = batch.offset(at);
            self.current = Some((batch, at));
        }
    }

    fn message(&mut self) -> Result<Step, Status> {
        let gathered = self
            .gather
            .finish()
            .map_err(|error| internal(error.to_string()))?;
        let Some(batch) = gathered else {
            return Ok(Step::Scanned);
        };
        let metadata = format!("{{\"next\":{}}}", self.next);
        let chunks = self
            .encoder
            .encode(&batch, metadata.as_bytes())
            .map_err(|error| internal(error.to_string()))?;
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        self.rows_left = self.rows_left.saturating_sub(batch.num_rows() as u64);
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
        let statistics = &self.context.statistics;
        statistics.flight_rows_read.add(batch.num_rows() as u64);
        statistics.flight_bytes_read.add(bytes as u64);
        Ok(Step::Message(chunks))
    }

    /// Bytes of the cursor that are not a batch: a defect.
    fn unreadable(&self, error: &dyn std::fmt::Display) -> Status {
        internal(format!("reading {} failed: {error}", self.what))
    }

    /// A batch whose payload fails its checksum; reported to the log.
    fn damage(&self, header: &Header) -> Status {
        read_failed(&self.what, &self.reader.damaged(header))
    }
}
