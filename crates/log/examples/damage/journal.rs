//! Data directories with a journal that are damaged: three logs whose last batches are in the journal alone, or in segments
//! that were not synced, as a kill or a power cut leaves them.
use crate::Dice;
use crate::apply::{Injury, apply, apply_within};
use crate::frames::{self, JournalFile};
use crate::power::{self, Cut, Power};
use crate::prepare::{Template, push};
use bascule_log::integrity::verify;
use bascule_log::{Durability, GroupCommitter, Log, LogId, LogOptions, OsStorage, WalOptions};
use bascule_record::Codec;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A data directory, with what is true of it.
pub struct Home {
    pub name: &'static str,
    plan: Plan,
    /// As it was when the broker ended, and what of that was synced.
    now: PathBuf,
    synced: PathBuf,
    /// What was synced of it in the middle of its run.
    earlier: PathBuf,
    /// Journals as they were then, and of another data directory.
    others: [PathBuf; 2],
    pub logs: Vec<Template>,
    /// Of each log: everything below is in its segments, synced.
    pub segment_synced: Vec<u64>,
    /// What the journal holds.
    pub journal: Vec<JournalFile>,
}

/// How one is made.
#[derive(Clone, Copy)]
struct Plan {
    file_bytes: u64,
    flush_rounds: u32,
    segment_bytes: u64,
    codec: Codec,
    rounds: usize,
    /// How each log takes part in rounds.
    parts: [Part; 3],
    /// In the middle the broker is killed, and the next run opens so many of the logs.
    reopens: Option<usize>,
}

/// When a log is written to.
#[derive(Clone, Copy)]
enum Part {
    Each,
    /// One round in so many.
    Nth(usize),
    /// The first so many rounds.
    First(usize),
}

/// What was done to a copy of a data directory.
#[derive(Debug)]
pub struct Harm {
    pub injury: Injury,
    /// How the broker ended; `None`: it was killed, and the segments hold everything.
    pub cut: Option<Cut>,
}

impl Home {
    /// Of the directory at `root`.
    pub fn options(&self, root: &Path) -> WalOptions {
        self.plan.options(root)
    }

    /// A fresh copy in a state that the end of a broker may leave, with one damage.
    pub fn copy_to(&self, work: &Path, dice: &mut Dice) -> Harm {
        let _ = fs::remove_dir_all(work);
        power::copy_tree(&self.now, work);
        let how = match dice.below(8) {
            0 => None,
            1..=2 => return self.harm_segment(work, dice),
            3..=4 => Some(Cut::Shorter),
            5 => Some(Cut::Zeros),
            _ => Some(Cut::Mixed),
        };
        if let Some(how) = how {
            power::cut(work, &self.synced, how, dice);
        }
        Harm {
            injury: apply(&work.join("journal"), &self.others, dice),
            cut: how,
        }
    }

    /// Returns whether all synced bytes are as they were in the middle of the run: a power cut at that moment leaves this
    /// directory if later writes were in flight then.
    pub fn is_as_earlier(&self, work: &Path) -> bool {
        let is_same = |at: &Path, what: &str| {
            power::contents(&at.join(what)) == power::contents(&self.earlier.join(what))
        };
        // Files that are ready for later use are empty, and the names of used files do not matter.
        let used = |journal: &Path| {
            let contents = power::contents(journal).into_values();
            let mut used: Vec<_> = contents
                .filter(|bytes| bytes.iter().any(|byte| *byte != 0))
                .collect();
            used.sort();
            used
        };
        used(&work.join("journal")) == used(&self.earlier.join("journal"))
            && is_same(work, "journal.head")
            && is_same(&self.synced, "partitions")
    }

