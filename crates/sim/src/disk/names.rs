//! Names: what each directory holds, and which of its changes are durable.
//!
//! A change becomes durable when its directory is synced. At a crash each directory keeps its changes up to some point:
//! journalling filesystems keep their order within a directory, and here each directory has a point of its own.
use super::{FileState, SimRng};
use std::collections::BTreeMap;

/// Number of a file or directory, never used again.
pub(crate) type NodeId = u64;

/// A file or a directory.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A file.
    File(FileState),
    /// A directory.
    Directory(Directory),
}

/// One change of a name.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The name now leads to this node.
    Link(String, NodeId),
    /// The name is gone.
    Unlink(String),
}

/// The names in a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    now: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    /// Changes since the last sync, in order; each group happens as a whole.
    pending: Vec<Vec<Change>>,
}

impl Directory {
    /// The node of a name.
    pub fn get(&self, name: &str) -> Option<NodeId> {
        self.now.get(name).copied()
    }

    /// Names and nodes, ascending by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.now.iter().map(|(name, node)| (name.as_str(), *node))
    }

    /// Whether it holds no name.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    /// Makes changes that happen together.
    pub fn change(&mut self, group: Vec<Change>) {
        for change in &group {
            apply(&mut self.now, change);
        }
        self.pending.push(group);
    }

    /// Makes the changes durable.
    pub fn sync(&mut self) {
        self.durable.clone_from(&self.now);
        self.pending.clear();
    }

    /// Loses power. Returns how many changes were lost.
    pub fn crash(&mut self, keep: f64, random: &mut SimRng) -> u64 {
        let pending = std::mem::take(&mut self.pending);
        let all = pending.len() as u64;
        let kept = if random.chance(keep) {
            all
        } else {
            random.below(all + 1)
        };
        for group in pending.into_iter().take(kept as usize) {
            for change in &group {
                apply(&mut self.durable, change);
            }
        }
        self.now.clone_from(&self.durable);
        all - kept
    }
}

fn apply(names: &mut BTreeMap<String, NodeId>, change: &Change) {
    match change {
        Change::Link(name, node) => {
            names.insert(name.clone(), *node);
        }
        Change::Unlink(name) => {
            names.remove(name);
        }
    }
}
