//! How a log takes its part of the journal over when it is opened (reliability §3.1, step 3).
//!
//! What a frame of the journal lost is known by the frames behind it: a log's frame begins where all that was appended to the
//! log in earlier rounds ends, and those were acknowledged. So a log goes on behind such a hole, in a new segment, and the
//! hole is damage: its offsets are refused to readers and are never used again.
use crate::failpoint;
use crate::io::file_names::segment_name;
use crate::segment::NO_TIME;
use crate::segment::damage::{Damage, Fault};
use crate::segment::scan::LogPosition;
use crate::state::checkpoint::Checkpoint;
use crate::wal::WalDamage;
use crate::wal::pending::{ChunkKind, ReplayChunk};
use crate::{Error, Log, LogId};
use bascule_record::Header;
use bytes::Bytes;

/// What one log has to take over.
pub(crate) struct Replay {
    /// In the order in which they were written, each with the offset from which on a later one tells otherwise.
    chunks: Vec<(ReplayChunk, u64)>,
    /// Damage in the WAL.
    damages: Vec<WalDamage>,
}

/// What a log took over.
#[derive(Debug, Default)]
pub(crate) struct TakenOver {
    /// Batches that were appended.
    pub batches: u64,
    /// Offsets [start, end) that were acknowledged and that neither the segments nor the journal have.
    pub lost: Vec<(u64, u64)>,
}

impl Replay {
    /// `chunks`: in the order in which they were written; `damages`: of the whole WAL.
    pub fn new(chunks: &[ReplayChunk], damages: &[WalDamage], log: LogId) -> Self {
        let mut limit = u64::MAX;
        let mut limited = Vec::with_capacity(chunks.len());
        // One that begins at an offset says that what was written before from there on belongs to a history that is over.
        for chunk in chunks.iter().rev() {
            let start = chunk.start;
            if start < limit && chunk.kind != ChunkKind::Cut {
                limited.push((chunk.clone(), limit));
            }
            limit = limit.min(start);
        }
        limited.reverse();
        let concerns = |damage: &&WalDamage| damage.of.is_none_or(|(of, ..)| of == log);
        Self {
            chunks: limited,
            damages: damages.iter().filter(concerns).cloned().collect(),
        }
    }

    /// Whether some batch of it belongs at the place.
    pub fn continues(&self, place: &LogPosition) -> Result<bool, Error> {
        let fits = |(header, _): (Header, Bytes)| {
            header.base_offset == place.offset && Some(header.chain) == place.chain
        };
        let mut found = false;
        for (chunk, limit) in &self.chunks {
            found |= batches_below(chunk, *limit)?.any(fits);
        }
        Ok(found)
    }

    /// Of a log that ends at `end`: where it will end, and what will be lost; as far as offsets tell.
    pub fn outcome(&self, mut end: u64) -> (u64, Vec<(u64, u64)>) {
        let mut lost = Vec::new();
        for (chunk, limit) in &self.chunks {
            let to = if chunk.is_lost() {
                chunk.end.min(*limit)
            } else {
                chunk.start
            };
            let known = chunk.known_before(to);
            if chunk.end > end && known > end {
                lost.push((end, known));
                end = known;
            }
            if chunk.end > end && chunk.start <= end && !chunk.is_lost() {
                end = chunk.end.min(*limit);
            }
        }
        (end, lost)
    }

    /// Where offsets of the log at `directory` were lost.
    pub fn damage(&self, directory: &std::path::Path, (start, end): (u64, u64)) -> Damage {
        let held = |damage: &&WalDamage| {
            damage
                .of
                .is_some_and(|(_, from, to)| from < end && start <= to)
        };
        let unknown = |damage: &&WalDamage| damage.of.is_none() && damage.fault.can_cost();
        let by = self.damages.iter().find(held);
        let by = by.or_else(|| self.damages.iter().find(unknown));
        let (path, position, fault) = match by {
            Some(by) => (by.path.clone(), by.position, Fault::Wal),
            None => (directory.join(segment_name(start)), 0, Fault::Missing),
        };
        Damage {
            start,
            end,
            path,
            position,
            fault,
        }
    }
}

/// The batches of the part that begin below `limit`.
fn batches_below(
    chunk: &ReplayChunk,
    limit: u64,
) -> Result<impl Iterator<Item = (Header, Bytes)> + use<>, Error> {
    let batches = chunk.batches()?;
    Ok(batches.take_while(move |(header, _)| header.base_offset < limit))
}

