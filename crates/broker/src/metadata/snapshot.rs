//! Snapshot files: `snapshot-<index, 20 digits>`.
//!
//! | Offset | Type | Field |
//! |---|---|---|
//! | 0 | 4 B | magic `BSMS` |
//! | 4 | u32 | version = 1 |
//! | 8 | u64 | index of the last entry covered |
//! | 16 | u64 | length of the state |
//! | 24 | u32 | CRC-32C of the state |
//! | 28 | u32 | CRC-32C of bytes 0–27 |
//! | 32 | … | state |
//!
//! Little-endian. Written under a temporary name, synced, renamed, and the directory synced.
use crate::owner_only;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 4] = b"BSMS";
const VERSION: u32 = 1;
const HEADER: usize = 32;
const PREFIX: &str = "snapshot-";
/// The newest and one before it.
const KEPT: usize = 2;

/// The newest readable snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Newest {
    /// Index of the last entry covered; 0 = there is no snapshot.
    pub index: u64,
    pub state: Vec<u8>,
    /// Newer ones that are damaged.
    pub damaged: Vec<PathBuf>,
}

/// The newest readable snapshot, with the damaged ones that were passed over.
///
/// # Errors
/// When files are there but none can be read (`InvalidData`), or the directory cannot.
pub(super) fn newest(directory: &Path) -> io::Result<Newest> {
    let mut damaged = Vec::new();
    for (index, path) in list(directory)?.into_iter().rev() {
        if let Some(state) = read(index, &fs::read(&path)?) {
            return Ok(Newest {
                index,
                state,
                damaged,
            });
        }
        damaged.push(path);
    }
    match damaged.first() {
        None => Ok(Newest::default()),
        Some(path) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("no snapshot is readable, not {}", path.display()),
        )),
    }
}

/// Index and state of the newest readable snapshot; (0, empty) when there is none.
///
/// # Errors
/// As [`newest`].
pub(crate) fn newest_state(directory: &Path) -> io::Result<(u64, Vec<u8>)> {
    newest(directory).map(|found| (found.index, found.state))
}

/// The snapshots that fail their checksum; empty when the directory cannot be read.
pub(super) fn damaged(directory: &Path) -> Vec<PathBuf> {
    let files = list(directory).unwrap_or_default().into_iter();
    let check = |(index, path): &(u64, PathBuf)| {
        fs::read(path).is_ok_and(|bytes| read(*index, &bytes).is_some())
    };
    files
        .filter(|file| !check(file))
        .map(|(_, path)| path)
        .collect()
}

/// Index and file of the newest snapshot that checks; `None` when there is none.
pub(super) fn newest_index(directory: &Path) -> Option<(u64, PathBuf)> {
    let files = list(directory).ok()?.into_iter().rev();
    files
        .filter(|(index, path)| fs::read(path).is_ok_and(|bytes| read(*index, &bytes).is_some()))
        .max()
}

/// Stores a snapshot and removes all but the newest two; returns the index of the older one kept (0 = none).
///
/// # Errors
/// Those of the file system; nothing older was removed then.
pub(super) fn save(directory: &Path, index: u64, state: &[u8]) -> io::Result<u64> {
    let temporary = directory.join("snapshot.tmp");
    let mut file = owner_only::create(&temporary)?;
    file.write_all(&header(index, state))?;
    file.write_all(state)?;
    file.sync_all()?;
    fs::rename(&temporary, directory.join(format!("{PREFIX}{index:020}")))?;
    File::open(directory)?.sync_all()?;
    let files = list(directory)?;
    for (_, path) in files.iter().rev().skip(KEPT) {
        fs::remove_file(path)?;
    }
    Ok(files
        .len()
        .checked_sub(KEPT)
        .and_then(|i| files.get(i))
        .map_or(0, |(index, _)| *index))
}

fn list(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if let Some(index) = name
            .strip_prefix(PREFIX)
            .and_then(|digits| digits.parse().ok())
        {
            files.push((index, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn header(index: u64, state: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&(state.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(state).to_le_bytes());
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

pub(crate) fn read(index: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    let (found, state) = bytes.split_at_checked(HEADER)?;
    (found == header(index, state)).then(|| state.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_readable_snapshot_wins_and_two_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest(folder.path()).unwrap(), Newest::default());
        assert_eq!(save(folder.path(), 5, b"five").unwrap(), 0);
        assert_eq!(save(folder.path(), 7, b"seven").unwrap(), 5);
        assert_eq!(save(folder.path(), 9, b"nine").unwrap(), 7);
        assert_eq!(list(folder.path()).unwrap().len(), 2);
        let found = newest(folder.path()).unwrap();
        assert_eq!((found.index, &found.state[..]), (9, &b"nine"[..]));
        assert!(found.damaged.is_empty());
        let damaged = folder.path().join(format!("{PREFIX}{:020}", 9));
        let mut bytes = fs::read(&damaged).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&damaged, bytes).unwrap();
        let found = newest(folder.path()).unwrap();
        assert_eq!((found.index, &found.state[..]), (7, &b"seven"[..]));
        assert_eq!(found.damaged, [damaged]);
        fs::write(folder.path().join(format!("{PREFIX}{:020}", 7)), b"").unwrap();
        let none = newest(folder.path()).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::InvalidData);
    }
}
