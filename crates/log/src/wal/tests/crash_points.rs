//! A kill or a power cut at any moment leaves a journal of which a start reports no loss.
use super::super::replay::{self, ScanResult};
use super::*;
use crate::WalFault;
use crate::io::storage::{FileWrapper, OpenMode, Storage, StorageFile, StorageWrapper};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;

/// Written back by itself in pieces of this size, in any order.
const SECTOR: usize = 512;

/// The journal's files, and what of each was synced. After every step it scans what the end of the broker would leave.
#[derive(Clone, Debug)]
struct Cuts(Arc<Mutex<World>>);

#[derive(Debug)]
struct World {
    home: PathBuf,
    synced: BTreeMap<PathBuf, Vec<u8>>,
    /// So many writes of the journal fail halfway, for want of space.
    failing: u32,
    dice: u64,
    scans: u64,
}

#[derive(Debug)]
struct CutFile {
    cuts: Cuts,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

impl World {
    /// What of a file is left when any part of what was not synced was written.
    fn mixed(&mut self, now: &[u8], synced: &[u8]) -> Vec<u8> {
        let mut left = synced.to_vec();
        left.resize(now.len(), 0);
        for (left, now) in left.chunks_mut(SECTOR).zip(now.chunks(SECTOR)) {
            self.dice = self
                .dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if self.dice >> 63 == 0 {
                left.copy_from_slice(now);
            }
        }
        left
    }

    /// Scans the journal as `left` makes it of its present and of its synced content.
    fn scan(&mut self, mut left: impl FnMut(&mut Self, &[u8], &[u8]) -> Vec<u8>) -> ScanResult {
        let scratch = self.home.join("scratch");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(scratch.join("journal")).unwrap();
        for (path, synced) in self.synced.clone() {
            if let Ok(now) = fs::read(&path) {
                let left = left(self, &now, &synced);
                let at = scratch.join(path.strip_prefix(&self.home).unwrap());
                fs::write(at, left).unwrap();
            }
        }
        self.scans += 1;
        let options = WalOptions {
            partitions: self.home.join("partitions"),
            ..options(&scratch)
        };
        replay::scan(&OsStorage, &options, OpenMode::Read).unwrap()
    }

    fn check(&mut self, step: &str) {
        let mut ends = vec![("a kill", self.scan(|_, now, _| now.to_vec()))];
        let is_synced =
            |(path, synced): (&PathBuf, &Vec<u8>)| fs::read(path).ok().as_ref() == Some(synced);
        if !self.synced.iter().all(is_synced) {
            ends.push(("a cut", self.scan(|_, _, synced| synced.to_vec())));
            ends.push(("a cut halfway", self.scan(Self::mixed)));
        }
        for (end, result) in ends {
            for damage in result.damages {
                let is_loss = damage.was_acked || damage.fault != WalFault::Frame;
                let may_be_copied = damage.fault == WalFault::Preamble;
                assert!(!is_loss || may_be_copied, "{step}, {end}: {damage:?}");
            }
        }
    }
}

impl Cuts {
    fn new(home: &Path) -> Self {
        Self(Arc::new(Mutex::new(World {
            home: home.to_path_buf(),
            synced: BTreeMap::new(),
            failing: 0,
            dice: 7,
            scans: 0,
        })))
    }

    /// What was acknowledged is missed without the newest file, whatever is lost of what was not synced.
    fn expect_missed(&self) {
        let mut world = self.0.lock();
        let sequence = |bytes: &[u8]| format::read_preamble(bytes).map_or(0, |of| of.number);
        let newest = world.synced.values().map(|bytes| sequence(bytes)).max();
        let result = world.scan(|_, _, synced| {
            if Some(sequence(synced)) == newest {
                return Vec::new();
            }
            synced.to_vec()
        });
        let lost = result
            .damages
            .iter()
            .any(|damage| damage.fault == WalFault::Lost);
        assert!(lost, "{:?}", result.damages);
    }

    /// The power goes.
    fn cut(&self) {
        for (path, synced) in &self.0.lock().synced {
            fs::write(path, synced).unwrap();
        }
    }
}

impl StorageWrapper for Cuts {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        let is_head = path.extension().is_some_and(|name| name == "head");
        if mode == OpenMode::Directory
            || !is_head && crate::io::file_names::journal_number(path).is_none()
        {
            return Ok(file);
        }
        self.0.lock().synced.entry(path.to_path_buf()).or_default();
        let (cuts, path) = (self.clone(), path.to_path_buf());
        Ok(Arc::new(CutFile { cuts, path, file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)?;
        let mut world = self.0.lock();
        world.synced.remove(from);
        world.check("rename");
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_file(path)?;
        let mut world = self.0.lock();
        world.synced.remove(path);
        world.check("remove");
        Ok(())
    }
}

impl FileWrapper for CutFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut world = self.cuts.0.lock();
        let is_failing =
            world.failing > 0 && self.path.extension().is_some_and(|name| name == "journal");
        if is_failing {
            world.failing -= 1;
            self.file
                .write_all_at(&bytes[..bytes.len() / 2], position)?;
        } else {
            self.file.write_all_at(bytes, position)?;
        }
        // The zeros of a new file are of no use yet.
        if bytes.iter().any(|byte| *byte != 0) {
            world.check(&format!("write to {} of {}", position, self.path.display()));
        }
        if is_failing {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.cuts.0.lock();
        let now = fs::read(&self.path).unwrap_or_default();
        world.synced.insert(self.path.clone(), now);
        world.check(&format!("sync of {}", self.path.display()));
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        FileWrapper::sync_data(self)
    }
}

/// One run of those logs, of which some are opened, with so many rounds.
fn run(home: &Path, cuts: &Cuts, file_bytes: u64, opened: u64, values: std::ops::Range<u64>) {
    let options = WalOptions {
        file_bytes,
        flush_rounds: 9,
        ..options(home)
    };
    let committer = GroupCommitter::stepped_with_wal(Arc::new(cuts.clone()), options).unwrap();
    let losses = committer
        .wal_damages()
        .into_iter()
        .filter(|damage| damage.was_acked);
    assert_eq!(losses.collect::<Vec<_>>(), vec![]);
    let one = |i| {
        if directory(home, i).exists() {
            open(home, i, &committer).0
        } else {
            create(home, i, &committer)
        }
    };
    let mut logs: Vec<Log> = (1..=opened).map(one).collect();
    for value in values {
        // In the middle of a file, at the beginning of one, and of several one after the other.
        cuts.0.lock().failing = [0, 0, 0, 1, 0, 3, 0][value as usize % 7];
        let before = committer.statistics().wal_rounds;
        assert_eq!(round(&mut logs, value, &committer), opened);
        cuts.0.lock().failing = 0;
        if committer.statistics().wal_rounds > before {
            cuts.expect_missed();
        }
    }
}

#[test]
fn no_end_of_a_broker_is_reported_as_a_loss() {
    let home = tempfile::tempdir().unwrap();
    let cuts = Cuts::new(home.path());
    run(home.path(), &cuts, FILE_BYTES / 4, 3, 0..40);
    cuts.cut();
    // The third log has yet to replay; then files of another size are made, and those that were there removed.
    run(home.path(), &cuts, FILE_BYTES / 4, 2, 40..50);
    run(home.path(), &cuts, FILE_BYTES / 3, 2, 50..70);
    cuts.cut();
    run(home.path(), &cuts, FILE_BYTES / 3, 3, 70..80);
    assert!(cuts.0.lock().scans > 300);
}
