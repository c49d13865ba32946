//! Verify, inspect, repair and scrub: what they find, what they touch, what they leave.
#![allow(clippy::unwrap_used)]
mod recording;
mod support;
use bascule_log::integrity::{
    Action, FindingKind, RepairOptions, Verified, inspect, repair, verify,
};
use bascule_log::{GroupCommitter, Log, OsStorage};
use recording::Recording;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;
use support::*;

/// Bytes of small segments.
const SEGMENT: u64 = 4000;

/// A log with so many records that was closed.
fn closed(count: u64, segment_bytes: u64) -> Home {
    let home = Home::new();
    let mut log = home.create(small(segment_bytes));
    fill(&mut log, (0..count).map(|i| vec![i as u8; 200]));
    log.close().unwrap();
    home
}

/// Changes one bit.
fn flip(path: &Path, position: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[position] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// A closed log and a copy of it.
fn backed_up() -> (Home, Home) {
    let (home, backup) = (closed(100, SEGMENT), Home::new());
    copy(&home.path(), &backup.path());
    (home, backup)
}

fn look(home: &Home) -> Verified {
    verify(&OsStorage, &home.path(), IDENTITY).unwrap()
}

fn kinds(found: &Verified) -> Vec<FindingKind> {
    found.findings.iter().map(|found| found.kind).collect()
}

/// Names and bytes of everything in a directory.
fn everything(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.is_file())
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                fs::read(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn an_intact_log_has_no_findings_and_is_not_changed() {
    let home = closed(100, SEGMENT);
    let before = everything(&home.path());
    let found = look(&home);
    assert_eq!(found.findings, []);
    assert_eq!(
        (found.records, found.log_start, found.log_end),
        (100, 0, 100)
    );
    assert_eq!(found.durable, Some(100));
    let view = inspect(&OsStorage, &home.path(), IDENTITY, 50, 3).unwrap();
    let bases: Vec<u64> = view
        .batches
        .iter()
        .map(|batch| batch.header.base_offset)
        .collect();
    assert_eq!(bases, [50, 51, 52]);
    assert_eq!(
        view.segments
            .iter()
            .map(|segment| segment.records)
            .sum::<u64>(),
        100
    );
    assert_eq!(everything(&home.path()), before);
}

#[test]
fn each_kind_of_file_is_found_damaged_as_what_it_is() {
    let cases: [(&str, usize, FindingKind); 4] = [
        ("epochs", 5, FindingKind::Derived),
        ("producers", 9, FindingKind::Derived),
        ("checkpoint", 4096 + 40, FindingKind::Derived),
        ("00000000000000000000.idx", 30, FindingKind::Derived),
    ];
    for (name, position, kind) in cases {
        let home = closed(60, SEGMENT);
        flip(&home.path().join(name), position);
        let found = look(&home);
        assert_eq!(kinds(&found), [kind], "{name}");
        assert!(!found.is_damaged());
    }
    let home = closed(60, SEGMENT);
    let second = home.segments()[1].clone();
    flip(&second, 64 + 200);
    let found = look(&home);
    assert_eq!(kinds(&found), [FindingKind::Damage]);
    let (start, end) = found.findings[0].offsets;
    assert_eq!(
        (
            end - start,
            found.findings[0].position,
            &found.findings[0].path
        ),
        (1, 64, &second)
    );
}

#[test]
fn a_torn_tail_is_distinguished_from_damage() {
    let home = closed(30, 1 << 20);
    let (mut log, _) = home.open(small(1 << 20));
    fill(&mut log, [vec![1; 300]]);
    drop(log);
    let path = home.segments()[0].clone();
    let end = inspect(&OsStorage, &home.path(), IDENTITY, 30, 1)
        .unwrap()
        .batches[0]
        .position as usize;
    flip(&path, end + 140);
    let found = look(&home);
    assert_eq!(kinds(&found), [FindingKind::Tail]);
    assert!(!found.is_damaged());
}

#[test]
fn a_backup_gives_back_what_it_has_and_nothing_is_destroyed() {
    let (home, backup) = backed_up();
    let segments = home.segments();
    flip(&segments[1], 300);
    fs::remove_file(&segments[3]).unwrap();
    let before = everything(&home.path());
    let options = RepairOptions {
        dry_run: true,
        from: Some(backup.path()),
        now_ns: 7,
        ..RepairOptions::default()
    };
    let (planned, left) = repair(&OsStorage, &home.path(), IDENTITY, &options).unwrap();
    assert_eq!(left.findings, [], "what would be left");
    assert_eq!(
        everything(&home.path()),
        before,
        "a dry run touches nothing"
    );
    let options = RepairOptions {
        dry_run: false,
        ..options
    };
    let (done, left) = repair(&OsStorage, &home.path(), IDENTITY, &options).unwrap();
    let restored = |actions: &[Action]| {
        actions
            .iter()
            .filter(|action| action.what == "restore")
            .count()
    };
    assert_eq!((restored(&planned), restored(&done)), (2, 2));
    assert_eq!(left.findings, []);
    let name = segments[1]
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let aside = fs::read(home.path().join("aside").join(format!("{name}.7"))).unwrap();
    assert_eq!(
        Some(&aside),
        before
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bytes)| bytes)
    );
    let (log, recovery) = home.open(small(SEGMENT));
    log.set_high_watermark(u64::MAX);
    assert_eq!(recovery.damaged, []);
    assert_eq!(read_from(&log.reader(), 0).unwrap().len(), 100);
}

