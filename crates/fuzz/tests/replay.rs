//! Every kept input of every fuzz target, and a bounded number of changes to each: no panic, no hang, no memory beyond
//! the bound. `BASCULE_FUZZ_MS` says how long each target is driven after its kept inputs (default 500).
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot continue must stop
use bascule_fuzz::{TARGETS, Target};
use cap::Cap;
use std::alloc::System;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No input may need more memory than this, bytes.
const MEMORY: usize = 512 << 20;
/// No input may take longer than this.
const SLOWEST: Duration = Duration::from_secs(5);

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MEMORY);

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn inputs(name: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(corpus().join(name))
        .unwrap_or_else(|error| panic!("no kept inputs of {name}: {error}"))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs one input; a failure leaves it in a file and says how to come back to it.
fn run(name: &str, target: Target, input: &[u8]) {
    let begun = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    let slow = begun.elapsed() > SLOWEST;
    if outcome.is_err() || slow {
        let path = std::env::temp_dir().join(format!("bascule-fuzz-{name}.input"));
        fs::write(&path, input).unwrap();
        let what = if slow { "took too long" } else { "panicked" };
        panic!(
            "{name} {what} on {} bytes, kept as {}: fix the parser and keep the input in fuzz/corpus/{name}",
            input.len(),
            path.display()
        );
    }
}

/// A small generator of numbers: the same changes in every run.
struct Numbers(u64);
impl Numbers {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize
    }
}

fn changed(input: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=numbers.next() % 4 {
        let at = numbers.next() % (bytes.len() + 1);
        match numbers.next() % 7 {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, numbers.next() as u8),
            2 if at < bytes.len() => {
                bytes.remove(at);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << (numbers.next() % 8),
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][numbers.next() % 5],
            5 => bytes.extend_from_slice(&other[numbers.next() % (other.len() + 1)..]),
            _ => {
                let with = (numbers.next() as u64).to_le_bytes();
                for (to, from) in bytes.iter_mut().skip(at).zip(with) {
                    *to = from;
                }
            }
        }
    }
    bytes
}

#[test]
fn kept_inputs_and_changes_to_them_do_no_harm() {
    let limit = std::env::var("BASCULE_FUZZ_MS").map_or(500, |text| text.parse().unwrap());
    let mut total = 0_u64;
    for (name, target) in TARGETS {
        let kept = inputs(name);
        assert!(!kept.is_empty(), "no kept inputs of {name}");
        for input in &kept {
            run(name, *target, input);
        }
        run(name, *target, &[]);
        let (begun, mut executions, mut numbers) = (Instant::now(), 0_u64, Numbers(0x9e37_79b9));
        while begun.elapsed() < Duration::from_millis(limit) {
            let input = &kept[numbers.next() % kept.len()];
            let other = &kept[numbers.next() % kept.len()];
            run(name, *target, &changed(input, other, &mut numbers));
            executions += 1;
        }
        println!("fuzz {name}: {} kept, {executions} changed", kept.len());
        total += executions + kept.len() as u64;
    }
    println!("fuzz executions: {total}");
}

#[test]
fn every_folder_of_kept_inputs_has_a_target() {
    for entry in fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name.starts_with("python_") || bascule_fuzz::target(&name).is_some(),
            "{name}"
        );
    }
}
