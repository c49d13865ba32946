//! What a follower needs of a log: batches of another log appended as they are, and links to compare histories.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod support;
use bascule_log::{Error, GroupCommitter, Log, LogOptions, ReadError, ReadMode};
use bascule_record::{Batches, Header, Producer};
use bytes::Bytes;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use support::*;

/// A leader's log and a follower's, of the same partition, in directories of their own.
struct Pair {
    home: Home,
    leader: Log,
    follower: Log,
}

impl Pair {
    fn new(options: &LogOptions) -> Self {
        let home = Home::new();
        let leader = home.create(options.clone());
        let follower = create(&home.root.path().join("follower"), options, &home.committer);
        Self {
            home,
            leader,
            follower,
        }
    }

    fn append(&mut self, values: &[&[u8]], epoch: u64, producer: Option<Producer>) {
        let time = 1_000 + self.leader.reader().log_end() as i64;
        let batch = batch_of(values, time, producer);
        self.leader.append(batch, epoch, time).unwrap();
    }

    /// What the leader stores from the follower's end on, in answers of at most `max_bytes`.
    fn fetch(&mut self, max_bytes: usize) {
        let mut cursor = self.leader.replica_cursor(self.follower.reader().log_end());
        while let Some(bytes) = cursor
            .next(u64::MAX, max_bytes, ReadMode::Blocking)
            .unwrap()
        {
            let appended = self.follower.append_verbatim(bytes, 0).unwrap();
            assert_eq!(appended.next_offset, self.follower.reader().log_end());
        }
        assert_eq!(
            self.leader.reader().log_end(),
            self.follower.reader().log_end()
        );
    }

    /// All batches of the leader, each by itself.
    fn stored(&self) -> Vec<Bytes> {
        let bytes = self
            .leader
            .replica_cursor(0)
            .next(u64::MAX, usize::MAX, ReadMode::Blocking);
        Batches::new(bytes.unwrap().unwrap())
            .collect::<Result<_, _>>()
            .unwrap()
    }
}

fn create(directory: &Path, options: &LogOptions, committer: &Arc<GroupCommitter>) -> Log {
    Log::create(directory, IDENTITY, options.clone(), committer).unwrap()
}

fn joined(batches: &[Bytes]) -> Bytes {
    Bytes::from(batches.concat())
}

/// Segments by name with their batches: without the preamble, which has the time of creation, and the zeros at the end.
fn content(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |path: &std::path::PathBuf| {
        let mut bytes = fs::read(path).unwrap();
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |i| i + 1);
        bytes.truncate(used);
        bytes.drain(..64);
        (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            bytes,
        )
    };
    files(directory, "seg").iter().map(read).collect()
}

/// A batch of the leader: bytes of its values, whether a new leader epoch begins, and whether a producer numbers it.
type Step = (Vec<u16>, bool, bool);