    /// Damages bytes of a segment that were not synced: the journal has them too.
    fn harm_segment(&self, work: &Path, dice: &mut Dice) -> Harm {
        let mut unsynced_ranges = Vec::new();
        for path in power::tree(&work.join("partitions")) {
            let synced = fs::read(self.synced.join(path.strip_prefix(work).unwrap())).unwrap();
            let now = fs::read(&path).unwrap();
            let differs = |at: &usize| synced.get(*at).unwrap_or(&0) != &now[*at];
            let is_segment = path.extension().is_some_and(|name| name == "seg");
            let mut unsynced = (0..now.len()).filter(|_| is_segment).filter(differs);
            if let Some(from) = unsynced.next() {
                unsynced_ranges.push((path, from..unsynced.next_back().unwrap_or(from) + 1));
            }
        }
        let (path, range) = &unsynced_ranges[dice.below(unsynced_ranges.len() as u64) as usize];
        Harm {
            injury: apply_within(path, range.clone(), dice),
            cut: None,
        }
    }
}

impl Plan {
    fn options(&self, root: &Path) -> WalOptions {
        WalOptions {
            from_dirty_files: 1,
            file_bytes: self.file_bytes,
            flush_rounds: self.flush_rounds,
            ..WalOptions::new(root.join("journal"), root.join("partitions"))
        }
    }

    fn log_options(&self) -> LogOptions {
        LogOptions {
            durability: Durability::Disk,
            segment_bytes: self.segment_bytes,
            preallocate_bytes: 4 << 10,
            codec: self.codec,
            ..LogOptions::default()
        }
    }
}

impl Part {
    fn is_in(self, round: usize) -> bool {
        match self {
            Self::Each => true,
            Self::Nth(n) => round.is_multiple_of(n),
            Self::First(n) => round < n,
        }
    }
}

/// A run of the logs.
pub struct Run {
    pub committer: Arc<GroupCommitter>,
    pub logs: Vec<Log>,
}

impl Run {
    /// One round: so many batches of each log, all acknowledged when it returns.
    pub fn round(
        &mut self,
        batches: &[usize],
        values: &mut [Vec<Vec<u8>>],
        epoch: u64,
        codec: Codec,
    ) {
        let acked = Arc::new(AtomicU64::new(0));
        let mut asked = 0;
        for (i, log) in self.logs.iter_mut().enumerate() {
            let count = batches.get(i).copied().unwrap_or(0);
            (0..count).for_each(|_| push(log, &mut values[i], epoch, codec));
            if count > 0 {
                let acked = Arc::clone(&acked);
                log.commit(Box::new(move |outcome| {
                    acked.fetch_add(u64::from(outcome.is_ok()), Ordering::Relaxed);
                }));
                asked += 1;
            }
        }
        while self.committer.step() {}
        assert_eq!(acked.load(Ordering::Relaxed), asked);
    }
}

const EVEN: Plan = Plan {
    file_bytes: 9 << 10,
    flush_rounds: 1_000,
    segment_bytes: 64 << 10,
    codec: Codec::None,
    rounds: 5,
    parts: [Part::Each; 3],
    reopens: None,
};

/// Makes them under `root`.
pub fn homes(root: &Path) -> Vec<Home> {
    let _ = fs::remove_dir_all(root);
    let uneven = [Part::Each, Part::Nth(3), Part::First(9)];
    let plans = [
        ("one file", EVEN),
        ("three files", Plan { rounds: 14, ..EVEN }),
        (
            "ends early",
            Plan {
                rounds: 12,
                parts: uneven,
                ..EVEN
            },
        ),
        (
            "used again",
            Plan {
                rounds: 60,
                parts: [Part::Each, Part::Nth(2), Part::Nth(7)],
                ..EVEN
            },
        ),
        (
            "segments synced at times",
            Plan {
                rounds: 40,
                flush_rounds: 6,
                ..EVEN
            },
        ),
        (
            "rolled",
            Plan {
                rounds: 24,
                segment_bytes: 4_000,
                codec: Codec::Lz4,
                file_bytes: 17 << 10,
                ..EVEN
            },
        ),
        (
            "two lives",
            Plan {
                rounds: 16,
                reopens: Some(3),
                ..EVEN
            },
        ),
        (
            "two lives, one log in the first",
            Plan {
                rounds: 16,
                reopens: Some(2),
                ..EVEN
            },
        ),
    ];
    let other = root.join("other");
    let foreign = make(root, 1_000, ("other", Plan { rounds: 14, ..EVEN }), &other);
    let other = foreign.now.join("journal");
    let one = |(i, plan)| make(root, 100 * (i as u64 + 1), plan, &other);
    plans.into_iter().enumerate().map(one).collect()
}

