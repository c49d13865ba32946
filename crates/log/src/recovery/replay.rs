//! Replays the batches of a log from the WAL when the log is opened (reliability §3.1, step 3).
//!
//! Later frames reveal the loss of a frame: a frame of a log begins where earlier rounds of the log ended, and those were
//! acknowledged. So the log continues after such a gap in a new segment, and the gap is damage: its offsets are refused to
//! readers and never used again.
use crate::failpoint;
use crate::io::file_names::segment_name;
use crate::segment::NO_TIME;
use crate::segment::damage::{Damage, Fault};
use crate::state::checkpoint::Checkpoint;
use crate::wal::WalDamage;
use crate::wal::pending::{ChunkKind, ReplayChunk};
use crate::{Error, Log, LogId};
use bascule_record::Header;
use bytes::Bytes;
use std::collections::HashSet;

/// The batches of one log in the WAL.
pub(crate) struct Replay {
    /// In the order of writing, each with the offset from which on a later part replaces it.
    chunks: Vec<(ReplayChunk, u64)>,
    /// Damage in the WAL.
    damages: Vec<WalDamage>,
}

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Appended batches.
    pub batches: u64,
    /// Acknowledged offsets [start, end) that neither the segments nor the WAL have.
    pub lost: Vec<(u64, u64)>,
}

impl Replay {
    /// `chunks`: in the order in which they were written; `damages`: of the whole WAL.
    pub fn new(chunks: &[ReplayChunk], damages: &[WalDamage], log: LogId) -> Self {
        let mut limit = u64::MAX;
        let mut limited = Vec::with_capacity(chunks.len());
        // A part that begins at an offset ends all earlier parts at that offset: they belong to a truncated history.
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

    /// Base offset and chain value of each batch.
    pub fn batches(&self) -> Result<HashSet<(u64, u32)>, Error> {
        let mut batches = HashSet::new();
        for (chunk, limit) in &self.chunks {
            let of_chunk = batches_below(chunk, *limit)?;
            batches.extend(of_chunk.map(|(header, _)| (header.base_offset, header.chain)));
        }
        Ok(batches)
    }

    /// For a log that ends at `end`: its end after the replay, and the lost ranges; by offsets alone.
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

    /// The damage that lost the offsets of the log in `directory`.
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
    /// Appends the batches that continue the recovered log, or that follow lost frames, and syncs them. The other batches are in
    /// the segments already, or belong to a truncated history.
    pub(crate) fn replay(&mut self, replay: &Replay) -> Result<Replayed, Error> {
        let mut replayed = Replayed::default();
        // Link of the last batch of a truncated history.
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
                // Everything before the frame was acknowledged; the lost part of the frame was, if the frame was.
                let known = chunk.known_before(header.base_offset);
                self.lose(known, header.base_timestamp, replay, &mut replayed)?;
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
                replayed.batches += 1;
                failpoint::pass("journal.replay.half");
            }
            if chunk.is_lost() {
                let known = chunk.known_before(chunk.end.min(*limit));
                self.lose(known, i64::MAX, replay, &mut replayed)?;
            }
        }
        if replayed.batches > 0 || !replayed.lost.is_empty() {
            self.sync_replayed(!replayed.lost.is_empty())?;
        }
        Ok(replayed)
    }

    fn sync_replayed(&mut self, has_lost: bool) -> Result<(), Error> {
        // The syncs of a roll first: the later end must not be recorded before.
        self.wait_idle();
        self.committer.check_usable()?;
        self.target()?.sync()?;
        if let Some(epochs) = self.epochs.take_unsynced() {
            epochs.sync()?;
        }
        self.committed_to = self.active.end();
        self.uncommitted.clear();
        self.shared.raise_segment_synced_end(self.shared.log_end());
        let storage = self.committer.files().storage();
        let mut checkpoint = self.checkpoint.lock();
        let known: Checkpoint = self.shared.checkpoint(false);
        if has_lost {
            // Without it the next recovery would end before the gap.
            checkpoint.write_both(storage, known)?;
        } else {
            checkpoint.write(storage, known)?;
        }
        checkpoint.release();
        Ok(())
    }

    /// Continues at `end` in a new segment, if the log ends before it. `until`: latest time of the lost records.
    fn lose(
        &mut self,
        end: u64,
        until: i64,
        replay: &Replay,
        replayed: &mut Replayed,
    ) -> Result<(), Error> {
        let start = self.shared.log_end();
        if end <= start {
            return Ok(());
        }
        let last_timestamp = self.shared.last_timestamp();
        // The predecessor of the first batch after the gap is lost.
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
        replayed.lost.push((start, end));
        Ok(())
    }

    /// Returns whether the batch may belong to the current history of this log, after its last batch.
    fn may_follow(&self, header: &Header) -> bool {
        let last = self.shared.last_timestamp();
        LogId::of(header) == self.shared.identity
            && header.leader_epoch >= self.epochs.last()
            && (header.base_offset == self.shared.log_end()
                || last == NO_TIME
                || header.base_timestamp >= last)
    }

    /// Returns whether it is the next batch of the log. After a gap the link of the last batch is unknown.
    fn continues(&self, header: &Header) -> bool {
        let end = self.shared.log_end();
        let is_behind_gap = self.chain == 0 && end > 0;
        header.base_offset == end && (is_behind_gap || header.chain == self.chain)
    }
}
