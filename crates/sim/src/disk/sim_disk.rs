//! The simulated disk: files and directories, faults, the digest of operations, and power cuts.
use super::{Change, Crash, Directory, FileState, Node, NodeId, SimRng};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path};

const ROOT: NodeId = 0;

/// Probabilities and states of faults; all off by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Probability that a read fails.
    pub read: f64,
    /// Probability that a write fails, with some of it written.
    pub write: f64,
    /// Probability that a sync fails; the next one succeeds.
    pub sync: f64,
    /// Probability that opening or renaming fails.
    pub open: f64,
    /// Probability that a sync puts one page in the wrong place.
    pub misdirect: f64,
    /// Probability, at each operation on a file, that one page of it is written back.
    pub write_back: f64,
    /// Whether opening a file finds no descriptor.
    pub no_descriptors: bool,
    /// Bytes by which files may still grow.
    pub space: Option<u64>,
}

/// Counts of events since the disk was created.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Operations done.
    pub operations: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Faults of any kind injected.
    pub faults: u64,
    /// Failed syncs among them.
    pub failed_syncs: u64,
    /// Misdirected pages among them.
    pub misdirected: u64,
    /// Pages kept, lost and torn in crashes.
    pub kept: u64,
    /// See `kept`.
    pub lost: u64,
    /// See `kept`.
    pub torn: u64,
    /// Changes of names lost in crashes.
    pub names_lost: u64,
}

/// The simulated disk.
#[derive(Clone, Debug)]
pub(crate) struct SimDisk {
    nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
    /// Faults to inject from now on.
    pub faults: Faults,
    /// Counts of events.
    pub counts: Counts,
    /// Time of day, ns.
    pub now: i64,
    /// Time that never goes back, ns.
    pub monotonic: i64,
    /// The power fails after this many operations.
    pub stop_at: u64,
    /// Where pages landed that should be elsewhere: node, meant, hit.
    pub misdirected: Vec<(NodeId, usize, usize)>,
    digest: u64,
    fault_rng: SimRng,
    write_back_rng: SimRng,
    crash_rng: SimRng,
}

