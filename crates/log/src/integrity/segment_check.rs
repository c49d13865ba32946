//! Checks all batches of one segment with their payloads, for verify, inspect and scrub.
use super::Damage;
use crate::segment::scan::LogPosition;
use crate::segment::segment_scan::{SegmentScan, Step, Tail};
use bascule_record::{DamageError, Header};
use std::io;
use std::path::Path;

/// The outcome of [`check_segment`].
#[derive(Debug, Default)]
pub(crate) struct SegmentCheck {
    /// Damage, ordered by offset.
    pub damages: Vec<Damage>,
    /// Whether something else than zeros follows the last batch, at or above the durable point.
    pub torn: bool,
    /// A batch of a newer version, which ended the check.
    pub newer: Option<DamageError>,
}

/// Scans from `scan.place` to the end of the segment at `path`. `limit`: first offset of the next segment, `u64::MAX` for the
/// last one. `index_end`: first offset after the segment by its index; if the file ends there, the offsets up to `limit` are missing in
/// another file. `visit` gets each valid batch with its position. The place of the scan may end below `limit`, when the rest is
/// lost.
///
/// # Errors
/// Those of the storage, except media errors, and those of `visit`.
pub(crate) fn check_segment(
    scan: &mut SegmentScan<'_>,
    path: &Path,
    limit: u64,
    index_end: Option<u64>,
    visit: &mut dyn FnMut(&LogPosition, &Header) -> io::Result<()>,
) -> io::Result<SegmentCheck> {
    let mut checked = SegmentCheck::default();
    let damage = |at: LogPosition, end, fault| Damage {
        start: at.offset,
        end,
        path: path.to_path_buf(),
        position: at.position,
        fault,
    };
    while scan.place.offset != limit {
        match scan.next()? {
            Step::Batch(at, header) => visit(&at, &header)?,
            Step::Gap(gap) => {
                if gap.end > gap.at.offset {
                    checked.damages.push(damage(gap.at, gap.end, gap.fault));
                }
                // The header of the batch before may have claimed too many offsets.
                if let Some(last) = checked.damages.last_mut() {
                    last.end = last.end.min(gap.end);
                }
                checked.damages.retain(|damage| damage.start < damage.end);
            }
            Step::Tail(tail) => {
                match tail {
                    Tail::Lost(fault) => {
                        let (at, end) = (scan.place, limit.min(scan.durable()));
                        let is_whole = at.position == scan.len() && index_end == Some(at.offset);
                        if !is_whole && at.offset < end && end != u64::MAX {
                            checked.damages.push(damage(at, end, fault));
                        }
                    }
                    Tail::Torn | Tail::Unreadable(_) => checked.torn = true,
                    Tail::Newer(error) => checked.newer = Some(error),
                    Tail::Clean | Tail::Next => {}
                }
                break;
            }
        }
    }
    Ok(checked)
}
