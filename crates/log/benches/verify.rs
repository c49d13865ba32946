//! Verifying and scrubbing a log that lies in the page cache: every batch read and checked. Prints one JSON object for each
//! size of batches: GB/s, the best of seven runs each, on one thread.
//!
//! `cargo bench -p bascule-log --bench verify`; the logs are made in `BASCULE_BENCH_DIR`, or in the temporary directory.
#![allow(clippy::unwrap_used)] // a benchmark stops at an error
use bascule_log::integrity::verify;
use bascule_log::{Durability, GroupCommitter, Log, LogId, LogOptions, OsStorage};
use bascule_record::{BatchBuilder, BatchLimits, Codec, RecordRef};
use std::path::PathBuf;
use std::time::Instant;

const TOTAL_BYTES: u64 = 256 << 20;
const RUNS: usize = 7;
/// Records of a batch, and bytes of a record.
const SHAPES: [(usize, usize); 4] = [(1, 256), (64, 256), (1024, 256), (1024, 1024)];

fn main() {
    let parent =
        std::env::var_os("BASCULE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    for (records, bytes) in SHAPES {
        let home = tempfile::tempdir_in(&parent).unwrap();
        let identity = LogId {
            incarnation: 1,
            partition: 0,
        };
        let path = home.path().join("1");
        fill(&path, identity, records, bytes);
        let verified = best(|| {
            let found = verify(&OsStorage, &path, identity).unwrap();
            assert!(!found.is_damaged() && found.bytes >= TOTAL_BYTES);
            found.bytes
        });
        let committer = GroupCommitter::start();
        let (log, _) = Log::open(&path, identity, options(), &committer).unwrap();
        let scrubbed = best(|| {
            let scrubbed = log.reader().scrub(1, &mut |_| true).unwrap();
            assert!(
                scrubbed.complete && scrubbed.damaged == 0 && scrubbed.bytes >= TOTAL_BYTES / 2
            );
            scrubbed.bytes
        });
        println!(
            "{{\"bench\": \"verify\", \"records\": {records}, \"bytes\": {bytes}, \"verify_gb_per_second\": {verified:.2}, \
             \"scrub_gb_per_second\": {scrubbed:.2}}}"
        );
    }
}

/// GB/s of the best run of a function that returns the bytes it read.
fn best(mut run: impl FnMut() -> u64) -> f64 {
    let rates = (0..RUNS).map(|_| {
        let began = Instant::now();
        let bytes = run();
        bytes as f64 / began.elapsed().as_secs_f64() / 1e9
    });
    rates.fold(0.0, f64::max)
}

/// Segments small enough that most of the log is sealed: a scrub reads no other.
fn options() -> LogOptions {
    LogOptions {
        durability: Durability::Memory,
        segment_bytes: TOTAL_BYTES / 8,
        ..LogOptions::default()
    }
}

fn fill(path: &std::path::Path, identity: LogId, records: usize, bytes: usize) {
    let committer = GroupCommitter::start();
    let mut log = Log::create(path, identity, options(), &committer).unwrap();
    let mut builder = BatchBuilder::new(BatchLimits {
        records,
        bytes: 8 << 20,
        ..BatchLimits::default()
    });
    let value: Vec<u8> = (0..bytes).map(|i| (i * 31) as u8).collect();
    let mut written = 0;
    while written < TOTAL_BYTES {
        for _ in 0..records {
            let record = RecordRef {
                timestamp: 1,
                value: Some(&value),
                ..RecordRef::default()
            };
            builder.push(&record).unwrap();
        }
        let batch = builder.seal(Codec::None, None, None).unwrap();
        written += batch.batch_bytes() as u64;
        log.append(batch, 1, 1).unwrap();
    }
    log.close().unwrap();
}
