//! A directory whose journal is damaged, and what its logs then serve.
use super::super::*;
use super::RECORDS;
use crate::integrity::Damage;
use crate::io::file_names::journal_name;
use std::ops::Range;

/// A home with two logs whose segments have lost what is in the journal.
pub struct Home {
    pub root: tempfile::TempDir,
    /// The journal's file, and what it held.
    pub file: PathBuf,
    pub whole: Vec<u8>,
    /// What the manifest held.
    pub head: Vec<u8>,
    /// Bytes written to the file.
    pub written: usize,
}

impl Home {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (first, logs) = logs_with_rounds_in_wal_after_copy(home.path(), 2, RECORDS);
        drop(logs);
        Self::of(home, &first)
    }

    pub fn of(home: tempfile::TempDir, committer: &GroupCommitter) -> Self {
        let written = committer.statistics().wal_bytes as usize;
        let file = home.path().join("journal").join(journal_name(0));
        let whole = fs::read(&file).unwrap();
        let head = fs::read(home.path().join("journal.head")).unwrap();
        Self {
            root: home,
            file,
            whole,
            head,
            written,
        }
    }

    /// As it was, but for the bytes that `harm` changes.
    pub fn harmed(&self, harm: impl Fn(&mut [u8])) -> Arc<GroupCommitter> {
        restore(&self.root.path().join("copy"), self.root.path());
        let mut bytes = self.whole.clone();
        harm(&mut bytes);
        fs::remove_dir_all(self.file.parent().unwrap()).unwrap();
        fs::create_dir(self.file.parent().unwrap()).unwrap();
        fs::write(&self.file, bytes).unwrap();
        fs::write(self.head_path(), &self.head).unwrap();
        committer(self.root.path())
    }

    pub fn head_path(&self) -> PathBuf {
        self.root.path().join("journal.head")
    }

    /// As it was, but for those bytes, which are changed or zeros.
    pub fn without(&self, range: Range<usize>, zeros: bool) -> Arc<GroupCommitter> {
        self.harmed(|bytes| destroy(&mut bytes[range.clone()], zeros))
    }

    pub fn frames(&self, numbers: Range<usize>) -> Range<usize> {
        self.frame(numbers.start).start..self.frame(numbers.end - 1).end
    }

    /// Opens both logs, of which that range of offsets is lost and refused, and nothing else.
    pub fn expect_lost(&self, committer: Arc<GroupCommitter>, lost: &Range<u64>) {
        for (served, damages) in self.open(committer) {
            let kept = (0..RECORDS).filter(|offset| !lost.contains(offset));
            assert_eq!(served, kept.collect::<Vec<_>>(), "{lost:?}");
            let refused = damages.iter().map(|damage| damage.start..damage.end);
            let all: Vec<u64> = refused.flatten().collect();
            assert_eq!(all, lost.clone().collect::<Vec<_>>());
        }
    }

    pub fn frame(&self, number: usize) -> Range<usize> {
        let len = (self.written - 64) / (2 * (RECORDS as usize - 1));
        64 + number * len..64 + (number + 1) * len
    }

    /// What each log serves, and what it is refused, also after another start.
    pub fn open(&self, committer: Arc<GroupCommitter>) -> [(Vec<u64>, Vec<Damage>); 2] {
        let serve = |committer: &Arc<GroupCommitter>| {
            [1, 2].map(|i| {
                let (log, _) = open(self.root.path(), i, committer);
                assert!(log.reader().log_end() <= RECORDS);
                served(&log)
            })
        };
        let found = serve(&committer);
        drop(committer);
        let again = serve(&super::super::committer(self.root.path()));
        let ranges = |found: &[(Vec<u64>, Vec<Damage>); 2]| {
            found.clone().map(|(served, damages)| {
                let ends = damages.iter().map(|damage| (damage.start, damage.end));
                (served, ends.collect::<Vec<_>>())
            })
        };
        assert_eq!(
            ranges(&found),
            ranges(&again),
            "another start finds the same"
        );
        found
    }
}

pub fn destroy(bytes: &mut [u8], zeros: bool) {
    for byte in bytes {
        *byte = if zeros { 0 } else { *byte ^ 0x55 };
    }
}

/// The values of all records that are served, and the ranges that are refused, which readers pass over.
pub fn served(log: &Log) -> (Vec<u64>, Vec<Damage>) {
    let (mut values, mut damages, mut from) = (Vec::new(), Vec::new(), 0);
    loop {
        let mut cursor = log.reader().cursor(from);
        loop {
            match cursor.next(u64::MAX, 1 << 20, ReadMode::Blocking) {
                Ok(None) => {
                    let known = log.shared.quarantine.list(0);
                    let of = |damages: &[Damage]| {
                        damages.iter().map(|d| (d.start, d.end)).collect::<Vec<_>>()
                    };
                    assert_eq!(of(&known), of(&damages), "refused ranges are reported");
                    return (values, known);
                }
                Ok(Some(bytes)) => {
                    for bytes in Batches::new(bytes) {
                        let batch = Batch::read(&bytes.unwrap()).unwrap();
                        assert_eq!(
                            batch.value(0).unwrap(),
                            batch.header().base_offset.to_le_bytes()
                        );
                        values.push(batch.header().base_offset);
                    }
                }
                Err(crate::ReadError::Damaged(damage)) => {
                    from = damage.end;
                    damages.push(*damage);
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