impl Log {
    /// Appends those batches that continue the log where recovery ended it, or where the frames between are lost, and syncs
    /// them; the others are there already, or belong to a history that is over.
    pub(crate) fn take_over(&mut self, replay: &Replay) -> Result<TakenOver, Error> {
        let mut taken = TakenOver::default();
        // Link of the last batch of a history that is over.
        let mut over = None;
        for (chunk, limit) in &replay.chunks {
            for (header, batch) in batches_below(chunk, *limit)? {
                let is_over = over.is_some() && over == Some(header.chain);
                let end = self.shared.log_end();
                if header.next_offset() <= end && !is_over {
                    continue;
                }
                if is_over || header.base_offset < end || !self.may_follow(&header) {
                    over = Some(header.link());
                    continue;
                }
                // What lies before the frame was acknowledged; what the frame itself lost, if the frame was.
                let known = chunk.known_before(header.base_offset);
                self.lose(known, header.base_timestamp, replay, &mut taken)?;
                if header.base_offset > self.shared.log_end() {
                    continue;
                }
                if !self.continues(&header) {
                    over = Some(header.link());
                    continue;
                }
                if self.roll_due(header.base_timestamp) {
                    self.roll(header.base_timestamp)?;
                }
                self.write(&batch, &header)?;
                taken.batches += 1;
                failpoint::pass("journal.replay.half");
            }
            if chunk.is_lost() {
                let known = chunk.known_before(chunk.end.min(*limit));
                self.lose(known, i64::MAX, replay, &mut taken)?;
            }
        }
        if taken.batches > 0 || !taken.lost.is_empty() {
            self.sync_taken_over(!taken.lost.is_empty())?;
        }
        Ok(taken)
    }

    fn sync_taken_over(&mut self, has_lost: bool) -> Result<(), Error> {
        // The syncs of a roll first: what follows must not be told before.
        self.settle();
        self.committer.check_usable()?;
        self.target()?.sync()?;
        if let Some(epochs) = self.epochs.take_unsynced() {
            epochs.sync()?;
        }
        self.committed_to = self.active.end();
        self.uncommitted.clear();
        self.shared.raise_settled_end(self.shared.log_end());
        let storage = self.committer.files().storage();
        let mut checkpoint = self.checkpoint.lock();
        let known: Checkpoint = self.shared.checkpoint(false);
        checkpoint.write(storage, known)?;
        if has_lost {
            // Without it the next recovery would end before the hole. Both slots: one may be damaged.
            checkpoint.sync(storage)?;
            checkpoint.write(storage, known)?;
            checkpoint.sync(storage)?;
        }
        checkpoint.release();
        Ok(())
    }

    /// Goes on at `end` in a new segment, when the log ends before. `until`: time of the last lost record at most.
    fn lose(
        &mut self,
        end: u64,
        until: i64,
        replay: &Replay,
        taken: &mut TakenOver,
    ) -> Result<(), Error> {
        let start = self.shared.log_end();
        if end <= start {
            return Ok(());
        }
        let last_timestamp = self.shared.last_timestamp();
        // What the first batch behind the hole follows is lost.
        let chain = std::mem::replace(&mut self.chain, 0);
        let next = self.next_segment(end, last_timestamp, 0);
        self.chain = chain;
        let Some(next) = next? else {
            return Err(Error::Full {
                path: self.directory.to_path_buf(),
            });
        };
        let before = self.active.clone();
        self.continue_in(next, last_timestamp)?;
        before.set_lost_until(until);
        self.chain = 0;
        self.last_batch = None;
        self.shared.set_log_end(end, last_timestamp);
        let damage = replay.damage(&self.directory, (start, end));
        self.shared.quarantine.note(&damage);
        taken.lost.push((start, end));
        Ok(())
    }

    /// Whether the batch may be one of this log's present history, behind its last batch.
    fn may_follow(&self, header: &Header) -> bool {
        let last = self.shared.last_timestamp();
        LogId::of(header) == self.shared.identity
            && header.leader_epoch >= self.epochs.last()
            && (header.base_offset == self.shared.log_end()
                || last == NO_TIME
                || header.base_timestamp >= last)
    }

    /// Whether it is the log's next batch. Behind a hole nobody knows the link of the last batch.
    fn continues(&self, header: &Header) -> bool {
        let end = self.shared.log_end();
        let is_behind_hole = self.chain == 0 && end > 0;
        header.base_offset == end && (is_behind_hole || header.chain == self.chain)
    }
}
