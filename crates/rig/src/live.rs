//! One run on a directory: recover, write down what is there, append until the end.
use crate::accelerated_clock::AcceleratedClock;
use crate::arguments::Arguments;
use crate::content::{Chance, Name};
use crate::ledger::{Entry, Kind, Ledger};
use crate::recovered;
use bascule_log::{
    Compaction, DeletedLogs, Error, GroupCommitter, Log, LogOptions, Retention, WalOptions,
};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(2);
const MINUTE_NS: i64 = 60_000_000_000;
/// How long an answer to a commit may take.
const ANSWER: Duration = Duration::from_secs(20);

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Recovers and writes down, nothing else.
pub fn read(arguments: &Arguments) -> Outcome {
    Run::start(arguments)?.end(false)
}

/// Recovers, writes down and appends.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut run = Run::start(arguments)?;
    let batches = match arguments.number("batches", 0)? {
        0 => u64::MAX,
        count => count,
    };
    let delete = arguments.number("delete", 0)?;
    for counter in 1..=batches {
        let mut done = run.append(counter).and_then(|()| run.maintain());
        if done.is_ok() && delete > 0 && counter.is_multiple_of(delete) {
            done = run.create_again();
        }
        if let Err(error) = done {
            run.after_failure(&error);
            return run.end(false);
        }
    }
    run.end(arguments.number("close", 0)? == 1)
}

/// Commits that were asked for and not answered.
#[derive(Debug, Default)]
struct InFlight {
    count: Mutex<u64>,
    fewer: Condvar,
}

impl InFlight {
    fn add(&self) {
        *self.count.lock() += 1;
    }

    fn answered(&self) {
        *self.count.lock() -= 1;
        self.fewer.notify_all();
    }

    /// Waits until fewer than `limit` are left (1 or more).
    fn wait_below(&self, limit: u64) -> Result<(), String> {
        let mut count = self.count.lock();
        while *count >= limit.max(1) {
            if self.fewer.wait_for(&mut count, ANSWER).timed_out() {
                return Err(format!(
                    "{} commits have no answer after {ANSWER:?}",
                    *count
                ));
            }
        }
        Ok(())
    }
}

struct Run {
    number: u32,
    chance: Chance,
    ledger: Arc<Ledger>,
    directory: PathBuf,
    options: LogOptions,
    committer: Arc<GroupCommitter>,
    /// By partition; one whose deletion or new beginning failed is not there.
    logs: BTreeMap<u32, Log>,
    in_flight: Arc<InFlight>,
    limit: u64,
    retention: Retention,
    compacts: bool,
    /// How long a refused append is tried again before the run gives up.
    patience: Duration,
    /// Runs of retention so far; each gets a time of day one minute after the last one.
    maintained: i64,
    /// How many logs were created again.
    begun: u32,
    /// Appends since the last commit of each log.
    uncommitted: Vec<u32>,
}

/// Nothing damages the journal here: whatever ends a run must not look like a loss.
fn check_journal(committer: &GroupCommitter, ledger: &Ledger) {
    let damages = committer.wal_damages();
    for damage in damages.iter().filter(|damage| damage.was_acked) {
        eprintln!("reported without a reason: {damage:?}");
        let wrong = Entry {
            offset: damage.position,
            ..Entry::default()
        };
        ledger.note(Kind::Wrong, wrong);
    }
}

