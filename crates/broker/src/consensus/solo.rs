//! The metadata log of a broker without a cluster: one voter, which commits by its own sync, in groups.
//!
//! Entry i is the record at offset i − 1 of a log in `<data>/metadata/log`. Snapshots are beside it; the newest and the one
//! before it are kept, and the log from the older one on.
use super::door::{Door, MetadataError, Proposal, over_the_limit};
use super::files::open_log;
use crate::clock::now_ns;
use crate::events::{Event, Events, Level};
use crate::metadata::{behind_partitions, snapshot};
use crate::owner_only;
use bascule_log::{GroupCommitter, Log, LogReader, ReadMode, Retention};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Batches, Codec, RecordRef};
use bascule_wire::ErrorCode;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Leader epoch of a log with one voter.
const EPOCH: u64 = 1;
const READ_BYTES: usize = 1 << 20;
/// Most proposals without an outcome.
const OUTSTANDING: usize = 8192;

/// The log of one voter. Commits by its own sync, in groups.
#[derive(Debug)]
pub(super) struct Solo {
    events: Arc<Events>,
    directory: PathBuf,
    log: Mutex<Option<Log>>,
    reader: LogReader,
    /// Ids without an outcome yet.
    outstanding: Arc<Mutex<HashSet<u64>>>,
}

impl Solo {
    /// Opens `<data>/metadata`, queues every entry after the newest snapshot as a `committed` event, and returns that
    /// snapshot's index and state: (0, empty) when there is none. Blocks.
    ///
    /// # Errors
    /// [`MetadataError`]; nothing was queued or only a prefix.
    pub fn open(
        events: &Arc<Events>,
        data: &Path,
        committer: &Arc<GroupCommitter>,
    ) -> Result<(Self, u64, Vec<u8>), MetadataError> {
        let directory = data.join("metadata");
        owner_only::create_directories(&directory)?;
        // Everything acked from here on relies on this name.
        std::fs::File::open(data)?.sync_all()?;
        let snapshot::Newest {
            index,
            state,
            raft: _,
            damaged,
        } = snapshot::newest(&directory)?;
        for path in damaged {
            let text = format!(
                "a metadata snapshot is damaged, the one before it is used: {}",
                path.display()
            );
            let fields = serde_json::json!({"path": path, "used_index": index});
            events.log(Level::Error, "metadata", text, fields);
        }
        let log = open_log(&directory, committer)?;
        let reader = log.reader();
        if let Some(text) = behind_partitions(data, reader.log_end()) {
            return Err(MetadataError::Damaged(text));
        }
        log.set_high_watermark(reader.log_end());
        let opened = Self {
            events: events.clone(),
            directory,
            log: Mutex::new(Some(log)),
            reader,
            outstanding: Arc::default(),
        };
        opened.replay(index)?;
        Ok((opened, index, state))
    }

    fn replay(&self, snapshot_index: u64) -> Result<(), MetadataError> {
        let damaged = |text: String| MetadataError::Damaged(text);
        let (start, end) = (self.reader.log_start(), self.reader.log_end());
        if start > snapshot_index || end < snapshot_index {
            return Err(damaged(format!(
                "it holds entries {} to {end}, the snapshot ends at {snapshot_index}",
                start + 1
            )));
        }
        let (mut cursor, mut next) = (self.reader.cursor(snapshot_index), snapshot_index);
        while next < end {
            let read = cursor
                .next(end, READ_BYTES, ReadMode::Blocking)
                .map_err(|error| damaged(error.to_string()))?;
            let Some(bytes) = read else { break };
            for batch in Batches::new(bytes) {
                let batch = batch
                    .and_then(|bytes| Batch::read(&bytes))
                    .map_err(|error| damaged(error.to_string()))?;
                for i in batch.seek(next)..batch.len() {
                    next = batch.offset(i) + 1;
                    self.events.push(Event::Committed {
                        index: next,
                        entry: Bytes::copy_from_slice(batch.value(i).unwrap_or_default()),
                        proposal: None,
                    });
                }
            }
        }
        if next == end {
            Ok(())
        } else {
            Err(damaged(format!("entry {} is missing", next + 1)))
        }
    }

    fn append(&self, proposals: Vec<Proposal>) {
        let mut guard = self.log.lock();
        let Some(log) = guard.as_mut() else {
            return self.fail(
                &proposals,
                ErrorCode::MetadataStopped,
                "the broker is stopping",
            );
        };
        let first_index = self.reader.log_end() + 1;
        let outcome = append_entries(log, &proposals);
        // Entries that reached the log are committed with this group, even when later ones failed.
        let appended = (self.reader.log_end() + 1 - first_index) as usize;
        let mut proposals = proposals;
        let lost = proposals.split_off(appended.min(proposals.len()));
        if let Err(error) = outcome {
            let code = match error {
                bascule_log::Error::Full { .. } => ErrorCode::DiskFull,
                ref error if error.is_transient() => ErrorCode::Busy,
                _ => ErrorCode::StorageFailed,
            };
            self.fail(&lost, code, &error.to_string());
        }
        if proposals.is_empty() {
            return;
        }
        let (events, outstanding, mark) = (
            self.events.clone(),
            self.outstanding.clone(),
            log.high_watermark_updater(),
        );
        log.commit(Box::new(move |outcome| match outcome {
            Ok(end) => {
                // Under the lock, so that no barrier comes between the mark and the events.
                let mut outstanding = outstanding.lock();
                mark.raise(end);
                for (index, proposal) in (first_index..).zip(proposals) {
                    outstanding.remove(&proposal.id);
                    events.push(Event::Committed {
                        index,
                        entry: proposal.bytes,
                        proposal: Some(proposal.id),
                    });
                }
            }
            Err(error) => {
                for proposal in proposals {
                    if outstanding.lock().remove(&proposal.id) {
                        events.push(failed(
                            proposal.id,
                            ErrorCode::StorageFailed,
                            error.to_string(),
                        ));
                    }
                }
            }
        }));
    }

