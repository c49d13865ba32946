//! One damage to one file.
use crate::Dice;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The damage done, for the report.
#[derive(Debug)]
#[allow(dead_code)] // `path` and `at` are printed
pub struct Injury {
    pub kind: &'static str,
    pub file: String,
    pub path: String,
    pub at: (u64, u64),
}

impl Injury {
    /// The names that it is counted under.
    pub fn counts(&self) -> Vec<String> {
        vec![format!("kind {}", self.kind), format!("file {}", self.file)]
    }
}

/// The files in a directory; of a journal its head, too, which lies beside it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    files.push(directory.with_extension("head"));
    files.retain(|path| path.is_file());
    files.sort();
    files
}

fn kind_of(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    path.extension().map_or(name.to_owned(), |extension| {
        extension.to_str().unwrap().to_owned()
    })
}

/// A file: each kind is as likely as every other.
fn pick(directory: &Path, dice: &mut Dice) -> PathBuf {
    let files = files(directory);
    let mut kinds: Vec<String> = files.iter().map(|path| kind_of(path)).collect();
    kinds.sort();
    kinds.dedup();
    // Where records lie is what matters: half of all.
    let records = kinds
        .iter()
        .find(|kind| ["seg", "journal"].contains(&kind.as_str()));
    let kind = match records {
        Some(records) if dice.below(2) == 0 => records.clone(),
        _ => kinds[dice.below(kinds.len() as u64) as usize].clone(),
    };
    let of_kind: Vec<&PathBuf> = files.iter().filter(|path| kind_of(path) == kind).collect();
    of_kind[dice.below(of_kind.len() as u64) as usize].clone()
}

fn noise(dice: &mut Dice, len: u64) -> Vec<u8> {
    (0..len).map(|_| dice.roll() as u8).collect()
}

/// Damages one file of `directory`. The damage may happen to change nothing.
pub fn apply(directory: &Path, others: &[PathBuf; 2], dice: &mut Dice) -> Injury {
    let path = pick(directory, dice);
    let mut bytes = fs::read(&path).unwrap();
    let len = bytes.len() as u64;
    let from = dice.below(len);
    let most = [1, 16, 128, 512, 4096][dice.below(5) as usize];
    let to = (from + 1 + dice.below(most)).min(len);
    let range = from as usize..to as usize;
    let kind = match dice.below(12) {
        0..=2 if len > 0 => {
            bytes[from as usize] ^= 1 << dice.below(8);
            "flip"
        }
        3 if len > 0 => {
            for _ in 0..2 + dice.below(6) {
                let at = dice.below(len) as usize;
                bytes[at] ^= 1 << dice.below(8);
            }
            "flips"
        }
        4 => {
            bytes.truncate(from as usize);
            "truncate"
        }
        5 => {
            bytes[range].fill(0);
            "zero"
        }
        6 => {
            let noise = noise(dice, to - from);
            bytes[range].copy_from_slice(&noise);
            "noise"
        }
        7 => {
            let more = 1 + dice.below(600);
            bytes.extend(noise(dice, more));
            "longer"
        }
        8 => {
            let other = &others[dice.below(2) as usize];
            let donors: Vec<PathBuf> = files(other)
                .into_iter()
                .filter(|donor| kind_of(donor) == kind_of(&path))
                .collect();
            let same = other.join(path.file_name().unwrap());
            let donor = if same.is_file() || donors.is_empty() {
                same
            } else {
                donors[dice.below(donors.len() as u64) as usize].clone()
            };
            match fs::read(donor) {
                Ok(donor) => bytes = donor,
                Err(_) => bytes.clear(),
            }
            "other copy"
        }
        9 => {
            let twins: Vec<PathBuf> = files(directory)
                .into_iter()
                .filter(|twin| kind_of(twin) == kind_of(&path))
                .collect();
            let twin = &twins[dice.below(twins.len() as u64) as usize];
            let theirs = fs::read(twin).unwrap();
            fs::write(twin, &bytes).unwrap();
            bytes = theirs;
            "swap"
        }
        10 => {
            // A write that went to the wrong place: bytes of this or another file over these.
            let donor = fs::read(pick(directory, dice)).unwrap();
            let start = dice.below(donor.len() as u64) as usize;
            let end = (start + range.len()).min(donor.len());
            let chunk = donor[start..end].to_vec();
            bytes[range.start..range.start + chunk.len()].copy_from_slice(&chunk);
            "misdirected"
        }
        _ => {
            fs::remove_file(&path).unwrap();
            return Injury {
                kind: "missing",
                file: kind_of(&path),
                path: path.display().to_string(),
                at: (0, 0),
            };
        }
    };
    fs::write(&path, bytes).unwrap();
    Injury {
        kind,
        file: kind_of(&path),
        path: path.display().to_string(),
        at: (from, to),
    }
}

/// Damages bytes of that range of the file; a cut takes all after it, too.
pub fn apply_within(path: &Path, range: Range<usize>, dice: &mut Dice) -> Injury {
    let mut bytes = fs::read(path).unwrap();
    let from = range.start + dice.below(range.len() as u64) as usize;
    let most = [1, 16, 128, 512, 4096][dice.below(5) as usize];
    let to = (from + 1 + dice.below(most) as usize).min(range.end);
    let kind = match dice.below(6) {
        0..=1 => {
            bytes[from] ^= 1 << dice.below(8);
            "flip"
        }
        2 => {
            bytes.truncate(from);
            "truncate"
        }
        3 => {
            bytes[from..to].fill(0);
            "zero"
        }
        4 => {
            let noise = noise(dice, (to - from) as u64);
            bytes[from..to].copy_from_slice(&noise);
            "noise"
        }
        _ => {
            let donor = dice.below((bytes.len() - (to - from)) as u64) as usize;
            bytes.copy_within(donor..donor + (to - from), from);
            "misdirected"
        }
    };
    fs::write(path, bytes).unwrap();
    Injury {
        kind,
        file: "unsynced seg".to_owned(),
        path: path.display().to_string(),
        at: (from as u64, to as u64),
    }
}
