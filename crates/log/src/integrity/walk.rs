//! Every batch of one segment, whole, with what is damaged: for verifying, for looking inside, for a scrub.
use super::{Damage, Fault};
use crate::segment::resync::Known;
use crate::segment::scan::{Found, LogPosition, Scanner};
use bascule_record::{DamageError, Header};
use std::io;
use std::path::Path;

/// What there is to know before a walk.
#[derive(Clone, Copy)]
pub(crate) struct Course<'a> {
    /// The file; for damages.
    pub path: &'a Path,
    /// Index and end.
    pub known: Known<'a>,
    /// First offset that is not the segment's: of the next segment, `u64::MAX` in the last one.
    pub limit: u64,
    /// First offset after the segment, as its index tells: at the end of the file what is missing is not this file's.
    pub ends: Option<u64>,
    /// Offsets from here on may be a torn tail: the first failure there ends the walk and is no damage.
    pub durable: u64,
}

/// How a walk ended.
#[derive(Debug)]
pub(crate) struct Walked {
    /// Behind the last batch; its offset may be below the segment's end when the rest is lost.
    pub place: LogPosition,
    /// What is damaged, ordered by offset.
    pub damages: Vec<Damage>,
    /// Whether something else than zeros lies behind the last batch, at or above the durable point.
    pub torn: bool,
    /// A batch of a newer version ended the walk.
    pub newer: Option<DamageError>,
}

/// Walks from `place` to the end of the segment. `visit` sees every sound batch with its place.
///
/// # Errors
/// Those of the storage that say nothing about the bytes.
pub(crate) fn walk(
    scanner: &mut Scanner<'_>,
    place: LogPosition,
    course: &Course<'_>,
    visit: &mut dyn FnMut(&LogPosition, &Header) -> io::Result<()>,
) -> io::Result<Walked> {
    let mut walked = Walked {
        place,
        damages: Vec::new(),
        torn: false,
        newer: None,
    };
    loop {
        let at = walked.place;
        if at.offset == course.limit {
            return Ok(walked);
        }
        let damage = |end: u64, fault: Fault| Damage {
            start: at.offset,
            end,
            path: course.path.to_path_buf(),
            position: at.position,
            fault,
        };
        let found = scanner.look(&at, true)?;
        match &found {
            Found::Batch(header) => {
                visit(&at, header)?;
                walked.place = at.after(header);
                continue;
            }
            Found::Unsupported(error) => {
                walked.newer = Some(error.clone());
                return Ok(walked);
            }
            _ if at.offset >= course.durable => {
                walked.torn = !matches!(found, Found::End);
                return Ok(walked);
            }
            Found::Payload(header, fault) if at.after(header).position <= scanner.len => {
                walked.damages.push(damage(header.next_offset(), *fault));
                walked.place = at.after(header);
                continue;
            }
            _ => {}
        }
        let Some(resumed) = scanner.resume_after(&at, &course.known)? else {
            if at.position == scanner.len && course.ends == Some(at.offset) {
                return Ok(walked);
            }
            let end = course.limit.min(course.durable);
            if at.offset < end && end != u64::MAX {
                walked.damages.push(damage(end, found.fault()));
            }
            return Ok(walked);
        };
        if resumed.offset > at.offset {
            walked.damages.push(damage(resumed.offset, found.fault()));
        }
        // The batch before told of more than it held.
        if let Some(last) = walked.damages.last_mut() {
            last.end = last.end.min(resumed.offset);
        }
        walked.damages.retain(|damage| damage.start < damage.end);
        walked.place = resumed;
    }
}
