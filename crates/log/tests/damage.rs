//! Damage below the durable point: found before bytes are served, refused exactly, remembered, passed.
#![allow(clippy::unwrap_used)]
mod harmed;
mod support;
use bascule_log::integrity::Fault;

use bascule_log::{
    FileWrapper, GroupCommitter, Log, LogOptions, OpenMode, OsStorage, Storage, StorageFile,
    StorageWrapper,
};
use bascule_record::{Header, Stamp};
use harmed::*;
use proptest::prelude::*;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use support::*;

fn open(home: &Home, segment_bytes: u64) -> Log {
    let (log, _) = home.open(small(segment_bytes));
    log.set_high_watermark(u64::MAX);
    log
}

/// First offsets of the segments.
fn bases_of(home: &Home) -> Vec<u64> {
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    home.segments().iter().map(stem).collect()
}

const SEGMENT: u64 = 4000;

#[test]
fn a_flipped_bit_costs_its_batch_and_is_remembered() {
    for into_header in [0, 30, 90, 110, 126, 200] {
        let home = closed(100, SEGMENT);
        let second = home.segments()[1].clone();
        let base = bases_of(&home)[1];
        let position = positions(&second)[2];
        flip(&second, position + into_header);
        let log = open(&home, SEGMENT);
        let reported = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&reported);
        log.reader()
            .on_damage(move |damage| theirs.lock().unwrap().push(damage.clone()));
        for _ in 0..3 {
            expect_exactly(&log, 100, &[(base + 2, base + 3)]);
        }
        // After the damage, also right there.
        let (records, refused) = read_around(&log.reader(), base + 3);
        assert_eq!((records[0].0, refused), (base + 3, vec![]));
        let reported = reported.lock().unwrap().clone();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert_eq!(
            (&reported[0].path, reported[0].position),
            (&second, position)
        );
        assert_eq!(
            reported[0].position,
            positions(&second)[2]
                .max(positions(&second)[0])
                .max(reported[0].position)
        );
        let expected = if into_header < 128 {
            Fault::Header
        } else {
            Fault::Payload
        };
        assert_eq!(reported[0].fault, expected);
        assert_eq!(log.reader().quarantine(), reported);
        log.close().unwrap();
        // The sealed segment's index is believed, so that only the file can tell.
        let log = open(&home, SEGMENT);
        assert_eq!(log.reader().quarantine(), reported);
    }
}

#[test]
fn a_missing_segment_costs_its_offsets_wherever_it_was() {
    let count = closed(100, SEGMENT).segments().len();
    for missing in [0, 1, count - 1] {
        let home = closed(100, SEGMENT);
        let bases = bases_of(&home);
        fs::remove_file(&home.segments()[missing]).unwrap();
        let log = open(&home, SEGMENT);
        let end = bases.get(missing + 1).copied().unwrap_or(100);
        expect_exactly(&log, 100, &[(bases[missing], end)]);
        let known = log.reader().quarantine();
        assert_eq!(known[0].fault, Fault::Missing);
        assert_eq!(log.reader().log_end(), 100);
    }
}

#[test]
fn a_file_that_vanishes_under_a_reader_costs_its_offsets() {
    let home = closed(100, SEGMENT);
    let log = open(&home, SEGMENT);
    let bases = bases_of(&home);
    fs::remove_file(&home.segments()[2]).unwrap();
    expect_exactly(&log, 100, &[(bases[2], bases[3])]);
}

#[test]
fn swapped_and_stale_segments_are_noticed() {
    let home = closed(100, SEGMENT);
    let segments = home.segments();
    let bases = bases_of(&home);
    let aside = home.root.path().join("aside");
    fs::rename(&segments[1], &aside).unwrap();
    fs::rename(&segments[3], &segments[1]).unwrap();
    fs::rename(&aside, &segments[3]).unwrap();
    let log = open(&home, SEGMENT);
    expect_exactly(&log, 100, &[(bases[1], bases[2]), (bases[3], bases[4])]);
    drop(log);
    // An older copy of the active segment: shorter than what was durable.
    let home = closed(100, SEGMENT);
    let last = home.segments().pop().unwrap();
    let at = positions(&last);
    OpenOptions::new()
        .write(true)
        .open(&last)
        .unwrap()
        .set_len(at[1])
        .unwrap();
    let base = *bases_of(&home).last().unwrap();
    let log = open(&home, SEGMENT);
    expect_exactly(&log, 100, &[(base + 1, 100)]);
}

