//! One dirty partition and many, with the same number of appends in flight in all, with and without the journal. Prints one
//! JSON object for each.
//!
//! `cargo bench -p bascule-log --bench dirty` (or `--profile fast`). The directory is the system's temporary one, or
//! `BASCULE_BENCH_DIR`. Write amplification is bytes written to segments and journal for each byte of batches.
#![allow(clippy::unwrap_used)] // a bench that cannot continue should stop
use bascule_log::{GroupCommitter, Log, LogId, LogOptions, OsStorage, WalOptions};
use bascule_record::{BatchBuilder, BatchLimits, Codec, RecordRef, SealedBatch};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const RECORD_BYTES: usize = 1024;
const PART: Duration = Duration::from_secs(2);

fn main() {
    let directory =
        std::env::var_os("BASCULE_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    for in_flight in [64, 512] {
        for partitions in [1, 2, 4, 8, 16, 50] {
            for from in [None, Some(1)] {
                let home = tempfile::tempdir_in(&directory).unwrap();
                run(home.path(), partitions, in_flight, from);
            }
        }
    }
}

fn sealed(builder: &mut BatchBuilder) -> SealedBatch {
    let value = [b'v'; RECORD_BYTES];
    let record = RecordRef {
        timestamp: 1,
        value: Some(&value),
        ..RecordRef::default()
    };
    builder.push(&record).unwrap();
    builder.seal(Codec::None, None, None).unwrap()
}

fn start(home: &Path, from: Option<usize>) -> Arc<GroupCommitter> {
    let Some(from_dirty_files) = from else {
        return GroupCommitter::start();
    };
    let options = WalOptions {
        from_dirty_files,
        ..WalOptions::new(home.join("journal"), home.join("partitions"))
    };
    GroupCommitter::start_with_wal(Arc::new(OsStorage), options).unwrap()
}

fn run(home: &Path, partitions: usize, in_flight: usize, from: Option<usize>) {
    let committer = start(home, from);
    let mut logs: Vec<Log> = (0..partitions)
        .map(|i| {
            let identity = LogId {
                incarnation: i as u64 + 1,
                partition: 0,
            };
            let path = home.join("partitions").join((i + 1).to_string());
            Log::create(&path, identity, LogOptions::default(), &committer).unwrap()
        })
        .collect();
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let (done, acks) = mpsc::channel();
    let (mut acked, mut waiting, mut next) = (0_u64, 0, 0);
    let mut started = Instant::now();
    let mut before = committer.statistics();
    let mut warm = true;
    while warm || started.elapsed() < PART {
        if warm && started.elapsed() > Duration::from_millis(500) {
            (warm, acked, started, before) = (false, 0, Instant::now(), committer.statistics());
        }
        while waiting < in_flight {
            let log = &mut logs[next % partitions];
            log.append(sealed(&mut builder), 1, 1).unwrap();
            let done = done.clone();
            log.commit(Box::new(move |outcome| {
                // At the end nobody waits for the last ones.
                let _ = done.send(outcome.is_ok());
            }));
            (waiting, next) = (waiting + 1, next + 1);
        }
        let mut answer = Some(acks.recv().unwrap());
        while let Some(ok) = answer {
            assert!(ok);
            (acked, waiting) = (acked + 1, waiting - 1);
            answer = acks.try_recv().ok();
        }
    }
    let (seconds, after) = (started.elapsed().as_secs_f64(), committer.statistics());
    let rounds = after.rounds - before.rounds;
    let journaled = after.wal_rounds - before.wal_rounds;
    let journal = after.wal_bytes - before.wal_bytes;
    let written = acked * RECORD_BYTES as u64;
    println!(
        "{{\"bench\": \"dirty\", \"partitions\": {partitions}, \"in_flight\": {in_flight}, \"journal_from\": {}, \
         \"rate\": {:.0}, \"rounds\": {:.0}, \"journaled_share\": {:.3}, \"write_amplification\": {:.2}}}",
        from.map_or("null".to_owned(), |from| from.to_string()),
        acked as f64 / seconds,
        rounds as f64 / seconds,
        journaled as f64 / rounds.max(1) as f64,
        (written + journal) as f64 / written as f64,
    );
    assert_eq!(committer.failure(), None);
}
