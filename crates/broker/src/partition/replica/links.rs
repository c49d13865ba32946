//! Links of the last batches, so that followers that are close are compared without reading.
use bascule_log::{Error, Log, Start};
use bascule_replica::types::{Boundary, EpochEnd, Position};
use std::collections::VecDeque;

/// Batches that are remembered.
const REMEMBERED: usize = 512;

/// The ends of the last batches and their links, ascending.
#[derive(Debug, Default)]
pub(super) struct Links(VecDeque<(u64, u32)>);

impl Links {
    /// A batch was appended.
    pub fn add(&mut self, end: u64, link: u32) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((end, link));
    }

    fn find(&self, offset: u64) -> Option<u32> {
        let index = self.0.binary_search_by_key(&offset, |(end, _)| *end).ok()?;
        self.0.get(index).map(|(_, link)| *link)
    }

    /// What `log` has at `offset`. May read from the disk.
    pub fn boundary(&self, log: &Log, offset: u64) -> Boundary {
        if let Some(link) = self.find(offset) {
            return Boundary::Link(link);
        }
        let reader = log.reader();
        match log.link_at(offset) {
            Ok(Some(link)) => Boundary::Link(link),
            Ok(None) if offset > reader.log_end() || offset < reader.log_start() => {
                Boundary::Outside
            }
            Ok(None) => match log.check_truncation(offset, true) {
                Err(Error::NotABoundary { last, .. }) => Boundary::Inside { below: last },
                Ok(()) | Err(_) => Boundary::Damaged,
            },
            Err(_) => Boundary::Damaged,
        }
    }
}

/// Where `log` ends.
pub(super) fn position(log: &Log) -> Position {
    let end = log.reader().log_end();
    let begun = log.epochs().iter().rev().find(|(_, start)| *start < end);
    // At the log end the link is known without reading.
    let link = log.link_at(end).ok().flatten().unwrap_or_default();
    Position {
        epoch: begun.map_or(0, |(epoch, _)| *epoch),
        end,
        link,
    }
}

/// The state of `log` where a follower may begin: at `offset`, or at the beginning of the batch that has it. `None`: it cannot be
/// read.
pub(super) fn start_of(log: &Log, offset: u64) -> Option<Start> {
    if let Some(start) = log.start_of(offset).ok()? {
        return Some(start);
    }
    match log.check_truncation(offset, true) {
        Err(Error::NotABoundary { last, .. }) => log.start_of(last).ok()?,
        Ok(()) | Err(_) => None,
    }
}

/// The last leader epoch of `log` that is at most `epoch`, and its end.
pub(super) fn epoch_end(log: &Log, epoch: u64) -> Option<EpochEnd> {
    let (epoch, end) = log.epoch_end(epoch);
    (epoch > 0).then_some(EpochEnd { epoch, end })
}
