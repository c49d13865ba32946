//! Who agrees on the metadata, in our own log engine.
//!
//! Everything outside reaches it by four things only: propose with a deadline, read barrier, committed entries in order of
//! index, snapshot out and in. They are the [`Door`]; `solo` stands behind it: the log of a broker without a cluster.
//!
//! [`raft`] is one voter of several; [`crate::cluster`] makes a door of it. [`log_store`], [`vote`] and [`machine`] are its storage, [`network`],
//! `snapshot` and `elections` how it meets the others.
mod door;
mod elections;
mod entries;
mod files;
pub mod log_store;
pub mod machine;
pub mod network;
pub mod raft;
mod snapshot;
mod solo;
mod types;
pub mod vote;

pub(crate) use door::over_the_limit;
pub use door::{Door, MetadataError, Opened, Proposal, open};
pub use files::open_log;
pub use types::{Command, Types};

#[cfg(test)]
pub(crate) mod tests;
