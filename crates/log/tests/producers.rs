//! Idempotent producers against a model: whatever they send again, in whatever life of the log, is answered as the model
//! says, which knows every batch that was ever stored and survived.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_log::{
    Appended, GroupCommitter, Log, OpenMode, Retention, SequenceError, StorageFile, StorageWrapper,
};
use bascule_record::{HEADER_BYTES, Header, Producer};
use proptest::prelude::*;
use std::io;
use std::path::Path;
use std::sync::Arc;
use support::{Home, batch_of, settle, small};

const WINDOW: usize = 5;
/// Three batches of this fill a segment.
const SEGMENT_BYTES: u64 = 600;
const MINUTE: i64 = 60_000_000_000;

/// What a producer sends.
#[derive(Clone, Debug)]
enum Send {
    /// What follows its last batch.
    Next(u32),
    /// What it sent so many batches ago, 0 = the last.
    Again(usize),
    /// The same with another count.
    Changed(usize),
    /// So many sequences too far.
    Ahead(u32),
    /// From 0 on, in a new epoch.
    NewEpoch(u32),
    /// In the epoch before.
    OldEpoch,
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64, Send),
    /// In order; with the snapshot of the producers kept or lost.
    Close(bool),
    /// Without order; so many batches of those since the last opening are torn, and the snapshot is kept or lost.
    Crash(usize, bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let send = prop_oneof![
        6 => (1..4_u32).prop_map(Send::Next),
        4 => (0..7_usize).prop_map(Send::Again),
        1 => (0..5_usize).prop_map(Send::Changed),
        1 => (1..9_u32).prop_map(Send::Ahead),
        1 => (1..4_u32).prop_map(Send::NewEpoch),
        1 => Just(Send::OldEpoch),
    ];
    prop_oneof![
        12 => (1..4_u64, send).prop_map(|(id, send)| Step::Send(id, send)),
        1 => any::<bool>().prop_map(Step::Close),
        2 => (0..3_usize, any::<bool>()).prop_map(|(torn, kept)| Step::Crash(torn, kept)),
    ]
}

/// A batch that was stored.
#[derive(Clone, Copy, Debug)]
struct Stored {
    producer: Producer,
    count: u32,
    base_offset: u64,
}

/// Every batch that is stored, in order.
#[derive(Default)]
struct Model(Vec<Stored>);

impl Model {
    /// Batches of a producer's newest epoch, newest first.
    fn newest(&self, id: u64) -> Vec<Stored> {
        let mine = |stored: &&Stored| stored.producer.id == id;
        let epoch = self
            .0
            .iter()
            .filter(mine)
            .map(|stored| stored.producer.epoch)
            .max();
        let of_epoch = |stored: &&Stored| Some(stored.producer.epoch) == epoch;
        self.0
            .iter()
            .rev()
            .filter(mine)
            .filter(of_epoch)
            .copied()
            .collect()
    }

    /// The offset of a known batch, or `None` when it is new, or an error.
    fn find(&self, producer: Producer, count: u32) -> Result<Option<u64>, &'static str> {
        let sent = self.newest(producer.id);
        let Some(last) = sent.first() else {
            return Ok(None);
        };
        let epoch = last.producer.epoch;
        if producer.epoch < epoch {
            return Err("fenced");
        }
        if producer.epoch > epoch {
            return if producer.base_sequence == 0 {
                Ok(None)
            } else {
                Err("gap")
            };
        }
        if producer.base_sequence == last.producer.base_sequence.wrapping_add(last.count) {
            return Ok(None);
        }
        let same = |stored: &&Stored| {
            (stored.producer.base_sequence, stored.count) == (producer.base_sequence, count)
        };
        let known = sent.iter().take(WINDOW).find(same);
        known.map(|stored| Some(stored.base_offset)).ok_or("gap")
    }

    /// What `send` is, for this producer.
    fn batch(&self, id: u64, send: &Send) -> (Producer, u32) {
        let sent = self.newest(id);
        let last = sent.first().copied().unwrap_or(Stored {
            // Soon wraps.
            producer: Producer {
                id,
                epoch: 1,
                base_sequence: u32::MAX - 7,
            },
            count: 0,
            base_offset: 0,
        });
        let next = Producer {
            base_sequence: last.producer.base_sequence.wrapping_add(last.count),
            ..last.producer
        };
        let ago = |k: usize| {
            sent.get(k).copied().unwrap_or(Stored {
                producer: next,
                count: 1,
                base_offset: 0,
            })
        };
        match send {
            Send::Next(count) => (next, *count),
            Send::Again(k) => (ago(*k).producer, ago(*k).count),
            Send::Changed(k) => (ago(*k).producer, ago(*k).count + 1),
            Send::Ahead(far) => {
                let base_sequence = next.base_sequence.wrapping_add(*far);
                (
                    Producer {
                        base_sequence,
                        ..next
                    },
                    1,
                )
            }
            Send::NewEpoch(count) => {
                let epoch = next.epoch + 1;
                (
                    Producer {
                        epoch,
                        base_sequence: 0,
                        ..next
                    },
                    *count,
                )
            }
            Send::OldEpoch => (
                Producer {
                    epoch: next.epoch.saturating_sub(1),
                    ..next
                },
                1,
            ),
        }
    }
}