#[test]
fn what_a_backup_cannot_restore_is_reported_with_the_reason() {
    let (home, backup) = backed_up();
    let segments = home.segments();
    let (there, last) = (backup.segments(), segments.len() - 1);
    for damaged in [1, 2, 3, last] {
        flip(&segments[damaged], 300);
    }
    flip(&there[1], 300);
    fs::remove_file(&there[2]).unwrap();
    let options = RepairOptions {
        from: Some(backup.path()),
        ..RepairOptions::default()
    };
    let (done, left) = repair(&OsStorage, &home.path(), IDENTITY, &options).unwrap();
    let of = |what: &str| -> Vec<_> {
        let actions = done.iter().filter(|action| action.what == what);
        actions
            .map(|action| (action.path.clone(), action.detail.clone()))
            .collect()
    };
    let restored: Vec<_> = of("restore").into_iter().map(|(path, _)| path).collect();
    assert_eq!(restored, [segments[3].clone()]);
    let mut not_restored = of("not_restored");
    not_restored.sort();
    let expected = [
        (1, "the backup's copy is damaged, too"),
        (2, "the backup does not have it"),
        (last, "it is the last one in the backup"),
    ];
    assert_eq!(not_restored.len(), expected.len(), "{not_restored:?}");
    for ((path, detail), (segment, why)) in not_restored.iter().zip(expected) {
        assert_eq!(path, &segments[segment]);
        assert!(detail.starts_with(why), "{detail}");
    }
    assert_eq!(left.findings.len(), expected.len());
}

/// Does something to segments.
type Harm<'a> = &'a dyn Fn(&[PathBuf]);

#[test]
fn several_lost_segments_come_back_at_once_whatever_else_is_missing() {
    let harms: [(Harm, Range<usize>); 5] = [
        (
            &|segments| {
                let lost = segments[2..4].iter();
                lost.for_each(|path| fs::remove_file(path).unwrap());
            },
            0..0,
        ),
        (
            &|segments| {
                let emptied = segments[1..4].iter();
                emptied.for_each(|path| fs::write(path, []).unwrap());
            },
            1..4,
        ),
        (
            &|segments| {
                fs::remove_file(&segments[3]).unwrap();
                fs::remove_file(segments[2].with_extension("idx")).unwrap();
            },
            0..0,
        ),
        (
            &|segments| {
                fs::remove_file(&segments[0]).unwrap();
                flip(&segments[1], 300);
            },
            1..2,
        ),
        (
            &|segments| flip(&segments[2].with_extension("idx"), 20),
            0..0,
        ),
    ];
    for (i, (harm, aside)) in harms.iter().enumerate() {
        let (home, backup) = backed_up();
        let before = contents(&home);
        let names = home.segments();
        let expected: Vec<PathBuf> = aside.clone().map(|i| names[i].clone()).collect();
        harm(&names);
        for dry_run in [true, false] {
            let options = RepairOptions {
                dry_run,
                from: Some(backup.path()),
                ..RepairOptions::default()
            };
            let (done, left) = repair(&OsStorage, &home.path(), IDENTITY, &options).unwrap();
            assert!(
                !left.is_damaged(),
                "{i} {dry_run}: {done:?} {:?}",
                left.findings
            );
            let is_refused = |action: &&Action| action.what == "not_restored";
            assert_eq!(done.iter().find(is_refused), None, "{i}");
        }
        assert_eq!(contents(&home), before, "{i}");
        assert_eq!(segments_aside(&home), expected, "{i}: quarantined");
    }
}

