//! The class `Log`: the writer of one partition, and its reader.
use super::failure::{ReadFailure, kind, raise, raise_read, read_failure};
use super::store::options;
use bascule_log::{Compaction, CompactionReport, Error, ReadError, ReadMode, Retention};
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Batches, Codec, Header, Producer, RecordRef,
};
use bytes::Bytes;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

/// Number of a commit, and its durable end or the kind of its error.
type Answer = (u64, Option<u64>, &'static str);

/// Offset, leader epoch, timestamp, key and value.
type Record = (u64, u64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Key and value.
type Content = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Bytes of stored batches read at a time.
const AT_A_TIME: usize = 1 << 16;

/// A log of the engine.
#[pyclass(frozen)]
pub(crate) struct Log {
    inner: Mutex<Option<bascule_log::Log>>,
    answers: Arc<Mutex<Vec<Answer>>>,
    commits: Mutex<u64>,
    removed: Arc<Mutex<Vec<u64>>>,
}

impl Log {
    /// Wraps an open log.
    pub fn new(log: bascule_log::Log) -> Self {
        Self {
            inner: Mutex::new(Some(log)),
            answers: Arc::default(),
            commits: Mutex::new(0),
            removed: Arc::default(),
        }
    }

    fn log(&self) -> PyResult<MappedMutexGuard<'_, bascule_log::Log>> {
        MutexGuard::try_map(self.inner.lock(), Option::as_mut)
            .map_err(|_| PyValueError::new_err("the log is closed"))
    }

    fn take(&self) -> PyResult<bascule_log::Log> {
        let log = self.inner.lock().take();
        log.ok_or_else(|| PyValueError::new_err("the log is closed"))
    }

    /// The log continues as this one.
    fn put(&self, log: bascule_log::Log) {
        *self.inner.lock() = Some(log);
    }
}

#[pymethods]
impl Log {
    /// Appends one batch. Returns offset of the first record, offset after the last, timestamp of the first.
    #[pyo3(signature = (epoch, now_ns, records, *, codec=0, producer=None))]
    #[allow(clippy::needless_pass_by_value)] // what Python hands over is owned
    fn append(
        &self,
        epoch: u64,
        now_ns: i64,
        records: Vec<Content>,
        codec: u8,
        producer: Option<(u64, u32, u32)>,
    ) -> PyResult<(u64, u64, i64)> {
        let codec =
            Codec::from_byte(codec).ok_or_else(|| PyValueError::new_err("no such codec"))?;
        let refused = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let mut builder = BatchBuilder::new(BatchLimits::default());
        for (key, value) in &records {
            let record = RecordRef {
                timestamp: now_ns,
                key: key.as_deref(),
                value: value.as_deref(),
                ..RecordRef::default()
            };
            builder.push(&record).map_err(|error| refused(&error))?;
        }
        let producer = producer.map(|(id, epoch, base_sequence)| Producer {
            id,
            epoch,
            base_sequence,
        });
        let batch = builder
            .seal(codec, producer, None)
            .ok_or_else(|| PyValueError::new_err("a batch holds at least one record"))?;
        let appended = self
            .log()?
            .append(batch, epoch, now_ns)
            .map_err(|error| raise(&error))?;
        Ok((
            appended.base_offset,
            appended.next_offset,
            appended.base_timestamp,
        ))
    }

    /// Asks for durability; the answer comes out of `answers` under the number returned.
    fn commit(&self) -> PyResult<u64> {
        let mut commits = self.commits.lock();
        let number = *commits;
        *commits += 1;
        let answers = Arc::clone(&self.answers);
        self.log()?.commit(Box::new(move |result| {
            let answer = match &result {
                Ok(end) => (number, Some(*end), ""),
                Err(error) => (number, None, kind(error)),
            };
            answers.lock().push(answer);
        }));
        Ok(number)
    }

    /// The answers that came since the last call, in order.
    fn answers(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.answers.lock())
    }

    /// Where a batch of this producer went before: ("new" | "duplicate" | "refused", base offset).
    fn find_duplicate(
        &self,
        producer: (u64, u32, u32),
        count: u32,
        now_ns: i64,
    ) -> PyResult<(&str, u64)> {
        let (id, epoch, base_sequence) = producer;
        let producer = Producer {
            id,
            epoch,
            base_sequence,
        };
        Ok(match self.log()?.find_duplicate(producer, count, now_ns) {
            None => ("new", 0),
            Some(Ok(appended)) => ("duplicate", appended.base_offset),
            Some(Err(_)) => ("refused", 0),
        })
    }

    fn set_high_watermark(&self, offset: u64) -> PyResult<()> {
        self.log()?.set_high_watermark(offset);
        Ok(())
    }

    /// Log start, log end, durable end, high watermark.
    fn ends(&self) -> PyResult<(u64, u64, u64, u64)> {
        let reader = self.log()?.reader();
        Ok((
            reader.log_start(),
            reader.log_end(),
            reader.durable_end(),
            reader.high_watermark(),
        ))
    }

    fn segment_count(&self) -> PyResult<usize> {
        Ok(self.log()?.reader().segment_count())
    }

    fn epochs(&self) -> PyResult<Vec<(u64, u64)>> {
        Ok(self.log()?.epochs().to_vec())
    }

    /// Offsets by time: first at or after, last at or before. -1: there is none; -2: the read failed.
    fn offsets_at(&self, timestamp: i64) -> PyResult<(i64, i64)> {
        let reader = self.log()?.reader();
        let number = |found: Result<Option<u64>, ReadError>| match found {
            Ok(Some(offset)) => i64::try_from(offset).unwrap_or(i64::MAX),
            Ok(None) => -1,
            Err(_) => -2,
        };
        Ok((
            number(reader.offset_at_or_after(timestamp)),
            number(reader.offset_at_or_before(timestamp)),
        ))
    }

    /// The records in [`start`, `until`) below the high watermark, at most about `max_bytes` at a time, up to the first
    /// failure. Returns them, the offset to continue at, and the failure.
    fn read(
        &self,
        start: u64,
        until: u64,
        max_bytes: usize,
    ) -> PyResult<(Vec<Record>, u64, Option<ReadFailure>)> {
        let mut cursor = self.log()?.reader().cursor(start);
        let mut records = Vec::new();
        loop {
            match cursor.next(until, max_bytes, ReadMode::Blocking) {
                Ok(Some(bytes)) => {
                    if let Some(failure) = decode(bytes, start, &mut records) {
                        return Ok((records, cursor.offset(), Some(failure)));
                    }
                }
                Ok(None) => return Ok((records, cursor.offset(), None)),
                Err(error) => {
                    return Ok((records, cursor.offset(), Some(read_failure(&error))));
                }
            }
        }
    }

    fn maintain(
        &self,
        age_ns: i64,
        bytes: u64,
        messages: u64,
        now_ns: i64,
        min_age_ns: i64,
    ) -> PyResult<u64> {
        let retention = Retention {
            age_ns,
            bytes,
            messages,
            min_age_ns,
            archive: None,
            hold: None,
        };
        self.log()?
            .maintain(&retention, now_ns)
            .map_err(|error| raise(&error))
    }

    /// Moves the log start; returns it.
    fn trim(&self, before: u64, now_ns: i64) -> PyResult<u64> {
        self.log()?
            .trim(before, now_ns)
            .map_err(|error| raise(&error))
    }

    /// Asks for a compaction; what it removed comes out of `removed` once it is done. `false`: none is due.
    fn compact(&self, tombstone_grace_ns: i64, map_bytes: usize, now_ns: i64) -> PyResult<bool> {
        let compaction = Compaction {
            tombstone_grace_ns,
            map_bytes,
            producer_grace_ns: i64::MAX,
            ..Compaction::default()
        };
        let removed = Arc::clone(&self.removed);
        let done = Box::new(move |outcome: Result<CompactionReport, Error>| {
            removed
                .lock()
                .push(outcome.map_or(0, |report| report.records));
        });
        self.log()?
            .compact(&compaction, now_ns, done)
            .map_err(|error| raise(&error))
    }

    /// How many records each compaction removed that ended since the last call; 0 when it failed, too.
    fn removed(&self) -> Vec<u64> {
        std::mem::take(&mut *self.removed.lock())
    }

    fn checkpoint(&self) -> PyResult<()> {
        self.log()?.checkpoint().map_err(|error| raise(&error))
    }

    #[pyo3(signature = (*, memory, segment_bytes, segment_age_ns, preallocate_bytes))]
    fn set_options(
        &self,
        memory: bool,
        segment_bytes: u64,
        segment_age_ns: i64,
        preallocate_bytes: u64,
    ) -> PyResult<()> {
        self.log()?.set_options(options(
            memory,
            segment_bytes,
            segment_age_ns,
            preallocate_bytes,
        ));
        Ok(())
    }

    /// The link at an offset; `None`: no boundary.
    fn link_at(&self, offset: u64) -> PyResult<Option<u32>> {
        self.log()?
            .link_at(offset)
            .map_err(|error| raise_read(&error))
    }

    /// The last leader epoch at or below `epoch`, and where its records end.
    fn epoch_end(&self, epoch: u64) -> PyResult<(u64, u64)> {
        Ok(self.log()?.epoch_end(epoch))
    }

    /// The stored batches from `offset` on, a boundary, up to the log end, committed or not.
    fn batches(&self, offset: u64) -> PyResult<Cow<'static, [u8]>> {
        let mut cursor = self.log()?.replica_cursor(offset);
        let mut out = Vec::new();
        while let Some(bytes) = cursor
            .next(u64::MAX, AT_A_TIME, ReadMode::Blocking)
            .map_err(|error| raise_read(&error))?
        {
            out.extend_from_slice(&bytes);
        }
        Ok(Cow::Owned(out))
    }

    /// Appends stored batches as they are. Returns offset of the first record, offset after the last.
    fn append_verbatim(&self, batches: &[u8], now_ns: i64) -> PyResult<(u64, u64)> {
        let appended = self
            .log()?
            .append_verbatim(Bytes::copy_from_slice(batches), now_ns)
            .map_err(|error| raise(&error))?;
        Ok((appended.base_offset, appended.next_offset))
    }

    /// Ends the log at `to`. When it is refused, the log is as it was; after another error it is closed.
    fn truncate(&self, to: u64, epoch: u64) -> PyResult<()> {
        self.log()?
            .check_truncation(to, false)
            .map_err(|error| raise(&error))?;
        let truncated = self.take()?.truncate(to, epoch, None);
        self.put(truncated.map_err(|error| raise(&error))?.0);
        Ok(())
    }

    /// Empties the log and begins at `offset`, a boundary of `leader`, as that one is there. After an error it is closed.
    fn reset_at(&self, leader: &Self, offset: u64) -> PyResult<()> {
        let start = leader.log()?.start_of(offset);
        let start = start
            .map_err(|error| raise_read(&error))?
            .ok_or_else(|| PyValueError::new_err("no batch of the leader begins there"))?;
        let reset = self.take()?.reset_at(&start);
        self.put(reset.map_err(|error| raise(&error))?);
        Ok(())
    }

    fn close(&self) -> PyResult<()> {
        self.take()?.close().map_err(|error| raise(&error))
    }

    fn delete(&self) -> PyResult<()> {
        self.take()?.delete().map_err(|error| raise(&error))
    }

    /// Drops the log as a crash does.
    fn abandon(&self) {
        drop(self.inner.lock().take());
    }
}

/// Adds the records at or after `start`. The engine hands out batches whose headers check; whoever decodes them checks
/// the payload, and refuses exactly the batch that is damaged.
fn decode(bytes: Bytes, start: u64, records: &mut Vec<Record>) -> Option<ReadFailure> {
    for bytes in Batches::new(bytes) {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return Some(("no_batch", 0, 0, error.to_string())),
        };
        let batch = match Batch::read(&bytes) {
            Ok(batch) => batch,
            Err(error) => {
                let header = Header::read(&bytes).ok();
                let (from, to) =
                    header.map_or((0, 0), |header| (header.base_offset, header.next_offset()));
                return Some(("damaged", from, to, error.to_string()));
            }
        };
        for i in batch.seek(start)..batch.len() {
            records.push((
                batch.offset(i),
                batch.header().leader_epoch,
                batch.timestamp(i),
                batch.key(i).map(<[u8]>::to_vec),
                batch.value(i).map(<[u8]>::to_vec),
            ));
        }
    }
    None
}
