//! Copies of one append while they wait: the records as they came in, or only where they are stored.
use crate::budget::{Budget, Reservation};
use crate::partition::{IncomingRecord, NatsCopy, Partition};
use crate::statistics::Statistics;
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches};
use bascule_wire::subject::is_publish_subject;
use bytes::Bytes;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// Memory of a queued record in addition to its bytes.
const RECORD_OVERHEAD: usize = 256;
/// Read from the log at once; at least one batch.
const READ_BYTES: usize = 256 << 10;
/// So many records are read on the spot when they are in memory, as the last ones are, and so many bytes at once.
const FEW: usize = 64;
const FEW_BYTES: usize = 16 << 10;

/// Copies of one append.
pub(crate) struct RepublishJob {
    pub(crate) partition: Partition,
    pub(crate) mode: NatsCopy,
    pub(crate) base_offset: u64,
    /// When its records were committed, about.
    pub(crate) queued: Instant,
    source: Source,
    _reservation: Reservation,
}

enum Source {
    Given(Vec<IncomingRecord>),
    /// So many, in the log.
    Stored(usize),
}

/// Jobs that wait for the republisher, bounded in bytes.
pub(crate) struct RepublishJobs {
    jobs: mpsc::UnboundedSender<RepublishJob>,
    budget: Arc<Budget>,
    statistics: Arc<Statistics>,
}

impl RepublishJobs {
    /// An empty queue for at most `bytes`, and its end for the republisher.
    pub(crate) fn new(
        bytes: usize,
        statistics: Arc<Statistics>,
    ) -> (Self, mpsc::UnboundedReceiver<RepublishJob>) {
        let (jobs, receiver) = mpsc::unbounded_channel();
        let budget = Arc::new(Budget::new(bytes));
        let queue = Self {
            jobs,
            budget,
            statistics,
        };
        (queue, receiver)
    }

    /// Queues consecutive committed records; drops and counts them when they do not fit. Never blocks.
    pub(crate) fn offer(
        &self,
        partition: &Partition,
        mode: NatsCopy,
        base_offset: u64,
        records: Vec<IncomingRecord>,
    ) {
        let bytes = records
            .iter()
            .map(|record| {
                RECORD_OVERHEAD + record.key.len() + record.value.as_ref().map_or(0, Bytes::len)
            })
            .sum();
        self.push(partition, mode, base_offset, bytes, Source::Given(records));
    }

    /// As [`RepublishJobs::offer`] for `count` records that only the log holds: they are read from there once somebody
    /// subscribes.
    pub(crate) fn offer_stored(
        &self,
        partition: &Partition,
        mode: NatsCopy,
        base_offset: u64,
        count: u32,
    ) {
        let source = Source::Stored(count as usize);
        let bytes = RECORD_OVERHEAD;
        self.push(partition, mode, base_offset, bytes, source);
    }

    fn push(
        &self,
        partition: &Partition,
        mode: NatsCopy,
        base_offset: u64,
        bytes: usize,
        source: Source,
    ) {
        let count = source.count();
        // A stream on a wildcard is not republished: the right to publish to it is not one on every subject that it matches,
        // and the subject that a record names is its publisher's choice.
        let subject = &partition.identity().subject;
        if mode == NatsCopy::None || count == 0 || !is_publish_subject(subject) {
            return;
        }
        let job = self
            .budget
            .try_reserve(bytes)
            .map(|reservation| RepublishJob {
                partition: partition.clone(),
                mode,
                base_offset,
                queued: Instant::now(),
                source,
                _reservation: reservation,
            });
        if job.is_none_or(|job| self.jobs.send(job).is_err()) {
            self.statistics.nats_copies_dropped.add(count as u64);
        }
    }
}

impl Source {
    fn count(&self) -> usize {
        match self {
            Self::Given(records) => records.len(),
            Self::Stored(count) => *count,
        }
    }
}

impl RepublishJob {
    /// How many records it is about.
    pub(crate) fn count(&self) -> usize {
        self.source.count()
    }

    /// Some of its records, by index; fewer, from the start of the range, when the others cannot be read any more.
    pub(crate) async fn records(&self, range: Range<usize>) -> Cow<'_, [IncomingRecord]> {
        match &self.source {
            Source::Given(records) => Cow::Borrowed(records.get(range).unwrap_or_default()),
            Source::Stored(_) => {
                let offsets =
                    self.base_offset + range.start as u64..self.base_offset + range.end as u64;
                let reader = self.partition.reader();
                if range.len() <= FEW
                    && let Some(records) =
                        read(&reader, offsets.clone(), ReadMode::NoWait, FEW_BYTES)
                {
                    return Cow::Owned(records);
                }
                let read = move || read(&reader, offsets, ReadMode::Blocking, READ_BYTES);
                let read = tokio::task::spawn_blocking(read).await;
                Cow::Owned(read.ok().flatten().unwrap_or_default())
            }
        }
    }
}

/// Records with exactly these offsets, up to the first that is missing or cannot be read; `None` when that has to wait for the
/// disk.
fn read(
    reader: &LogReader,
    offsets: Range<u64>,
    mode: ReadMode,
    at_once: usize,
) -> Option<Vec<IncomingRecord>> {
    let mut records = Vec::new();
    let mut next = offsets.start;
    let mut cursor = reader.cursor(offsets.start);
    while next < offsets.end {
        let bytes = match cursor.next(offsets.end, at_once, mode) {
            Ok(Some(bytes)) => bytes,
            Err(ReadError::WouldBlock) => return None,
            // Best effort: readers of the stream itself receive the error.
            _ => break,
        };
        for bytes in Batches::new(bytes) {
            let Ok(batch) = bytes.and_then(|bytes| reader.open(&bytes)) else {
                return Some(records);
            };
            for i in batch.seek(next)..batch.len() {
                if next == offsets.end || batch.offset(i) != next {
                    return Some(records);
                }
                records.push(record(&batch, i));
                next += 1;
            }
        }
    }
    Some(records)
}

fn record(batch: &Batch, i: usize) -> IncomingRecord {
    let slice = |bytes: &[u8]| batch.payload().slice_ref(bytes);
    IncomingRecord {
        key: batch.key(i).map(slice).unwrap_or_default(),
        value: batch.value(i).map(slice),
        headers: batch
            .headers(i)
            .map(|header| (slice(header.key), slice(header.value)))
            .collect(),
        subject: batch
            .subject(i)
            .map(|subject| slice(subject.as_bytes()))
            .unwrap_or_default(),
        ..IncomingRecord::default()
    }
}
