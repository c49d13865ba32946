//! NATS: one router per broker feeds local partitions from one subscription per subject; acks and copies go out.
use crate::partition::{IncomingRecord, Partition};
use crate::shared::SharedRef;
use bytes::Bytes;
use serde::Deserialize;

/// Publishing to NATS. Cheap to clone; works (and refuses) while disconnected.
#[derive(Clone, Debug, Default)]
pub struct NatsLink {
    _private: (),
}
/// How to reach NATS (`Engine.connect_nats`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct NatsSettings {
    pub servers: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
    pub name: Option<String>,
}

/// What goes out on NATS after a direct publish was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NatsCopy {
    /// A Publish envelope with ack policy NONE.
    #[default]
    Envelope,
    /// The bare value.
    Value,
    /// Nothing.
    None,
}

impl NatsLink {
    /// Starts connecting on the current runtime, or reconnects with other settings. Reports by `nats` events; retries for ever.
    pub fn connect(&self, _shared: &SharedRef, _settings: NatsSettings) {
        todo!()
    }

    /// Whether the connections are up.
    pub fn is_connected(&self) -> bool {
        todo!()
    }

    /// Feeds a partition from its subject from now on (subscribes when needed). Returns once the subscription was sent and
    /// flushed, or at once while disconnected.
    pub async fn lead(&self, _partition: &Partition) {
        todo!()
    }

    /// Stops feeding a partition.
    pub fn unlead(&self, _incarnation: u64) {
        todo!()
    }

    /// Queues copies of committed direct publishes (records of one append, offsets from `base_offset`); best effort, never
    /// blocks: what does not fit the bounded queue is dropped and counted. Called on the committer's thread.
    pub fn try_copy(&self, _partition: &Partition, _mode: NatsCopy, _base_offset: u64, _records: &[IncomingRecord]) {
        todo!()
    }

    /// Closes the connections after flushing what is queued, at most one second.
    pub async fn close(&self) {
        todo!()
    }

    /// Publishes one message, waiting for room in the bounded outgoing queue.
    ///
    /// # Errors
    /// A sentence for the caller's status, e.g. `nats: connection closed`, `nats: maximum payload exceeded`.
    pub async fn publish(&self, _subject: &str, _reply: Option<&str>, _payload: Bytes) -> Result<(), String> {
        todo!()
    }

    /// Waits for the first message on `inbox`, subscribed before `publish` is sent (PublishToSubject with a deadline).
    ///
    /// # Errors
    /// As [`NatsLink::publish`]; the caller applies its own deadline around the future.
    pub async fn publish_and_wait(&self, _subject: &str, _payload: Bytes, _inbox: &str) -> Result<Bytes, String> {
        todo!()
    }
}
