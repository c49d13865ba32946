//! The simulated disk behind the engine's door to files.
use crate::disk::{Directory, FileState, Node, NodeId, SimDisk};
use bascule_log::{OpenMode, Storage, StorageFile};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disk, shared by all that use it.
pub(crate) type SharedDisk = Arc<Mutex<SimDisk>>;

/// Files by path.
#[derive(Clone, Debug)]
pub(crate) struct SimStorage(pub SharedDisk);

impl SimStorage {
    /// Counts an operation on names; it may fail.
    fn on_names(&self, operation: &str, path: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.begin(operation, 0, hash(path), 0)?;
        let open = disk.faults.open;
        if disk.fails(open) {
            return Err(Errno::IO.into());
        }
        Ok(())
    }
}

impl Storage for SimStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.on_names("open", path)?;
        let mut disk = self.0.lock();
        if disk.faults.no_descriptors {
            return Err(Errno::MFILE.into());
        }
        let node = match (disk.find(path), mode) {
            (Ok(node), OpenMode::Directory) if !disk.is_directory(node) => {
                return Err(Errno::NOTDIR.into());
            }
            (Ok(node), mode) if disk.is_directory(node) && mode != OpenMode::Directory => {
                return Err(Errno::ISDIR.into());
            }
            (Ok(node), OpenMode::Replace) => {
                disk.file(node)?.set_len(0);
                node
            }
            (Ok(node), _) => node,
            (Err(_), OpenMode::Create | OpenMode::Replace) => {
                disk.make(path, Node::File(FileState::default()))?
            }
            (Err(error), _) => return Err(error),
        };
        drop(disk);
        Ok(Arc::new(SimFile {
            disk: Arc::clone(&self.0),
            node,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.on_names("rename", to)?;
        self.0.lock().rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.on_names("remove", path)?;
        let mut disk = self.0.lock();
        let node = disk.find(path)?;
        if disk.is_directory(node) {
            return Err(Errno::ISDIR.into());
        }
        disk.unlink(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.on_names("mkdir", path)?;
        let mut disk = self.0.lock();
        if disk.find(path).is_ok() {
            return Err(Errno::EXIST.into());
        }
        disk.make(path, Node::Directory(Directory::default()))
            .map(|_| ())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.on_names("rmdir", path)?;
        let mut disk = self.0.lock();
        let node = disk.find(path)?;
        if !disk.directory(node)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        disk.unlink(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.on_names("list", path)?;
        let disk = self.0.lock();
        let node = disk.find(path)?;
        Ok(disk
            .directory(node)?
            .entries()
            .map(|(name, _)| path.join(name))
            .collect())
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.lock().monotonic
    }

    fn wall_clock_ns(&self) -> i64 {
        self.0.lock().now
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SharedDisk,
    node: NodeId,
}

impl StorageFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut disk = self.disk.lock();
        disk.begin("read", self.node, position, buffer.len() as u64)?;
        let probability = disk.faults.read;
        if disk.fails(probability) {
            return Err(Errno::IO.into());
        }
        let data = disk.file(self.node)?.data();
        let start = usize::try_from(position)
            .unwrap_or(usize::MAX)
            .min(data.len());
        let count = buffer.len().min(data.len() - start);
        if let (Some(into), Some(from)) = (buffer.get_mut(..count), data.get(start..start + count))
        {
            into.copy_from_slice(from);
        }
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let mark = u64::from(crc32c::crc32c(bytes)) << 32 | bytes.len() as u64;
        disk.begin("write", self.node, position, mark)?;
        let position = usize::try_from(position).map_err(|_| io::Error::from(Errno::FBIG))?;
        let growth = disk.file(self.node)?.growth(position, bytes.len()) as u64;
        let (probability, space) = (disk.faults.write, disk.faults.space);
        if disk.fails(probability) {
            let written = disk.draw(bytes.len() as u64 + 1) as usize;
            write_part(&mut disk, self.node, bytes, position, written)?;
            return Err(Errno::IO.into());
        }
        if let Some(left) = space
            && growth > left
        {
            let written = bytes.len() - (growth - left) as usize;
            write_part(&mut disk, self.node, bytes, position, written)?;
            disk.faults.space = Some(0);
            disk.counts.faults += 1;
            return Err(Errno::NOSPC.into());
        }
        disk.faults.space = space.map(|left| left - growth);
        write_part(&mut disk, self.node, bytes, position, bytes.len())?;
        disk.maybe_write_back(self.node);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut disk = self.disk.lock();
        disk.begin("len", self.node, 0, 0)?;
        if disk.is_directory(self.node) {
            return Ok(0);
        }
        Ok(disk.file(self.node)?.data().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.begin("set_len", self.node, len, 0)?;
        let probability = disk.faults.write;
        if disk.fails(probability) {
            return Err(Errno::IO.into());
        }
        let len = usize::try_from(len).map_err(|_| io::Error::from(Errno::FBIG))?;
        disk.file(self.node)?.set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.begin("sync", self.node, 0, 0)?;
        disk.sync_file(self.node)
    }

    fn forget_cached(&self, from: u64) -> io::Result<()> {
        self.sync_data()?;
        let mut disk = self.disk.lock();
        disk.begin("forget", self.node, from, 0)?;
        disk.file(self.node)?.forget_cached(from);
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.begin("sync_all", self.node, 0, 0)?;
        if !disk.is_directory(self.node) {
            return disk.sync_file(self.node);
        }
        let probability = disk.faults.sync;
        if disk.fails(probability) {
            return Err(Errno::IO.into());
        }
        disk.sync_names(self.node)
    }
}

fn write_part(
    disk: &mut SimDisk,
    node: NodeId,
    bytes: &[u8],
    position: usize,
    count: usize,
) -> io::Result<()> {
    let part = bytes.get(..count.min(bytes.len())).unwrap_or(bytes);
    disk.file(node)?.write(part, position);
    Ok(())
}

fn hash(path: &Path) -> u64 {
    u64::from(crc32c::crc32c(path.as_os_str().as_encoded_bytes()))
}
