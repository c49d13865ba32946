//! Acks for JetStream publishers, decided by the writer: ids, conditions, failures, kills.
mod conditions;
mod survival;

use super::*;
use bascule_log::{FileWrapper, OpenMode, Storage, StorageFile, StorageWrapper};
use bascule_wire::jetstream::Refusal;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// A disk that can be full, and whose syncs can be held up.
#[derive(Debug, Default)]
struct Disk(Arc<Faults>);

#[derive(Debug, Default)]
struct Faults {
    is_full: Mutex<bool>,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl StorageWrapper for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        Ok(Arc::new(FileOnDisk(file, self.0.clone())))
    }
}

#[derive(Debug)]
struct FileOnDisk(Arc<dyn StorageFile>, Arc<Faults>);

impl FileWrapper for FileOnDisk {
    fn inner(&self) -> &dyn StorageFile {
        &*self.0
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if *self.1.is_full.lock() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut held = self.1.is_held.lock();
        self.1.released.wait_while(&mut held, |held| *held);
        drop(held);
        self.0.sync_data()
    }
}

impl Disk {
    fn hold(&self, held: bool) {
        *self.0.is_held.lock() = held;
        self.0.released.notify_all();
    }

    fn fill(&self, full: bool) {
        *self.0.is_full.lock() = full;
    }
}

fn acknowledging() -> PartitionSpec {
    PartitionSpec {
        nats_acks: NatsAcks::Jetstream,
        ..spec()
    }
}

/// A plain NATS message.
fn message(value: &str, headers: &[(&str, &str)]) -> IncomingRecord {
    let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let headers: Vec<_> = headers.iter().map(|(a, b)| (text(a), text(b))).collect();
    IncomingRecord {
        id: message_id(&headers),
        headers,
        is_plain_nats: true,
        expected_offset: 0,
        ..record(value)
    }
}

fn with_id(id: &str) -> IncomingRecord {
    message(id, &[("Nats-Msg-Id", id)])
}

async fn send(partition: &Partition, messages: Vec<IncomingRecord>) -> Committed {
    put(partition, Payload::Records(messages)).await.unwrap()
}

/// What became of one message: its offset, or why not.
async fn one(partition: &Partition, message: IncomingRecord) -> Result<u64, RejectReason> {
    let mut committed = send(partition, vec![message]).await;
    match committed.rejected.pop() {
        Some(rejected) => Err(rejected.reason),
        None => Ok(committed.base_offset),
    }
}

fn refused(refusal: Refusal) -> Result<u64, RejectReason> {
    Err(RejectReason::Refused(refusal))
}

/// Runs on a runtime that is dropped without a close, as a kill would.
fn until_killed<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}