fn outcome(found: Option<Result<Appended, SequenceError>>) -> Result<Option<u64>, &'static str> {
    match found {
        None => Ok(None),
        Some(Ok(appended)) => Ok(Some(appended.base_offset)),
        Some(Err(SequenceError::Gap { .. })) => Err("gap"),
        Some(Err(SequenceError::Fenced { .. })) => Err("fenced"),
        Some(Err(_)) => Err("other"),
    }
}

fn append(log: &mut Log, producer: Producer, count: u32, time: i64) -> Appended {
    let values = vec![&b"value of a record"[..]; count as usize];
    log.append(batch_of(&values, time, Some(producer)), 1, time)
        .unwrap()
}

/// Tears the batch at `offset` in the segment file, when it is there.
fn tear(segment: &Path, offset: u64) -> bool {
    let mut bytes = std::fs::read(segment).unwrap();
    let mut at = 64;
    while let Some(Ok(header)) = bytes.get(at..).map(Header::read) {
        if header.base_offset == offset {
            bytes[at + HEADER_BYTES] ^= 1;
            std::fs::write(segment, bytes).unwrap();
            return true;
        }
        at += header.batch_bytes();
    }
    false
}

/// Runs the steps; the number of batches that were known again.
fn run(steps: &[Step]) -> usize {
    let mut home = Home::new();
    let mut log = home.create(small(SEGMENT_BYTES));
    let (mut model, mut opened_at, mut known) = (Model::default(), 0, 0);
    for step in steps {
        let snapshot = home.path().join("producers");
        let (kept, torn) = match step {
            Step::Send(id, send) => {
                let (producer, count) = model.batch(*id, send);
                let expected = model.find(producer, count);
                let found = outcome(log.find_duplicate(producer, count, 10));
                assert_eq!(
                    found,
                    expected,
                    "{producer:?} {count} {:?}",
                    model.newest(*id)
                );
                if expected == Ok(None) {
                    let base_offset = append(&mut log, producer, count, 10).base_offset;
                    model.0.push(Stored {
                        producer,
                        count,
                        base_offset,
                    });
                }
                known += usize::from(matches!(expected, Ok(Some(_))));
                continue;
            }
            Step::Close(kept) => {
                settle(&mut log);
                log.close().unwrap();
                (*kept, 0)
            }
            Step::Crash(torn, kept) => {
                // Not committed: what the active segment got in this life may be torn.
                drop(log);
                // Nothing of the life before is under way any more.
                home.committer = GroupCommitter::start();
                (*kept, *torn)
            }
        };
        let at = model.0.len().saturating_sub(torn).max(opened_at);
        if let Some(first) = model.0.get(at) {
            // Only the last segment can have a torn tail: the others were synced when they were sealed.
            if tear(home.segments().last().unwrap(), first.base_offset) {
                model.0.truncate(at);
            }
        }
        if !kept && snapshot.exists() {
            std::fs::remove_file(&snapshot).unwrap();
        }
        let (opened, recovery) = home.open(small(SEGMENT_BYTES));
        assert_eq!(recovery.damaged, []);
        log = opened;
        opened_at = model.0.len();
    }
    known
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_the_models(steps in proptest::collection::vec(any_step(), 1..60)) {
        run(&steps);
    }
}

