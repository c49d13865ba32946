//! Damage below the durable point: finding, reporting and repairing it.
//!
//! * [`Damage`]: offsets that cannot be served, their place in a file, and the fault.
//! * [`mod@verify`], [`mod@inspect`], [`mod@repair`]: for a directory that no broker uses.
//! * [`crate::LogReader::scrub`]: checks the sealed segments of an open log.
//!
//! `segment::resync` finds the next batch after damage; `state::quarantine` keeps the known damage beside the segments.
//! Damage is never served and never truncated, and records beside it are served.
mod inspect;
mod repair;
mod scrub;
mod segment_check;
mod verify;
mod wal;

pub use crate::segment::damage::{Damage, Fault};
pub use inspect::{BatchView, LogView, SegmentView, inspect};
pub use repair::{Action, RepairOptions, repair};
pub use scrub::Scrubbed;
pub use verify::{Finding, FindingKind, Verified, verify};
pub use wal::{WalOnlyRange, WalVerified, verify_wal};
