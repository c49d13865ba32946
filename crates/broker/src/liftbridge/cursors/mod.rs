//! `SetCursor` and `FetchCursor` (liftbridge §3.11), answered by the leader of the partition of `__cursors` that a
//! cursor lies on.
//!
//! A cursor is a record of that stream: to set one is to append it and wait for its commit, to fetch one is to read the log
//! up to the high watermark of now and answer from the map of what it says. So a cursor that was set is found by whoever
//! asks afterwards, and nobody has ever received what the log lost (reliability P10).
//!
//! * `methods`: the two methods, by the crate's `cursor_index`; `groups`: the positions of all consumer groups.
mod groups;
mod methods;

pub(crate) use groups::{GroupPosition, group_positions};
pub(super) use methods::{fetch_cursor, set_cursor};
