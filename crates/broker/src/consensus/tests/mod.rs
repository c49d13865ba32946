//! Tests of the metadata log.
mod network;
pub(crate) mod recorder;
mod snapshots;
mod solo;
mod storage;
mod storm;
mod three;
mod vote;
