//! Damages copies of logs, seeded, and looks at what is made of them: `damage SEED COUNT DIRECTORY`.
//!
//! Each damage: one file of a copy is flipped, cut, zeroed, overwritten, replaced, swapped or removed; the copy is verified,
//! opened, read, written to and opened again. Every acknowledged record must be served as it was, or refused by name, and
//! nothing else may be served; and one flipped bit may cost the batch that it is in, not more. Prints one JSON object; the tests of the rig are in `tests/torture/rig_damage.py`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr
)] // a rig that cannot go on should stop

#[path = "damage/apply.rs"]
mod apply;
#[path = "damage/judge.rs"]
mod judge;
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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().expect("SEED COUNT DIRECTORY");
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
    let templates = prepare::templates(root);
    let work = root.join("work");
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    for i in seed..seed + count {
        let mut dice = Dice(i);
        let template = &templates[dice.below(templates.len() as u64) as usize];
        let told = template.copy_to(&work, &mut dice);
        JUDGING.store(true, Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| judge::judge(template, &work, &told)));
        JUDGING.store(false, Ordering::Relaxed);
        let (verdict, detail) =
            outcome.unwrap_or_else(|_| ("crash", PANIC.lock().unwrap().clone()));
        *totals.entry(verdict.to_owned()).or_default() += 1;
        *totals.entry(format!("kind {}", told.kind)).or_default() += 1;
        *totals.entry(format!("file {}", told.file)).or_default() += 1;
        if !matches!(verdict, "detected" | "harmless") && failures.len() < 20 {
            failures.push(format!(
                "seed {i}: {} {told:?}: {verdict}: {detail}",
                template.name
            ));
        }
    }
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
