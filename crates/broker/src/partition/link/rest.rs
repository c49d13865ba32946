//! The rows of an epoch that are not in the log yet, read from its pieces a group at a time.
use super::super::Partition;
use super::attempt::Ended;
use crate::clock::now_ns;
use crate::stage::{PieceBatches, PieceFile};
use bascule_record::{Header, Producer, SealedBatch};
use bytes::Bytes;
use std::vec::IntoIter;

/// Which rows come next. It has no file open after [`Rest::close_file`].
pub(super) struct Rest {
    pieces: IntoIter<PieceFile>,
    reading: Option<PieceBatches>,
    /// Rows that are in the log and still to be passed.
    skip: u64,
    /// Number of the next row among those of the epoch and the partition.
    next: u64,
    producer: u64,
    ordinal: u32,
}

/// Batches that are to be appended together.
#[derive(Default)]
pub(super) struct Group {
    pub batches: Vec<SealedBatch>,
    /// No piece has more.
    pub is_last: bool,
}

impl Rest {
    /// The rows of `pieces`, which are in the order of tasks, behind the first `linked` ones.
    pub fn new(pieces: Vec<PieceFile>, linked: u64, producer: u64, ordinal: u32) -> Self {
        Self {
            pieces: pieces.into_iter(),
            reading: None,
            skip: linked,
            next: linked,
            producer,
            ordinal,
        }
    }

    /// The next batches, read until they have `bytes` or more, those that are passed because they are in the log included. Waits for
    /// the disk.
    ///
    /// # Errors
    /// [`Ended::Blocked`]: a piece cannot be read, or not be sealed for the log.
    pub fn group(&mut self, partition: &Partition, bytes: usize) -> Result<Group, Ended> {
        let mut group = Group::default();
        let mut read = 0;
        while read < bytes {
            let Some(mut reading) = self.reading.take() else {
                match self.pieces.next() {
                    Some(piece) if self.passes(&piece) => {}
                    Some(piece) => self.reading = Some(piece.batches()?),
                    None => {
                        group.is_last = true;
                        return Ok(group);
                    }
                }
                continue;
            };
            // After the last one the piece ends.
            let Some(stored) = reading.next() else {
                continue;
            };
            let stored = stored?;
            read += stored.len();
            let batch = self.take(reading.piece(), &stored, partition)?;
            group.batches.extend(batch);
            self.reading = Some(reading);
        }
        Ok(group)
    }

    /// Closes the file that is being read, until the next call of [`Rest::group`].
    pub fn close_file(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.close_file();
        }
    }

    /// Whether all rows of a piece are in the log.
    fn passes(&mut self, piece: &PieceFile) -> bool {
        let rows = piece.contents().rows;
        let passes = rows <= self.skip;
        if passes {
            self.skip -= rows;
        }
        passes
    }

    /// The batch as it is to be appended; `None` = it is in the log.
    fn take(
        &mut self,
        piece: &PieceFile,
        stored: &Bytes,
        partition: &Partition,
    ) -> Result<Option<SealedBatch>, Ended> {
        let blocked = |text: String| {
            Ended::Blocked(format!(
                "{} cannot be linked: {text}",
                piece.path().display()
            ))
        };
        if self.skip > 0 {
            let header = Header::read(stored);
            let rows = header.map_err(|error| blocked(error.to_string()))?.count;
            self.skip = self
                .skip
                .checked_sub(u64::from(rows))
                .ok_or_else(|| blocked("the log has a part of one of its batches".to_owned()))?;
            return Ok(None);
        }
        let producer = Producer {
            id: self.producer,
            epoch: self.ordinal,
            // An epoch has fewer than 2^32 rows for a partition.
            base_sequence: self.next as u32,
        };
        let keys = partition.reader().keys();
        let batch = SealedBatch::restore(stored, &keys, now_ns(), producer);
        let batch = batch.map_err(|error| blocked(error.to_string()))?;
        self.next += u64::from(batch.count());
        Ok(Some(batch))
    }
}
