//! When the window of message ids is read and written: at the start, now and then, and before records are removed.
use super::jetstream::Ids;
use super::message_ids::{Snapshot, WINDOW_NS, link_before, recover};
use super::task::Task;
use super::{NatsAcks, Partition, PartitionSpec};
use crate::clock::now_ns;
use crate::events::PartitionChange;
use bascule_log::LogReader;
use std::io;
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;

/// Bytes of the log that a start may have to read for the window, or four times the file if that is more: so the file costs
/// at most a fifth of what the log does.
const REPLAY_BYTES: u64 = 128 << 20;

/// The state of the file `message-ids`.
#[derive(Debug)]
pub(super) struct MessageIdFile {
    /// The partition's directory; `None` when the log is encrypted: ids would be readable in the file.
    directory: Option<PathBuf>,
    /// Bytes appended since it was written.
    pub appended: u64,
    /// Size of the last one.
    bytes: u64,
    /// End of the log in the last one; `None` = it is not known.
    end: Option<u64>,
    saving: Option<JoinHandle<(u64, io::Result<u64>)>>,
    /// Whether it was reported that it cannot be written.
    is_failing: bool,
}

impl MessageIdFile {
    pub fn new(directory: &Path, spec: &PartitionSpec) -> Self {
        Self {
            directory: spec.data_keys.is_empty().then(|| directory.to_owned()),
            appended: 0,
            bytes: 0,
            end: None,
            saving: None,
            is_failing: false,
        }
    }

    fn is_due(&self) -> bool {
        self.appended >= REPLAY_BYTES.max(4 * self.bytes) && self.saving.is_none()
    }
}

/// The ids that a partition remembers; reads the log. Blocks.
pub(super) fn read_ids(partition: &Partition, spec: &PartitionSpec, directory: &Path) -> Ids {
    if spec.nats_acks == NatsAcks::Off {
        return Ids::Off;
    }
    let directory = spec.data_keys.is_empty().then_some(directory);
    let budget = partition.0.context.message_ids.clone();
    let reader = partition.reader();
    match recover(&reader, spec.log_identity(), directory, budget, now_ns()) {
        Ok(ids) => {
            let now = ids.now();
            Ids::Known(Box::new(ids), now)
        }
        Err(error) => {
            let why = format!("the ids of earlier messages cannot be read: {error}");
            let text = format!("messages with Nats-Msg-Id are refused: {why}");
            partition.report(PartitionChange::MessageIdsUnknown, &text);
            Ids::Unknown(why)
        }
    }
}

/// Writes the file; the end of the log in it, and its size. Blocks.
fn save(reader: &LogReader, mut snapshot: Snapshot, directory: &Path) -> (u64, io::Result<u64>) {
    snapshot.link = link_before(reader, snapshot.end);
    (snapshot.end, snapshot.save(directory))
}

impl Task {
    /// Reads the ids when the stream acknowledges JetStream publishers from now on. Nothing is appended meanwhile.
    pub(super) async fn load_ids(&mut self) {
        // Reads see what is committed.
        self.settled().await;
        let (partition, spec) = (self.partition.clone(), self.writer.spec.clone());
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || read_ids(&partition, &spec, &directory));
        self.writer.ids = read.await.unwrap_or_else(|error| {
            Ids::Unknown(format!(
                "the ids of earlier messages were not read: {error}"
            ))
        });
    }

    /// Writes the file in the background when much was appended since the last time.
    pub(super) async fn save_ids_when_due(&mut self) {
        if self
            .id_file
            .saving
            .as_ref()
            .is_some_and(JoinHandle::is_finished)
        {
            self.saved_ids().await;
        }
        if self.id_file.is_due() {
            self.begin_saving();
        }
    }

    /// Whether retention or compaction may remove records whose ids are remembered.
    pub(super) fn may_remove_known_ids(&self) -> bool {
        let spec = &self.writer.spec;
        let kept_ns = spec.retention().min_age_ns;
        spec.compact || kept_ns < WINDOW_NS
    }

    /// Writes the file before records are removed, whose ids then are in no other place. When this returns, it is on disk, or
    /// the reason why it is not was reported.
    pub(super) async fn save_ids(&mut self) {
        self.saved_ids().await;
        self.begin_saving();
        self.saved_ids().await;
    }

    fn begin_saving(&mut self) {
        let (Ids::Known(ids, _), Some(directory)) = (&self.writer.ids, &self.id_file.directory)
        else {
            return;
        };
        let reader = self.partition.reader();
        let end = reader.high_watermark();
        if self.id_file.end == Some(end) || self.partition.failure().is_some() {
            return;
        }
        let snapshot = Snapshot::of(ids, self.writer.spec.log_identity(), end, now_ns());
        let directory = directory.clone();
        self.id_file.appended = 0;
        self.id_file.saving = Some(tokio::task::spawn_blocking(move || {
            save(&reader, snapshot, &directory)
        }));
    }

    /// Waits for a write that was begun.
    async fn saved_ids(&mut self) {
        let Some(saving) = self.id_file.saving.take() else {
            return;
        };
        let (end, written) = match saving.await {
            Ok((end, written)) => (Some(end), written),
            Err(error) => (None, Err(io::Error::other(error))),
        };
        match written {
            Ok(bytes) => {
                self.id_file.bytes = bytes;
                self.id_file.end = end;
                self.id_file.is_failing = false;
            }
            Err(error) if !self.id_file.is_failing => {
                self.id_file.is_failing = true;
                let text = format!(
                    "message-ids was not written: {error}; the next start reads more of the log, and forgets the ids of \
                     records that were removed"
                );
                self.partition
                    .report(PartitionChange::MessageIdsNotSaved, &text);
            }
            Err(_) => {}
        }
    }
}
