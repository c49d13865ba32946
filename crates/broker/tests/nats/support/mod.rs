//! A real nats-server and brokers' NATS sides for the tests, without the rest of a broker.
//!
//! The server's path comes from `BASCULE_NATS_SERVER`, or it is the `nats-server` of the repository's `.venv`. Without
//! either the tests are skipped, and say so; with `BASCULE_REQUIRE_NATS` set they fail instead.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs
)]

mod server;

pub use server::NatsServer;

use async_nats::{Message, Subscriber};
use bascule_broker::encryption::MasterKeyStore;
use bascule_broker::events::{Event, Events};
use bascule_broker::limits::Limits;
use bascule_broker::nats::{NatsContext, NatsLink, NatsSettings};
use bascule_broker::partition::{
    CommitObserver as _, CommittedAppend, IncomingRecord, NatsCopy, Partition, PartitionContext,
    PartitionSpec,
};
use bascule_broker::statistics::Statistics;
use bascule_log::{GroupCommitter, ReadMode};
use bascule_record::{Batch, Batches, HeaderEntry};
use bascule_wire::envelope::{MessageType, open};
use bascule_wire::liftbridge::messages::Ack;
use bascule_wire::liftbridge::publish::{PublishFields, put_envelope_publish};
use bytes::Bytes;
use futures_util::StreamExt;
use prost::Message as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a condition may take to become true.
pub const LIMIT: Duration = Duration::from_mins(1);

/// What the NATS side needs of a broker.
pub struct TestBroker {
    pub events: Arc<Events>,
    pub statistics: Arc<Statistics>,
    pub nats: NatsLink,
    pub partitions: Arc<PartitionContext>,
    /// Names and texts of `nats` events.
    seen: Mutex<Vec<(String, String)>>,
    directory: TempDir,
    committer: Arc<GroupCommitter>,
}

impl TestBroker {
    pub fn new(broker_id: &str) -> Self {
        Self::with_limits(broker_id, Limits::default())
    }

    pub fn with_limits(broker_id: &str, limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let committer = GroupCommitter::start();
        let events = Arc::new(Events::new(65_536).unwrap());
        let statistics = Arc::new(Statistics::default());
        let nats = NatsLink::new(NatsContext {
            cluster_id: "cluster".to_owned(),
            broker_id: broker_id.to_owned(),
            namespace: "bascule".to_owned(),
            pending_bytes: limits.nats_pending_bytes,
            events: events.clone(),
            statistics: statistics.clone(),
        });
        let partitions = PartitionContext::new(
            limits,
            events.clone(),
            statistics.clone(),
            MasterKeyStore::default(),
            Arc::new(nats.clone()),
        );
        Self {
            events,
            statistics,
            nats,
            partitions: Arc::new(partitions),
            seen: Mutex::default(),
            directory,
            committer,
        }
    }

    pub async fn connect(&self, settings: NatsSettings) {
        self.nats.connect(settings);
        until("connected", || self.nats.is_connected()).await;
    }

    pub async fn connected(broker_id: &str, server: &NatsServer) -> Self {
        let broker = Self::new(broker_id);
        broker.connect(server.settings()).await;
        broker
    }

    /// A partition that is led and listens.
    pub async fn partition(&self, stream: &Stream) -> TestPartition {
        let partition = self.open(stream);
        self.nats.lead(&partition.0).await;
        partition
    }

    /// Names of the `nats` events so far, in order.
    pub fn event_names(&self) -> Vec<String> {
        self.events().into_iter().map(|(name, _)| name).collect()
    }

    /// Texts of the `nats` events so far, in order.
    pub fn event_texts(&self) -> Vec<String> {
        self.events().into_iter().map(|(_, text)| text).collect()
    }

    fn events(&self) -> Vec<(String, String)> {
        let mut seen = self.seen.lock().unwrap();
        let new = self.events.poll(1000);
        seen.extend(new.into_iter().filter_map(|event| match event {
            Event::Nats {
                change, message, ..
            } => Some((change.name().to_owned(), message)),
            _ => None,
        }));
        seen.clone()
    }

    pub fn open(&self, stream: &Stream) -> TestPartition {
        let directory = self.directory.path().join(stream.incarnation.to_string());
        let (partition, _) = Partition::open(
            &self.partitions,
            stream.spec(),
            &directory,
            &self.committer,
            false,
        )
        .unwrap();
        partition.lead(1);
        TestPartition(partition)
    }
}

/// Reports committed records with offsets from `base_offset`, as a partition does for direct publishes.
pub fn republish(
    broker: &TestBroker,
    partition: &TestPartition,
    mode: NatsCopy,
    base_offset: u64,
    records: &[IncomingRecord],
) {
    let append = CommittedAppend {
        mode,
        base_offset,
        count: records.len() as u32,
        records,
        rejected: &[],
    };
    let nats = &broker.nats;
    nats.on_commit(&partition.0, &mut std::iter::once(append));
}

/// What a test says of a stream with one partition.
#[derive(Clone)]
pub struct Stream {
    pub name: &'static str,
    pub subject: &'static str,
    pub group: &'static str,
    pub incarnation: u64,
    pub max_record_bytes: u32,
    pub concurrency_control: bool,
}

