//! A torn tail at every byte: a log is written once, then its file is cut (or overwritten) at each position of the last
//! bytes and recovered. What comes back has to be exactly the batches before the tear, a second recovery has to find
//! the same and cut nothing, and what lay behind the tear must not come back once the log continues.
//!
//! Prints one line: `<tear> <times> <exact>` for each way to tear, then sentences about the first failures.
use crate::arguments::Arguments;
use crate::content::{Chance, Name, recognise};
use bascule_log::{Error, GroupCommitter, Log, LogId, LogOptions, OsStorage, ReadMode, Recovery};
use bascule_record::{Batch, Batches};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const IDENTITY: LogId = LogId {
    incarnation: 1,
    partition: 0,
};
const SECTOR: usize = 512;
/// Failures that are printed.
const PRINTED: usize = 5;
/// Run number of the batches that are appended after a recovery, to distinguish them from earlier ones.
const SECOND_RUN: u32 = 2;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Tears everywhere in the last `bytes` bytes.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let bytes = arguments.number("bytes", 64 << 10)? as usize;
    let seed = arguments.number("seed", 1)?;
    let rig = Rig::build(&arguments.path("dir"), bytes, seed)?;
    let end = rig.segment.len();
    let tail = end.saturating_sub(bytes)..end;
    let mut failures = Vec::new();
    let mut report = |what: &str, tears: &mut dyn Iterator<Item = Vec<u8>>| -> Outcome<()> {
        let (mut times, mut exact) = (0, 0);
        for torn in tears {
            times += 1;
            match rig.check(&torn)? {
                None => exact += 1,
                Some(reason) if failures.len() < PRINTED => {
                    failures.push(format!("seed {seed}, {what} {times}: {reason}"));
                }
                Some(_) => {}
            }
        }
        println!("{what} {times} {exact}");
        Ok(())
    };
    let original = &rig.segment;
    let step = arguments.number("step", 1)?.max(1) as usize;
    let cuts = || tail.clone().step_by(step);
    report("truncated", &mut cuts().map(|at| prefix(original, at)))?;
    report(
        "zeroed-behind",
        &mut cuts().map(|at| overwritten(original, at..end, |_| 0)),
    )?;
    let sectors = || {
        tail.clone()
            .step_by(SECTOR)
            .map(|at| at..(at + SECTOR).min(end))
    };
    report(
        "sector-zeros",
        &mut sectors().map(|range| overwritten(original, range, |_| 0)),
    )?;
    report(
        "sector-ones",
        &mut sectors().map(|range| overwritten(original, range, |_| 0xff)),
    )?;
    let mut chance = Chance::of(&[seed, 3]);
    let noisy = sectors().map(|range| overwritten(original, range, |_| chance.next() as u8));
    report("sector-noise", &mut noisy.collect::<Vec<_>>().into_iter())?;
    for failure in &failures {
        println!("{failure}");
    }
    Ok(())
}

fn prefix(original: &[u8], end: usize) -> Vec<u8> {
    original.get(..end).unwrap_or(original).to_vec()
}

fn overwritten(
    original: &[u8],
    range: std::ops::Range<usize>,
    mut byte: impl FnMut(usize) -> u8,
) -> Vec<u8> {
    let mut torn = original.to_vec();
    for at in range {
        if let Some(place) = torn.get_mut(at) {
            *place = byte(at);
        }
    }
    torn
}

/// A log as a crash left it, and where each of its batches ends.
struct Rig {
    directory: PathBuf,
    segment_name: PathBuf,
    segment: Vec<u8>,
    /// The other files.
    others: Vec<(PathBuf, Vec<u8>)>,
    /// (name of the batch, end in the file, next offset), in order.
    batches: Vec<(Name, usize, u64)>,
    committer: Arc<GroupCommitter>,
}

