//! Damages copies of logs, or of data directories with a journal, seeded, and looks at what is made of them:
//! `damage SEED COUNT DIRECTORY [logs|journal]`.
//!
//! Each damage: one file of a copy is flipped, cut, zeroed, overwritten, replaced, swapped or removed; the copy is verified,
//! opened, read, written to and opened again. Every acknowledged record must be served as it was, or refused by name, and
//! nothing else may be served; and one flipped bit may cost the batch that it is in, of the journal the frame, not more.
//! Prints one JSON object; the tests of the rig are in `tests/torture/rig_damage.py`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr
)] // a rig stops at an error

#[path = "damage/apply.rs"]
mod apply;
#[path = "damage/frames.rs"]
mod frames;
#[path = "damage/journal.rs"]
mod journal;
#[path = "damage/judge.rs"]
mod judge;
#[path = "damage/judge_journal.rs"]
mod judge_journal;
#[path = "damage/power.rs"]
mod power;
#[path = "damage/prepare.rs"]
mod prepare;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A log is being judged: a panic is a result.
static JUDGING: AtomicBool = AtomicBool::new(false);
/// What the last panic of a judgement said.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// A small generator, so that one number says everything (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, 0 when that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.roll() % end }
    }
}

/// What became of one damage.
struct Outcome {
    /// The directory that was damaged, and how.
    what: String,
    /// What it is counted under besides the verdict.
    counts: Vec<String>,
    verdict: &'static str,
    detail: String,
}

/// Does damage number so-and-so.
type Part = Box<dyn Fn(&mut Dice, &Path) -> Outcome>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next();
    let mut number = || next().expect("SEED COUNT DIRECTORY [logs|journal]");
    let seed: u64 = number().parse().expect("SEED is a number");
    let count: u64 = number().parse().expect("COUNT is a number");
    let root = number();
    let root = Path::new(&root);
    std::panic::set_hook(Box::new(|panic| {
        if JUDGING.load(Ordering::Relaxed) {
            *PANIC.lock().unwrap() = panic.to_string();
        } else {
            eprintln!("{panic}");
        }
    }));
    let began = Instant::now();
    let part = match next().as_deref() {
        None | Some("logs") => logs(root),
        Some("journal") => journal(root),
        Some(other) => panic!("{other} is neither logs nor journal"),
    };
    let work = root.join("work");
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    for i in seed..seed + count {
        let outcome = part(&mut Dice(i), &work);
        let verdict = outcome.verdict;
        for name in outcome.counts.into_iter().chain([verdict.to_owned()]) {
            *totals.entry(name).or_default() += 1;
        }
        if !matches!(verdict, "detected" | "harmless" | "earlier") && failures.len() < 20 {
            let (what, detail) = (outcome.what, outcome.detail);
            failures.push(format!("seed {i}: {what}: {verdict}: {detail}"));
        }
    }
    print(began, &totals, &failures);
}

fn logs(root: &Path) -> Part {
    let templates = prepare::templates(root);
    Box::new(move |dice, work| {
        let template = &templates[dice.below(templates.len() as u64) as usize];
        let injury = template.copy_to(work, dice);
        let (verdict, detail) = judged(|| judge::judge(template, work, &injury));
        Outcome {
            what: format!("{} {injury:?}", template.name),
            counts: injury.counts(),
            verdict,
            detail,
        }
    })
}

fn journal(root: &Path) -> Part {
    let homes = journal::homes(root);
    Box::new(move |dice, work| {
        let home = &homes[dice.below(homes.len() as u64) as usize];
        let harm = home.copy_to(work, dice);
        let mut counts = harm.injury.counts();
        let (verdict, detail) = judged(|| {
            let (verdict, detail, limit) = judge_journal::judge(home, work, &harm, dice);
            counts.extend(limit.map(|limit| format!("limit {limit:?}")));
            (verdict, detail)
        });
        Outcome {
            what: format!("{} {harm:?}", home.name),
            counts,
            verdict,
            detail,
        }
    })
}

/// What a judge says; a panic is a verdict too.
fn judged(judge: impl FnOnce() -> (&'static str, String)) -> (&'static str, String) {
    JUDGING.store(true, Ordering::Relaxed);
    let verdict = catch_unwind(AssertUnwindSafe(judge));
    JUDGING.store(false, Ordering::Relaxed);
    verdict.unwrap_or_else(|_| ("crash", PANIC.lock().unwrap().clone()))
}

fn print(began: Instant, totals: &BTreeMap<String, u64>, failures: &[String]) {
    let totals: Vec<String> = totals
        .iter()
        .map(|(name, n)| format!("{name:?}: {n}"))
        .collect();
    let failures: Vec<String> = failures.iter().map(|text| format!("{text:?}")).collect();
    println!(
        "{{\"seconds\": {:.3}, \"totals\": {{{}}}, \"failures\": [{}]}}",
        began.elapsed().as_secs_f64(),
        totals.join(", "),
        failures.join(", ")
    );
}
