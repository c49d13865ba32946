//! Files in memory that lose with the power what was not synced, names included, and a process that can be killed at
//! any call.
//!
//! A kill leaves what was written where the next process finds it, as the page cache does; a power cut leaves what was
//! synced. A file's sync makes its content durable, not its name; a directory's sync makes its names durable.
#![allow(clippy::unwrap_used)] // a test fails by a panic
use bascule_log::{OpenMode, Storage, StorageFile};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// What becomes at a power cut of writes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// They are lost.
    Loses,
    /// Of each one the first half is on the disk.
    Tears,
}

type Id = u64;
const ROOT: Id = 0;

#[derive(Debug)]
enum Node {
    File {
        cache: Vec<u8>,
        disk: Vec<u8>,
        unsynced: Vec<(usize, Vec<u8>)>,
    },
    Directory {
        now: BTreeMap<String, Id>,
        disk: BTreeMap<String, Id>,
    },
}

#[derive(Debug)]
struct World {
    nodes: BTreeMap<Id, Node>,
    /// Calls that change something until the process is dead.
    calls_left: Option<u64>,
    calls: u64,
}

/// The storage. Clones share it.
#[derive(Clone, Debug)]
pub struct Volatile(Arc<Mutex<World>>);

#[derive(Debug)]
struct OpenFile {
    storage: Volatile,
    id: Id,
}

fn directory() -> Node {
    Node::Directory {
        now: BTreeMap::new(),
        disk: BTreeMap::new(),
    }
}

impl Volatile {
    /// Nothing but a root.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(World {
            nodes: BTreeMap::from([(ROOT, directory())]),
            calls_left: None,
            calls: 0,
        })))
    }

    /// The process is killed after so many more calls that change something: none of its later calls does anything.
    pub fn kill_after(&self, calls: u64) {
        self.world().calls_left = Some(calls);
    }

    /// Another process. Returns whether the one before was killed.
    pub fn restart(&self) -> bool {
        self.world().calls_left.take() == Some(0)
    }

    /// The power goes, and comes back.
    pub fn cut(&self, how: Cut) {
        for node in self.world().nodes.values_mut() {
            match node {
                Node::File {
                    cache,
                    disk,
                    unsynced,
                } => {
                    for (at, bytes) in std::mem::take(unsynced) {
                        if how == Cut::Tears {
                            put(disk, at, &bytes[..bytes.len() / 2]);
                        }
                    }
                    cache.clone_from(disk);
                }
                Node::Directory { now, disk } => now.clone_from(disk),
            }
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// A call that changes something.
    fn change(&self) -> io::Result<MutexGuard<'_, World>> {
        let mut world = self.world();
        world.calls += 1;
        match &mut world.calls_left {
            Some(0) => return Err(Errno::IO.into()),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(world)
    }
}

impl World {
    fn find(&self, path: &Path) -> io::Result<Id> {
        let mut id = ROOT;
        for part in path.iter().skip(1) {
            let Some(Node::Directory { now, .. }) = self.nodes.get(&id) else {
                return Err(Errno::NOTDIR.into());
            };
            id = *now.get(part.to_str().unwrap()).ok_or(Errno::NOENT)?;
        }
        Ok(id)
    }

    fn names(&mut self, path: &Path) -> io::Result<(&mut BTreeMap<String, Id>, String)> {
        let parent = self.find(path.parent().unwrap())?;
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match self.nodes.get_mut(&parent) {
            Some(Node::Directory { now, .. }) => Ok((now, name)),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn make(&mut self, path: &Path, node: Node) -> io::Result<Id> {
        let id = self.nodes.len() as Id;
        let (names, name) = self.names(path)?;
        names.insert(name, id);
        self.nodes.insert(id, node);
        Ok(id)
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    content.resize(content.len().max(at + bytes.len()), 0);
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Storage for Volatile {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let found = self.world().find(path);
        let id = match (found, mode) {
            (Err(_), OpenMode::Create | OpenMode::Replace) => self.change()?.make(
                path,
                Node::File {
                    cache: Vec::new(),
                    disk: Vec::new(),
                    unsynced: Vec::new(),
                },
            )?,
            (found, _) => found?,
        };
        let file = OpenFile {
            storage: self.clone(),
            id,
        };
        if mode == OpenMode::Replace {
            file.set_len(0)?;
        }
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.change()?;
        let (names, name) = world.names(from)?;
        let id = names.remove(&name).ok_or(Errno::NOENT)?;
        let (names, name) = world.names(to)?;
        names.insert(name, id);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut world = self.change()?;
        let id = world.find(path)?;
        if matches!(world.nodes.get(&id), Some(Node::Directory { .. })) {
            return Err(Errno::ISDIR.into());
        }
        let (names, name) = world.names(path)?;
        names.remove(&name);
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut world = self.change()?;
        if world.find(path).is_ok() {
            return Err(Errno::EXIST.into());
        }
        world.make(path, directory()).map(drop)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut world = self.change()?;
        let (names, name) = world.names(path)?;
        names.remove(&name).map(drop).ok_or(Errno::NOENT.into())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let world = self.world();
        let id = world.find(path)?;
        match world.nodes.get(&id) {
            Some(Node::Directory { now, .. }) => {
                Ok(now.keys().map(|name| path.join(name)).collect())
            }
            _ => Err(Errno::NOTDIR.into()),
        }
    }
}

impl StorageFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match self.storage.world().nodes.get(&self.id) {
            Some(Node::File { cache, .. }) => {
                let rest = cache.get(position as usize..).unwrap_or_default();
                let read = rest.len().min(buffer.len());
                buffer[..read].copy_from_slice(&rest[..read]);
                Ok(read)
            }
            _ => Err(Errno::ISDIR.into()),
        }
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut world = self.storage.change()?;
        if let Some(Node::File {
            cache, unsynced, ..
        }) = world.nodes.get_mut(&self.id)
        {
            put(cache, position as usize, bytes);
            unsynced.push((position as usize, bytes.to_vec()));
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        match self.storage.world().nodes.get(&self.id) {
            Some(Node::File { cache, .. }) => Ok(cache.len() as u64),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut world = self.storage.change()?;
        if let Some(Node::File {
            cache, unsynced, ..
        }) = world.nodes.get_mut(&self.id)
        {
            cache.resize(len as usize, 0);
            // What is cut away is not written any more; the cut itself waits for a sync.
            unsynced.retain(|(at, _)| *at < len as usize);
            for (at, bytes) in unsynced {
                bytes.truncate(len as usize - *at);
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut world = self.storage.change()?;
        match world.nodes.get_mut(&self.id) {
            Some(Node::File {
                cache,
                disk,
                unsynced,
            }) => {
                disk.clone_from(cache);
                unsynced.clear();
            }
            Some(Node::Directory { now, disk }) => disk.clone_from(now),
            None => {}
        }
        Ok(())
    }
}
