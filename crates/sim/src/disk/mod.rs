//! A disk in memory.
mod file;
mod names;
mod random;
mod sim_disk;

pub(crate) use file::{Crash, FileState};
pub(crate) use names::{Change, Directory, Node, NodeId};
pub(crate) use random::SimRng;
pub(crate) use sim_disk::{Faults, SimDisk};
