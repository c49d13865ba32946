//! Recovery of a crashed log after damage to its files, by a crash or a bad disk.
#![allow(clippy::unwrap_used)]
mod reread;
mod support;
use proptest::prelude::*;
use reread::{overwrite, read_all, read_around};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::*;

/// Where one batch (of one record) lies.
#[derive(Clone, Debug)]
struct Placed {
    segment: usize,
    from: u64,
    to: u64,
    value: Vec<u8>,
}

/// A crashed log of which the first [`DURABLE`] batches are below the checkpoint's durable point.
struct Crashed {
    home: Home,
    placed: Vec<Placed>,
    /// As it was when the first batches were durable; rolls have moved it on since.
    checkpoint: Vec<u8>,
    segment_bytes: u64,
}

const DURABLE: usize = 40;
const SMALL_SEGMENTS: u64 = 20_000;
static ONE_SEGMENT: LazyLock<Crashed> = LazyLock::new(|| crash(1 << 20));
static MANY_SEGMENTS: LazyLock<Crashed> = LazyLock::new(|| crash(SMALL_SEGMENTS));

/// About 90 KiB of batches of 150 to 2,000 bytes; the first 40 % durable by a clean close, the rest only synced.
fn crash(segment_bytes: u64) -> Crashed {
    let home = Home::new();
    let mut log = home.create(small(segment_bytes));
    let mut placed: Vec<Placed> = Vec::new();
    let mut checkpoint = Vec::new();
    for i in 0..100_usize {
        if i == DURABLE {
            settle(&mut log);
            log.close().unwrap();
            log = home.open(small(segment_bytes)).0;
            checkpoint = fs::read(home.path().join("checkpoint")).unwrap();
        }
        let value = vec![i as u8; (i * 7919) % 1850];
        let sealed = batch(&value, 1000 + i as i64);
        let bytes = sealed.batch_bytes() as u64;
        log.append(sealed, 1 + i as u64 / 30, 0).unwrap();
        let segment = log.reader().segment_count() - 1;
        let from = placed
            .last()
            .filter(|last| last.segment == segment)
            .map_or(64, |last| last.to);
        placed.push(Placed {
            segment,
            from,
            to: from + bytes,
            value,
        });
    }
    settle(&mut log);
    // A background worker writes the index of each sealed segment.
    let sealed = home.segments().len() - 1;
    let limit = Instant::now() + Duration::from_secs(30);
    while files(&home.path(), "idx").len() < sealed {
        assert!(
            Instant::now() < limit,
            "{} of {sealed} index files",
            files(&home.path(), "idx").len()
        );
        sleep(Duration::from_millis(1));
    }
    drop(log);
    Crashed {
        home,
        placed,
        checkpoint,
        segment_bytes,
    }
}

impl Crashed {
    fn copy(&self) -> Home {
        let home = Home::new();
        copy(&self.home.path(), &home.path());
        fs::write(home.path().join("checkpoint"), &self.checkpoint).unwrap();
        home
    }

    /// The segment and position that lie `back` bytes of batches before the end.
    fn back_from_end(&self, back: u64) -> (usize, u64) {
        let mut back = back;
        for batch in self.placed.iter().rev() {
            let bytes = batch.to - batch.from;
            if back <= bytes {
                return (batch.segment, batch.to - back);
            }
            back -= bytes;
        }
        (0, 64)
    }

    /// How many batches lie wholly before a place.
    fn before(&self, segment: usize, position: u64) -> usize {
        let lies_before = |batch: &&Placed| (batch.segment, batch.to) <= (segment, position);
        self.placed.iter().take_while(lies_before).count()
    }

    fn values(&self) -> Vec<Vec<u8>> {
        self.placed
            .iter()
            .map(|batch| batch.value.clone())
            .collect()
    }
}

