//! Scrubs: all sealed segments of an open log are read and checked, so that damage is found while a backup still has the data.
//!
//! One thread at a time, at the pace of the caller. Cached pages are checked in the page cache and stay there; other pages are
//! read and dropped again, so that a scrub evicts no page that is in use. A cached page hides the state of the disk until the
//! system drops it: the next scrub sees it.
use super::segment_check::check_segment;
use super::{Damage, Fault};
use crate::io::storage::StorageFile;
use crate::segment::Segment;
use crate::segment::preamble::PREAMBLE_BYTES;
use crate::segment::scan::LogPosition;
use crate::segment::segment_scan::SegmentScan;
use crate::state::quarantine::Quarantine;
use crate::state::shared::Shared;
use crate::{LogReader, ReadError};
use std::io;
use std::sync::Arc;

/// Result of a scrub of one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Segments read to their end.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damaged ranges in them, those known before included.
    pub damaged: u64,
    /// Whether all sealed segments were read.
    pub complete: bool,
}

impl LogReader {
    /// Reads and checks every sealed segment. Blocks. `pace` gets the number of bytes read, about every 256 KiB, and may wait;
    /// `false` ends the scrub. The damage found replaces the known damage; new damage is reported to the listener.
    ///
    /// # Errors
    /// [`ReadError::Closed`]; [`ReadError::Io`] for failures that say nothing about the bytes.
    pub fn scrub(
        &self,
        now_ns: i64,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Scrubbed, ReadError> {
        let shared = self.shared();
        let mut done = Scrubbed::default();
        let segments = shared.segments();
        let mut chain = None;
        for pair in segments.windows(2) {
            let [segment, next] = pair else { continue };
            if segment.next_offset() <= shared.log_start() {
                continue;
            }
            if shared.is_closed() {
                return Err(ReadError::Closed);
            }
            let run = Run {
                shared,
                segment,
                limit: next.base_offset,
            };
            match run.read(chain, &mut done, pace)? {
                Some(link) => chain = link,
                None => return Ok(done),
            }
        }
        done.complete = true;
        shared.quarantine.scrub_ended(now_ns, shared.log_start());
        Ok(done)
    }

    /// When the last whole scrub of this log ended, ns since 1970; 0 = never.
    pub fn scrubbed(&self) -> i64 {
        self.shared().quarantine.scrubbed()
    }
}

/// One segment being read.
struct Run<'a> {
    shared: &'a Arc<Shared>,
    segment: &'a Arc<Segment>,
    /// First offset of the next segment.
    limit: u64,
}

impl Run<'_> {
    /// Returns the link of the last batch when it is known; `None` when the pace ended it.
    #[allow(clippy::option_option)] // whether it was read, and whether its last link is known
    fn read(
        &self,
        chain: Option<u32>,
        done: &mut Scrubbed,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Option<u32>>, ReadError> {
        let segment = self.segment;
        let quarantine: &Quarantine = &self.shared.quarantine;
        let file = match segment.file() {
            Ok(file) => file,
            Err(_) if self.shared.is_closed() => return Err(ReadError::Closed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Unless retention took it or compaction replaced it.
                if segment.next_offset() > self.shared.log_start() && self.shared.holds(segment) {
                    quarantine.note(&self.missing());
                    done.damaged += 1;
                }
                return Ok(Some(None));
            }
            Err(error) => return Err(ReadError::io(segment.path(), error)),
        };
        let gentle = Gentle(&*file.file);
        let start = LogPosition {
            chain: segment.first_chain(chain),
            ..LogPosition::first(segment.base_offset)
        };
        let mut scan = SegmentScan::of_segment(segment, &gentle, self.shared.identity, start);
        let (mut paced, mut stopped) = (PREAMBLE_BYTES, false);
        let checked = check_segment(
            &mut scan,
            segment.path(),
            self.limit,
            None,
            &mut |at, header| {
                let read_to = at.position + header.batch_bytes() as u64;
                if read_to - paced >= crate::io::window::WINDOW as u64 {
                    stopped = !pace(read_to - paced);
                    paced = read_to;
                }
                if stopped {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Ok(())
            },
        );
        done.bytes += scan.bytes_read();
        if stopped {
            return Ok(None);
        }
        let checked = checked.map_err(|source| ReadError::io(segment.path(), source))?;
        quarantine.replace(segment.base_offset, self.limit, &checked.damages);
        done.segments += 1;
        done.damaged += checked.damages.len() as u64;
        let end = scan.place;
        let link = end.chain.filter(|_| end.offset == self.limit);
        Ok(pace(end.position.saturating_sub(paced)).then_some(link))
    }

    fn missing(&self) -> Damage {
        Damage {
            start: self.segment.base_offset,
            end: self.limit,
            path: self.segment.path().to_path_buf(),
            position: 0,
            fault: Fault::Missing,
        }
    }
}

/// A file whose reads leave the page cache as it was.
#[derive(Debug)]
struct Gentle<'a>(&'a dyn StorageFile);

impl StorageFile for Gentle<'_> {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match self.0.read_cached_at(buffer, position) {
            Ok(read) if read > 0 => return Ok(read),
            _ => {}
        }
        let read = self.0.read_at(buffer, position)?;
        self.0.drop_cached(position, read as u64);
        Ok(read)
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_all(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