fn step() -> impl Strategy<Value = Step> {
    (
        proptest::collection::vec(0..600_u16, 1..5),
        proptest::bool::weighted(0.15),
        any::<bool>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_logs_fed_with_the_same_batches_are_identical(
        steps in proptest::collection::vec(step(), 1..40),
        segment in 300..6_000_u64,
        max_bytes in 1..4_000_usize,
        fetches in 1..8_usize,
    ) {
        let mut pair = Pair::new(&small(segment));
        let (mut epoch, mut sequence) = (3, 0);
        for (i, (sizes, is_new, is_numbered)) in steps.iter().enumerate() {
            epoch += u64::from(*is_new);
            let values: Vec<Vec<u8>> = sizes.iter().map(|size| vec![i as u8; usize::from(*size)]).collect();
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let producer = is_numbered.then_some(Producer { id: 9, epoch: 0, base_sequence: sequence });
            sequence += if *is_numbered { values.len() as u32 } else { 0 };
            pair.append(&values, epoch, producer);
            if i % fetches == 0 {
                pair.fetch(max_bytes);
            }
        }
        pair.fetch(max_bytes);
        let end = pair.leader.reader().log_end();
        for offset in 0..=end + 1 {
            prop_assert_eq!(pair.leader.link_at(offset).unwrap(), pair.follower.link_at(offset).unwrap());
        }
        for asked in 0..epoch + 2 {
            prop_assert_eq!(pair.leader.epoch_end(asked), pair.follower.epoch_end(asked));
        }
        let next = Producer { id: 9, epoch: 0, base_sequence: sequence };
        prop_assert!(sequence == 0 || pair.follower.find_duplicate(next, 1, 0).is_none());
        settle(&mut pair.leader);
        settle(&mut pair.follower);
        let directory = pair.home.root.path().join("follower");
        prop_assert_eq!(content(&pair.home.path()), content(&directory));
        prop_assert_eq!(read_from(&pair.leader.reader(), 0).unwrap(), read_from(&pair.follower.reader(), 0).unwrap());
        // And after a crash.
        drop((pair.leader, pair.follower));
        let (leader, _) = pair.home.open(small(segment));
        let (follower, _) = Log::open(&directory, IDENTITY, small(segment), &pair.home.committer).unwrap();
        prop_assert_eq!((leader.reader().log_end(), leader.epochs()), (end, follower.epochs()));
        prop_assert_eq!(follower.link_at(end).unwrap(), leader.link_at(end).unwrap());
    }
}

#[test]
fn batches_that_do_not_follow_are_refused_and_nothing_is_appended() {
    let mut pair = Pair::new(&LogOptions::default());
    for i in 0..4_u8 {
        pair.append(&[&[i; 40]], 2 + u64::from(i / 2), None);
    }
    let batches = pair.stored();
    let follower = &mut pair.follower;
    let mut refused = |bytes: Bytes| {
        let error = follower.append_verbatim(bytes, 0).unwrap_err();
        let reader = follower.reader();
        assert_eq!((reader.log_end(), reader.bytes()), (0, 0), "{error}");
        error
    };
    assert!(matches!(refused(Bytes::new()), Error::Batch { .. }));
    assert!(matches!(
        refused(batches[1].clone()),
        Error::NotNext {
            expected: 0,
            got: 1,
            ..
        }
    ));
    let gap = joined(&[batches[0].clone(), batches[2].clone()]);
    assert!(matches!(
        refused(gap),
        Error::NotNext {
            expected: 1,
            got: 2,
            ..
        }
    ));
    let torn = joined(&batches).slice(..joined(&batches).len() - 1);
    assert!(matches!(refused(torn), Error::Batch { .. }));
    let more = joined(&[batches[0].clone(), Bytes::from_static(b"garbage")]);
    assert!(matches!(refused(more), Error::Batch { .. }));
    // The payload of the last one.
    let mut bytes = joined(&batches).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    assert!(matches!(refused(Bytes::from(bytes)), Error::Batch { .. }));
    // The second batch behind another first one.
    let committer = GroupCommitter::start();
    let directory = pair.home.root.path().join("fork");
    let mut fork = create(&directory, &LogOptions::default(), &committer);
    fork.append(batch(b"another", 1_000), 2, 0).unwrap();
    let other = fork.replica_cursor(0).next(u64::MAX, 1, ReadMode::Blocking);
    let forked = joined(&[other.unwrap().unwrap(), batches[1].clone()]);
    assert!(matches!(refused(forked), Error::Diverged { offset: 1, .. }));
    pair.fetch(usize::MAX);
}

#[test]
fn an_older_epoch_and_another_partition_are_refused() {
    let mut pair = Pair::new(&LogOptions::default());
    pair.append(&[b"one"], 5, None);
    pair.fetch(usize::MAX);
    let committer = GroupCommitter::start();
    let mut old = create(
        &pair.home.root.path().join("old"),
        &LogOptions::default(),
        &committer,
    );
    old.append(batch(b"one", 1_000), 4, 0).unwrap();
    old.append(batch(b"two", 1_001), 4, 0).unwrap();
    let bytes = old.replica_cursor(1).next(u64::MAX, 1, ReadMode::Blocking);
    let error = pair
        .follower
        .append_verbatim(bytes.unwrap().unwrap(), 0)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::StaleEpoch {
                got: 4,
                current: 5,
                ..
            }
        ),
        "{error}"
    );
    let directory = pair.home.root.path().join("foreign");
    let mut foreign =
        Log::create(&directory, identity(8), LogOptions::default(), &committer).unwrap();
    foreign.append(batch(b"one", 1_000), 5, 0).unwrap();
    let bytes = foreign
        .replica_cursor(0)
        .next(u64::MAX, 1, ReadMode::Blocking);
    let error = pair
        .follower
        .append_verbatim(bytes.unwrap().unwrap(), 0)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Foreign {
                found_incarnation: 8,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(pair.follower.reader().log_end(), 1);
}