fn make(root: &Path, incarnation: u64, (name, plan): (&'static str, Plan), other: &Path) -> Home {
    let at = |what: &str| root.join(format!("{what}-{incarnation}"));
    let maker = Maker {
        live: at("live"),
        plan,
        incarnation,
        power: Power::default(),
    };
    let (now, synced) = (at("now"), at("synced"));
    let earlier = at("earlier");
    let (run, values) = maker.live(&earlier);
    power::copy_tree(&maker.live, &now);
    maker.power.copy_synced(&maker.live, &synced);
    drop(run);
    let template = |(i, values): (usize, Vec<Vec<u8>>)| Template {
        name,
        identity: maker.identity(i),
        options: plan.log_options(),
        now: maker.directory(&now, i),
        others: [PathBuf::new(), PathBuf::new()],
        start: 0,
        durable: values.len() as u64,
        values,
    };
    let logs: Vec<Template> = values.into_iter().enumerate().map(template).collect();
    let synced_end = |(i, log): (usize, &Template)| {
        let verified = verify(&OsStorage, &maker.directory(&synced, i), log.identity);
        verified.expect("synced segments can be read").log_end
    };
    let segment_synced: Vec<u64> = logs.iter().enumerate().map(synced_end).collect();
    let journal = frames::read(&now.join("journal"));
    Home {
        name,
        plan,
        now,
        synced,
        others: [earlier.join("journal"), other.to_path_buf()],
        earlier,
        logs,
        segment_synced,
        journal,
    }
}

/// Makes one.
struct Maker {
    live: PathBuf,
    plan: Plan,
    incarnation: u64,
    power: Power,
}

impl Maker {
    fn identity(&self, i: usize) -> LogId {
        LogId {
            incarnation: self.incarnation + i as u64,
            partition: 0,
        }
    }

    fn directory(&self, root: &Path, i: usize) -> PathBuf {
        let name = self.identity(i).incarnation.to_string();
        root.join("partitions").join(name)
    }

    fn begin(&self, open: impl Fn(&Path, usize, &Arc<GroupCommitter>) -> Log, count: usize) -> Run {
        let options = self.plan.options(&self.live);
        let committer = GroupCommitter::stepped_with_wal(Arc::new(self.power.clone()), options);
        let committer = committer.unwrap();
        let logs = (0..count).map(|i| open(&self.directory(&self.live, i), i, &committer));
        Run {
            logs: logs.collect(),
            committer,
        }
    }

    /// All rounds of the plan. What the logs hold then; `earlier`: where all goes that was synced in the first half.
    fn live(&self, earlier: &Path) -> (Run, Vec<Vec<Vec<u8>>>) {
        let (plan, mut values) = (self.plan, vec![Vec::new(); 3]);
        let create = |at: &Path, i, committer: &_| {
            Log::create(at, self.identity(i), plan.log_options(), committer).unwrap()
        };
        let open = |at: &Path, i, committer: &_| {
            let opened = Log::open(at, self.identity(i), plan.log_options(), committer);
            opened.unwrap().0
        };
        let (mut run, mut epoch) = (self.begin(create, 3), 1);
        for round in 0..plan.rounds {
            if round == plan.rounds / 2 {
                self.power.copy_synced(&self.live, earlier);
                if let Some(count) = plan.reopens {
                    // As a kill: nothing is closed.
                    run.logs.clear();
                    (run, epoch) = (self.begin(open, count), 2);
                }
            }
            let batches = |i: usize| {
                let is_in = plan.parts[i].is_in(round);
                if is_in { 1 + (round + i) % 3 % 2 } else { 0 }
            };
            let batches = [0, 1, 2].map(batches);
            run.round(&batches, &mut values, epoch, plan.codec);
        }
        (run, values)
    }
}
