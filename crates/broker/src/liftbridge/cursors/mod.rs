//! `SetCursor` and `FetchCursor` (liftbridge §3.11), answered by the leader of the partition of `__cursors` that
//! stores the cursor.
//!
//! A cursor is a record of that stream: to set one is to append it and wait for its commit, to fetch one is to read the log
//! up to the current high watermark and answer from the index of its positions. So every later fetch finds a cursor that was
//! set, and no fetch has returned a position that the log lost (reliability P10).
//!
//! * `methods`: the two methods, by the crate's `cursor_index`; `groups`: the positions of all consumer groups.
mod groups;
mod methods;

pub(crate) use groups::{GroupPosition, GroupPositions};
pub(super) use methods::{fetch_cursor, set_cursor};
