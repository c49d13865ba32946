//! Key compaction: what stays, what goes, and that nothing else changes.
#![allow(clippy::unwrap_used)]
mod keyed;
mod support;
use bascule_log::{Compaction, Log, LogOptions, ReadMode, Retention};
use bascule_record::{Batches, Header, Producer};
use keyed::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use support::*;

const HOUR: i64 = 3_600_000_000_000;

/// What compaction must leave of `records`: keyless ones, and of each key the latest; sealed ones only lose.
fn model(records: &[Written], sealed_to: u64) -> Vec<Written> {
    let mut latest = BTreeMap::new();
    for record in records.iter().filter(|record| !record.key.is_empty()) {
        latest.insert(record.key.clone(), record.offset);
    }
    let stays = |record: &&Written| {
        record.offset >= sealed_to
            || record.key.is_empty()
            || latest.get(&record.key) == Some(&record.offset)
    };
    records.iter().filter(stays).cloned().collect()
}

#[test]
fn of_each_key_only_the_latest_record_stays() {
    let home = Home::new();
    let mut log = home.create(small(200));
    let mut written = Vec::new();
    for round in 0..5_u8 {
        for key in [&b"a"[..], b"b", b""] {
            written.extend(put(&mut log, &[(key, Some(&[round; 40]))]));
        }
    }
    settle(&mut log);
    let report = compact(&mut log, &Compaction::default(), 0).unwrap();
    let kept = read_keyed(&log.reader(), 0);
    assert_eq!(kept, model(&written, sealed_to(&log)));
    assert_eq!(
        kept.len(),
        7,
        "five without a key, the last a and the last b"
    );
    assert_eq!(report.records, 8);
    assert!(report.bytes_after < report.bytes_before);
    assert_eq!(log.reader().log_end(), 15);
    check_chain(&home.path());
}

#[test]
fn the_record_before_an_offset_keeps_its_link_or_becomes_unknown() {
    let home = Home::new();
    let mut log = home.create(small(1500));
    for round in 0..6_u8 {
        put(&mut log, &[(b"a", Some(&[round; 40]))]);
        put(&mut log, &[(b"b", Some(&[round; 40])), (b"", Some(b"c"))]);
        put(&mut log, &[(b"d", Some(&[round; 40]))]);
        put(&mut log, &[(b"e", Some(&[round; 40]))]);
    }
    settle(&mut log);
    let reader = log.reader();
    let all = || -> Vec<_> {
        let end = reader.high_watermark();
        (0..=end + 1).map(|at| reader.before(at).unwrap()).collect()
    };
    let first = all();
    assert_eq!((first[0], first[first.len() - 1]), (None, None));
    assert!(first[1..first.len() - 1].iter().all(Option::is_some));
    compact(&mut log, &Compaction::default(), 0).unwrap();
    let second = all();
    for (before, after) in first.iter().zip(&second) {
        if let (Some(before), Some(after)) = (before, after) {
            assert_eq!(before.link, after.link);
            assert!(after.timestamp.is_none() || after.timestamp == before.timestamp);
        }
    }
    let count = |test: fn(&bascule_log::Predecessor) -> bool| {
        second.iter().flatten().filter(|p| test(p)).count()
    };
    assert!(count(|p| p.timestamp.is_some()) > 0, "records that stayed");
    assert!(
        count(|p| p.timestamp.is_none()) > 0,
        "records that went, of known batches"
    );
    assert!(
        second.iter().flatten().count() < first.iter().flatten().count(),
        "merged batches"
    );
}

#[test]
fn the_compaction_key_of_a_record_may_depend_on_its_value() {
    let home = Home::new();
    let mut log = home.create(small(100));
    let written = put_each(
        &mut log,
        &[
            (b"k", Some(b"a1")),
            (b"k", Some(b"b1")),
            (b"k", Some(b"")),
            (b"k", None),
            (b"other", Some(b"a2")),
            (b"x", Some(b"z")),
        ],
    );
    // The first letter of the value; without a value there is none.
    let key_fn = |_: &[u8], value: Option<&[u8]>| Some(value?.get(..1)?.to_vec());
    let compaction = Compaction {
        key_fn: Some(key_fn),
        ..Compaction::default()
    };
    compact(&mut log, &compaction, i64::MAX).unwrap();
    assert_eq!(read_keyed(&log.reader(), 0), written[1..]);
}