impl Rig {
    /// Writes a log of one segment whose batches take a bit more than `bytes`, and drops it without closing.
    fn build(parent: &Path, bytes: usize, seed: u64) -> Outcome<Self> {
        let committer = GroupCommitter::stepped(Arc::new(OsStorage));
        let directory = parent.join("0");
        fs::create_dir_all(parent)?;
        let mut log = Log::create(&directory, IDENTITY, options(), &committer)?;
        let mut batches = Vec::new();
        let mut total = 0;
        while total < bytes + (8 << 10) {
            let name = Name {
                run_id: 1,
                partition: 0,
                counter: seed * 1_000_000 + batches.len() as u64,
            };
            let batch = name.build(1)?;
            total += batch.batch_bytes();
            let appended = log.append(batch, 1, 1)?;
            batches.push((name, total, appended.next_offset));
        }
        log.commit(Box::new(|_| ()));
        while committer.step() {}
        drop(log);
        let mut files = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            files.push((path.clone(), fs::read(path)?));
        }
        let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "seg");
        let at = files.iter().position(|(path, _)| is_segment(path));
        let (segment_name, segment) = files.swap_remove(at.ok_or("no segment was written")?);
        let preamble = segment.len() - total;
        for (_, end, _) in &mut batches {
            *end += preamble;
        }
        Ok(Self {
            directory,
            segment_name,
            segment,
            others: files,
            batches,
            committer,
        })
    }

    /// Puts the torn segment in place and recovers it; `None` when all is as it should be.
    fn check(&self, torn: &[u8]) -> Outcome<Option<String>> {
        self.restore(torn)?;
        let intact = self
            .segment
            .iter()
            .zip(torn)
            .position(|(before, after)| before != after)
            .unwrap_or(torn.len());
        let whole = self.batches.partition_point(|(_, end, _)| *end <= intact);
        let expected: Vec<Name> = self
            .batches
            .iter()
            .take(whole)
            .map(|(name, ..)| *name)
            .collect();
        let end = self
            .batches
            .get(..whole)
            .and_then(<[_]>::last)
            .map_or(0, |last| last.2);
        for attempt in 1..=2 {
            let (log, found) = self.open()?;
            let reason = Self::differs(&log, &found, &expected, end)?;
            let cut_again = attempt == 2 && found.cut_bytes > 0;
            if let Some(reason) = reason.or(cut_again.then(|| "it cuts again".into())) {
                return Ok(Some(format!(
                    "recovery {attempt}, intact to {intact}: {reason}"
                )));
            }
        }
        self.continues(expected, end)
    }

    /// One more batch, and a third recovery: that batch follows, and nothing behind it.
    fn continues(&self, mut expected: Vec<Name>, end: u64) -> Outcome<Option<String>> {
        let (mut log, _) = self.open()?;
        let name = Name {
            run_id: SECOND_RUN,
            partition: 0,
            counter: end,
        };
        let appended = log.append(name.build(1)?, 2, 1)?;
        log.commit(Box::new(|_| ()));
        while self.committer.step() {}
        drop(log);
        expected.push(name);
        let (log, found) = self.open()?;
        let reason = Self::differs(&log, &found, &expected, appended.next_offset)?;
        Ok(reason.map(|reason| format!("after one more batch: {reason}")))
    }

    fn open(&self) -> Result<(Log, Recovery), Error> {
        let opened = Log::open(&self.directory, IDENTITY, options(), &self.committer);
        while self.committer.step() {}
        opened
    }

    fn restore(&self, torn: &[u8]) -> std::io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            fs::remove_file(entry?.path())?;
        }
        fs::write(&self.segment_name, torn)?;
        self.others
            .iter()
            .try_for_each(|(path, bytes)| fs::write(path, bytes))
    }

    fn differs(
        log: &Log,
        found: &Recovery,
        expected: &[Name],
        end: u64,
    ) -> Outcome<Option<String>> {
        let reader = log.reader();
        if !found.damaged.is_empty() || reader.log_end() != end || reader.log_start() != 0 {
            let ends = (reader.log_start(), reader.log_end());
            return Ok(Some(format!("{ends:?} in place of {end}; {found:?}")));
        }
        log.set_high_watermark(end);
        let mut cursor = reader.cursor(0);
        let mut names = Vec::with_capacity(expected.len());
        while let Some(bytes) = cursor.next(u64::MAX, 1 << 20, ReadMode::Blocking)? {
            for batch in Batches::new(bytes) {
                names.push(recognise(&Batch::read(&batch?)?));
            }
        }
        let same = names.iter().flatten().eq(expected) && names.len() == expected.len();
        Ok((!same).then(|| format!("{names:?} in place of {expected:?}")))
    }
}

/// One segment for everything, and no zeros ahead: the file ends with the last batch.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1 << 30,
        preallocate_bytes: 0,
        ..LogOptions::default()
    }
}
