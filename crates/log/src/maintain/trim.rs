//! Removal of everything below an offset, on request.
use crate::state::checkpoint::Checkpoint;
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
    /// [`Error::Failed`]; [`Error::Full`], or [`Error::Io`] for a lack of descriptors: nothing changed, and while the log ends
    /// below `before` nothing may be appended before a later trim went well; any other [`Error::Io`]: the log refuses writes.
    pub fn trim(&mut self, before: u64, now_ns: i64) -> Result<u64, Error> {
        self.committer.check_usable()?;
        let end = self.shared.log_end();
        if before > end {
            self.continue_at(before, now_ns)?;
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

    /// Goes on at an offset beyond the log end. What may find no space or descriptor comes first: the ends move only when
    /// nothing is left but what fails the directory.
    fn continue_at(&mut self, before: u64, now_ns: i64) -> Result<(), Error> {
        let Some(next) = self.next_segment(before, now_ns, 0)? else {
            return Err(self.full());
        };
        let path = next.segment.path().to_path_buf();
        let noted = self.note_log_start(before);
        if noted.is_err() {
            // It holds nothing: one that stays is removed by recovery.
            let _ = self.committer.files().storage().remove_file(&path);
        }
        noted?;
        self.continue_in(next, now_ns)?;
        self.shared
            .set_log_end(before, self.shared.last_timestamp());
        self.shared.raise_high_watermark(before);
        Ok(())
    }

    /// Moves the log start to an offset beyond the log end. The checkpoint that says so is on disk before anything comes
    /// behind the gap: otherwise recovery would end before the gap, after a crash.
    fn note_log_start(&self, before: u64) -> Result<(), Error> {
        let storage = self.committer.files().storage();
        // Held until the ends have moved, so that nobody writes the old ones behind it.
        let mut checkpoint = self.checkpoint.lock();
        let moved = Checkpoint {
            log_start: before,
            durable: before,
            ..self.shared.checkpoint(false)
        };
        checkpoint
            .write(storage, moved)
            .and_then(|()| checkpoint.sync(storage))
            .inspect_err(|error| self.committer.files().fail_if_fatal(error))?;
        self.shared.raise_log_start(before);
        // Nothing below it is asked of any segment any more.
        self.shared.raise_settled_end(before);
        Ok(())
    }

    fn full(&self) -> Error {
        Error::Full {
            path: self.directory.to_path_buf(),
        }
    }

    fn roll_for_trim(&mut self, base_offset: u64, now_ns: i64) -> Result<(), Error> {
        // It may stay empty, and then takes no space.
        self.roll_to(base_offset, now_ns, 0)?;
        if self.active.base_offset == base_offset {
            return Ok(());
        }
        // Rolling is only put off when there is no room.
        Err(self.full())
    }
}