/// The property above would hold of a log that is never asked for a duplicate.
#[test]
fn a_retry_is_answered_with_its_offset_in_every_life() {
    let next = |id| Step::Send(id, Send::Next(2));
    let again = |id| Step::Send(id, Send::Again(4));
    let mut steps = Vec::new();
    for step in [
        Step::Close(true),
        Step::Close(false),
        Step::Crash(1, true),
        Step::Crash(2, false),
    ] {
        steps.extend([1, 2].into_iter().cycle().take(12).map(next));
        steps.extend([again(1), again(2), step, again(1), again(2)]);
    }
    assert_eq!(run(&steps), 16);
}

#[test]
fn a_producer_outlives_its_batches_by_15_minutes() {
    let mut home = Home::new();
    let mut log = home.create(small(SEGMENT_BYTES));
    let producer = Producer {
        id: 7,
        epoch: 1,
        base_sequence: 0,
    };
    let first = append(&mut log, producer, 1, MINUTE);
    let mut other = Producer { id: 8, ..producer };
    let mut push = |log: &mut Log, minutes: i64| {
        for _ in 0..4 {
            append(log, other, 1, minutes * MINUTE);
            other.base_sequence += 1;
        }
        settle(log);
        let retention = Retention {
            messages: 1,
            ..Retention::default()
        };
        log.maintain(&retention, minutes * MINUTE).unwrap();
        log.maintain(&retention, minutes * MINUTE).unwrap();
    };
    push(&mut log, 2);
    assert!(
        log.reader().log_start() > first.base_offset,
        "its batch is gone"
    );
    for snapshot in [true, false] {
        // Rolled with its batch gone: it stands in the snapshot alone.
        push(&mut log, 15);
        assert_eq!(
            log.find_duplicate(producer, 1, 15 * MINUTE),
            Some(Ok(first))
        );
        if snapshot {
            drop(log);
            home.committer = GroupCommitter::start();
            log = home.open(small(SEGMENT_BYTES)).0;
        }
    }
    push(&mut log, 16);
    push(&mut log, 16);
    assert_eq!(
        log.find_duplicate(producer, 1, 16 * MINUTE),
        None,
        "forgotten"
    );
}

/// Its snapshots of producers cannot be read.
#[derive(Debug)]
struct Unreadable;

impl StorageWrapper for Unreadable {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if path.ends_with("producers") {
            return Err(rustix::io::Errno::IO.into());
        }
        self.inner().open(path, mode)
    }
}

/// A snapshot can reach the disk before the batches that it includes.
#[test]
fn a_snapshot_ahead_of_a_cut_is_not_believed_in_any_later_life() {
    ahead_of_a_cut(GroupCommitter::start());
}

#[test]
fn nor_is_one_that_could_not_be_read_when_its_batches_were_cut() {
    ahead_of_a_cut(GroupCommitter::start_on(Arc::new(Unreadable)));
}

/// `committer`: of the open that truncates.
fn ahead_of_a_cut(committer: Arc<GroupCommitter>) {
    let mut home = Home::new();
    let mut log = home.create(small(1 << 20));
    let producer = |id, base_sequence| Producer {
        id,
        epoch: 1,
        base_sequence,
    };
    append(&mut log, producer(1, 0), 1, 10);
    append(&mut log, producer(1, 1), 1, 10);
    settle(&mut log);
    log.close().unwrap();
    // As if power had failed before anything but the snapshot was synced.
    std::fs::remove_file(home.path().join("checkpoint")).unwrap();
    assert!(tear(&home.segments()[0], 1));
    home.committer = committer;
    let (mut log, recovery) = home.open(small(1 << 20));
    assert!(recovery.cut_bytes > 0);
    for sequence in 0..3 {
        append(&mut log, producer(2, sequence), 1, 10);
    }
    settle(&mut log);
    for _ in 0..2 {
        assert_eq!(
            log.find_duplicate(producer(1, 1), 1, 10),
            None,
            "it was cut"
        );
        for (sequence, offset) in [(0, 1), (1, 2)] {
            let found = log.find_duplicate(producer(2, sequence), 1, 10);
            assert_eq!(outcome(found), Ok(Some(offset)));
        }
        drop(log);
        home.committer = GroupCommitter::start();
        log = home.open(small(1 << 20)).0;
    }
}
