//! Reset: a log that is emptied and begins elsewhere, because its leader no longer has what follows its own records.
//!
//! The log is closed, a file says where it is to begin, its files are replaced, and it is opened. Until the file is removed an open
//! repeats the replacement, whatever a crash left of it: nothing was appended since.
use crate::io::disk;
use crate::segment::scan::LogPosition;
use crate::segment::segment_scan::{SegmentScan, Step};
use crate::state::producers::Producers;
use crate::state::start::{RESETTING, Start};
use crate::{Error, Log, ReadError};
use bytes::Bytes;
use std::sync::Arc;

impl Log {
    /// The state of this log at `offset`, for a follower that is to begin there. `None`: no batch begins there, and the log does
    /// not end there. May wait for the disk.
    ///
    /// # Errors
    /// As [`Log::link_at`].
    pub fn start_of(&self, offset: u64) -> Result<Option<Start>, ReadError> {
        let Some(chain) = self.link_at(offset)? else {
            return Ok(None);
        };
        let next = if offset < self.shared.log_end() {
            self.batch_at(offset)?
        } else {
            None
        };
        let epochs = self.epochs().iter().filter(|(_, start)| *start < offset);
        let epochs: Vec<(u64, u64)> = epochs.copied().collect();
        let producers = self.producers_below(offset)?;
        Ok(Some(Start {
            offset,
            chain,
            epoch: epochs.last().map_or(0, |(epoch, _)| *epoch),
            last_timestamp: next
                .map_or_else(|| self.shared.last_timestamp(), |next| next.base_timestamp),
            epochs,
            producers: Bytes::from(producers.to_bytes(self.shared.identity, offset)),
        }))
    }

    /// The producers with every batch below `offset`: those that retention removed are known, the others are read.
    fn producers_below(&self, offset: u64) -> Result<Producers, ReadError> {
        if offset == self.shared.log_end() {
            return Ok(self.producers.clone());
        }
        let segments = self.shared.segments();
        let first = segments.first().map_or(offset, |first| first.base_offset);
        let mut producers = self.producers.only_below(first.min(offset));
        for segment in segments.iter() {
            if segment.base_offset >= offset {
                break;
            }
            let failed = |source| ReadError::io(segment.path(), source);
            let file = segment.file().map_err(failed)?;
            let place = LogPosition::first(segment.base_offset);
            let scan = SegmentScan::of_segment(segment, &*file.file, self.shared.identity, place);
            let mut scan = scan.payloads_from(u64::MAX);
            while scan.place.offset < segment.next_offset().min(offset) {
                match scan.next().map_err(failed)? {
                    Step::Batch(_, header) => producers.note(&header),
                    Step::Gap(_) => {}
                    Step::Tail(_) => break,
                }
            }
        }
        Ok(producers)
    }

    /// Empties the log and returns it as it begins at `start`, with everything below it committed and removed. Readers of the
    /// log until now get [`ReadError::Closed`]. Durable when it returns; a crash in between is completed by the next open. Blocks on
    /// syncs.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Failed`], [`Error::Io`]. The log is closed then; opened again, it is as it was or begins at `start`.
    pub fn reset_at(self, start: &Start) -> Result<Self, Error> {
        let (directory, identity) = (Arc::clone(&self.directory), self.shared.identity);
        let (options, committer) = (self.options.clone(), Arc::clone(&self.committer));
        self.close()?;
        let storage = committer.files().storage();
        let bytes = start.to_bytes(identity);
        disk::replace(storage, &directory.join(RESETTING), &bytes)
            .inspect_err(|error| committer.files().fail_if_fatal(error))?;
        Ok(Self::open(&directory, identity, options, &committer)?.0)
    }
}