/// What the segments hold.
fn contents(home: &Home) -> Vec<Vec<u8>> {
    let paths = home.segments();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The quarantined segments, under their former names.
fn segments_aside(home: &Home) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(home.path().join("aside")) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().path().with_extension(""));
    let of_segments = names.filter(|name| name.extension().is_some_and(|kind| kind == "seg"));
    let mut paths: Vec<_> = of_segments
        .map(|name| home.path().join(name.file_name().unwrap()))
        .collect();
    paths.sort();
    paths
}

#[test]
fn a_backup_without_the_log_is_said_to_lack_it() {
    let home = closed(100, SEGMENT);
    flip(&home.segments()[1], 300);
    let elsewhere = Home::new();
    for from in [elsewhere.path(), elsewhere.root.path().join("nowhere")] {
        let options = RepairOptions {
            from: Some(from),
            ..RepairOptions::default()
        };
        let (done, left) = repair(&OsStorage, &home.path(), IDENTITY, &options).unwrap();
        assert_eq!(done[0].what, "not_restored");
        assert!(done[0].detail.starts_with("the backup does not have it"));
        assert!(left.is_damaged());
    }
}

#[test]
fn swapped_segments_get_their_names_back() {
    let home = closed(100, SEGMENT);
    let segments = home.segments();
    let before = everything(&home.path());
    let aside = home.root.path().join("swap");
    fs::rename(&segments[0], &aside).unwrap();
    fs::rename(&segments[2], &segments[0]).unwrap();
    fs::rename(&aside, &segments[2]).unwrap();
    assert!(look(&home).is_damaged());
    let (done, left) = repair(
        &OsStorage,
        &home.path(),
        IDENTITY,
        &RepairOptions::default(),
    )
    .unwrap();
    assert_eq!(
        done.iter().filter(|action| action.what == "rename").count(),
        2
    );
    assert_eq!(left.findings, []);
    assert_eq!(everything(&home.path()), before);
}

#[test]
fn a_log_is_cut_only_where_it_is_asked_for_and_between_batches() {
    let home = closed(100, SEGMENT);
    let cut = |at: u64| RepairOptions {
        cut_at: Some(at),
        now_ns: 9,
        ..RepairOptions::default()
    };
    // What lies after the cut may be damaged: the cut takes it away, and a dry run says so.
    flip(home.segments().last().unwrap(), 300);
    assert!(look(&home).is_damaged());
    for dry_run in [true, false] {
        let options = RepairOptions { dry_run, ..cut(41) };
        let (_, left) = repair(&OsStorage, &home.path(), IDENTITY, &options).unwrap();
        assert!(!left.is_damaged(), "{:?}", left.findings);
        assert_eq!(look(&home).is_damaged(), dry_run);
    }
    let (mut log, recovery) = home.open(small(SEGMENT));
    assert_eq!((recovery.damaged.clone(), recovery.cut_bytes), (vec![], 0));
    assert_eq!(log.reader().log_end(), 41);
    fill(&mut log, [vec![7; 5]]);
    let records = read_from(&log.reader(), 0).unwrap();
    assert_eq!(records.len(), 42);
    assert_eq!(records[41], (41, vec![7; 5]));
    drop(log);
    // Two records in one batch: no cut between them.
    let home = Home::new();
    let mut log = home.create(small(SEGMENT));
    log.append(batch_of(&[b"a", b"b"], 5, None), 1, 0).unwrap();
    settle(&mut log);
    log.close().unwrap();
    let refusal = repair(&OsStorage, &home.path(), IDENTITY, &cut(1)).unwrap_err();
    assert!(
        refusal.to_string().contains("not the beginning of a batch"),
        "{refusal}"
    );
    assert_eq!(look(&home).records, 2);
}

