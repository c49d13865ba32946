//! Iggy's binary protocol: frames, and the commands that move records. No I/O.
//!
//! * [`Family`]: which way of framing a connection speaks, by its first four bytes.
//! * [`Generation`]: the layout of commands; v1 is that of servers 0.4, v1b that of 0.5 to 0.8, v2 that of 0.9.
//! * [`RequestHead`], [`write_reply_head`]: frames of v1, which v1b shares.
//! * [`Status`]: the codes of answers.
//! * [`v1`]: commands of v1: send, poll, flush, stored offsets. Other commands are decoded where they are decided. `v1b`: what
//!   v1b has instead of v1's messages.
//! * [`v2`]: what v2 has of its own: headers, operations, the login, batches.
//!
//! All integers are little-endian. Why it is cut this way: `docs/decisions/iggy.md`.
mod frame;
mod generation;
mod reader;
mod status;
pub mod v1;
mod v1b;
pub mod v2;

pub use frame::{
    Family, FrameError, LOGIN_REQUEST_BYTES, MAX_REQUEST_BYTES, REPLY_HEAD_BYTES,
    REQUEST_HEAD_BYTES, RequestHead, write_reply_head,
};
pub use generation::Generation;
pub use reader::Malformed;
pub use status::Status;
