//! Frames between brokers (`specs/formats/peer.md`): what comes first on every connection, what voters ask
//! each other, and what followers ask leaders.
//!
//! * [`frame`]: length, envelope, head, body.
//! * [`heads`]: the heads, as prost structs. [`fetch`]: those of frames that carry stored batches. [`forward`]: those with what clients
//!   published.
pub mod fetch;
pub mod forward;
pub mod frame;
pub mod heads;

pub use fetch::{Fetch, FetchAnswer, Slot, SlotAnswer, SlotOutcome};
pub use forward::{Forward, ForwardAnswer, ForwardOutcome, ForwardedRecord};
pub use frame::{Frame, FrameError, FrameType, Preamble};
pub use heads::{Hello, HelloAnswer, Join, JoinAnswer, Purpose, RaftHead, RefusalCode};
