//! Merges adjacent segments without records.
//!
//! Compaction never moves the log start: its readers would take superseded records for lost ones. So a segment without records stays, as
//! one batch that says which offsets are empty, and adjacent ones become one file.
use super::rewriter::{Out, Rewritten};
use super::run::Run;
use super::{CompactionInput, Next, Stopped, swap};
use crate::io::files::Files;
use crate::segment::Segment;
use crate::segment::preamble::PREAMBLE_BYTES;
use crate::{Error, IoOp};
use bascule_record::{Header, merge_empty};
use bytes::Bytes;
use std::sync::Arc;

/// Adjacent segments without records, and the batch that covers them.
struct Group {
    segments: Vec<Arc<Segment>>,
    header: Header,
    batch: Bytes,
}

impl Group {
    /// `None`: more than one batch is needed for the segment.
    fn of(run: &Run<'_>, segment: &Arc<Segment>) -> Result<Option<Self>, Stopped> {
        let unreadable =
            |source| Stopped::Unreadable(Error::io(IoOp::Read, segment.path(), source));
        let mut input = CompactionInput::new(segment, run.shared.identity).map_err(unreadable)?;
        let mut all: Option<(Header, Bytes)> = None;
        loop {
            let (header, batch) = match input.next().map_err(unreadable)? {
                Next::Batch(header, batch) => (header, batch),
                Next::End => break,
                Next::Strange => return Ok(None),
            };
            if header.count > 0 || (header.producer.is_some() && !run.forgets_producers(segment)) {
                return Ok(None);
            }
            all = match all {
                None => Some((header, batch)),
                Some((before, _)) => match merge(&before, &header) {
                    Some(merged) => Some(merged),
                    None => return Ok(None),
                },
            };
        }
        Ok(all.map(|(header, batch)| Self {
            segments: vec![Arc::clone(segment)],
            header,
            batch,
        }))
    }

    /// Adds a group that follows; gives it back when one batch cannot cover both.
    fn join(&mut self, next: Self) -> Option<Self> {
        let Some((header, batch)) = merge(&self.header, &next.header) else {
            return Some(next);
        };
        (self.header, self.batch) = (header, batch);
        self.segments.extend(next.segments);
        None
    }
}

/// One batch for two adjacent ones without records, if the second one is linked to the first.
fn merge(first: &Header, last: &Header) -> Option<(Header, Bytes)> {
    let merged = (first.link() == last.chain).then(|| merge_empty(first, last))??;
    Some((Header::read(&merged).ok()?, merged))
}

impl Run<'_> {
    /// Merges the runs of adjacent vacant segments below `clean_to`.
    pub(super) fn merge_vacant(&mut self, clean_to: u64) -> Result<(), Stopped> {
        let segments = self.shared.segments();
        let sealed = segments
            .iter()
            .take_while(|segment| segment.next_offset() <= clean_to);
        let mut open: Option<Group> = None;
        for segment in sealed {
            let found = if segment.is_vacant() {
                Group::of(self, segment)?
            } else {
                None
            };
            open = match (open.take(), found) {
                (Some(mut group), Some(next)) => match group.join(next) {
                    None => Some(group),
                    Some(next) => {
                        self.replace_group(&group)?;
                        Some(next)
                    }
                },
                (group, found) => {
                    group.map_or(Ok(()), |group| self.replace_group(&group))?;
                    found
                }
            };
        }
        open.map_or(Ok(()), |group| self.replace_group(&group))
    }

    fn replace_group(&mut self, group: &Group) -> Result<(), Stopped> {
        let Some((first, rest)) = group.segments.split_first() else {
            return Ok(());
        };
        if rest.is_empty() {
            return Ok(());
        }
        let merged = self.write_group(group, first);
        if merged.is_err() {
            // If it stays, the next open removes it.
            let _ = self.remove_temporary(first);
        }
        swap::replace(self.shared, self.files, &group.segments, merged?)?;
        Ok(())
    }

    fn write_group(&mut self, group: &Group, first: &Arc<Segment>) -> Result<Rewritten, Stopped> {
        let unreadable = |source| Stopped::Unreadable(Error::io(IoOp::Read, first.path(), source));
        let from = first.file().map_err(unreadable)?;
        let files: &Arc<Files> = self.files;
        let mut out = Out::create(files.storage(), &first.path().with_extension("tmp"))?;
        out.copy(&from, PREAMBLE_BYTES, &mut self.pace)?;
        out.write(&group.batch, &mut self.pace)?;
        let file = out.finish(&mut self.pace)?;
        let path = first.path().to_path_buf();
        let room = PREAMBLE_BYTES + group.batch.len() as u64;
        let segment = Segment::new(files, path, first.base_offset, room);
        segment.add(&group.header);
        segment.take_over_from(first);
        let held = group.segments.iter().map(|segment| segment.held_since());
        segment.set_held_since(held.max().unwrap_or_else(|| first.held_since()));
        segment.set_vacant();
        Ok(Rewritten {
            segment,
            file: Some(file),
            removed: 0,
            last: (group.header.link(), group.header.leader_epoch),
        })
    }
}