/// Opens three times: recovers, finds nothing more to do, and after new appends knows the prefix and those only.
fn expect_prefix(home: &Home, crashed: &Crashed, expected: usize) {
    let options = small(crashed.segment_bytes);
    let mut wanted = crashed.values();
    wanted.truncate(expected);
    let (log, first) = home.open(options.clone());
    assert_eq!(read_all(&log).len(), expected, "{first:?}");
    assert_eq!(read_all(&log), wanted);
    assert_eq!(first.damaged, []);
    let epochs = log.epochs().to_vec();
    drop(log);
    let (mut log, second) = home.open(options.clone());
    assert_eq!(
        (second.cut_bytes, read_all(&log), log.epochs()),
        (0, wanted.clone(), epochs.as_slice())
    );
    for i in 0..3_u8 {
        let value = vec![200 + i; 5];
        log.append(batch(&value, 5000), 9, 0).unwrap();
        wanted.push(value);
    }
    settle(&mut log);
    drop(log);
    let (log, third) = home.open(options);
    assert_eq!((third.cut_bytes, read_all(&log)), (0, wanted));
}

/// Bytes to write over others; noise is a fixed sequence that differs from byte to byte.
fn pattern(kind: u8, len: usize) -> Vec<u8> {
    match kind {
        0 => vec![0; len],
        1 => vec![0xff; len],
        _ => (0..len)
            .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ 0x5a)
            .collect(),
    }
}

/// The first position in the range where the file differs from what the pattern writes.
fn first_change(path: &Path, position: u64, bytes: &[u8]) -> Option<u64> {
    let old = fs::read(path).unwrap();
    let old = &old[position as usize..];
    let changed = |i: &usize| old.get(*i).copied().unwrap_or(0) != bytes[*i];
    (0..bytes.len()).find(changed).map(|i| position + i as u64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_truncated_tail_leaves_the_exact_prefix(back in 0..40_000_u64, many in any::<bool>()) {
        let crashed = if many { &*MANY_SEGMENTS } else { &*ONE_SEGMENT };
        let home = crashed.copy();
        let (segment, position) = crashed.back_from_end(back);
        let paths = home.segments();
        OpenOptions::new().write(true).open(&paths[segment]).unwrap().set_len(position).unwrap();
        // The later segments stay: a crash may lose the end of one file and keep the next.
        expect_prefix(&home, crashed, crashed.before(segment, position));
    }

    #[test]
    fn an_overwritten_tail_leaves_the_exact_prefix(
        back in 1..40_000_u64, len in 1..6_000_usize, kind in 0..3_u8, many in any::<bool>(),
    ) {
        let crashed = if many { &*MANY_SEGMENTS } else { &*ONE_SEGMENT };
        let home = crashed.copy();
        let (segment, position) = crashed.back_from_end(back);
        let path = &home.segments()[segment];
        let end = crashed.placed.iter().filter(|batch| batch.segment == segment).map(|batch| batch.to).max().unwrap();
        let bytes = pattern(kind, len.min((end - position) as usize));
        let expected = first_change(path, position, &bytes)
            .map_or(crashed.placed.len(), |changed| crashed.before(segment, changed));
        overwrite(path, position, &bytes);
        expect_prefix(&home, crashed, expected);
    }

    #[test]
    fn garbage_behind_the_end_is_cut(distance in 0..9_000_u64, len in 1..3_000_usize, kind in 1..3_u8) {
        let crashed = &*ONE_SEGMENT;
        let home = crashed.copy();
        let end = crashed.placed.last().unwrap().to;
        overwrite(&home.segments()[0], end + distance, &pattern(kind, len));
        expect_prefix(&home, crashed, crashed.placed.len());
    }

    #[test]
    fn damage_below_the_durable_point_is_refused_exactly(
        at in 0..40_usize, inside in 0..1_000_000_u64, many in any::<bool>(), header in any::<bool>(),
    ) {
        let crashed = if many { &*MANY_SEGMENTS } else { &*ONE_SEGMENT };
        let home = crashed.copy();
        let hurt = &crashed.placed[at];
        let span = if header { 128 } else { hurt.to - hurt.from };
        let position = hurt.from + inside % span;
        let path = &home.segments()[hurt.segment];
        let old = fs::read(path).unwrap()[position as usize];
        overwrite(path, position, &[old ^ 0x10]);
        let (log, _) = home.open(small(crashed.segment_bytes));
        log.set_high_watermark(u64::MAX);
        let (records, refused) = read_around(&log.reader());
        let wanted: Vec<_> = (0_u64..).zip(crashed.values()).filter(|(offset, _)| *offset != at as u64).collect();
        prop_assert_eq!(records, wanted);
        if header {
            prop_assert_eq!(refused, vec![(at as u64, at as u64 + 1)]);
        }
    }
}

#[test]
fn every_byte_of_the_last_batch_may_be_missing() {
    let crashed = &*ONE_SEGMENT;
    let last = crashed.placed.last().unwrap();
    let home = crashed.copy();
    let path = home.segments().remove(0);
    let whole = fs::read(&path).unwrap();
    for position in (last.from..last.to).rev().step_by(13) {
        fs::write(&path, &whole[..position as usize]).unwrap();
        let (log, _) = home.open(small(crashed.segment_bytes));
        assert_eq!(
            log.reader().log_end() as usize,
            crashed.placed.len() - 1,
            "cut at {position}"
        );
    }
}

#[test]
fn a_lost_durable_tail_is_damage_and_its_offsets_are_not_used_again() {
    let crashed = &*ONE_SEGMENT;
    let home = crashed.copy();
    let position = crashed.placed[30].from;
    OpenOptions::new()
        .write(true)
        .open(&home.segments()[0])
        .unwrap()
        .set_len(position)
        .unwrap();
    let (mut log, recovery) = home.open(small(1 << 20));
    assert_eq!(recovery.damaged, [(30, 40)]);
    assert_eq!(log.reader().log_end(), 40);
    for run in 0..2_u64 {
        log.append(batch(b"new", 9000), 9, 0).unwrap();
        settle(&mut log);
        let (records, refused) = read_around(&log.reader());
        let offsets: Vec<u64> = records.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..30).chain(40..=40 + run).collect::<Vec<u64>>());
        assert_eq!(refused, [(30, 40)]);
        drop(log);
        log = home.open(small(1 << 20)).0;
    }
}

