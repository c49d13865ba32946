//! Links between batches and the ends of leader epochs, by which replicas compare their logs.
use crate::log::Log;
use crate::read::replica_cursor::ReplicaCursor;
use crate::{ReadError, ReadMode};
use bascule_record::{Batches, Header};

/// Enough for one batch: a cursor returns at least one whole.
const ONE: usize = 1;

impl Log {
    /// The link at `offset`: of the batch that ends there, which the chain of the batch that begins there repeats. It commits to
    /// the whole history up to there. At the log end it is the chain that the next append carries. `None`: no batch begins
    /// or ends there, or the offset is below the log start or above the log end. May wait for the disk.
    ///
    /// # Errors
    /// [`ReadError::Damaged`]: the batches on both sides are damaged, so the link is unknown; [`ReadError::Io`];
    /// [`ReadError::Closed`].
    pub fn link_at(&self, offset: u64) -> Result<Option<u32>, ReadError> {
        if offset == self.shared.log_end() {
            return Ok(Some(self.chain));
        }
        if offset < self.shared.log_start() || offset > self.shared.log_end() {
            return Ok(None);
        }
        let damaged = match self.batch_at(offset) {
            Err(damaged @ ReadError::Damaged(_)) => damaged,
            found => {
                let begins = |header: &Header| header.base_offset == offset;
                return Ok(found?.filter(begins).map(|header| header.chain));
            }
        };
        let before = match offset.checked_sub(1) {
            Some(last) if last >= self.shared.log_start() => self.batch_at(last),
            _ => return Err(damaged),
        };
        match before {
            Ok(Some(header)) if header.next_offset() == offset => Ok(Some(header.link())),
            Ok(Some(header)) if header.base_offset < offset && offset < header.next_offset() => {
                Ok(None)
            }
            Ok(_) | Err(ReadError::Damaged(_)) => Err(damaged),
            Err(error) => Err(error),
        }
    }

    /// The header of the batch that holds `offset`, or of the next one; `None`: there is none.
    pub(crate) fn batch_at(&self, offset: u64) -> Result<Option<Header>, ReadError> {
        let bytes = self
            .replica_cursor(offset)
            .next(u64::MAX, ONE, ReadMode::Blocking)?;
        let first = bytes.and_then(|bytes| Batches::new(bytes).next());
        Ok(first.and_then(|batch| Header::read(&batch.ok()?).ok()))
    }

    /// The last leader epoch of this log that is at most `epoch`, and where its records end (exclusive). Without one, epoch 0,
    /// which no record has, ends where the first one begins.
    pub fn epoch_end(&self, epoch: u64) -> (u64, u64) {
        let entries = self.epochs();
        let after = entries.partition_point(|(known, _)| *known <= epoch);
        let last = after.checked_sub(1).and_then(|i| entries.get(i));
        let end = entries
            .get(after)
            .map_or_else(|| self.shared.log_end(), |(_, start)| *start);
        (last.map_or(0, |(known, _)| *known), end)
    }

    /// A position for reading batches up to the log end, committed or not, from `offset` on: for replicas, not for consumers.
    pub fn replica_cursor(&self, offset: u64) -> ReplicaCursor {
        self.reader().replica_cursor(offset)
    }
}
