//! What v2 (servers 0.9, protocol 0.11) has of its own: headers of 256 bytes with sessions and request numbers, operations in
//! place of most codes, and batches of messages. The fields of its commands are those of [`super::v1`], with numbers from 0.
//!
//! * [`RequestHeader`], [`write_reply`], [`write_eviction`]: frames.
//! * [`Operation`]: what a header asks for.
//! * [`Register`]: the login.
//! * [`assignment_reply`], [`confirmation_reply`]: replies that only this generation has.
mod batch;
mod header;
mod operation;
mod register;
mod replies;
#[cfg(test)]
mod tests;

/// Number of the command by which a member asks for its partitions.
pub const SYNC_GROUP: u32 = 606;

pub(super) use batch::{Frames, OpenBatch, read_frame};
pub use header::{
    Eviction, HEADER_BYTES, HeaderError, PROTOCOL, RequestHeader, body_checksum, write_eviction,
    write_reply,
};
pub use operation::Operation;
pub use register::{Credentials, Register};
pub use replies::{assignment_reply, confirmation_reply, register_reply};
