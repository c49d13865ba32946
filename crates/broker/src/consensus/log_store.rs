//! The Raft log and the vote in our own log engine.
use super::entries;
use super::files::IDENTITY;
use super::types::{Entry, LogId, StorageError, StorageIoError, Types, Vote, log_id};
use super::vote::VoteFile;
use crate::clock::now_ns;
use bascule_log::{Log, LogReader, ReadMode, Start};
use bascule_record::Batches;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LeaderId, LogState, RaftLogReader};
use parking_lot::Mutex;
use std::fmt::{Debug, Display};
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Most bytes that are read for one append to a follower.
const READ_BYTES: usize = 2 << 20;

/// Log and vote of one voter. Copies are the same store.
///
/// A read error or a gap is an error, never a short or shifted range: the library would send it to a follower as it is. Any error
/// ends this broker's Raft, until the next start.
#[derive(Clone, Debug)]
pub struct LogStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    parts: Mutex<Parts>,
    vote: Arc<Mutex<VoteFile>>,
}

#[derive(Debug)]
struct Parts {
    /// `None` while it is truncated or reset, after a failure of that, and once it is closed.
    log: Option<Log>,
    reader: LogReader,
    /// The last entry below the log start.
    purged: Option<LogId>,
    /// How often the log was truncated or reset since the start.
    rewrites: u64,
}

/// Reads for one follower, for as long as this broker leads.
///
/// A leader never rewrites its log. The library does not wait for the tasks of an office that ended: they read on while the log
/// is truncated, any error of theirs would end this broker's Raft, and what the next leader appended would be sent under the old
/// term, as if it followed the entries of before. So they read nothing any more: the library then sends a heartbeat of the old
/// term, and ends them.
#[derive(Debug)]
pub struct OfficeReader {
    store: LogStore,
    /// [`Parts::rewrites`] when the office began.
    rewrites: u64,
}

impl LogStore {
    /// A store of an open log and vote. What the log holds is not committed until the library says so.
    ///
    /// # Errors
    /// `InvalidData`: the log begins at an entry, and which term came before is unknown.
    pub fn new(log: Log, vote: VoteFile) -> io::Result<Self> {
        let reader = log.reader();
        let purged = match reader.log_start().checked_sub(1) {
            None => None,
            Some(last) => Some(
                term_of(&log, last)
                    .map(|term| log_id(term, last))
                    .ok_or_else(|| {
                        let text = format!("the term of entry {} is not known", last + 1);
                        io::Error::new(io::ErrorKind::InvalidData, text)
                    })?,
            ),
        };
        let parts = Parts {
            log: Some(log),
            reader,
            purged,
            rewrites: 0,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                parts: Mutex::new(parts),
                vote: Arc::new(Mutex::new(vote)),
            }),
        })
    }

    /// Index of the last entry, 0 = none.
    pub fn last_index(&self) -> u64 {
        self.shared.parts.lock().reader.log_end()
    }

    /// Term and index (from 1) of the last entry; zeros without one.
    pub fn last(&self) -> (u64, u64) {
        let last = self.shared.parts.lock().last();
        last.map_or((0, 0), |last| {
            (last.leader_id.term, super::types::index_of(&last))
        })
    }

    /// Index of the first entry that the log has, or would have.
    #[cfg(test)]
    pub fn first_index(&self) -> u64 {
        self.shared.parts.lock().reader.log_start() + 1
    }

    /// As if nothing had been purged. The library's tests begin logs anywhere.
    #[cfg(test)]
    pub(super) fn forget_purged(&self) {
        self.shared.parts.lock().purged = None;
    }

    /// Closes the log cleanly; later appends fail. Blocks. Idempotent.
    ///
    /// # Errors
    /// Those of [`Log::close`].
    pub fn close(&self) -> Result<(), bascule_log::Error> {
        let log = self.shared.parts.lock().log.take();
        log.map_or(Ok(()), Log::close)
    }

    /// Replaces the log by what `change` makes of it, on a thread that may block.
    async fn replace(
        &self,
        change: impl FnOnce(Log) -> Result<Log, bascule_log::Error> + Send + 'static,
    ) -> io::Result<()> {
        let log = {
            let mut parts = self.shared.parts.lock();
            parts.rewrites += 1;
            parts.log.take().ok_or_else(closed)?
        };
        let changed = tokio::task::spawn_blocking(move || change(log)).await;
        let log = changed
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        let mut parts = self.shared.parts.lock();
        parts.reader = log.reader();
        parts.log = Some(log);
        Ok(())
    }

    fn reader(&self) -> LogReader {
        self.shared.parts.lock().reader.clone()
    }
}