#[test]
fn a_link_is_none_within_a_batch_and_outside_the_log() {
    let mut pair = Pair::new(&LogOptions::default());
    pair.append(&[b"a", b"b", b"c"], 1, None);
    pair.append(&[b"d"], 1, None);
    let headers: Vec<Header> = pair
        .stored()
        .iter()
        .map(|batch| Header::read(batch).unwrap())
        .collect();
    let expected = [
        Some(headers[0].chain),
        None,
        None,
        Some(headers[0].link()),
        Some(headers[1].link()),
        None,
    ];
    for (offset, expected) in (0..).zip(expected) {
        assert_eq!(pair.leader.link_at(offset).unwrap(), expected, "{offset}");
    }
    pair.leader.trim(2, 0).unwrap();
    assert_eq!(pair.leader.link_at(1).unwrap(), None, "below the log start");
    assert_eq!(pair.leader.link_at(3).unwrap(), Some(headers[0].link()));
}

#[test]
fn a_damaged_batch_is_unknown_and_never_no_boundary() {
    let mut pair = Pair::new(&LogOptions::default());
    for values in [[&b"a"[..], b"b"], [b"c", b"d"], [b"e", b"f"]] {
        pair.append(&values, 1, None);
    }
    settle(&mut pair.leader);
    let links: Vec<_> = (0..=6)
        .map(|offset| pair.leader.link_at(offset).unwrap())
        .collect();
    let path = pair.home.segments().remove(0);
    let first = pair.stored()[0].len();
    let mut bytes = fs::read(&path).unwrap();
    // The header of the second batch: nothing of it can be read.
    bytes[64 + first + 20] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    let found: Vec<_> = (0..=6).map(|offset| pair.leader.link_at(offset)).collect();
    for (offset, (found, was)) in found.iter().zip(&links).enumerate() {
        match (offset, found) {
            // The boundary to the intact batch before it, and to the one after it.
            (0..=2 | 4..=6, Ok(found)) => assert_eq!(found, was, "{offset}"),
            (3, Err(ReadError::Damaged(damage))) => assert_eq!((damage.start, damage.end), (2, 4)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_epoch_ends_where_the_next_one_begins() {
    let mut pair = Pair::new(&LogOptions::default());
    assert_eq!(pair.leader.epoch_end(9), (0, 0));
    for epoch in [3, 3, 7] {
        pair.append(&[b"x"], epoch, None);
    }
    let ends: Vec<_> = [0, 2, 3, 6, 7, 8]
        .map(|epoch| pair.leader.epoch_end(epoch))
        .into();
    assert_eq!(ends, [(0, 0), (0, 0), (3, 2), (3, 2), (7, 3), (7, 3)]);
}

#[test]
fn a_replica_reads_what_consumers_do_not_see() {
    let mut pair = Pair::new(&LogOptions::default());
    pair.append(&[b"a"], 1, None);
    let reader = pair.leader.reader();
    assert_eq!(read_from(&reader, 0).unwrap(), []);
    let mut cursor = reader.replica_cursor(0);
    assert!(
        cursor
            .next(u64::MAX, 1, ReadMode::Blocking)
            .unwrap()
            .is_some()
    );
    assert_eq!(cursor.offset(), 1);
    assert!(
        cursor
            .next(u64::MAX, 1, ReadMode::Blocking)
            .unwrap()
            .is_none()
    );
}
