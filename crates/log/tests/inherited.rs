//! A process takes over what a killed one left unsynced: nothing that it acks may rely on it before it is
//! synced. A process is killed at each of its calls; the next one continues, acks and loses its power; the third must find
//! every ack.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test fails by a panic
mod support;
mod volatile;

use bascule_log::{Error, GroupCommitter, Log, LogId, LogOptions, Retention, Storage, WalOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{batch, read_from};
use volatile::{Cut, Volatile};

const LOGS: u64 = 2;
const ROUNDS: u64 = 12;

/// What is known of a log from outside.
#[derive(Clone, Debug, Default)]
struct Promised {
    /// Values by offset, as they were sent or found.
    sent: Vec<u64>,
    /// Everything below was acked.
    acked: u64,
    /// The log start once it was acknowledged as durable.
    trimmed: u64,
}

struct Run {
    committer: Arc<GroupCommitter>,
    logs: Vec<Log>,
}

fn home() -> PathBuf {
    PathBuf::from("/data")
}

fn start(storage: &Volatile, journaled: bool) -> Result<Arc<GroupCommitter>, Error> {
    let storage = Arc::new(storage.clone());
    if !journaled {
        return Ok(GroupCommitter::stepped(storage));
    }
    let options = WalOptions {
        from_dirty_files: LOGS as usize,
        file_bytes: 2 << 10,
        files: 2,
        ..WalOptions::new(home().join("journal"), home().join("partitions"))
    };
    GroupCommitter::stepped_with_wal(storage, options)
}

fn open(committer: &Arc<GroupCommitter>, incarnation: u64) -> Result<Log, Error> {
    let directory = home().join("partitions").join(incarnation.to_string());
    let identity = LogId {
        incarnation,
        partition: 0,
    };
    let options = LogOptions {
        segment_bytes: 1 << 10,
        preallocate_bytes: 512,
        ..LogOptions::default()
    };
    match Log::open(&directory, identity, options.clone(), committer) {
        Ok((log, found)) => {
            assert_eq!(found.damaged, Vec::new(), "{incarnation}");
            Ok(log)
        }
        Err(Error::Absent { .. }) => Log::create(&directory, identity, options, committer),
        Err(error) => Err(error),
    }
}

impl Run {
    /// Recovers and holds what is found against what was promised.
    fn begin(
        storage: &Volatile,
        journaled: bool,
        promised: &mut [Promised],
    ) -> Result<Self, Error> {
        let committer = start(storage, journaled)?;
        let mut logs = Vec::new();
        for (incarnation, promised) in (1..).zip(promised) {
            let log = open(&committer, incarnation)?;
            log.set_high_watermark(log.reader().log_end());
            let (first, end) = (log.reader().log_start(), log.reader().log_end());
            assert!(
                end >= promised.acked,
                "{incarnation}: ends at {end}, {promised:?}"
            );
            assert!(
                first >= promised.trimmed,
                "{incarnation}: begins at {first}, {promised:?}"
            );
            let found: Vec<u64> = read_from(&log.reader(), first)
                .unwrap()
                .into_iter()
                .map(|(_, value)| u64::from_le_bytes(value.try_into().unwrap()))
                .collect();
            assert_eq!(
                found,
                promised.sent[first as usize..end as usize],
                "{incarnation}"
            );
            promised.sent.truncate(end as usize);
            promised.acked = end;
            logs.push(log);
        }
        Ok(Self { committer, logs })
    }

    /// Appends, commits in rounds, writes checkpoints, removes; until the process is killed. The logs are left as they are.
    fn work(mut self, promised: &mut [Promised], run: u64) -> Result<(), Error> {
        for round in 0..ROUNDS {
            let acked: Vec<Arc<AtomicU64>> = promised.iter().map(|_| Arc::default()).collect();
            for ((log, promised), acked) in self.logs.iter_mut().zip(&mut *promised).zip(&acked) {
                let value = run * 1_000 + round;
                promised.sent.push(value);
                log.append(batch(&value.to_le_bytes(), 0), 1, 0)?;
                let acked = Arc::clone(acked);
                log.commit(Box::new(move |outcome| {
                    acked.store(outcome.unwrap_or(0), Ordering::Relaxed);
                }));
            }
            while self.committer.step() {}
            for ((log, promised), acked) in self.logs.iter_mut().zip(&mut *promised).zip(&acked) {
                promised.acked = promised.acked.max(acked.load(Ordering::Relaxed));
                log.set_high_watermark(promised.acked);
            }
            self.maintain(promised, round)?;
        }
        Ok(())
    }

    fn maintain(&mut self, promised: &mut [Promised], round: u64) -> Result<(), Error> {
        for (log, promised) in self.logs.iter_mut().zip(promised) {
            log.checkpoint()?;
            if round == 8 {
                let start = log.trim(promised.acked.saturating_sub(3), 0)?;
                while self.committer.step() {}
                if self.committer.failure().is_none() {
                    promised.trimmed = start;
                }
            }
            if round == 5 {
                let least = Retention {
                    bytes: 1,
                    ..Retention::default()
                };
                log.maintain(&least, 0)?;
            }
        }
        Ok(())
    }
}

/// Lives that are killed after so many calls each, then one that is not, a power cut, and a last one. Returns whether
/// all of them were killed.
fn killed_at(calls: &[u64], journaled: bool, cut: Cut) -> bool {
    let storage = Volatile::new();
    storage.create_directory(&home()).unwrap();
    sync_root(&storage);
    let mut promised = vec![Promised::default(); LOGS as usize];
    let mut killed = true;
    for (number, calls) in (1..).zip(calls) {
        storage.kill_after(*calls);
        let begun = Run::begin(&storage, journaled, &mut promised);
        // An error is what a dead process gets.
        let _ = begun.and_then(|run| run.work(&mut promised, number));
        killed &= storage.restart();
    }
    let run = Run::begin(&storage, journaled, &mut promised).expect("nothing fails in this run");
    run.work(&mut promised, 9)
        .expect("nothing fails in this run");
    storage.cut(cut);
    Run::begin(&storage, journaled, &mut promised).expect("nothing fails in this run");
    killed
}

fn sync_root(storage: &Volatile) {
    let root = storage.open(Path::new("/"), bascule_log::OpenMode::Directory);
    root.unwrap().sync_all().unwrap();
}

fn killed_at_every_call(journaled: bool, cut: Cut) {
    let mut call = 0;
    while killed_at(&[call], journaled, cut) {
        call += 1;
    }
    assert!(call > 100, "{call}");
}

#[test]
fn so_do_acks_behind_two_killed_lives() {
    for cut in [Cut::Loses, Cut::Tears] {
        let mut pairs = 0;
        for first in (0..400).step_by(17) {
            pairs += (first % 19..400)
                .step_by(19)
                .filter(|second| killed_at(&[first, *second], first % 2 == 0, cut))
                .count();
        }
        assert!(pairs > 100, "{pairs}");
    }
}

#[test]
fn acks_by_the_journal_survive_a_power_cut_wherever_the_life_before_was_killed() {
    killed_at_every_call(true, Cut::Loses);
}

#[test]
fn acks_by_the_segments_do_too() {
    killed_at_every_call(false, Cut::Loses);
}

#[test]
fn torn_writes_lose_nothing_that_was_acknowledged() {
    killed_at_every_call(true, Cut::Tears);
}