#[test]
fn derived_files_are_never_needed() {
    let crashed = &*MANY_SEGMENTS;
    let damage: [&dyn Fn(&Path); 3] = [
        &|path| fs::remove_file(path).unwrap(),
        &|path| fs::write(path, b"").unwrap(),
        &|path| {
            let len = fs::metadata(path).unwrap().len() as usize;
            fs::write(path, pattern(2, len + 10)).unwrap();
        },
    ];
    for damage in damage {
        let home = crashed.copy();
        let mut derived: Vec<PathBuf> = files(&home.path(), "idx");
        assert!(derived.len() >= 3);
        derived.extend(["epochs", "producers", "checkpoint"].map(|name| home.path().join(name)));
        for path in derived {
            damage(&path);
        }
        let (log, recovery) = home.open(small(crashed.segment_bytes));
        assert_eq!(recovery.damaged, []);
        assert_eq!(log.reader().high_watermark(), 0, "unreadable = log start");
        assert_eq!(read_all(&log), crashed.values());
        assert_eq!(log.epochs(), [(1, 0), (2, 30), (3, 60), (4, 90)]);
        assert_eq!(log.reader().offset_at_or_after(1050).unwrap(), Some(50));
    }
}

#[test]
fn a_half_made_roll_is_taken_back() {
    let crashed = &*MANY_SEGMENTS;
    for content in [&b""[..], &[0; 300], b"not a preamble"] {
        let home = crashed.copy();
        let next = format!("{:020}.seg", crashed.placed.len());
        fs::write(home.path().join(next), content).unwrap();
        fs::write(home.path().join("producers.tmp"), b"half").unwrap();
        expect_prefix(&home, crashed, crashed.placed.len());
        assert!(files(&home.path(), "tmp").is_empty());
    }
}
