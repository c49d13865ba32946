//! A partition through its handle, on a real log: what the tests share.
mod appends;
mod encryption;
mod jetstream;
mod lifecycle;
mod link_power;
mod link_turns;
mod links;
mod resign;

use super::*;
use crate::clock::now_ns;
use crate::encryption::MasterKeyStore;
use crate::events::{Event, Events, PartitionChange};
use crate::limits::Limits;
use crate::stage::SinkChanges;
use bascule_log::ReadMode;
use bascule_log::{GroupCommitter, OsStorage, Recovery};
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Batches, Codec, Producer, RecordRef, SealedBatch,
};
use bytes::Bytes;
use futures_util::FutureExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

type Outcome = Result<Committed, AppendError>;

/// A data directory and what a broker has around its partitions.
struct Home {
    folder: tempfile::TempDir,
    context: Arc<PartitionContext>,
    committer: Arc<GroupCommitter>,
}

/// Republishes nothing.
#[derive(Debug)]
struct NoObserver;

impl CommitObserver for NoObserver {
    fn on_commit(&self, _: &Partition, _: &mut dyn Iterator<Item = CommittedAppend<'_>>) {}
}

fn context(limits: Limits, master_keys: MasterKeyStore) -> Arc<PartitionContext> {
    let events = Arc::new(Events::new(65_536).unwrap());
    let observer = Arc::new(NoObserver);
    let context = PartitionContext::new(limits, events, Arc::default(), master_keys, observer);
    let all_sinks = SinkChanges {
        complete: true,
        ..SinkChanges::default()
    };
    context.stage.set_sinks(0, all_sinks).unwrap();
    Arc::new(context)
}

impl Home {
    fn master_keys(&mut self, master_keys: MasterKeyStore) {
        self.context = context(self.context.limits, master_keys);
    }

    fn new(limits: Limits) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            context: context(limits, MasterKeyStore::default()),
            committer: GroupCommitter::start(),
        }
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("7")
    }

    fn open(&self, spec: PartitionSpec) -> (Partition, Option<Recovery>) {
        Partition::open(
            &self.context,
            spec,
            &self.directory(),
            &self.committer,
            false,
        )
        .unwrap()
    }

    /// Open and led.
    fn led(&self, spec: PartitionSpec) -> Partition {
        let (partition, _) = self.open(spec);
        partition.lead(1);
        partition
    }

    /// Changes of this kind since the last call.
    fn changes(&self, wanted: PartitionChange) -> usize {
        let is_wanted = |event: &Event| match event {
            Event::Partition { change, .. } => *change == wanted,
            _ => false,
        };
        let events = self.context.events.poll(usize::MAX);
        events.iter().filter(|event| is_wanted(event)).count()
    }
}

fn home() -> Home {
    Home::new(Limits::default())
}

pub(in crate::partition) fn spec() -> PartitionSpec {
    serde_json::from_value(serde_json::json!({
        "namespace": "default", "stream": "s", "number": 3, "incarnation": 7,
        "subject": "s.3", "base_subject": "s", "queue_group": "",
        "durability": "disk", "codec": "none", "nats_copy": "none",
        "max_record_bytes": 1000, "batch_records": 1024, "batch_bytes": 1 << 20,
        "retention_age_ms": 0, "retention_bytes": 0, "retention_messages": 0, "cleaner_interval_ms": 0,
        "segment_bytes": 1 << 20, "segment_age_ms": 0, "concurrency_control": false,
    }))
    .unwrap()
}

fn memory() -> PartitionSpec {
    PartitionSpec {
        durability: super::spec::DurabilityName::Memory,
        ..spec()
    }
}

fn record(value: &str) -> IncomingRecord {
    IncomingRecord {
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        expected_offset: -1,
        received_bytes: value.len() as u32,
        ..IncomingRecord::default()
    }
}

fn append(payload: Payload) -> (Append, oneshot::Receiver<Outcome>) {
    let (done, outcome) = oneshot::channel();
    let append = Append {
        payload,
        producer: None,
        republish: false,
        ack: AckLevel::All,
        done: Box::new(move |result| {
            let _ = done.send(result);
        }),
    };
    (append, outcome)
}

fn records(values: &[&str]) -> Payload {
    Payload::Records(values.iter().map(|value| record(value)).collect())
}

fn sealed(sequence: u32, values: &[&str]) -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for value in values {
        let record = RecordRef {
            timestamp: now_ns(),
            value: Some(value.as_bytes()),
            ..RecordRef::default()
        };
        builder.push(&record).unwrap();
    }
    let producer = Producer {
        id: 9,
        epoch: 0,
        base_sequence: sequence,
    };
    builder.seal(Codec::None, Some(producer), None).unwrap()
}

async fn put(partition: &Partition, payload: Payload) -> Outcome {
    let (append, outcome) = append(payload);
    partition.append(append).await;
    tokio::time::timeout(Duration::from_mins(1), outcome)
        .await
        .expect("an answer")
        .expect("done was called")
}

/// Everything committed: (offset, timestamp, value), and the number of batches.
fn read(partition: &Partition) -> (Vec<(u64, i64, String)>, usize) {
    let reader = partition.reader();
    let mut cursor = reader.cursor(0);
    let (mut out, mut batches) = (Vec::new(), 0);
    while let Some(bytes) = cursor
        .next(reader.high_watermark(), 1 << 20, ReadMode::Blocking)
        .unwrap()
    {
        for bytes in Batches::new(bytes) {
            let batch = Batch::read(&bytes.unwrap()).unwrap();
            batches += 1;
            out.extend((0..batch.len()).map(|i| {
                let value = String::from_utf8(batch.value(i).unwrap().to_vec()).unwrap();
                (batch.offset(i), batch.timestamp(i), value)
            }));
        }
    }
    (out, batches)
}

fn values(partition: &Partition) -> Vec<String> {
    let (records, _) = read(partition);
    records.into_iter().map(|(_, _, value)| value).collect()
}
