//! The log alone on this disk: its sync, one append at a time, many in flight, sequential reading.
//!
//! `cargo bench -p bascule-log` (or `--profile fast`). The directory is the system's temporary one, or `BASCULE_BENCH_DIR`.
//! Each part takes about a second; times include everything from the append to the callback.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a benchmark stops at an error
use bascule_log::{Durability, GroupCommitter, Log, LogId, LogOptions, ReadMode};
use bascule_record::{BatchBuilder, BatchLimits, Batches, Codec, RecordRef, SealedBatch};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const RECORD_BYTES: usize = 256;
const PART: Duration = Duration::from_millis(1500);

fn main() {
    let directory =
        std::env::var_os("BASCULE_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let home = tempfile::tempdir_in(directory).unwrap();
    println!("| What | Result |\n|---|---|");
    disk_sync(home.path());
    let committer = GroupCommitter::start();
    one_in_flight(&home.path().join("1"), &committer, 1);
    many_in_flight(&home.path().join("2"), &committer, Durability::Disk, 512);
    many_in_flight(&home.path().join("3"), &committer, Durability::Disk, 4096);
    many_in_flight(&home.path().join("4"), &committer, Durability::Memory, 512);
    let statistics = committer.statistics();
    println!(
        "| syncs | {} rounds, longest {:.2} ms |",
        statistics.rounds,
        statistics.longest_nanos as f64 / 1e6
    );
    assert_eq!(committer.failure(), None);
}

/// 4 KiB overwrites of a file of zeros, each synced.
fn disk_sync(directory: &Path) {
    let path = directory.join("sync");
    let file = File::create(&path).unwrap();
    file.write_all_at(&vec![0; 16 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let block = [7; 4096];
    let started = Instant::now();
    let mut times = Vec::new();
    while started.elapsed() < PART {
        let before = Instant::now();
        file.write_all_at(&block, (times.len() as u64 % 4096) * 4096)
            .unwrap();
        file.sync_data().unwrap();
        times.push(before.elapsed());
    }
    report("disk: write and sync 4 KiB", &mut times);
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let (p50, p99, p999, max) = (at(0.5), at(0.99), at(0.999), at(1.0));
    println!(
        "| {what} | p50 {p50:.3}, p99 {p99:.3}, p99.9 {p999:.3}, max {max:.2} ms ({} times) |",
        times.len()
    );
}

fn sealed(builder: &mut BatchBuilder, records: usize) -> SealedBatch {
    let value = [b'v'; RECORD_BYTES];
    for _ in 0..records {
        let record = RecordRef {
            timestamp: 1,
            value: Some(&value),
            ..RecordRef::default()
        };
        builder.push(&record).unwrap();
    }
    builder.seal(Codec::None, None, None).unwrap()
}

fn create(directory: &Path, committer: &Arc<GroupCommitter>, durability: Durability) -> Log {
    let identity = LogId {
        incarnation: 1,
        partition: 0,
    };
    let options = LogOptions {
        durability,
        ..LogOptions::default()
    };
    Log::create(directory, identity, options, committer).unwrap()
}

fn one_in_flight(directory: &Path, committer: &Arc<GroupCommitter>, records: usize) {
    let mut log = create(directory, committer, Durability::Disk);
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let (done, acks) = mpsc::channel();
    let started = Instant::now();
    let mut times = Vec::new();
    while started.elapsed() < PART {
        let before = Instant::now();
        log.append(sealed(&mut builder, records), 1, 1).unwrap();
        let done = done.clone();
        log.commit(Box::new(move |outcome| done.send(outcome.is_ok()).unwrap()));
        assert!(acks.recv().unwrap());
        times.push(before.elapsed());
    }
    report("append and commit, 1 in flight", &mut times);
    log.close().unwrap();
}

/// Keeps `window` records in flight, as four batches: one is acked, another is appended.
fn many_in_flight(
    directory: &Path,
    committer: &Arc<GroupCommitter>,
    durability: Durability,
    window: usize,
) {
    let mut log = create(directory, committer, durability);
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let (done, acks) = mpsc::channel();
    let (mut acked, mut in_flight, mut times) = (0_usize, 0_usize, Vec::new());
    let batch = window / 4;
    let started = Instant::now();
    while started.elapsed() < PART {
        while in_flight < window {
            let (sealed, before) = (sealed(&mut builder, batch), Instant::now());
            log.append(sealed, 1, 1).unwrap();
            let done = done.clone();
            log.commit(Box::new(move |outcome| {
                done.send((outcome.is_ok(), before.elapsed())).unwrap();
            }));
            in_flight += batch;
        }
        let mut answer = Some(acks.recv().unwrap());
        while let Some((ok, time)) = answer {
            assert!(ok);
            acked += batch;
            in_flight -= batch;
            times.push(time);
            answer = acks.try_recv().ok();
        }
    }
    let rate = acked as f64 / started.elapsed().as_secs_f64() / 1e6;
    println!("| {durability:?}, {window} x {RECORD_BYTES} B in flight | {rate:.2} M records/s |");
    report("… from append to callback", &mut times);
    log.set_high_watermark(u64::MAX);
    for mode in [ReadMode::Blocking, ReadMode::NoWait] {
        read_all(&log, mode);
    }
    log.close().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

fn read_all(log: &Log, mode: ReadMode) {
    let mut cursor = log.reader().cursor(0);
    let started = Instant::now();
    let (mut bytes, mut batches) = (0_usize, 0_usize);
    while let Some(read) = cursor.next(u64::MAX, 1 << 20, mode).unwrap() {
        bytes += read.len();
        batches += Batches::new(read).flatten().count();
    }
    let seconds = started.elapsed().as_secs_f64();
    let (rate, megabytes) = (bytes as f64 / 1e6 / seconds, bytes / 1_000_000);
    println!("| cursor, {mode:?} | {rate:.0} MB/s over {megabytes} MB, {batches} batches |");
}
