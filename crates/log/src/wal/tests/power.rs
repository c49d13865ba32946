//! Power cuts of all files, at any step of the journal and in pieces of a sector: after one start or several no acknowledged
//! record is missing, and no damage is reported.
use super::damaged::home::served;
use super::*;
use crate::WalFault;
use crate::io::storage::{FileWrapper, OpenMode, Storage, StorageFile, StorageWrapper};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;

const SECTOR: usize = 512;
const LOGS: u64 = 3;
/// Of a hundred sectors of the journal and of segments that were not synced, so many are there.
const LEFT: [(u64, u64); 6] = [(0, 0), (100, 0), (50, 0), (10, 50), (90, 30), (50, 100)];

/// The files of a home, and what of each was synced.
#[derive(Clone, Debug)]
struct Power(Arc<Mutex<World>>);

#[derive(Debug)]
struct World {
    home: PathBuf,
    synced: BTreeMap<PathBuf, Vec<u8>>,
    file_bytes: u64,
    /// Every record below this one was acknowledged, of each log; nothing is checked before there are some.
    acked: Option<u64>,
    dice: u64,
    checks: u64,
}

#[derive(Debug)]
struct PowerFile {
    power: Power,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

fn is_of_journal(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|name| name == "journal" || name == "head")
}

impl World {
    fn options(&self, home: &Path) -> WalOptions {
        WalOptions {
            file_bytes: self.file_bytes,
            flush_rounds: 9,
            ..options(home)
        }
    }

    /// What is left of a file of which so many of a hundred sectors were written.
    fn left(&mut self, now: &[u8], synced: &[u8], share: u64) -> Vec<u8> {
        let mut left = synced.to_vec();
        left.resize(now.len(), 0);
        for (left, now) in left.chunks_mut(SECTOR).zip(now.chunks(SECTOR)) {
            let next = self.dice.wrapping_mul(6_364_136_223_846_793_005);
            self.dice = next.wrapping_add(1_442_695_040_888_963_407);
            if (self.dice >> 33) % 100 < share {
                left.copy_from_slice(now);
            }
        }
        left
    }

    /// So many records of each log are acknowledged: nothing of the journal waits for a sync then, marks included.
    fn acked(&mut self, records: u64) {
        self.acked = Some(records);
        for (path, synced) in self.synced.iter().filter(|(path, _)| is_of_journal(path)) {
            let now = fs::read(path).unwrap_or_default();
            assert!(now == *synced, "{records} records: {}", path.display());
        }
    }

    fn check(&mut self, step: &str) {
        let Some(acked) = self.acked else {
            return;
        };
        for (of_journal, of_segments) in LEFT {
            for starts in 1..=2 {
                let scratch = self.home.join("scratch");
                let _ = fs::remove_dir_all(&scratch);
                fs::create_dir_all(scratch.join("journal")).unwrap();
                for (path, synced) in self.synced.clone() {
                    let Ok(now) = fs::read(&path) else { continue };
                    let share = if is_of_journal(&path) {
                        of_journal
                    } else {
                        of_segments
                    };
                    let left = self.left(&now, &synced, share);
                    let at = scratch.join(path.strip_prefix(&self.home).unwrap());
                    fs::create_dir_all(at.parent().unwrap()).unwrap();
                    fs::write(at, left).unwrap();
                }
                self.checks += 1;
                self.start(
                    &scratch,
                    (starts, acked),
                    &format!("{step}, {of_journal} and {of_segments} %"),
                );
            }
        }
    }

    /// So many starts, of which the last one opens the logs.
    fn start(&self, scratch: &Path, (starts, acked): (usize, u64), what: &str) {
        let mut committer = None;
        for start in 0..=starts {
            drop(committer.take());
            let begun =
                GroupCommitter::stepped_with_wal(Arc::new(OsStorage), self.options(scratch));
            let begun = committer.insert(begun.unwrap());
            for damage in begun.wal_damages() {
                let is_tail = damage.fault == WalFault::Frame && !damage.was_acked;
                let is_fine = is_tail || damage.fault == WalFault::Preamble;
                assert!(is_fine, "{what}, start {start}: {damage:?}");
            }
        }
        let committer = committer.unwrap();
        for log in 1..=LOGS {
            let (values, damages) = served(&open(scratch, log, &committer).0);
            let all: Vec<u64> = (0..values.len() as u64).collect();
            assert_eq!(values, all, "{what}, log {log}");
            assert!(
                values.len() as u64 >= acked,
                "{what}, log {log}: {acked} were acked"
            );
            assert_eq!(damages, vec![], "{what}, log {log}");
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
        power.0.lock().synced.entry(path.clone()).or_default();
        Ok(Arc::new(PowerFile { power, path, file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.rename(from, to)?;
        let mut world = self.0.lock();
        if let Some(synced) = world.synced.remove(from) {
            world.synced.insert(to.to_path_buf(), synced);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsStorage.remove_file(path)?;
        self.0.lock().synced.remove(path);
        Ok(())
    }
}

impl FileWrapper for PowerFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)?;
        if is_of_journal(&self.path) && bytes.iter().any(|byte| *byte != 0) {
            let name = self.path.file_name();
            self.power
                .0
                .lock()
                .check(&format!("write at {position} of {name:?}"));
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.power.0.lock();
        let now = fs::read(&self.path).unwrap_or_default();
        world.synced.insert(self.path.clone(), now);
        if is_of_journal(&self.path) {
            world.check(&format!("sync of {:?}", self.path.file_name()));
        }
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        FileWrapper::sync_data(self)
    }
}

fn run(power: &Power, file_bytes: u64, values: std::ops::Range<u64>) {
    let (home, options) = {
        let mut world = power.0.lock();
        world.file_bytes = file_bytes;
        (world.home.clone(), world.options(&world.home.clone()))
    };
    let committer = GroupCommitter::stepped_with_wal(Arc::new(power.clone()), options).unwrap();
    let log = |i| match values.start {
        0 => create(&home, i, &committer),
        _ => open(&home, i, &committer).0,
    };
    let mut logs: Vec<Log> = (1..=LOGS).map(log).collect();
    for value in values {
        assert_eq!(round(&mut logs, value, &committer), LOGS);
        power.0.lock().acked(value + 1);
    }
    power.0.lock().acked = None;
}

#[test]
fn a_power_cut_at_any_step_loses_no_acknowledged_record_after_any_number_of_starts() {
    let home = tempfile::tempdir().unwrap();
    let power = Power(Arc::new(Mutex::new(World {
        home: home.path().to_path_buf(),
        synced: BTreeMap::new(),
        file_bytes: 0,
        acked: None,
        dice: 7,
        checks: 0,
    })));
    // Files are used again for frames of the same size, whose sectors begin at the same places.
    run(&power, FILE_BYTES / 4, 0..20);
    run(&power, 5_000, 20..26);
    assert!(power.0.lock().checks > 600);
}