#[test]
fn an_empty_value_is_an_ordinary_record() {
    let home = Home::new();
    let mut log = home.create(small(100));
    let written = put_each(
        &mut log,
        &[
            (b"k", Some(b"full")),
            (b"k", Some(b"")),
            (b"x", Some(b"end")),
        ],
    );
    compact(&mut log, &Compaction::default(), i64::MAX).unwrap();
    assert_eq!(read_keyed(&log.reader(), 0), written[1..]);
}

#[test]
fn a_tombstone_stays_for_its_grace_and_then_goes() {
    let home = Home::new();
    let mut log = home.create(small(100));
    let written = put_each(
        &mut log,
        &[
            (b"k", Some(b"old")),
            (b"k", None),
            (b"x", Some(b"1")),
            (b"x", Some(b"2")),
        ],
    );
    let compaction = Compaction {
        tombstone_grace_ns: HOUR,
        ..Compaction::default()
    };
    compact(&mut log, &compaction, 1_001 + HOUR - 1).unwrap();
    assert_eq!(
        read_keyed(&log.reader(), 0),
        [written[1].clone(), written[3].clone()]
    );
    assert!(
        compact(&mut log, &compaction, 1_001 + HOUR - 1).is_none(),
        "nothing is new"
    );
    let report = compact(&mut log, &compaction, 1_001 + HOUR).unwrap();
    assert_eq!(report.records, 1);
    assert_eq!(read_keyed(&log.reader(), 0), [written[3].clone()]);
    assert!(
        compact(&mut log, &compaction, 2_000 + HOUR).is_none(),
        "no tombstone is left"
    );
}

#[test]
fn a_tombstone_does_not_go_while_an_older_segment_could_not_be_gone_through() {
    let home = Home::new();
    let mut log = home.create(small(100));
    put_each(
        &mut log,
        &[(b"k", Some(b"old")), (b"k", None), (b"x", Some(b"1"))],
    );
    log.close().unwrap();
    flip(&home.segments()[0], 64 + 128 + 3);
    let (mut log, _) = home.open(small(100));
    log.set_high_watermark(3);
    let report = compact(&mut log, &Compaction::default(), i64::MAX).unwrap();
    assert_eq!((report.skipped, report.segments), (1, 0));
    flip(&home.segments()[0], 64 + 128 + 3);
    assert_eq!(
        read_keyed(&log.reader(), 0).len(),
        3,
        "the old value does not come back alone"
    );
}

#[test]
fn with_memory_for_few_keys_several_passes_come_to_the_same() {
    let home = Home::new();
    let mut log = home.create(small(700));
    let mut written = Vec::new();
    for i in 0..300_u32 {
        let key = (i * 7 % 61).to_le_bytes();
        written.extend(put(&mut log, &[(&key, Some(&i.to_le_bytes()))]));
    }
    settle(&mut log);
    let compaction = Compaction {
        map_bytes: 0,
        ..Compaction::default()
    };
    let report = compact(&mut log, &compaction, 0).unwrap();
    assert!(report.passes > 10, "{} passes of 14 keys", report.passes);
    assert_eq!(
        read_keyed(&log.reader(), 0),
        model(&written, sealed_to(&log))
    );
    check_chain(&home.path());
}

#[test]
fn neighbours_without_records_become_one_batch() {
    let home = Home::new();
    let mut log = home.create(small(100 * 300));
    put_each(&mut log, &[(&b"k"[..], Some(&[1; 100][..])); 200]);
    let written = put(&mut log, &[(b"k", Some(&[2; 100]))]);
    settle(&mut log);
    compact(&mut log, &Compaction::default(), i64::MAX).unwrap();
    let first = &home.segments()[0];
    assert_eq!(std::fs::metadata(first).unwrap().len(), 64 + 128);
    let kept = read_keyed(&log.reader(), 0);
    assert_eq!(kept.last(), written.last());
    assert_eq!(kept[0].offset, sealed_to(&log));
    check_chain(&home.path());
}

