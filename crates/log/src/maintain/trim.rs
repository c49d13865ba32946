//! Trim: removes everything below an offset, on request.
use crate::state::checkpoint::Checkpoint;
use crate::{Error, Log};

impl Log {
    /// Moves the log start to `before`: readers see nothing below it, and segments wholly below it are removed as by retention,
    /// whatever their age. Returns the log start, at most the high watermark and [`Log::hold`]. Idempotent; never moves back.
    ///
    /// A `before` beyond the log end means that trimmed records were lost: the log continues at `before`, so that no offset is
    /// used twice, whatever is held.
    ///
    /// Hidden records of a segment that is not synced yet may reappear after a crash.
    ///
    /// # Errors
    /// [`Error::Failed`]. [`Error::Full`], or [`Error::Io`] for a lack of descriptors: nothing changed; while the log ends below
    /// `before`, append nothing until a later trim succeeds. Any other [`Error::Io`]: the log refuses writes.
    pub fn trim(&mut self, before: u64, now_ns: i64) -> Result<u64, Error> {
        self.committer.check_usable()?;
        let end = self.shared.log_end();
        let continues = before > end;
        let held = before.min(self.shared.hold());
        if continues {
            self.continue_at(before, now_ns)?;
        } else if held == end && self.active.batch_bytes() > 0 {
            self.roll_for_trim(held, now_ns)?;
        }
        let before = held.min(self.shared.high_watermark());
        if before > self.shared.log_start() || continues {
            self.shared.raise_log_start(before);
            let segments = self.shared.segments();
            // By the base offset of the next one: lost offsets at the end of a segment go with it.
            let count = segments
                .iter()
                .skip(1)
                .take_while(|next| next.base_offset <= before)
                .count();
            self.remove_first(count, now_ns, true);
        }
        Ok(self.shared.log_start())
    }

    /// Follows the log start of the leader: as [`Log::trim`], and nothing beyond this log's own committed records. A follower removes
    /// nothing else: its leader decides by age, size and keys. Returns the log start.
    ///
    /// # Errors
    /// As [`Log::trim`].
    pub fn follow(&mut self, leader_log_start: u64, now_ns: i64) -> Result<u64, Error> {
        self.trim(leader_log_start.min(self.shared.high_watermark()), now_ns)
    }

    /// Continues at an offset beyond the log end. Steps that may lack space or descriptors come first: the ends move only when
    /// the remaining steps can fail with the directory alone.
    fn continue_at(&mut self, before: u64, now_ns: i64) -> Result<(), Error> {
        let Some(next) = self.next_segment(before, now_ns, 0)? else {
            return Err(self.full());
        };
        let path = next.segment.path().to_path_buf();
        let stored = self.store_log_start(before);
        if stored.is_err() {
            // It is empty: if it stays, recovery removes it.
            let _ = self.committer.files().storage().remove_file(&path);
        }
        stored?;
        self.continue_in(next, now_ns)?;
        self.shared
            .set_log_end(before, self.shared.last_timestamp());
        self.shared.raise_high_watermark(before);
        Ok(())
    }

    /// Moves the log start to an offset beyond the log end. The checkpoint is synced before anything is appended behind the gap:
    /// otherwise recovery after a crash would end before the gap.
    fn store_log_start(&self, before: u64) -> Result<(), Error> {
        let storage = self.committer.files().storage();
        // Held until the ends have moved, so that no job writes the old ones meanwhile.
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
        // No offset below it is read from a segment any more.
        self.shared.raise_segment_synced_end(before);
        Ok(())
    }

    fn full(&self) -> Error {
        Error::Full {
            path: self.directory.to_path_buf(),
        }
    }

    fn roll_for_trim(&mut self, base_offset: u64, now_ns: i64) -> Result<(), Error> {
        // No zeros: it may stay empty.
        self.roll_to(base_offset, now_ns, 0)?;
        if self.active.base_offset == base_offset {
            return Ok(());
        }
        // A roll is only postponed for a lack of space.
        Err(self.full())
    }
}
