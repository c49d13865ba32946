//! A disk in memory.
mod file;
mod names;
mod random;
mod world;

pub(crate) use file::{Crash, FileState};
pub(crate) use names::{Change, Directory, Node, NodeId};
pub(crate) use random::Random;
pub(crate) use world::{Faults, World};
