//! Commands of v1 (servers 0.4), and of v1b where it differs, that move records: requests as views of the payload, replies
//! into one buffer.
//!
//! Numbers of streams, topics, partitions and groups count from 1, also for clients that count from 0.
mod clients;
mod groups;
mod identifiers;
mod login;
mod polled;
mod request;
mod send;
#[cfg(test)]
mod tests;
mod unstated;

pub use clients::{ClientsReply, Transport};
pub use groups::{Group, GroupsReply, Topic};
pub use identifiers::{Consumer, ConsumerKind, Identifier, Partitioning, Strategy};
pub use login::Login;
pub use polled::{PolledReply, derived_id};
pub use request::{DeleteOffset, Flush, GetOffset, Poll, StoreOffset, command_name, offset_reply};
pub use send::{MAX_HEADER_VALUE_BYTES, Message, Messages, Send, SendError};
pub use unstated::generation_after;