#[test]
fn a_foreign_segment_costs_its_offsets_and_not_the_log() {
    let (home, other) = (closed(100, SEGMENT), Home::new());
    let stranger = bascule_log::LogId {
        incarnation: 99,
        ..IDENTITY
    };
    let mut log = Log::create(&other.path(), stranger, small(SEGMENT), &other.committer).unwrap();
    for i in 0..100 {
        log.append(batch(&value(i), 1_000 + i as i64), 1, 0)
            .unwrap();
    }
    settle(&mut log);
    log.close().unwrap();
    let second = &home.segments()[1];
    fs::copy(&other.segments()[1], second).unwrap();
    let log = open(&home, SEGMENT);
    let (records, refused) = read_around(&log.reader(), 0);
    assert_eq!(refused.len(), 1);
    assert_eq!(
        records.len() as u64,
        100 - (refused[0].end - refused[0].start)
    );
}

/// Reads of these ranges fail as a bad disk's do.
#[derive(Debug, Default)]
struct BadDisk {
    bad: Mutex<Vec<(PathBuf, u64, u64)>>,
}

#[derive(Debug)]
struct BadFile {
    disk: Arc<BadDisk>,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
}

#[derive(Debug)]
struct BadStorage(Arc<BadDisk>);

impl StorageWrapper for BadStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(BadFile {
            disk: Arc::clone(&self.0),
            path: path.to_path_buf(),
            file: OsStorage.open(path, mode)?,
        }))
    }
}

impl FileWrapper for BadFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.file
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let end = position + buffer.len() as u64;
        for (path, from, to) in &*self.disk.bad.lock().unwrap() {
            if *path == self.path && *from < end && position < *to {
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        self.file.read_at(buffer, position)
    }
}

#[test]
fn bytes_that_the_disk_does_not_give_cost_their_batches_only() {
    let home = closed(100, 1 << 20);
    let path = home.segments()[0].clone();
    let at = positions(&path);
    let (from, to) = (4096 * 3, 4096 * 4);
    let first = at.iter().position(|position| *position > from).unwrap() as u64 - 1;
    let end = at.iter().position(|position| *position >= to).unwrap() as u64;
    let disk = Arc::new(BadDisk::default());
    let committer = GroupCommitter::start_on(Arc::new(BadStorage(Arc::clone(&disk))));
    let (log, _) = Log::open(&home.path(), IDENTITY, small(1 << 20), &committer).unwrap();
    log.set_high_watermark(u64::MAX);
    disk.bad.lock().unwrap().push((path.clone(), from, to));
    let (records, refused) = read_around(&log.reader(), 0);
    let covered: Vec<u64> = refused
        .iter()
        .flat_map(|damage| damage.start..damage.end)
        .collect();
    assert_eq!(covered, (first..end).collect::<Vec<_>>());
    assert!(
        refused
            .iter()
            .all(|damage| damage.fault == Fault::Unreadable),
        "{refused:?}"
    );
    assert_eq!(records.len() as u64, 100 - (end - first));
    // A log that cannot read what may have been acked does not open: it would cut it.
    drop(log);
    fs::remove_file(home.path().join("checkpoint")).unwrap();
    let refusal = Log::open(&home.path(), IDENTITY, small(1 << 20), &committer).unwrap_err();
    assert!(
        matches!(refusal, bascule_log::Error::Io { .. }),
        "{refusal}"
    );
    disk.bad.lock().unwrap().clear();
    let (log, recovery) = Log::open(&home.path(), IDENTITY, small(1 << 20), &committer).unwrap();
    assert_eq!((log.reader().log_end(), recovery.cut_bytes), (100, 0));
}

#[test]
fn bytes_that_the_disk_does_not_give_keep_no_log_from_opening_after_a_crash() {
    let home = closed(100, WIDE);
    let (mut log, _) = home.open(small(WIDE));
    append(&mut log, 100..103);
    settle(&mut log);
    let home = crashed(&home);
    let path = home.segments()[0].clone();
    let at = positions(&path);
    let first = at.iter().position(|at| *at > 4096).unwrap() as u64;
    let end = at.iter().position(|at| *at >= 8192).unwrap() as u64;
    let disk = Arc::new(BadDisk::default());
    let committer = GroupCommitter::start_on(Arc::new(BadStorage(Arc::clone(&disk))));
    disk.bad.lock().unwrap().push((path, 4096, 8192));
    let (log, recovery) = Log::open(&home.path(), IDENTITY, small(WIDE), &committer).unwrap();
    assert_eq!(
        (recovery.damaged, recovery.cut_bytes),
        (vec![(first, end)], 0)
    );
    expect_exactly(&log, 103, &[(first - 1, first), (first, end)]);
}

