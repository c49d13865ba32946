//! Removal of everything below an offset, on request.
use crate::maintain::current;
use crate::{Error, Log};

impl Log {
    /// Moves the log start to `before`: readers see nothing below it any more, and segments wholly below it are removed
    /// as by retention, whatever their age. Returns the log start, at most the high watermark. Idempotent; never goes back.
    ///
    /// A `before` beyond the log end says that records were lost which somebody knows to be trimmed: the log goes on at
    /// `before`, so that no offset is used for another record.
    ///
    /// What it hides of a segment that is not synced yet may be seen again after a crash.
    ///
    /// # Errors
    /// [`Error::Failed`]; [`Error::Full`]: nothing changed; [`Error::Io`] when rolling failed, and then the log refuses
    /// writes.
    pub fn trim(&mut self, before: u64, now_ns: i64) -> Result<u64, Error> {
        self.coordinator.check_usable()?;
        let end = self.shared.log_end();
        if before > end {
            // First: otherwise a crash would leave a gap in which recovery ends, and lose what comes behind it.
            self.shared.raise_log_start(before);
            // Nothing below it is asked of any segment any more.
            self.shared.raise_settled_end(before);
            self.note_log_start()?;
            self.roll_for_trim(before, now_ns)?;
            self.shared
                .set_log_end(before, self.shared.last_timestamp());
            self.shared.raise_high_watermark(before);
        } else if before == end && self.active.batch_bytes() > 0 {
            self.roll_for_trim(before, now_ns)?;
        }
        let before = before.min(self.shared.high_watermark());
        if before > self.shared.log_start() || before > end {
            self.shared.raise_log_start(before);
            let segments = self.shared.segments();
            // By where the next one begins: what is lost at the end of a segment goes with it.
            let count = segments
                .iter()
                .skip(1)
                .take_while(|next| next.base_offset <= before)
                .count();
            self.remove_first(count, now_ns, true);
        }
        Ok(self.shared.log_start())
    }

    /// Has the checkpoint with the log start on disk when it returns.
    fn note_log_start(&self) -> Result<(), Error> {
        let storage = self.coordinator.files().storage();
        let mut checkpoint = self.checkpoint.lock();
        checkpoint
            .write(storage, current(&self.shared, false))
            .and_then(|()| checkpoint.sync(storage))
            .inspect_err(|error| self.coordinator.rounds().fail_if_lost(error))
    }

    fn roll_for_trim(&mut self, base_offset: u64, now_ns: i64) -> Result<(), Error> {
        self.roll_to(base_offset, now_ns)?;
        if self.active.base_offset == base_offset {
            return Ok(());
        }
        // Rolling is only put off when there is no room.
        Err(Error::Full {
            path: self.directory.to_path_buf(),
        })
    }
}
