//! A crash at every step of a compaction, and readers and appends beside one.
#![allow(clippy::unwrap_used)]
mod keyed;
mod snapshots;
mod support;
use bascule_log::integrity::verify;
use bascule_log::{Compaction, GroupCommitter, Log, OsStorage};
use keyed::*;
use snapshots::Snapshots;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use support::*;

/// Three keys, a tombstone, records without a key, in segments of a few batches.
fn fill_keyed(log: &mut Log, from: u8) -> Vec<Written> {
    let mut written = Vec::new();
    for i in from..from + 12 {
        let value = [i; 30];
        let tombstone = (i % 5 != 0).then_some(&value[..]);
        written.extend(put(log, &[(b"a", Some(&value)), (b"", Some(&value))]));
        written.extend(put(log, &[(b"b", tombstone), (b"c", Some(&value))]));
    }
    written
}

#[test]
fn a_crash_at_every_step_loses_no_latest_record_and_brings_none_back() {
    crash_at_every_step(|log| {
        let mut written = put(log, &[(b"gone", Some(b"value"))]);
        written.extend(fill_keyed(log, 0));
        written.extend(put(log, &[(b"gone", None)]));
        written.extend(fill_keyed(log, 12));
        written
    });
}

#[test]
fn a_crash_at_every_step_of_a_merge_leaves_each_offset_once() {
    let vacant = crash_at_every_step(|log| {
        let value = [3; 150];
        let mut batches = |keys: &[&[u8]]| -> Vec<Written> {
            let batch: Vec<Record<'_>> = keys.iter().map(|key| (*key, Some(&value[..]))).collect();
            (0..16).flat_map(|_| put(log, &batch)).collect()
        };
        let mut written = batches(&[b"a", b"b"]);
        written.extend(batches(&[b"", b"c"]));
        written.extend(batches(&[b"c", b"a", b"b"]));
        written
    });
    assert!(vacant.iter().filter(|vacant| **vacant).count() >= 2);
}

/// Compacts what `fill` writes; each state on the way, and a crash in it. Returns which segments have no record in the end.
fn crash_at_every_step(fill: impl Fn(&mut Log) -> Vec<Written>) -> Vec<bool> {
    let root = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::new(root.path());
    let committer = GroupCommitter::stepped(snapshots.storage());
    let mut log = Log::create(&snapshots.of, IDENTITY, small(600), &committer).unwrap();
    let written = fill(&mut log);
    log.commit(Box::new(|outcome| assert!(outcome.is_ok())));
    while committer.step() {}
    let end = log.reader().log_end();
    log.set_high_watermark(end);
    log.checkpoint().unwrap();
    while committer.step() {}
    snapshots.on.store(true, Ordering::Relaxed);
    let (done, report) = mpsc::channel();
    let once = Compaction {
        tombstone_grace_ns: 0,
        ..Compaction::default()
    };
    let tell = Box::new(move |outcome| done.send(outcome).unwrap());
    assert!(log.compact(&once, i64::MAX, tell).unwrap());
    while committer.step() {}
    snapshots.on.store(false, Ordering::Relaxed);
    assert!(report.recv().unwrap().unwrap().segments > 3);
    let finished = read_keyed(&log.reader(), 0);
    let homes = snapshots.homes();
    assert!(homes.len() > 30, "{} states", homes.len());
    let mut before = written.len();
    for (number, home) in homes.into_iter().enumerate() {
        let verified = verify(&OsStorage, &home, IDENTITY).unwrap();
        assert!(
            !verified.is_damaged(),
            "state {number}: {:?}",
            verified.findings
        );
        assert_eq!(verified.log_end, end, "state {number}");
        let committer = GroupCommitter::start();
        let (log, recovery) = Log::open(&home, IDENTITY, small(600), &committer).unwrap();
        assert_eq!(
            (recovery.cut_bytes, &recovery.damaged[..]),
            (0, &[][..]),
            "state {number}"
        );
        log.set_high_watermark(log.reader().log_end());
        let found = read_keyed(&log.reader(), 0);
        assert_eq!(log.reader().log_end(), end);
        assert!(
            found.iter().all(|record| written.contains(record)),
            "state {number}"
        );
        assert!(
            finished.iter().all(|record| found.contains(record)),
            "state {number}"
        );
        assert!(found.len() <= before, "state {number}: nothing comes back");
        before = found.len();
        for key in [&b"a"[..], b"b", b"c", b"gone"] {
            let last = |records: &[Written]| records.iter().rfind(|one| one.key == key).cloned();
            let shown = last(&found);
            assert!(
                shown.is_none() || shown == last(&written),
                "state {number}: {shown:?}"
            );
        }
        drop(log);
        check_chain(&home);
        assert_eq!(files(&home, "tmp"), Vec::<PathBuf>::new());
    }
    vacant(&snapshots.of)
}

#[test]
fn readers_and_appends_continue_during_compactions() {
    let home = Home::new();
    let mut log = home.create(small(2_000));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|i| {
            let (reader, stop) = (log.reader(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut rounds = 0_usize;
                while !stop.load(Ordering::Relaxed) || rounds == 0 {
                    let committed = reader.high_watermark();
                    let found = read_keyed(&reader, i * 10);
                    let ascends = found.windows(2).all(|pair| pair[0].offset < pair[1].offset);
                    assert!(ascends, "in order, each once");
                    assert!(
                        found
                            .iter()
                            .all(|one| one.timestamp as u64 <= 1_000 + one.offset)
                    );
                    let keyless = found.iter().filter(|one| one.key.is_empty()).count() as u64;
                    assert!(
                        keyless >= committed.saturating_sub(i * 10) / 4,
                        "none is skipped"
                    );
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let mut written = Vec::new();
    let (done, ended) = mpsc::channel();
    let (mut asked, mut heard) = (0, 0);
    for round in 0..40 {
        written.extend(fill_keyed(&mut log, round * 6));
        settle(&mut log);
        let done = done.clone();
        let tell = Box::new(move |outcome| done.send(outcome).unwrap());
        asked += usize::from(log.compact(&Compaction::default(), 0, tell).unwrap());
        // None is begun while one is under way, and a busy machine takes long over one.
        while round % 8 == 7 && heard < asked {
            ended.recv().unwrap().unwrap();
            heard += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
    assert!(asked > 3, "{asked} runs");
    let found = read_keyed(&log.reader(), 0);
    assert!(found.len() < written.len() && found.iter().all(|one| written.contains(one)));
    check_chain(&home.path());
}