/// A value that holds images of batches of this very log, at the offsets that come next, chained to each other.
fn image(next_offset: u64, count: u64, chain: u32) -> Vec<u8> {
    let mut bytes = b"some text before ".to_vec();
    let mut chain = chain;
    for i in 0..count {
        let stamped = batch(format!("forged {i}").as_bytes(), 2_000).stamp(&Stamp {
            incarnation: IDENTITY.incarnation,
            partition: IDENTITY.partition,
            leader_epoch: 1,
            base_offset: next_offset + i,
            chain,
            not_before: 0,
        });
        chain = Header::read(&stamped).unwrap().link();
        bytes.extend_from_slice(&stamped);
    }
    bytes
}

/// A log whose record 7 holds an image, with `after` records after it.
fn forged(images: u64, after: u64, clean: bool) -> (Home, Vec<Vec<u8>>) {
    let home = Home::new();
    let mut log = home.create(LogOptions {
        segment_bytes: 1 << 20,
        ..small(1 << 20)
    });
    let mut values: Vec<Vec<u8>> = (0..7).map(value).collect();
    values.push(image(8, images, 12345));
    values.extend((8..8 + after).map(value));
    for (i, value) in values.iter().enumerate() {
        log.append(batch(value, 1_000 + i as i64), 1, 0).unwrap();
    }
    settle(&mut log);
    let checkpoint = home.path().join("checkpoint");
    if clean {
        log.close().unwrap();
    } else {
        // Durable below the checkpoint's point, but not closed: no index, zeros after the end.
        let crashed = Home::new();
        copy(&home.path(), &crashed.path());
        log.close().unwrap();
        fs::copy(&checkpoint, crashed.path().join("checkpoint")).unwrap();
        return (crashed, values);
    }
    (home, values)
}

#[test]
fn an_image_in_a_damaged_batch_is_never_served_though_the_next_one_is_gone() {
    for (after, clean, images) in [(1, false, 1), (1, true, 3), (3, false, 3), (3, true, 1)] {
        let (home, values) = forged(images, after, clean);
        let path = &home.segments()[0];
        let at = positions(path);
        flip(path, at[7] + 140);
        zero(path, at[8]..at[9]);
        let _ = fs::remove_file(path.with_extension("idx"));
        let (log, _) = home.open(small(WIDE));
        log.set_high_watermark(u64::MAX);
        let (records, refused) = read_around(&log.reader(), 0);
        let intact = |(offset, value): &(u64, Vec<u8>)| *value == values[*offset as usize];
        assert!(records.iter().all(intact));
        assert_eq!(ranges(&refused), [(7, 8), (8, 9)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60,
        failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn an_image_of_batches_in_a_record_is_never_served(
        images in 1..5_u64,
        after in 1..6_u64,
        clean in any::<bool>(),
        from in 0..128_u64,
        len in 1..200_usize,
        noise in any::<u8>(),
    ) {
        let (home, values) = forged(images, after, clean);
        let path = home.segments()[0].clone();
        let (at, end) = (positions(&path)[7], positions(&path)[8]);
        // Anything from one byte of the header to all of it and the text before the image, or the image too.
        let mut bytes = vec![0; len.min((end - at - from) as usize)];
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.read_exact_at(&mut bytes, at + from).unwrap();
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte ^= noise.wrapping_add(i as u8) | 1;
        }
        file.write_all_at(&bytes, at + from).unwrap();
        let (log, _) = home.open(small(1 << 20));
        log.set_high_watermark(u64::MAX);
        let (records, refused) = read_around(&log.reader(), 0);
        for (offset, value) in &records {
            prop_assert_eq!(value, &values[*offset as usize]);
        }
        prop_assert_eq!(ranges(&refused), vec![(7, 8)]);
        prop_assert_eq!(records.len(), values.len() - 1);
    }
}