impl Run {
    fn start(arguments: &Arguments) -> Result<Self, Box<dyn std::error::Error>> {
        let directory = arguments.path("dir");
        let number = arguments.number("run_id", 1)? as u32;
        let ledger = Ledger::open(&arguments.path("ledger"))?;
        let options = LogOptions {
            segment_bytes: arguments.number("segment", 64 << 10)?,
            preallocate_bytes: arguments.number("ahead", 64 << 10)?,
            ..LogOptions::default()
        };
        let committer = GroupCommitter::start_with_wal(
            Arc::new(AcceleratedClock),
            journal_options(arguments, &directory)?,
        )
        .inspect_err(|_| ledger.note(Kind::RecoveryFailed, Entry::default()))?;
        check_journal(&committer, &ledger);
        let ledger = Arc::new(ledger);
        let listener = Arc::clone(&ledger);
        committer.on_failure(Box::new(move |_| {
            listener.note(Kind::Failed, Entry::default());
        }));
        let partitions = arguments.number("partitions", 1)? as u32;
        let logs = (0..partitions)
            .map(|partition| {
                let name = recovered::new_incarnation(number, 0, partition);
                let options = options.clone();
                recovered::open(&directory, partition, name, options, &committer, &ledger)
                    .map(|log| (partition, log))
            })
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        ledger.note(Kind::Ready, Entry::default());
        Ok(Self {
            number,
            chance: Chance::of(&[arguments.number("seed", 1)?, number.into()]),
            ledger,
            directory,
            options,
            committer,
            uncommitted: vec![0; logs.len()],
            logs,
            in_flight: Arc::new(InFlight::default()),
            limit: arguments.number("in_flight", 64)?,
            maintained: 0,
            begun: 0,
            patience: Duration::from_millis(arguments.number("patience_ms", 10_000)?),
            compacts: arguments.number("compact", 0)? == 1,
            retention: Retention {
                bytes: arguments.number("retain", 0)?,
                ..Retention::default()
            },
        })
    }

    /// Appends one batch to some log and, most times, asks for its durability. An append that is refused for now is
    /// tried again under the same number.
    fn append(&mut self, counter: u64) -> Outcome {
        let partition = self.chance.below(self.logs.len() as u64) as u32;
        let name = Name {
            run_id: self.number,
            partition,
            counter,
        };
        let mut refused_for = Duration::ZERO;
        while let Err(error) = self.try_append(name)? {
            if refused_for >= self.patience {
                return Err(error.into());
            }
            if refused_for.is_zero() {
                self.read_all();
            }
            std::thread::sleep(PAUSE);
            refused_for += PAUSE;
        }
        if !refused_for.is_zero() {
            self.ledger.note(
                Kind::Resumed,
                Entry {
                    partition,
                    ..Entry::default()
                },
            );
        }
        let waiting = self.uncommitted.get_mut(partition as usize);
        let waiting = waiting.map_or(0, |count| {
            *count += 1;
            *count
        });
        if self.chance.below(4) != 0 || waiting > 8 {
            self.commit(partition)?;
        }
        Ok(())
    }

    /// `Ok(Err(…))`: nothing was appended, and a later try may succeed.
    fn try_append(&mut self, name: Name) -> Result<Result<(), Error>, Box<dyn std::error::Error>> {
        let now = now_ns();
        let batch = name.build(now)?;
        let log = self.logs.get_mut(&name.partition);
        let log = log.ok_or("no such partition")?;
        let entry = Entry {
            partition: name.partition,
            offset: log.reader().log_end(),
            count: batch.count(),
            run_id: name.run_id,
            counter: name.counter,
            extra: 0,
        };
        self.ledger.note(Kind::Intent, entry);
        match log.append(batch, self.number.into(), now) {
            Ok(appended) if appended.base_offset == entry.offset => Ok(Ok(())),
            Ok(appended) => {
                Err(format!("appended at {appended:?}, not at {}", entry.offset).into())
            }
            Err(error) if error.is_transient() => {
                self.ledger.note(Kind::Refused, entry);
                Ok(Err(error))
            }
            Err(error) => {
                self.ledger.note(Kind::Uncertain, entry);
                Err(error.into())
            }
        }
    }

    fn commit(&mut self, partition: u32) -> Outcome {
        self.in_flight.wait_below(self.limit)?;
        let log = self.logs.get_mut(&partition);
        let log = log.ok_or("no such partition")?;
        let (ledger, in_flight) = (Arc::clone(&self.ledger), Arc::clone(&self.in_flight));
        let watermark = log.high_watermark_updater();
        self.in_flight.add();
        log.commit(Box::new(move |result| {
            let offset = *result.as_ref().unwrap_or(&0);
            let entry = Entry {
                partition,
                offset,
                ..Entry::default()
            };
            if result.is_ok() {
                watermark.raise(offset);
                ledger.note(Kind::Acked, entry);
            } else {
                ledger.note(Kind::CommitFailed, entry);
            }
            in_flight.answered();
        }));
        if let Some(count) = self.uncommitted.get_mut(partition as usize) {
            *count = 0;
        }
        Ok(())
    }

