//! The classes that Python sees; they convert and forward.
mod disk;
mod failure;
mod log;
mod planted;
mod store;

pub(crate) use disk::Disk;
pub(crate) use failure::SimError;
pub(crate) use log::Log;
pub(crate) use planted::{plant, read_bomb};
pub(crate) use store::Store;
