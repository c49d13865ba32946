//! Files of the operating system, and what of each a power cut would leave: what it held when it was synced last. Names count
//! as durable at once, as on a filesystem that keeps its metadata and loses data.
use crate::Dice;
use bascule_log::{FileWrapper, OpenMode, OsStorage, Storage, StorageFile, StorageWrapper};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Written back by itself in pieces of this size, in any order.
const SECTOR: usize = 512;

/// What a power cut leaves of what was written and not synced.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Nothing, lengths included.
    Shorter,
    /// Only the lengths: zeros.
    Zeros,
    /// Any part of it.
    Mixed,
}

/// The storage; clones share what is known.
#[derive(Clone, Debug, Default)]
pub struct Power(Arc<Mutex<HashMap<PathBuf, Vec<u8>>>>);

#[derive(Debug)]
struct PowerFile {
    power: Power,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

impl Power {
    /// Everything that is there counts as synced.
    pub fn over(root: &Path) -> Self {
        let power = Self::default();
        for path in tree(root) {
            power.note(&path);
        }
        power
    }

    fn note(&self, path: &Path) {
        // A removed file that is still open is nobody's.
        if let Ok(bytes) = fs::read(path) {
            self.0.lock().unwrap().insert(path.to_path_buf(), bytes);
        }
    }

    /// Writes to `to` what was synced of the files at `root`.
    pub fn copy_synced(&self, root: &Path, to: &Path) {
        let known = self.0.lock().unwrap();
        for path in tree(root) {
            let synced = known.get(&path).map_or(&[][..], Vec::as_slice);
            write(&to.join(path.strip_prefix(root).unwrap()), synced);
        }
    }
}

impl StorageWrapper for Power {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        if mode == OpenMode::Directory {
            return Ok(file);
        }
        let (power, path) = (self.clone(), path.to_path_buf());
        Ok(Arc::new(PowerFile { power, path, file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)?;
        let mut known = self.0.lock().unwrap();
        let synced = known.remove(from).unwrap_or_default();
        known.insert(to.to_path_buf(), synced);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_file(path)?;
        self.0.lock().unwrap().remove(path);
        Ok(())
    }
}

impl FileWrapper for PowerFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn sync_data(&self) -> io::Result<()> {
        self.power.note(&self.path);
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        FileWrapper::sync_data(self)
    }
}

/// Takes from the files at `root` what the cut takes; `synced` holds what was synced of them.
pub fn cut(root: &Path, synced: &Path, how: Cut, dice: &mut Dice) {
    for path in tree(root) {
        let now = fs::read(&path).unwrap();
        let mut left = fs::read(synced.join(path.strip_prefix(root).unwrap())).unwrap();
        if now == left {
            continue;
        }
        if !matches!(how, Cut::Shorter) {
            left.resize(now.len(), 0);
        }
        if matches!(how, Cut::Mixed) {
            let sectors = left.chunks_mut(SECTOR).zip(now.chunks(SECTOR));
            for (left, now) in sectors.filter(|_| dice.below(2) == 0) {
                left.copy_from_slice(now);
            }
        }
        fs::write(&path, left).unwrap();
    }
}

/// All files below a directory, in order.
pub fn tree(root: &Path) -> Vec<PathBuf> {
    let (mut files, mut directories) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let list = if path.is_dir() {
                &mut directories
            } else {
                &mut files
            };
            list.push(path);
        }
    }
    files.sort();
    files
}

/// What is in all files below a directory, by name there, or in the file.
pub fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = match fs::read(root) {
        Ok(bytes) => return BTreeMap::from([(PathBuf::new(), bytes)]),
        Err(_) => tree(root).into_iter(),
    };
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        (name, fs::read(path).unwrap())
    };
    files.map(read).collect()
}

/// Copies a tree.
pub fn copy_tree(from: &Path, to: &Path) {
    for path in tree(from) {
        write(
            &to.join(path.strip_prefix(from).unwrap()),
            &fs::read(&path).unwrap(),
        );
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}
