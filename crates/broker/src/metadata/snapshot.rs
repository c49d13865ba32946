//! Snapshot files: `snapshot-<index, 20 digits>`.
//!
//! | Offset | Type | Field |
//! |---|---|---|
//! | 0 | 4 B | magic `BSMS` |
//! | 4 | u32 | version: 1 of a broker without a cluster, 2 of one in a cluster |
//! | 8 | u64 | index of the last entry covered |
//! | 16 | u64 | length of what follows the header |
//! | 24 | u32 | CRC-32C of what follows the header |
//! | 28 | u32 | CRC-32C of bytes 0–27 |
//! | 32 | u32 | version 2 only: length of the next field |
//! | … | … | version 2 only: term, index and voters at the last entry covered (`MessagePack`) |
//! | … | … | state |
//!
//! Little-endian. Written under a temporary name, synced, renamed, and the directory synced.
use crate::owner_only;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 4] = b"BSMS";
const VERSION: u32 = 1;
const CLUSTER_VERSION: u32 = 2;
const HEADER: usize = 32;
const PREFIX: &str = "snapshot-";
/// The newest and one before it.
const KEPT: usize = 2;

/// The newest readable snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Newest {
    /// Index of the last entry covered; 0 = there is no snapshot.
    pub index: u64,
    pub state: Vec<u8>,
    /// Term, index and voters at that entry; empty in version 1.
    pub raft: Vec<u8>,
    /// Newer ones that are damaged.
    pub damaged: Vec<PathBuf>,
}

/// The newest readable snapshot, with the damaged ones that were passed over.
///
/// # Errors
/// When files are there but none can be read (`InvalidData`), or the directory cannot.
pub(crate) fn newest(directory: &Path) -> io::Result<Newest> {
    let mut damaged = Vec::new();
    for (index, path) in list(directory)?.into_iter().rev() {
        if let Some((raft, state)) = parse(index, &fs::read(&path)?) {
            return Ok(Newest {
                index,
                state: state.to_vec(),
                raft: raft.to_vec(),
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
pub(crate) fn damaged(directory: &Path) -> Vec<PathBuf> {
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
pub(crate) fn newest_index(directory: &Path) -> Option<(u64, PathBuf)> {
    let files = list(directory).ok()?.into_iter().rev();
    files
        .filter(|(index, path)| fs::read(path).is_ok_and(|bytes| read(*index, &bytes).is_some()))
        .max()
}

/// Stores a snapshot and removes all but the newest two; returns the index of the older one kept (0 = none).
///
/// # Errors
/// Those of the file system; nothing older was removed then.
pub(crate) fn save(directory: &Path, index: u64, state: &[u8]) -> io::Result<u64> {
    write(
        directory,
        index,
        &header(VERSION, index, &[state]),
        &[state],
    )
}

/// As [`save`], with what a cluster has to know of the last entry covered.
///
/// # Errors
/// As [`save`].
pub(crate) fn save_of_cluster(
    directory: &Path,
    index: u64,
    raft: &[u8],
    state: &[u8],
) -> io::Result<u64> {
    let length = (raft.len() as u32).to_le_bytes();
    let parts: [&[u8]; 3] = [&length, raft, state];
    write(
        directory,
        index,
        &header(CLUSTER_VERSION, index, &parts),
        &parts,
    )
}

fn write(directory: &Path, index: u64, header: &[u8], parts: &[&[u8]]) -> io::Result<u64> {
    let temporary = directory.join("snapshot.tmp");
    let mut file = owner_only::create(&temporary)?;
    file.write_all(header)?;
    for part in parts {
        file.write_all(part)?;
    }
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

fn header(version: u32, index: u64, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let checksum = parts
        .iter()
        .fold(0, |checksum, part| crc32c::crc32c_append(checksum, part));
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The state in a snapshot's bytes; `None` when they are damaged or of another index.
pub(crate) fn read(index: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    parse(index, bytes).map(|(_, state)| state.to_vec())
}

/// The state in the snapshot that covers entries 1…`index`.
///
/// # Errors
/// Those of the file system; `InvalidData` when it is damaged.
pub(crate) fn read_at(directory: &Path, index: u64) -> io::Result<Vec<u8>> {
    let path = directory.join(format!("{PREFIX}{index:020}"));
    read(index, &fs::read(&path)?).ok_or_else(|| {
        let text = format!("the snapshot {} is damaged", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn parse(index: u64, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, body) = bytes.split_at_checked(HEADER)?;
    if found == header(VERSION, index, &[body]) {
        return Some((&[], body));
    }
    if found != header(CLUSTER_VERSION, index, &[body]) {
        return None;
    }
    let (length, rest) = body.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
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
