//! What one producer has stored, read from the headers of its batches.
use crate::read::cursor::Cursor;
use crate::segment::damage::Damage;
use crate::state::shared::Shared;
use crate::{ReadError, ReadMode};
use bascule_record::{Batches, Header};
use std::io;
use std::sync::Arc;

/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// The records of one producer and producer epoch in a part of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Produced {
    /// How many there are, those that compaction removed included: one more than the highest sequence.
    pub records: u64,
    /// Offset of the first one.
    pub base_offset: Option<u64>,
}

/// Counts the records of one producer and producer epoch, a part of the log at a time. Keeps neither a file nor a buffer between
/// two parts. Made by [`crate::LogReader::produced`].
#[derive(Debug)]
pub struct ProducedScan {
    shared: Arc<Shared>,
    /// Id and epoch of the producer.
    producer: (u64, u32),
    /// First offset that counts.
    from: u64,
    /// First offset that was not read.
    next: u64,
    /// Where the scan ends, exclusive.
    end: u64,
    found: Produced,
    /// A range that cannot be read, and behind which no batch of the producer was found yet.
    damaged: Option<Box<Damage>>,
}

impl ProducedScan {
    pub(crate) fn new(shared: Arc<Shared>, id: u64, epoch: u32, from: u64) -> Self {
        Self {
            end: shared.high_watermark(),
            shared,
            producer: (id, epoch),
            from,
            next: from,
            found: Produced::default(),
            damaged: None,
        }
    }

    /// Reads on, at least a batch and at most about `bytes` and 1 MiB more. Returns the count once the log was read up to the high
    /// watermark of the moment when the scan began; `None` = it was not yet. May wait for the disk.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] at the end for a range that may hold some, unless the sequence of a later batch of the producer says
    /// how many came before; [`ReadError::Io`]; [`ReadError::Closed`]. After an error a new scan is needed.
    pub fn read(&mut self, bytes: usize) -> Result<Option<Produced>, ReadError> {
        let mut cursor = Cursor::new(Arc::clone(&self.shared), self.next);
        let mut read = 0;
        while read < bytes.max(1) {
            match cursor.next(self.end, STEP, ReadMode::Blocking) {
                Ok(Some(batches)) => {
                    read += batches.len();
                    self.add_all(Batches::new(batches))?;
                }
                Ok(None) => return self.outcome().map(Some),
                Err(ReadError::Damaged(damage)) => {
                    cursor.skip_to(damage.end);
                    self.damaged = Some(damage);
                }
                Err(error) => return Err(error),
            }
        }
        self.next = cursor.offset();
        if self.next >= self.end {
            return self.outcome().map(Some);
        }
        Ok(None)
    }

    fn add_all(&mut self, batches: Batches) -> Result<(), ReadError> {
        for batch in batches {
            // The cursor has checked the headers.
            let header = batch.and_then(|batch| Header::read(&batch));
            let header = header.map_err(|error| {
                let error = io::Error::new(io::ErrorKind::InvalidData, error);
                ReadError::io(&self.shared.directory, error)
            })?;
            self.add(&header);
        }
        Ok(())
    }

    /// Counts a batch if it is of the producer.
    fn add(&mut self, header: &Header) {
        let producer = header.producer;
        let producer = producer.filter(|own| (own.id, own.epoch) == self.producer);
        let Some(producer) = producer.filter(|_| header.base_offset >= self.from) else {
            return;
        };
        let end = u64::from(producer.base_sequence) + u64::from(header.span);
        self.found.records = self.found.records.max(end);
        self.found.base_offset.get_or_insert(header.base_offset);
        // Its sequence is the number of records before it.
        self.damaged = None;
    }

    fn outcome(&mut self) -> Result<Produced, ReadError> {
        let damaged = self.damaged.take();
        damaged.map_or(Ok(self.found), |damage| Err(ReadError::Damaged(damage)))
    }
}