impl SimDisk {
    /// An empty disk with a root directory.
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Directory(Directory::default()))]),
            next: ROOT + 1,
            faults: Faults::default(),
            counts: Counts::default(),
            now: 0,
            monotonic: 0,
            stop_at: u64::MAX,
            misdirected: Vec::new(),
            digest: 0xCBF2_9CE4_8422_2325,
            fault_rng: SimRng::new(seed, 1),
            write_back_rng: SimRng::new(seed, 2),
            crash_rng: SimRng::new(seed, 3),
        }
    }

    /// Digest of every operation so far and of its outcome.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns whether the power has failed.
    pub fn is_stopped(&self) -> bool {
        self.counts.operations >= self.stop_at
    }

    /// Counts one operation and mixes it into the digest. After a power cut every operation fails.
    pub fn begin(&mut self, operation: &str, node: NodeId, a: u64, b: u64) -> io::Result<()> {
        if self.is_stopped() {
            return Err(Errno::IO.into());
        }
        self.counts.operations += 1;
        self.mix(operation.as_bytes());
        for number in [node, a, b] {
            self.mix(&number.to_le_bytes());
        }
        Ok(())
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// Draws whether a fault of this probability happens now.
    pub fn fails(&mut self, probability: f64) -> bool {
        let fails = self.fault_rng.chance(probability);
        if fails {
            self.counts.faults += 1;
            self.mix(b"!");
        }
        fails
    }

    /// A number below `end` for the size of a fault.
    pub fn draw(&mut self, end: u64) -> u64 {
        self.fault_rng.below(end)
    }

    /// The node of a path.
    pub fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut node = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            node = self.directory(node)?.get(text(name)?).ok_or(Errno::NOENT)?;
        }
        Ok(node)
    }

    /// The directory of a path and the last name in it.
    fn place<'a>(&self, path: &'a Path) -> io::Result<(NodeId, &'a str)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = self.find(path.parent().unwrap_or(Path::new("")))?;
        Ok((parent, text(name)?))
    }

    /// A directory by its node.
    pub fn directory(&self, node: NodeId) -> io::Result<&Directory> {
        match self.nodes.get(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn directory_mut(&mut self, node: NodeId) -> io::Result<&mut Directory> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// A file by its node.
    pub fn file(&mut self, node: NodeId) -> io::Result<&mut FileState> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::IO.into()),
        }
    }

    /// Whether the node is a directory.
    pub fn is_directory(&self, node: NodeId) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Directory(_)))
    }

    /// Makes a node under a name.
    pub fn make(&mut self, path: &Path, node: Node) -> io::Result<NodeId> {
        let (parent, name) = self.place(path)?;
        let id = self.next;
        self.directory_mut(parent)?
            .change(vec![Change::Link(name.to_owned(), id)]);
        self.next += 1;
        self.nodes.insert(id, node);
        Ok(id)
    }

    /// Removes a name. The node stays for those who have it open, until a crash.
    pub fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.place(path)?;
        self.directory_mut(parent)?
            .change(vec![Change::Unlink(name.to_owned())]);
        Ok(())
    }

    /// Renames a node, within a directory or to another one.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let (old, old_name) = self.place(from)?;
        let (new, new_name) = self.place(to)?;
        let link = Change::Link(new_name.to_owned(), node);
        let unlink = Change::Unlink(old_name.to_owned());
        if old == new {
            self.directory_mut(old)?.change(vec![unlink, link]);
            return Ok(());
        }
        self.directory_mut(new)?.change(vec![link]);
        self.directory_mut(old)?.change(vec![unlink]);
        Ok(())
    }

    /// Makes the names in a directory durable.
    pub fn sync_names(&mut self, node: NodeId) -> io::Result<()> {
        self.directory_mut(node)?.sync();
        Ok(())
    }

    /// Syncs a file. The sync may fail, or write a page to the wrong place, by the probabilities set.
    pub fn sync_file(&mut self, node: NodeId) -> io::Result<()> {
        let (fails, misdirects) = (
            self.fails(self.faults.sync),
            self.fails(self.faults.misdirect),
        );
        self.counts.syncs += 1;
        let mut rng = self.fault_rng.clone();
        let file = self.file(node)?;
        let dirty = file.is_dirty();
        let mut hit = None;
        if fails {
            file.fail_sync(&mut rng);
        } else if misdirects {
            hit = file.sync_misdirected(&mut rng);
        } else {
            file.sync();
        }
        self.fault_rng = rng;
        if let Some((meant, hit)) = hit {
            self.counts.misdirected += 1;
            self.misdirected.push((node, meant, hit));
        }
        if fails && dirty {
            self.counts.failed_syncs += 1;
        }
        if fails { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Writes one page of the file back, with the probability set.
    pub fn maybe_write_back(&mut self, node: NodeId) {
        if !self.write_back_rng.chance(self.faults.write_back) {
            return;
        }
        let mut rng = self.write_back_rng.clone();
        if let Ok(file) = self.file(node) {
            file.write_back(&mut rng);
        }
        self.write_back_rng = rng;
    }

    /// Simulates a power cut and a restart. Pages that were not synced are lost by `how`. Name changes that were not synced are
    /// kept with probability `keep_names`. Files without a durable name are removed.
    pub fn crash(&mut self, keep_names: f64, how: Crash) {
        let mut rng = self.crash_rng.clone();
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => {
                    let loss = file.crash(how, &mut rng);
                    self.counts.kept += loss.kept;
                    self.counts.lost += loss.lost;
                    self.counts.torn += loss.torn;
                }
                Node::Directory(directory) => {
                    self.counts.names_lost += directory.crash(keep_names, &mut rng);
                }
            }
        }
        self.crash_rng = rng;
        self.stop_at = u64::MAX;
        self.gc_orphans();
    }

    /// Simulates a restart of all processes without a power cut: the page cache stays, except for some clean pages.
    pub fn restart(&mut self) {
        let mut rng = self.crash_rng.clone();
        for node in self.nodes.values_mut() {
            if let Node::File(file) = node {
                file.forget_some(&mut rng);
            }
        }
        self.crash_rng = rng;
        self.stop_at = u64::MAX;
    }

    /// Removes files and directories that no name refers to.
    fn gc_orphans(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(node) = open.pop() {
            if let Some(Node::Directory(directory)) = self.nodes.get(&node) {
                for (_, child) in directory.entries() {
                    if reached.insert(child) {
                        open.push(child);
                    }
                }
            }
        }
        self.nodes.retain(|node, _| reached.contains(node));
    }

    /// Every file by its path, ascending, with its node.
    pub fn walk(&self) -> Vec<(String, NodeId)> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), ROOT)];
        while let Some((path, node)) = open.pop() {
            match self.nodes.get(&node) {
                Some(Node::Directory(directory)) => {
                    for (name, child) in directory.entries() {
                        open.push((format!("{path}/{name}"), child));
                    }
                }
                Some(Node::File(_)) => found.push((path, node)),
                None => {}
            }
        }
        found.sort();
        found
    }
}

fn text(name: &OsStr) -> io::Result<&str> {
    name.to_str().ok_or_else(|| Errno::INVAL.into())
}