impl Stream {
    pub fn new(name: &'static str, subject: &'static str, incarnation: u64) -> Self {
        Self {
            name,
            subject,
            group: "",
            // Streams of their own: the lowest 16 bits tell partitions of one stream apart.
            incarnation: incarnation << 16,
            max_record_bytes: 1 << 20,
            concurrency_control: false,
        }
    }

    pub fn spec(&self) -> PartitionSpec {
        serde_json::from_value(serde_json::json!({
            "namespace": "default",
            "stream": self.name,
            "number": 0,
            "incarnation": self.incarnation,
            "subject": self.subject,
            "base_subject": self.subject,
            "queue_group": self.group,
            "durability": "memory",
            "codec": "none",
            "nats_copy": "envelope",
            "max_record_bytes": self.max_record_bytes,
            "batch_records": 1024,
            "batch_bytes": 1 << 20,
            "retention_age_ms": 0,
            "retention_bytes": 0,
            "retention_messages": 0,
            "cleaner_interval_ms": 0,
            "segment_bytes": 256 << 20,
            "segment_age_ms": 0,
            "concurrency_control": self.concurrency_control,
        }))
        .unwrap()
    }
}

/// A record as it was stored; a key or reply that is not there is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub is_null: bool,
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub subject: String,
    pub reply: String,
    pub id: u128,
}

impl Stored {
    fn of(partition: &Partition, batch: &Batch, i: usize) -> Self {
        let header = |header: HeaderEntry<'_>| (header.key.to_vec(), header.value.to_vec());
        Self {
            key: batch.key(i).unwrap_or_default().to_vec(),
            value: batch.value(i).unwrap_or_default().to_vec(),
            is_null: batch.value(i).is_none(),
            headers: batch.headers(i).map(header).collect(),
            subject: batch
                .subject(i)
                .unwrap_or(&partition.identity().subject)
                .to_owned(),
            reply: batch.reply(i).unwrap_or_default().to_owned(),
            id: batch.id(i),
        }
    }
}

pub struct TestPartition(pub Partition);

impl TestPartition {
    /// Everything that is committed.
    pub fn records(&self) -> Vec<Stored> {
        let reader = self.0.reader();
        let mut cursor = reader.cursor(0);
        let mut records = Vec::new();
        while let Some(bytes) = cursor.next(u64::MAX, 1 << 20, ReadMode::Blocking).unwrap() {
            for bytes in Batches::new(bytes) {
                let batch = Batch::read(&bytes.unwrap()).unwrap();
                records.extend((0..batch.len()).map(|i| Stored::of(&self.0, &batch, i)));
            }
        }
        records
    }

    pub fn count(&self) -> usize {
        self.0.reader().high_watermark() as usize
    }

    pub async fn holds_at_least(&self, count: usize) {
        until(&format!("{count} records stored"), || self.count() >= count).await;
    }

    /// Waits for exactly `count` records, and that no more come for a while.
    pub async fn holds(&self, count: usize) -> Vec<Stored> {
        until(&format!("{count} records stored"), || self.count() >= count).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(self.count(), count);
        self.records()
    }
}

/// A Publish envelope.
pub fn envelope(fields: &PublishFields<'_>) -> Bytes {
    let mut bytes = Vec::new();
    put_envelope_publish(&mut bytes, "", fields);
    bytes.into()
}

/// A `Publish` with any offset; the tests change what they are about.
pub fn fields(value: &'static str) -> PublishFields<'static> {
    PublishFields {
        value: value.as_bytes(),
        expected_offset: -1,
        ..PublishFields::default()
    }
}

/// A subscription that the server is sure to have.
pub async fn listen(client: &async_nats::Client, subject: &'static str) -> Subscriber {
    let subscriber = client.subscribe(subject).await.unwrap();
    round_trip(client).await;
    subscriber
}

/// Waits until the server has handled what the client sent before.
pub async fn round_trip(client: &async_nats::Client) {
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.unwrap();
    client.publish(inbox, Bytes::new()).await.unwrap();
    next(&mut answers).await;
}

/// The next message of a subscription.
pub async fn next(subscriber: &mut Subscriber) -> Message {
    tokio::time::timeout(LIMIT, subscriber.next())
        .await
        .expect("a message in time")
        .expect("an open subscription")
}

/// That a subscription gets no message for a while.
pub async fn nothing(subscriber: &mut Subscriber) {
    let message = tokio::time::timeout(Duration::from_millis(150), subscriber.next()).await;
    assert!(message.is_err(), "unexpected message {message:?}");
}

/// The ack in an envelope.
pub fn ack(message: &Message) -> Ack {
    Ack::decode(open(&message.payload, MessageType::Ack).unwrap()).unwrap()
}

/// Values of records as text.
pub fn values(records: &[Stored]) -> Vec<String> {
    records
        .iter()
        .map(|record| String::from_utf8_lossy(&record.value).into_owned())
        .collect()
}

/// Waits until a condition holds; fails the test after [`LIMIT`].
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "still waiting: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
