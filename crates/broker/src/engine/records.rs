//! The control plane's own few records: appended and read back by it, never by anybody's traffic.
use super::{Engine, EngineError};
use crate::partition::{AckLevel, Append, IncomingRecord, Partition, Payload, decode_batch};
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::Batches;
use bascule_wire::ErrorCode;
use bytes::Bytes;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

impl Engine {
    /// Appends records that hold `values` to a partition led here; the offset of the first. Blocks until they are committed.
    ///
    /// # Errors
    /// `unavailable`: the partition is not open or refuses them; `outcome_unknown`; `closed`.
    pub fn append(
        &self,
        incarnation: u64,
        values: Vec<Vec<u8>>,
        timeout: Duration,
    ) -> Result<u64, EngineError> {
        let (runtime, partition) = (self.runtime()?, self.opened(incarnation)?);
        let records = values.into_iter().map(|value| IncomingRecord {
            received_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
            value: Some(Bytes::from(value)),
            expected_offset: -1,
            ..IncomingRecord::default()
        });
        let (done, outcome) = oneshot::channel();
        let append = Append {
            payload: Payload::Records(records.collect()),
            producer: None,
            republish: true,
            ack: AckLevel::All,
            done: Box::new(move |result| {
                // Nobody listens when the time was over.
                let _ = done.send(result);
            }),
        };
        let unknown = |text: &str| EngineError::new(ErrorCode::OutcomeUnknown, text);
        let appended = runtime.block_on(async {
            let all = async {
                partition.append(append).await;
                outcome.await
            };
            tokio::time::timeout(timeout, all).await
        });
        let committed = appended
            .map_err(|_| unknown("the records were not committed in time"))?
            .map_err(|_| unknown("the append was dropped"))?
            .map_err(|error| EngineError::new(ErrorCode::Unavailable, error.to_string()))?;
        match committed.rejected.first() {
            None => Ok(committed.base_offset),
            Some(_) => Err(EngineError::new(
                ErrorCode::Unavailable,
                "a record was refused",
            )),
        }
    }

    /// The values of the last `count` committed records, the newest first; fewer when there are fewer. Blocks.
    ///
    /// # Errors
    /// `unavailable`: the partition is not open or cannot be read.
    pub fn tail(&self, incarnation: u64, count: u64) -> Result<Vec<Vec<u8>>, EngineError> {
        let reader = self.opened(incarnation)?.reader();
        last_values(&reader, count)
            .map_err(|error| EngineError::new(ErrorCode::Unavailable, error.to_string()))
    }

    fn opened(&self, incarnation: u64) -> Result<Partition, EngineError> {
        self.partition(incarnation).ok_or_else(|| {
            let text = format!("partition {incarnation} is not open on this broker");
            EngineError::new(ErrorCode::Unavailable, text)
        })
    }
}

fn last_values(reader: &LogReader, count: u64) -> Result<Vec<Vec<u8>>, ReadError> {
    let end = reader.high_watermark();
    let from = end.saturating_sub(count).max(reader.log_start());
    let mut values = Vec::new();
    let mut cursor = reader.cursor(from);
    while let Some(bytes) = cursor.next(end, READ_BYTES, ReadMode::Blocking)? {
        for bytes in Batches::new(bytes) {
            let batch = decode_batch(reader, bytes)?;
            let wanted = batch.seek(from)..batch.seek(end);
            values.extend(wanted.map(|i| batch.value(i).unwrap_or_default().to_vec()));
        }
    }
    values.reverse();
    Ok(values)
}