#[test]
fn the_log_start_stays_and_segments_without_records_become_one() {
    let home = Home::new();
    let mut log = home.create(small(200));
    for round in 1..4_u64 {
        let value = [7; 100];
        let written = put_each(&mut log, &[(&b"k"[..], Some(&value[..])); 20]);
        assert!(home.segments().len() > 10);
        compact(&mut log, &Compaction::default(), i64::MAX).unwrap();
        assert_eq!(log.maintain(&Retention::default(), 0).unwrap(), 0);
        let vacant = vacant(&home.path());
        assert!(vacant[0] && !vacant[1..].contains(&true), "{vacant:?}");
        for from in 0..round * 20 {
            let found = read_keyed(&log.reader(), from);
            assert_eq!(found.last(), written.last(), "from {from}");
            assert!(found.len() <= 2, "those of the active segment are there");
        }
        check_chain(&home.path());
        drop(log);
        let (opened, recovery) = home.open(small(200));
        assert_eq!(recovery.damaged, vec![]);
        log = opened;
        log.set_high_watermark(log.reader().log_end());
        assert_eq!(log.reader().log_start(), 0);
    }
}

#[test]
fn segments_of_two_leader_epochs_or_of_a_producer_stay_apart() {
    let home = Home::new();
    let mut log = home.create(small(100));
    let producer = Producer {
        id: 9,
        epoch: 0,
        base_sequence: 0,
    };
    let append = |log: &mut Log, key: &[u8], epoch, producer| {
        let batch = keyed_batch(&[(key, Some(b"value"))], 1_000, producer);
        log.append(batch, epoch, 0).unwrap();
    };
    let none = None;
    for (epoch, producer) in [
        (1, none),
        (1, none),
        (2, none),
        (2, none),
        (2, Some(producer)),
    ] {
        append(&mut log, b"k", epoch, producer);
    }
    append(&mut log, b"k", 2, none);
    append(&mut log, b"x", 2, none);
    settle(&mut log);
    compact(&mut log, &Compaction::default(), 2_000).unwrap();
    check_chain(&home.path());
    let bases = |home: &Home| -> Vec<String> {
        let names = home.segments().into_iter();
        names
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .map(|name| name.trim_start_matches('0').to_owned())
            .collect()
    };
    assert_eq!(bases(&home), ["", "2", "4", "5", "6"]);
    // The window of retries is over.
    append(&mut log, b"x", 2, none);
    append(&mut log, b"y", 2, none);
    settle(&mut log);
    compact(&mut log, &Compaction::default(), i64::MAX).unwrap();
    check_chain(&home.path());
    assert_eq!(bases(&home)[..3], ["", "2", "5"]);
}

#[test]
fn a_batch_of_a_producer_keeps_its_place_for_the_window_of_retries() {
    let home = Home::new();
    let mut log = home.create(small(300));
    let producer = |sequence| Producer {
        id: 9,
        epoch: 0,
        base_sequence: sequence,
    };
    for i in 0..6_u32 {
        let records = [(&b"k"[..], Some(&[0_u8; 90][..])), (b"k", Some(&[1; 90]))];
        log.append(keyed_batch(&records, 1_000, Some(producer(2 * i))), 1, 0)
            .unwrap();
    }
    settle(&mut log);
    compact(&mut log, &Compaction::default(), 2_000).unwrap();
    log.close().unwrap();
    std::fs::remove_file(home.path().join("producers")).unwrap();
    for idx in files(&home.path(), "idx") {
        std::fs::remove_file(idx).unwrap();
    }
    let (log, _) = home.open(small(300));
    let found = log.find_duplicate(producer(4), 2, 0).unwrap().unwrap();
    assert_eq!((found.base_offset, found.next_offset), (4, 6));
    assert!(
        log.find_duplicate(producer(12), 2, 0).is_none(),
        "the next one"
    );
}

