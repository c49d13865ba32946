//! Damage below the durable point: how it is told, remembered, looked for and mended.
//!
//! * [`Damage`]: offsets that cannot be served, where they lay, and why.
//! * `resume`: the way on behind it, which nothing stored inside a record can forge.
//! * `quarantine`: what is known to be damaged, kept beside the segments.
//! * [`mod@verify`], [`mod@inspect`], [`mod@repair`]: the same on a directory that no broker uses.
//! * [`crate::LogReader::scrub`]: sealed segments of an open log, read again before anybody asks for them.
//!
//! Damage is never served, never cut, never a reason to refuse what lies beside it.
mod inspect;
mod repair;
mod scrub;
mod verify;
mod wal;
mod walk;

pub use crate::segment::damage::{Damage, Fault};
pub use inspect::{BatchView, LogView, SegmentView, inspect};
pub use repair::{Action, RepairOptions, repair};
pub use scrub::Scrubbed;
pub use verify::{Finding, FindingKind, Verified, verify};
pub use wal::{WalOnlyRange, WalVerified, verify_wal};
