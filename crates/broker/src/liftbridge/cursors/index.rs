//! What the log of a partition of `__cursors` says: the last committed position by key.
use crate::partition::{Partition, opened};
use bascule_log::{LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches};
use bascule_wire::liftbridge::cursors::Cursor;
use bytes::Bytes;
use prost::Message as _;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Up to so many records are read on the caller's thread when they are in the page cache.
const FEW: u64 = 1024;

/// Where a reader stands, and in which history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub offset: i64,
    pub incarnation: u64,
    generation: u64,
}

/// The indexes of all partitions of `__cursors` led here, by incarnation; made when first needed.
#[derive(Debug, Default)]
pub(crate) struct CursorIndexes(parking_lot::Mutex<HashMap<u64, Arc<Mutex<Index>>>>);

impl CursorIndexes {
    fn of(&self, incarnation: u64) -> Arc<Mutex<Index>> {
        self.0.lock().entry(incarnation).or_default().clone()
    }

    /// The position stored under `key`, as of now.
    ///
    /// # Errors
    /// One sentence, when the log cannot be read.
    pub(super) async fn find(
        &self,
        partition: &Partition,
        key: &str,
    ) -> Result<Option<Position>, String> {
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
            let (index, read) = waited.await.map_err(|error| error.to_string())?;
            read.map_err(|error| error.to_string())?;
            return Ok(index.positions.get(key.as_bytes()).copied());
        }
        read.map_err(|error| error.to_string())?;
        Ok(index.positions.get(key.as_bytes()).copied())
    }
}

/// The map of one partition.
#[derive(Debug, Default)]
struct Index {
    positions: HashMap<Box<[u8]>, Position>,
    /// Everything below is in the map.
    next: u64,
}

impl Index {
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
                let batch = opened(reader, bytes)?;
                self.take(&batch, committed);
            }
        }
        self.next = self.next.max(committed);
        Ok(())
    }

    fn take(&mut self, batch: &Batch, committed: u64) {
        for record in batch.seek(self.next)..batch.seek(committed) {
            if let (Some(key), Some(value)) = (batch.key(record), batch.value(record)) {
                self.store(key, value);
            }
            self.next = batch.offset(record) + 1;
        }
    }

    /// Keeps what a record says, unless it comes from an older generation of the same history. Values that are no cursor
    /// (anybody may publish on the stream's subject) say nothing.
    fn store(&mut self, key: &[u8], value: &[u8]) {
        let Ok(cursor) = Cursor::decode(Bytes::copy_from_slice(value)) else {
            return;
        };
        let position = Position {
            offset: cursor.offset,
            incarnation: cursor.incarnation,
            generation: cursor.generation,
        };
        let fenced = self.positions.get(key).is_some_and(|known| {
            known.incarnation == position.incarnation && known.generation > position.generation
        });
        if !fenced {
            self.positions.insert(key.into(), position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(offset: i64, incarnation: u64, generation: u64) -> Vec<u8> {
        let cursor = Cursor {
            offset,
            incarnation,
            generation,
            ..Cursor::default()
        };
        cursor.encode_to_vec()
    }

    #[test]
    fn the_last_position_counts_unless_its_generation_is_older() {
        let mut index = Index::default();
        let mut stored = |bytes: &[u8]| {
            index.store(b"k", bytes);
            let known = &index.positions[&b"k"[..]];
            (known.offset, known.incarnation)
        };
        assert_eq!(stored(&value(5, 7, 2)), (5, 7));
        assert_eq!(stored(&value(3, 7, 2)), (3, 7));
        assert_eq!(stored(&value(9, 7, 1)), (3, 7), "fenced");
        assert_eq!(stored(&value(1, 8, 0)), (1, 8), "another history");
        assert_eq!(stored(b"\xff"), (1, 8), "no cursor");
    }
}