#[test]
fn offsets_by_time_step_over_holes() {
    let home = Home::new();
    let mut log = home.create(small(100));
    put_each(
        &mut log,
        &[
            (b"a", Some(b"0")),
            (b"k", Some(b"1")),
            (b"k", Some(b"2")),
            (b"k", Some(b"3")),
            (b"z", Some(b"4")),
        ],
    );
    compact(&mut log, &Compaction::default(), 0).unwrap();
    let reader = log.reader();
    assert_eq!(reader.offset_at_or_after(1_001).unwrap(), Some(3));
    assert_eq!(reader.offset_at_or_before(1_002).unwrap(), Some(0));
    assert_eq!(reader.offset_at_or_before(1_003).unwrap(), Some(3));
    assert_eq!(reader.offset_at_or_before(999).unwrap(), None);
    let mut cursor = reader.cursor(2);
    let bytes = cursor
        .next(u64::MAX, 1, ReadMode::Blocking)
        .unwrap()
        .unwrap();
    assert!(Header::read(&bytes).unwrap().next_offset() <= 4);
}

#[test]
fn a_reader_inside_a_replaced_segment_continues() {
    let home = Home::new();
    let mut log = home.create(small(2_000));
    let written = put_each(
        &mut log,
        &(0..60_u8)
            .map(|i| (&b"k"[..], Some([[i; 30]].concat().leak() as &[u8])))
            .collect::<Vec<_>>(),
    );
    let mut cursor = log.reader().cursor(0);
    let mut seen = Vec::new();
    seen.extend(next_keyed(&mut cursor, 300));
    compact(&mut log, &Compaction::default(), i64::MAX).unwrap();
    while cursor.offset() < 60 {
        seen.extend(next_keyed(&mut cursor, 300));
    }
    let last = seen.last().unwrap();
    assert_eq!(Some(last), written.last());
    assert!(seen.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    assert_eq!(seen[0].offset, 0, "what was read before");
}

#[test]
fn what_is_not_committed_and_durable_removes_nothing() {
    let home = Home::new();
    let mut log = home.create(memory(100));
    put(&mut log, &[(b"k", Some(b"1"))]);
    put(&mut log, &[(b"k", Some(b"2"))]);
    put(&mut log, &[(b"k", Some(b"3"))]);
    log.set_high_watermark(2);
    wait_until(|| log.reader().durable_end() >= 2);
    let report = compact(&mut log, &Compaction::default(), 0).unwrap();
    assert_eq!(
        report.records, 1,
        "the first, by the second; the third is not committed"
    );
}

#[test]
fn closing_ends_a_run_and_keeps_everything() {
    let home = Home::new();
    let mut log = home.create(small(100 << 10));
    let written = put_each(&mut log, &vec![(&b"k"[..], Some(&[7; 1000][..])); 2_000]);
    let slow = Compaction {
        bytes_per_second: 100_000,
        ..Compaction::default()
    };
    let (done, report) = std::sync::mpsc::channel();
    let asked = log.compact(
        &slow,
        0,
        Box::new(move |outcome| done.send(outcome).unwrap()),
    );
    assert!(asked.unwrap());
    assert!(
        !log.compact(&slow, 0, Box::new(|_| {})).unwrap(),
        "one run at a time"
    );
    let began = std::time::Instant::now();
    log.close().unwrap();
    assert!(began.elapsed().as_secs() < 5);
    assert!(report.recv().unwrap().unwrap().cancelled);
    let (log, recovery) = home.open(small(100 << 10));
    log.set_high_watermark(2_000);
    assert!(recovery.clean && recovery.damaged.is_empty());
    assert_eq!(read_keyed(&log.reader(), 0).last(), written.last());
    assert_eq!(files(&home.path(), "tmp"), Vec::<std::path::PathBuf>::new());
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(u8, Option<u8>)>),
    Compact { map_bytes: usize },
    Reopen { clean: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..6_u8, proptest::option::weighted(0.8, any::<u8>()));
    prop_oneof![
        12 => proptest::collection::vec(record, 1..12).prop_map(Step::Batch),
        3 => (0..2_usize).prop_map(|big| Step::Compact { map_bytes: big << 20 }),
        1 => any::<bool>().prop_map(|clean| Step::Reopen { clean }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Random batches, cuts between segments, compactions and reopenings, against the records that were written.
    #[test]
    fn compaction_leaves_what_the_model_says(steps in proptest::collection::vec(step(), 1..40), segment in 200..3_000_u64) {
        let mut home = Home::new();
        let options = || LogOptions { ..small(segment) };
        let mut log = home.create(options());
        let mut written: Vec<Written> = Vec::new();
        // Tombstones never go here: another test has them.
        let patient = Compaction { tombstone_grace_ns: i64::MAX, ..Compaction::default() };
        for step in steps {
            match step {
                Step::Batch(records) => {
                    let owned: Vec<(Vec<u8>, Option<Vec<u8>>)> = records.iter()
                        .map(|(key, value)| (if *key == 0 { vec![] } else { vec![*key; 3] }, value.map(|value| vec![value; 9])))
                        .collect();
                    let records: Vec<(&[u8], Option<&[u8]>)> = owned.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
                    written.extend(put(&mut log, &records));
                    settle(&mut log);
                }
                Step::Compact { map_bytes } => {
                    let compaction = Compaction { map_bytes, ..patient };
                    if compact(&mut log, &compaction, 0).is_some() {
                        let expected = model(&written, sealed_to(&log));
                        prop_assert_eq!(read_keyed(&log.reader(), 0), expected.clone());
                        let vacant = vacant(&home.path());
                        prop_assert!(!vacant.windows(2).any(|pair| pair == [true, true]), "{:?}", vacant);
                        written = expected;
                    }
                }
                Step::Reopen { clean } => {
                    if clean {
                        log.close().unwrap();
                    } else {
                        // As a crash would leave it: this life has no say in the next one's directory.
                        let next = Home::new();
                        copy(&home.path(), &next.path());
                        drop(log);
                        home = next;
                    }
                    let (opened, recovery) = home.open(options());
                    prop_assert_eq!(recovery.damaged, vec![]);
                    log = opened;
                    log.set_high_watermark(log.reader().log_end());
                }
            }
            prop_assert_eq!(log.maintain(&Retention::default(), 0).unwrap(), 0, "the log start stays");
            prop_assert_eq!(read_keyed(&log.reader(), 0), written.clone());
        }
        log.close().unwrap();
        check_chain(&home.path());
        // Once more with nothing new: no byte changes.
        let before = contents(&home.path());
        let (mut log, _) = home.open(options());
        log.set_high_watermark(log.reader().log_end());
        compact(&mut log, &patient, 0);
        drop(log);
        let (mut log, _) = home.open(options());
        log.set_high_watermark(log.reader().log_end());
        let again = contents(&home.path());
        compact(&mut log, &patient, 0);
        prop_assert_eq!(&contents(&home.path()), &again, "twice is once");
        prop_assert!(again.len() <= before.len());
    }
}

#[test]
fn split_batches_are_whole() {
    let home = Home::new();
    let mut log = home.create(small(100));
    let written = put(
        &mut log,
        &[
            (b"a", Some(b"1")),
            (b"b", None),
            (b"", Some(b"3")),
            (b"a", Some(b"4")),
        ],
    );
    put_each(&mut log, &[(b"", Some(b"more")), (b"", Some(b"end"))]);
    compact(&mut log, &Compaction::default(), 0).unwrap();
    let bytes = std::fs::read(&home.segments()[0]).unwrap();
    let header = Header::read(&bytes[64..]).unwrap();
    assert_eq!((header.base_offset, header.span, header.count), (0, 4, 3));
    assert_eq!(read_keyed(&log.reader(), 0)[..3], written[1..]);
    let all = bytes::Bytes::from(bytes).slice(64..);
    assert!(Batches::new(all).all(|batch| batch.is_ok()));
}
