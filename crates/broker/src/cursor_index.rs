//! Index of a partition of `__cursors`: the last committed position of each key.
use crate::partition::{
    AckLevel, Append, AppendError, Committed, IncomingRecord, Partition, Payload, decode_batch,
};
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches};
use bascule_wire::liftbridge::cursors::{Cursor, crc32, read};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Up to so many records are read on the caller's thread when they are in the page cache.
const FEW: u64 = 1024;
/// Keys share so many locks.
const LOCKS: usize = 64;

/// A stored position, with the incarnation of the partition that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub offset: i64,
    pub incarnation: u64,
    /// Epoch of the group that stored it; 0 = none.
    pub generation: u64,
}

/// The indexes of all partitions of `__cursors` led here, by incarnation; made when first needed.
#[derive(Debug)]
pub(crate) struct CursorIndexes {
    by_incarnation: parking_lot::Mutex<HashMap<u64, Arc<Mutex<Index>>>>,
    /// Positions in all of them.
    known: Arc<AtomicUsize>,
    locks: Vec<Arc<Mutex<()>>>,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub position: Option<Position>,
    /// Records that are not a position, and were not reported before.
    pub strange: u64,
}

/// Appends a position to a partition of `__cursors`; the outcome comes when it is committed. `lock` is held until then, also
/// when nobody waits any more.
pub(crate) async fn append(
    partition: &Partition,
    key: String,
    position: &Cursor,
    lock: Option<OwnedMutexGuard<()>>,
) -> oneshot::Receiver<Result<Committed, AppendError>> {
    let value = position.encode_to_vec();
    let record = IncomingRecord {
        received_bytes: u32::try_from(key.len() + value.len()).unwrap_or(u32::MAX),
        key: key.into(),
        value: Some(value.into()),
        expected_offset: -1,
        ..IncomingRecord::default()
    };
    let (done, outcome) = oneshot::channel();
    let append = Append {
        payload: Payload::Records(vec![record]),
        producer: None,
        republish: false,
        ack: AckLevel::All,
        done: Box::new(move |result| {
            // Nobody listens when the client has gone: it is stored all the same.
            let _ = done.send(result);
            drop(lock);
        }),
    };
    partition.append(append).await;
    outcome
}

impl Default for CursorIndexes {
    fn default() -> Self {
        Self {
            by_incarnation: parking_lot::Mutex::default(),
            known: Arc::default(),
            locks: (0..LOCKS).map(|_| Arc::default()).collect(),
        }
    }
}

impl CursorIndexes {
    /// Number of stored positions in the partitions that were read since the start.
    pub(crate) fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// Locks a key, for a caller that reads its position and then stores another one.
    pub(crate) async fn lock(&self, key: &str) -> OwnedMutexGuard<()> {
        let place = crc32(key.as_bytes()) as usize % LOCKS;
        match self.locks.get(place) {
            Some(lock) => lock.clone().lock_owned().await,
            None => Arc::<Mutex<()>>::default().lock_owned().await,
        }
    }

    fn of(&self, incarnation: u64) -> Arc<Mutex<Index>> {
        let mut indexes = self.by_incarnation.lock();
        let new = || Arc::new(Mutex::new(Index::counted_in(&self.known)));
        indexes.entry(incarnation).or_insert_with(new).clone()
    }

    /// The position stored under `key`, as of now.
    ///
    /// # Errors
    /// One sentence, when the log cannot be read.
    pub(crate) async fn find(&self, partition: &Partition, key: &str) -> Result<Found, String> {
        let index = self.of(partition.identity().incarnation);
        let mut index = index.lock_owned().await;
        let (reader, committed) = (partition.reader(), partition.reader().high_watermark());
        let read = if committed.saturating_sub(index.next) <= FEW {
            index.catch_up(&reader, committed, ReadMode::NoWait)
        } else {
            Err(ReadError::WouldBlock)
        };
        if let Err(ReadError::WouldBlock) = read {
            let waited = tokio::task::spawn_blocking(move || {
                let read = index.catch_up(&reader, committed, ReadMode::Blocking);
                (index, read)
            });
            let (mut index, read) = waited.await.map_err(|error| error.to_string())?;
            read.map_err(|error| error.to_string())?;
            return Ok(index.found(key));
        }
        read.map_err(|error| error.to_string())?;
        Ok(index.found(key))
    }