    fn fail(&self, proposals: &[Proposal], code: ErrorCode, text: &str) {
        for proposal in proposals {
            if self.outstanding.lock().remove(&proposal.id) {
                self.events.push(failed(proposal.id, code, text.into()));
            }
        }
    }

    fn expire_later(&self, ids: Vec<u64>, timeout: Duration) {
        let (events, outstanding) = (self.events.clone(), self.outstanding.clone());
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            for id in ids {
                if outstanding.lock().remove(&id) {
                    let text =
                        "the metadata operation did not finish in time; its outcome is unknown"
                            .to_owned();
                    events.push(failed(id, ErrorCode::MetadataTimeout, text));
                }
            }
        });
    }

    /// When entry `index` was proposed, ns since 1970; `None` when it is no longer there.
    fn time_of(&self, index: u64) -> Result<Option<i64>, MetadataError> {
        let Some(offset) = index.checked_sub(1) else {
            return Ok(None);
        };
        let read = self
            .reader
            .cursor(offset)
            .next(index, 1, ReadMode::Blocking)
            .map_err(|error| MetadataError::Damaged(error.to_string()))?;
        let Some(Ok(bytes)) = read.and_then(|bytes| Batches::new(bytes).next()) else {
            return Ok(None);
        };
        let batch =
            Batch::read(&bytes).map_err(|error| MetadataError::Damaged(error.to_string()))?;
        let i = batch.seek(offset);
        Ok((i < batch.len() && batch.offset(i) == offset).then(|| batch.timestamp(i)))
    }
}

impl Door for Solo {
    fn last_index(&self) -> u64 {
        self.reader.log_end()
    }

    fn propose(&self, proposals: Vec<Proposal>, timeout: Duration) {
        let mut accepted = Vec::with_capacity(proposals.len());
        let mut outstanding = self.outstanding.lock();
        for proposal in proposals {
            if let Some(text) = over_the_limit(&proposal.bytes) {
                self.events
                    .push(failed(proposal.id, ErrorCode::InvalidArgument, text));
            } else if outstanding.len() >= OUTSTANDING {
                self.events.push(failed(
                    proposal.id,
                    ErrorCode::Busy,
                    "too many metadata operations wait".into(),
                ));
            } else {
                outstanding.insert(proposal.id);
                accepted.push(proposal);
            }
        }
        drop(outstanding);
        if !accepted.is_empty() {
            self.expire_later(
                accepted.iter().map(|proposal| proposal.id).collect(),
                timeout,
            );
            self.append(accepted);
        }
    }

    fn read_barrier(&self, id: u64) {
        let _no_commit_halfway = self.outstanding.lock();
        let index = self.reader.high_watermark();
        self.events.push(Event::Barrier { id, index });
    }

    fn save_snapshot(&self, index: u64, state: &[u8]) -> Result<(), MetadataError> {
        if index > self.reader.high_watermark() {
            let end = self.reader.high_watermark();
            return Err(MetadataError::Damaged(format!(
                "a snapshot at {index} is beyond the last entry {end}"
            )));
        }
        let older = snapshot::save(&self.directory, index, state)?;
        let Some(time) = self.time_of(older)? else {
            return Ok(());
        };
        // Times never decrease, so segments that end before that of entry `older` hold only what it covers.
        let now = now_ns();
        let retention = Retention {
            age_ns: now.saturating_sub(time),
            ..Retention::default()
        };
        if let Some(log) = self.log.lock().as_mut() {
            log.maintain(&retention, now)?;
            log.checkpoint()?;
        }
        Ok(())
    }

    fn close(&self) -> Result<(), MetadataError> {
        match self.log.lock().take() {
            Some(log) => Ok(log.close()?),
            None => Ok(()),
        }
    }
}

/// Appends in order. After an error a prefix may be in the log.
fn append_entries(log: &mut Log, proposals: &[Proposal]) -> Result<(), bascule_log::Error> {
    let now = now_ns();
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for proposal in proposals {
        let record = RecordRef {
            timestamp: now,
            id: u128::from(proposal.id),
            value: Some(&proposal.bytes),
            ..RecordRef::default()
        };
        if builder.push(&record).is_err() {
            seal(log, &mut builder, now)?;
            // Bounded by `over_the_limit`, so that it fits an empty batch.
            let _ = builder.push(&record);
        }
    }
    seal(log, &mut builder, now)
}

fn seal(log: &mut Log, builder: &mut BatchBuilder, now: i64) -> Result<(), bascule_log::Error> {
    match builder.seal(Codec::None, None, None) {
        Some(batch) => log.append(batch, EPOCH, now).map(|_| ()),
        None => Ok(()),
    }
}

fn failed(proposal: u64, code: ErrorCode, message: String) -> Event {
    Event::Failed {
        proposal,
        code,
        message,
    }
}