#[test]
fn a_scrub_finds_damage_drops_repaired_ranges_and_can_be_stopped() {
    let home = closed(100, SEGMENT);
    let (log, _) = home.open(small(SEGMENT));
    log.set_high_watermark(u64::MAX);
    let reader = log.reader();
    let done = reader.scrub(5, &mut |_| true).unwrap();
    assert!(
        done.complete && done.damaged == 0 && done.segments > 2,
        "{done:?}"
    );
    assert_eq!(reader.scrubbed(), 5);
    let second = home.segments()[1].clone();
    flip(&second, 64 + 200);
    let done = reader.scrub(6, &mut |_| true).unwrap();
    assert_eq!((done.damaged, done.complete), (1, true));
    assert_eq!(reader.quarantine().len(), 1);
    flip(&second, 64 + 200);
    assert_eq!(reader.scrub(7, &mut |_| true).unwrap().damaged, 0);
    assert_eq!(reader.quarantine(), []);
    let stopped = reader.scrub(8, &mut |_| false).unwrap();
    assert!(!stopped.complete && stopped.segments <= 1, "{stopped:?}");
    assert_eq!(reader.scrubbed(), 7);
    log.close().unwrap();
    let (log, _) = home.open(small(SEGMENT));
    assert_eq!(
        (log.reader().scrubbed(), log.reader().quarantine()),
        (7, vec![])
    );
}

#[test]
fn a_scrub_of_much_damage_has_the_quarantine_written_once() {
    let home = closed(100, 1 << 20);
    let (mut log, _) = home.open(small(100));
    fill(&mut log, [vec![1; 5]]);
    log.close().unwrap();
    let first = home.segments()[0].clone();
    let batches = inspect(&OsStorage, &home.path(), IDENTITY, 0, 100);
    for batch in batches.unwrap().batches.iter().step_by(2) {
        flip(&first, batch.position as usize + 130);
    }
    let storage = Recording::new(&home.path());
    let committer = GroupCommitter::stepped(storage.clone());
    let (log, _) = Log::open(&home.path(), IDENTITY, small(100), &committer).unwrap();
    while committer.step() {}
    let done = log.reader().scrub(5, &mut |_| true).unwrap();
    assert_eq!((done.damaged, log.reader().quarantine().len()), (50, 50));
    while committer.step() {}
    let calls = storage.calls();
    let written = calls.iter().filter(|call| *call == "rename quarantine.tmp");
    assert_eq!(written.count(), 1);
    drop((log, committer));
    let (log, _) = home.open(small(100));
    assert_eq!(log.reader().quarantine().len(), 50);
}

/// Run with `--release -- --ignored --nocapture`: verify reads more than 1 GB/s from the page cache.
#[test]
#[ignore = "a measurement"]
fn verify_reads_a_gigabyte_a_second() {
    let home = Home::new();
    let mut log: Log = home.create(memory(64 << 20));
    let values: Vec<Vec<u8>> = (0..256).map(|i| vec![i as u8; 1024]).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    while log.reader().bytes() < 1 << 30 {
        log.append(batch_of(&values, 0, None), 1, 0).unwrap();
    }
    log.close().unwrap();
    for _ in 0..3 {
        let began = Instant::now();
        let found = look(&home);
        let rate = found.bytes as f64 / began.elapsed().as_secs_f64() / 1e9;
        println!("{rate:.2} GB/s of {} bytes", found.bytes);
        assert_eq!(found.findings, []);
    }
}
