//! What one producer has stored, read from the headers of its batches.
use crate::read::cursor::Cursor;
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

impl Produced {
    /// Counts a batch if it is of this producer.
    fn add(&mut self, header: &Header, id: u64, epoch: u32) -> bool {
        let producer = header.producer;
        let Some(producer) =
            producer.filter(|producer| (producer.id, producer.epoch) == (id, epoch))
        else {
            return false;
        };
        let end = u64::from(producer.base_sequence) + u64::from(header.span);
        self.records = self.records.max(end);
        self.base_offset.get_or_insert(header.base_offset);
        true
    }
}

/// See [`crate::LogReader::produced`].
pub(crate) fn produced(
    shared: &Arc<Shared>,
    id: u64,
    epoch: u32,
    from: u64,
) -> Result<Produced, ReadError> {
    let end = shared.high_watermark();
    let mut cursor = Cursor::new(Arc::clone(shared), from);
    let mut found = Produced::default();
    // A range that cannot be read, and behind which no batch of the producer was found yet.
    let mut damaged = None;
    loop {
        let bytes = match cursor.next(end, STEP, ReadMode::Blocking) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break,
            Err(ReadError::Damaged(damage)) => {
                cursor.skip_to(damage.end);
                damaged = Some(damage);
                continue;
            }
            Err(error) => return Err(error),
        };
        for batch in Batches::new(bytes) {
            // The cursor has checked the headers.
            let header = batch
                .and_then(|batch| Header::read(&batch))
                .map_err(|error| {
                    ReadError::io(
                        &shared.directory,
                        io::Error::new(io::ErrorKind::InvalidData, error),
                    )
                })?;
            if header.base_offset >= from && found.add(&header, id, epoch) {
                // Its sequence is the number of records before it.
                damaged = None;
            }
        }
    }
    damaged.map_or(Ok(found), |damage| Err(ReadError::Damaged(damage)))
}
