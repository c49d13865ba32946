//! Compaction of a log of 1 GiB while it is published to. Prints one JSON object:
//! MB/s of compaction, and latencies of durable publishes without and with it, ms.
//!
//! `cargo bench -p bascule-log --bench compaction`; the log is made in `BASCULE_BENCH_DIR`, or in the temporary directory.
#![allow(clippy::unwrap_used)] // a benchmark stops at an error
use bascule_log::{Compaction, GroupCommitter, Log, LogId, LogOptions};
use bascule_record::{BatchBuilder, BatchLimits, Codec, RecordRef, SealedBatch};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const TOTAL_BYTES: u64 = 1 << 30;
const RECORD_BYTES: usize = 1024;
const KEYS: u64 = 200_000;
const BASELINE: Duration = Duration::from_secs(5);

/// A batch of `records` with keys from a fixed sequence.
fn batch(seed: &mut u64, records: usize) -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits {
        records,
        bytes: 8 << 20,
        ..BatchLimits::default()
    });
    let mut value = vec![0_u8; RECORD_BYTES];
    for _ in 0..records {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let key = ((*seed >> 33) % KEYS).to_le_bytes();
        value[..8].copy_from_slice(&seed.to_le_bytes());
        let record = RecordRef {
            timestamp: 1,
            key: Some(&key),
            value: Some(&value),
            ..RecordRef::default()
        };
        builder.push(&record).unwrap();
    }
    builder.seal(Codec::None, None, None).unwrap()
}

/// One durable publish of 64 records; its latency.
fn publish(log: &mut Log, seed: &mut u64) -> Duration {
    let batch = batch(seed, 64);
    let began = Instant::now();
    log.append(batch, 1, 1).unwrap();
    let (done, ended) = mpsc::channel();
    log.commit(Box::new(move |outcome| {
        done.send(outcome.unwrap()).unwrap();
    }));
    let end = ended.recv().unwrap();
    log.set_high_watermark(end);
    began.elapsed()
}

fn percentile(latencies: &mut [Duration], share: f64) -> f64 {
    latencies.sort();
    let at = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
    latencies
        .get(at)
        .map_or(0.0, |one| one.as_secs_f64() * 1_000.0)
}

fn main() {
    let parent =
        std::env::var_os("BASCULE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let home = tempfile::tempdir_in(parent).unwrap();
    let committer = GroupCommitter::start();
    let identity = LogId {
        incarnation: 1,
        partition: 0,
    };
    let options = LogOptions {
        segment_bytes: 128 << 20,
        ..LogOptions::default()
    };
    let mut log = Log::create(&home.path().join("1"), identity, options, &committer).unwrap();
    let mut seed = 1;
    let mut written = 0;
    while written < TOTAL_BYTES {
        let batch = batch(&mut seed, 256);
        written += batch.batch_bytes() as u64;
        log.append(batch, 1, 1).unwrap();
    }
    publish(&mut log, &mut seed);
    let pause = Duration::from_millis(2);
    let mut without = Vec::new();
    let began = Instant::now();
    while began.elapsed() < BASELINE {
        without.push(publish(&mut log, &mut seed));
        std::thread::sleep(pause);
    }
    let (done, ended) = mpsc::channel();
    let began = Instant::now();
    let asked = log.compact(
        &Compaction::default(),
        1,
        Box::new(move |outcome| done.send((outcome.unwrap(), began.elapsed())).unwrap()),
    );
    assert!(asked.unwrap());
    let mut with = Vec::new();
    let (report, took) = loop {
        if let Ok(outcome) = ended.try_recv() {
            break outcome;
        }
        with.push(publish(&mut log, &mut seed));
        std::thread::sleep(pause);
    };
    let rate = report.bytes_before as f64 / took.as_secs_f64() / 1e6;
    println!(
        "{{\"bench\": \"compaction\", \"mb_per_second\": {rate:.0}, \"seconds\": {:.2}, \"bytes_before\": {}, \
         \"bytes_after\": {}, \"records_removed\": {}, \"publishes_without\": {}, \"publishes_with\": {}, \
         \"p50_ms_without\": {:.2}, \"p50_ms_with\": {:.2}, \"p99_ms_without\": {:.2}, \"p99_ms_with\": {:.2}}}",
        took.as_secs_f64(),
        report.bytes_before,
        report.bytes_after,
        report.records,
        without.len(),
        with.len(),
        percentile(&mut without, 0.5),
        percentile(&mut with, 0.5),
        percentile(&mut without, 0.99),
        percentile(&mut with, 0.99),
    );
    log.close().unwrap();
}
