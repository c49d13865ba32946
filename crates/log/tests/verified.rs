//! What verify says of a damaged log is what a start then serves and refuses, offset by offset.
#![allow(clippy::unwrap_used)]
mod support;

use bascule_log::integrity::{FindingKind, verify};
use bascule_log::{Log, LogReader, OsStorage, ReadError, ReadMode};
use bascule_record::{Batch, Batches};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use support::*;

const SEGMENT: u64 = 4000;
const RECORDS: u64 = 60;

/// One thing that happens to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip(usize),
    Zeros(usize, usize),
    CutAt(usize),
    Gone,
    GoneIndex(usize),
}

impl Harm {
    fn all(len: usize) -> Vec<Self> {
        let mut all = vec![Self::Gone, Self::Zeros(0, len)];
        for first in [64, 200, 512, 1000] {
            all.extend([Self::Zeros(0, first), Self::GoneIndex(first)]);
        }
        for at in (1..len).step_by(499) {
            all.extend([Self::Flip(at), Self::CutAt(at), Self::Zeros(at, 700)]);
        }
        all
    }

    fn befall(self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        match self {
            Self::Flip(at) => bytes[at] ^= 4,
            Self::CutAt(at) => bytes.truncate(at),
            Self::Zeros(from, count) => {
                let to = (from + count).min(bytes.len());
                bytes[from..to].fill(0);
            }
            Self::GoneIndex(count) => {
                bytes[..count].fill(0);
                let _ = fs::remove_file(path.with_extension("idx"));
            }
            Self::Gone => return fs::remove_file(path).unwrap(),
        }
        fs::write(path, bytes).unwrap();
    }
}

fn closed() -> Home {
    let home = Home::new();
    let mut log = home.create(small(SEGMENT));
    fill(&mut log, (0..RECORDS).map(|i| vec![i as u8; 200]));
    log.close().unwrap();
    home
}

/// The offsets that are served.
fn served(reader: &LogReader) -> BTreeSet<u64> {
    let (mut found, mut from) = (BTreeSet::new(), reader.log_start());
    loop {
        let mut cursor = reader.cursor(from);
        let ended = loop {
            match cursor.next(u64::MAX, 1 << 20, ReadMode::Blocking) {
                Ok(Some(bytes)) => {
                    // A payload that does not check is refused.
                    for batch in
                        Batches::new(bytes).filter_map(|bytes| Batch::read(&bytes.unwrap()).ok())
                    {
                        found.extend((0..batch.len()).map(|i| batch.offset(i)));
                    }
                }
                Ok(None) => return found,
                Err(ReadError::Damaged(damage)) => break damage.end,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(ended > from);
        from = ended;
    }
}

fn agree(segment: usize, harm: Harm, pristine: &Home) {
    let home = Home::new();
    copy(&pristine.path(), &home.path());
    harm.befall(&home.segments()[segment]);
    let said = verify(&OsStorage, &home.path(), IDENTITY).unwrap();
    let lost: BTreeSet<u64> = said
        .findings
        .iter()
        .filter(|found| found.kind == FindingKind::Damage)
        .flat_map(|found| found.offsets.0..found.offsets.1)
        .collect();
    let (log, _): (Log, _) = home.open(small(SEGMENT));
    log.set_high_watermark(u64::MAX);
    let served = served(&log.reader());
    let expected: BTreeSet<u64> = (0..RECORDS).filter(|at| !served.contains(at)).collect();
    assert_eq!(lost, expected, "{segment}, {harm:?}: {:?}", said.findings);
}

#[test]
fn verify_and_a_start_agree_on_what_is_lost() {
    let pristine = closed();
    let segments = pristine.segments();
    assert!(segments.len() > 4);
    for (number, path) in segments.iter().enumerate() {
        for harm in Harm::all(fs::metadata(path).unwrap().len() as usize) {
            agree(number, harm, &pristine);
        }
    }
}