impl Parts {
    fn last(&self) -> Option<LogId> {
        let end = self.reader.log_end();
        if end == self.reader.log_start() {
            return self.purged;
        }
        let last = end.checked_sub(1)?;
        let term = self.log.as_ref().and_then(|log| term_of(log, last))?;
        Some(log_id(term, last))
    }

    fn append(&mut self, batches: impl IntoIterator<Item = Entry>) -> io::Result<&mut Log> {
        let log = self.log.as_mut().ok_or_else(closed)?;
        let now = now_ns();
        for entry in batches {
            let end = self.reader.log_end();
            if entry.log_id.index != end {
                let text = format!(
                    "entry {} does not follow entry {end}",
                    entry.log_id.index + 1
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let batch = entries::to_batch(&entry, now)?;
            log.append(batch, entry.log_id.leader_id.term, now)
                .map_err(io::Error::other)?;
        }
        Ok(log)
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        read_range(&self.reader(), &range).map_err(cannot_read)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        read(&self.reader(), start, end, READ_BYTES).map_err(cannot_read)
    }
}

impl OfficeReader {
    /// What `read` finds; nothing when the log was rewritten since the office began, or meanwhile.
    fn read(
        &self,
        read: impl FnOnce(&LogReader) -> io::Result<Vec<Entry>>,
    ) -> io::Result<Vec<Entry>> {
        let reader = {
            let parts = self.store.shared.parts.lock();
            if parts.rewrites != self.rewrites {
                return Ok(Vec::new());
            }
            parts.reader.clone()
        };
        let found = read(&reader);
        if found.is_err() && self.store.shared.parts.lock().rewrites != self.rewrites {
            return Ok(Vec::new());
        }
        found
    }
}

impl RaftLogReader<Types> for OfficeReader {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        self.read(|reader| read_range(reader, &range))
            .map_err(cannot_read)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        self.read(|reader| read(reader, start, end, READ_BYTES))
            .map_err(cannot_read)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = OfficeReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let parts = self.shared.parts.lock();
        Ok(LogState {
            last_purged_log_id: parts.purged,
            last_log_id: parts.last(),
        })
    }

    async fn get_log_reader(&mut self) -> OfficeReader {
        let rewrites = self.shared.parts.lock().rewrites;
        OfficeReader {
            store: self.clone(),
            rewrites,
        }
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let (file, vote) = (self.shared.vote.clone(), *vote);
        let stored = tokio::task::spawn_blocking(move || {
            file.lock().store(
                vote.leader_id.term,
                vote.leader_id.voted_for,
                vote.committed,
            )
        });
        let stored = stored.await.map_err(io::Error::other);
        stored
            .and_then(|stored| stored.map_err(io::Error::other))
            .map_err(|error| StorageIoError::write_vote(AnyError::new(&error)).into())
    }

    /// Never as committed: a leader that restarts begins a new term, so that it cannot write another entry under an id that a
    /// follower has stored.
    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let file = self.shared.vote.lock();
        let state = file.state();
        Ok(
            (state.term > 0 || state.voted_for.is_some()).then_some(Vote {
                leader_id: LeaderId {
                    term: state.term,
                    voted_for: state.voted_for,
                },
                committed: false,
            }),
        )
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        let parts = self.shared.parts.lock();
        if let (Some(log), Some(committed)) = (&parts.log, committed) {
            log.set_high_watermark(super::types::index_of(&committed).min(parts.reader.log_end()));
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let parts = self.shared.parts.lock();
        let Some(last) = parts.reader.high_watermark().checked_sub(1) else {
            return Ok(None);
        };
        if last < parts.reader.log_start() {
            // A snapshot has it: there is nothing to apply again.
            return Ok(None);
        }
        let term = parts.log.as_ref().and_then(|log| term_of(log, last));
        Ok(term.map(|term| log_id(term, last)))
    }

    async fn append<I>(&mut self, entries: I, done: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut parts = self.shared.parts.lock();
        let log = parts.append(entries).map_err(cannot_write)?;
        log.commit(Box::new(move |outcome| {
            done.log_io_completed(outcome.map(|_| ()).map_err(io::Error::other));
        }));
        Ok(())
    }

    async fn truncate(&mut self, since: LogId) -> Result<(), StorageError> {
        let to = since.index;
        if to >= self.last_index() {
            return Ok(());
        }
        let truncated = self.replace(move |log| {
            log.truncate(to, since.leader_id.term, None)
                .map(|(log, _)| log)
        });
        truncated.await.map_err(cannot_write)
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError> {
        let start = super::types::index_of(&upto);
        if start > self.last_index() {
            let begin = Start::after(upto.index, upto.leader_id.term, IDENTITY);
            self.replace(move |log| log.reset_at(&begin))
                .await
                .map_err(cannot_write)?;
        } else {
            let mut parts = self.shared.parts.lock();
            let log = parts.log.as_mut().ok_or_else(|| cannot_write(closed()))?;
            // Only what a snapshot covers is purged, and only what is committed comes into one.
            log.set_high_watermark(start);
            log.trim(start, now_ns())
                .map_err(|error| cannot_write(io::Error::other(error)))?;
        }
        self.shared.parts.lock().purged = Some(upto);
        Ok(())
    }
}

/// Those entries of a range that the log holds.
fn read_range(reader: &LogReader, range: &impl RangeBounds<u64>) -> io::Result<Vec<Entry>> {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let until = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(until) => *until,
        Bound::Unbounded => u64::MAX,
    };
    let (start, end) = (reader.log_start(), reader.log_end());
    read(reader, from.max(start), until.min(end), usize::MAX)
}

/// Entries [from, until), in order: all of them, or as many as `max_bytes` hold but at least one.
fn read(reader: &LogReader, from: u64, until: u64, max_bytes: usize) -> io::Result<Vec<Entry>> {
    let (start, end) = (reader.log_start(), reader.log_end());
    if from >= until {
        return Ok(Vec::new());
    }
    let missing = |index: u64| {
        let text = format!(
            "entry {} is not readable; the log holds {} to {end}",
            index + 1,
            start + 1
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    if from < start || until > end {
        return Err(missing(if from < start { from } else { end.max(from) }));
    }
    let (mut cursor, mut found, mut bytes_read) = (reader.replica_cursor(from), Vec::new(), 0);
    let mut next = from;
    while next < until && bytes_read < max_bytes {
        let most = READ_BYTES.min(max_bytes - bytes_read);
        let bytes = cursor
            .next(until, most, ReadMode::Blocking)
            .map_err(io::Error::other)?
            .ok_or_else(|| missing(next))?;
        bytes_read += bytes.len();
        for batch in Batches::new(bytes) {
            let batch = batch.map_err(io::Error::other)?;
            for entry in entries::from_batch(&batch, next)? {
                if entry.log_id.index != next {
                    return Err(missing(next));
                }
                next += 1;
                found.push(entry);
            }
        }
    }
    found.truncate((until - from) as usize);
    Ok(found)
}

fn term_of(log: &Log, offset: u64) -> Option<u64> {
    let epochs = log.epochs();
    let after = epochs.partition_point(|(_, start)| *start <= offset);
    Some(epochs.get(after.checked_sub(1)?)?.0)
}

fn closed() -> io::Error {
    io::Error::other("the metadata log is closed")
}

fn cannot_read(error: impl Display) -> StorageError {
    StorageIoError::read_logs(AnyError::error(error)).into()
}

fn cannot_write(error: impl Display) -> StorageError {
    StorageIoError::write_logs(AnyError::error(error)).into()
}