    /// The positions whose key begins with `prefix`, as of now. Waits for the disk and for others: not for async tasks.
    ///
    /// # Errors
    /// One sentence, when the log cannot be read.
    pub(crate) fn beginning_with(
        &self,
        partition: &Partition,
        prefix: &str,
    ) -> Result<Vec<(Box<str>, Position)>, String> {
        let index = self.of(partition.identity().incarnation);
        let mut index = index.blocking_lock();
        let (reader, committed) = (partition.reader(), partition.reader().high_watermark());
        let read = index.catch_up(&reader, committed, ReadMode::Blocking);
        read.map_err(|error| error.to_string())?;
        let wanted = (index.positions.iter()).filter(|(key, _)| key.starts_with(prefix));
        Ok(wanted.map(|(key, at)| (key.clone(), *at)).collect())
    }
}

/// The map of one partition.
#[derive(Debug)]
struct Index {
    positions: HashMap<Box<str>, Position>,
    /// Everything below is in the map.
    next: u64,
    /// Records that are not a position and were not reported yet.
    strange: u64,
    known: Arc<AtomicUsize>,
}

impl Index {
    fn counted_in(known: &Arc<AtomicUsize>) -> Self {
        Self {
            positions: HashMap::new(),
            next: 0,
            strange: 0,
            known: known.clone(),
        }
    }

    fn found(&mut self, key: &str) -> Found {
        Found {
            position: self.positions.get(key).copied(),
            strange: std::mem::take(&mut self.strange),
        }
    }

    /// Reads on, up to `committed` (exclusive). After an error the map holds what came before it.
    fn catch_up(
        &mut self,
        reader: &LogReader,
        committed: u64,
        mode: ReadMode,
    ) -> Result<(), ReadError> {
        if self.next >= committed {
            return Ok(());
        }
        let mut cursor = reader.cursor(self.next);
        while let Some(bytes) = cursor.next(committed, READ_BYTES, mode)? {
            for bytes in Batches::new(bytes) {
                let batch = decode_batch(reader, bytes)?;
                self.take(&batch, committed);
            }
        }
        self.next = self.next.max(committed);
        Ok(())
    }

    fn take(&mut self, batch: &Batch, committed: u64) {
        for record in batch.seek(self.next)..batch.seek(committed) {
            let key = batch.key(record).unwrap_or_default();
            let value = batch.value(record).unwrap_or_default();
            match read(key, value) {
                Some((key, cursor)) => self.store(key, &cursor),
                // Forged, from when others than the broker could write here.
                None => self.strange += 1,
            }
            self.next = batch.offset(record) + 1;
        }
    }

    /// Keeps what a record says: stale members are refused before it is written.
    fn store(&mut self, key: String, cursor: &Cursor) {
        let position = Position {
            offset: cursor.offset,
            incarnation: cursor.incarnation,
            generation: cursor.generation,
        };
        if self.positions.insert(key.into(), position).is_none() {
            self.known.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_position_counts() {
        let known = Arc::default();
        let mut index = Index::counted_in(&known);
        let mut stored = |offset: i64, incarnation: u64, generation: u64| {
            let cursor = Cursor {
                offset,
                incarnation,
                generation,
                ..Cursor::default()
            };
            index.store("k".to_owned(), &cursor);
            let found = index.positions["k"];
            (found.offset, found.incarnation)
        };
        assert_eq!(stored(5, 7, 2), (5, 7));
        assert_eq!(stored(3, 7, 2), (3, 7));
        assert_eq!(
            stored(9, 7, 0),
            (9, 7),
            "a generation that shut everybody out is gone"
        );
        assert_eq!(stored(1, 8, 0), (1, 8), "another history");
        assert_eq!(known.load(Ordering::Relaxed), 1);
    }
}