    /// Now and then a checkpoint, now and then retention or compaction.
    fn maintain(&mut self) -> Outcome {
        let partition = self.chance.below(self.logs.len() as u64) as u32;
        let what = self.chance.below(24);
        let retention = self.retention;
        let Some(log) = self.logs.get_mut(&partition) else {
            return Ok(());
        };
        let outcome = match what {
            0 => log.checkpoint(),
            1 if retention.bytes > 0 => {
                self.maintained += 1;
                log.maintain(&retention, now_ns() + self.maintained * MINUTE_NS)
                    .map(drop)
            }
            2 | 3 if self.compacts => {
                let entry = Entry {
                    partition,
                    ..Entry::default()
                };
                self.ledger.note(Kind::Compacting, entry);
                // What becomes of it the next recovery shows.
                log.compact(&Compaction::default(), now_ns(), Box::new(drop))
                    .map(drop)
            }
            _ => Ok(()),
        };
        match outcome {
            Err(error) if error.is_transient() => Ok(()),
            other => Ok(other?),
        }
    }

    /// Deletes log 0, unlinks logs deleted before, and creates log 0 again under a new incarnation.
    fn create_again(&mut self) -> Outcome {
        self.commit(0)?;
        self.in_flight.wait_below(1)?;
        self.ledger.note(Kind::Deleting, Entry::default());
        let log = self.logs.remove(&0);
        log.ok_or("no such partition")?.delete()?;
        self.ledger.note(Kind::Deleted, Entry::default());
        DeletedLogs::default().sweep(&recovered::partitions(&self.directory), 0)?;
        self.begun += 1;
        let log = recovered::open(
            &self.directory,
            0,
            recovered::new_incarnation(self.number, self.begun, 0),
            self.options.clone(),
            &self.committer,
            &self.ledger,
        )?;
        self.logs.insert(0, log);
        Ok(())
    }

    /// The directory refuses writes for good.
    fn after_failure(&mut self, error: &dyn std::fmt::Display) {
        eprintln!("run {} cannot continue: {error}", self.number);
        self.read_all();
    }

    /// While writes are refused, what was acked can be read; what cannot is written down.
    fn read_all(&self) {
        for (&partition, log) in &self.logs {
            let reader = log.reader();
            let mut entries = Vec::new();
            let unread = recovered::batches(&reader, partition, &mut entries);
            entries.retain(|(kind, _)| !matches!(kind, Kind::Found));
            if let Some(error) = unread {
                eprintln!("run {}: {error}", self.number);
            }
            let entry = Entry {
                partition,
                offset: reader.high_watermark(),
                ..Entry::default()
            };
            entries.push((Kind::ReadWhileRefused, entry));
            self.ledger.write(&entries);
        }
    }

    /// Waits for all answers; then closes the logs, or drops them as a crash does.
    fn end(mut self, close: bool) -> Outcome {
        if close {
            for partition in 0..self.logs.len() as u32 {
                self.commit(partition)?;
            }
        }
        self.in_flight.wait_below(1)?;
        if close {
            for log in std::mem::take(&mut self.logs).into_values() {
                // Every commit got the error; the next run recovers.
                if let Err(error) = log.close() {
                    eprintln!("run {}: close: {error}", self.number);
                }
            }
        }
        self.ledger.note(Kind::Ended, Entry::default());
        Ok(())
    }
}

fn journal_options(arguments: &Arguments, directory: &Path) -> Result<WalOptions, String> {
    let places = (directory.join("journal"), recovered::partitions(directory));
    let mut options = WalOptions::new(places.0, places.1);
    options.from_dirty_files = match arguments.number("journal", 0)? {
        0 => usize::MAX,
        files => files as usize,
    };
    options.file_bytes = arguments.number("journal_bytes", options.file_bytes)?;
    options.files = arguments.number("journal_files", options.files as u64)? as usize;
    Ok(options)
}

fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| {
            i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)
        })
}
