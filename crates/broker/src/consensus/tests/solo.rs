//! The log of one voter through its door: propose, events, snapshots, reopen.
use crate::consensus::vote::{HardState, VoteFile};
use crate::consensus::{Door, MetadataError, Opened, Proposal, open as open_log};
use crate::events::{Event, Events, Level};
use bascule_log::GroupCommitter;
use bascule_wire::ErrorCode;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

struct Life {
    event_queue: Arc<Events>,
    log: Arc<dyn Door>,
    snapshot: (u64, Vec<u8>),
}

fn open(data: &Path) -> Result<Life, MetadataError> {
    let event_queue = Arc::new(Events::new(65_536).unwrap());
    let Opened {
        door,
        snapshot_index,
        snapshot,
    } = open_log(&event_queue, data, &GroupCommitter::start())?;
    Ok(Life {
        event_queue,
        log: door,
        snapshot: (snapshot_index, snapshot),
    })
}

impl Life {
    fn propose(&self, id: u64, bytes: impl Into<Bytes>) {
        let proposal = Proposal {
            id,
            bytes: bytes.into(),
        };
        self.log.propose(vec![proposal], 60 * SECOND);
    }

    /// Waits for `count` events.
    fn events(&self, count: usize) -> Vec<Event> {
        let limit = Instant::now() + 20 * SECOND;
        let mut events = Vec::new();
        while events.len() < count {
            assert!(Instant::now() < limit, "{} of {count}", events.len());
            events.extend(self.event_queue.poll(count - events.len()));
            std::thread::sleep(Duration::from_millis(1));
        }
        events
    }
}

fn failed(event: &Event) -> (u64, ErrorCode) {
    match event {
        Event::Failed { proposal, code, .. } => (*proposal, *code),
        other => panic!("{other:?}"),
    }
}

/// Index, entry and proposal of committed entries.
fn committed(event: &Event) -> (u64, &Bytes, Option<u64>) {
    match event {
        Event::Committed {
            index,
            entry,
            proposal,
        } => (*index, entry, *proposal),
        other => panic!("{other:?}"),
    }
}

fn indexes(events: &[Event]) -> Vec<(u64, Option<u64>)> {
    let pairs = events.iter().map(committed);
    pairs
        .map(|(index, _, proposal)| (index, proposal))
        .collect()
}

#[tokio::test]
async fn entries_are_committed_in_order_and_replayed_without_a_proposal() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    let proposals = (1..=3).map(|id| Proposal {
        id: id * 10,
        bytes: Bytes::from(vec![id as u8; 3]),
    });
    life.log.propose(proposals.collect(), 60 * SECOND);
    life.propose(40, "last");
    let events = life.events(4);
    let expected = [(1, 10), (2, 20), (3, 30), (4, 40)];
    assert_eq!(
        indexes(&events),
        expected.map(|(index, id)| (index, Some(id)))
    );
    assert_eq!(committed(&events[1]).1, &[2, 2, 2][..]);
    // No close: what a kill leaves behind.
    drop(life);
    let life = open(data.path()).unwrap();
    let events = life.events(4);
    assert_eq!(indexes(&events), [1, 2, 3, 4].map(|index| (index, None)));
    assert_eq!(committed(&events[3]).1, "last");
    life.propose(1, "more");
    assert_eq!(indexes(&life.events(1)), [(5, Some(1))]);
}

#[tokio::test]
async fn a_barrier_comes_behind_what_was_committed() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    life.propose(1, "a");
    life.events(1);
    life.log.read_barrier(77);
    let barrier = life.events(1).remove(0);
    assert!(
        matches!(barrier, Event::Barrier { id: 77, index: 1 }),
        "{barrier:?}"
    );
}

/// Whoever reads after a barrier has applied everything up to its number.
#[tokio::test]
async fn a_barrier_never_overtakes_what_it_counts() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    let proposals = 300;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                life.log.read_barrier(1);
                std::thread::yield_now();
            }
        });
        let runtime = tokio::runtime::Handle::current();
        let _inside = runtime.enter();
        let (mut applied, mut overtaken) = (0, 0);
        for id in 1..=proposals {
            life.propose(id, "entry");
            while applied < id {
                for event in life.event_queue.poll(1 << 20) {
                    match event {
                        Event::Committed { index, .. } => applied = index,
                        Event::Barrier { index, .. } => overtaken += u64::from(index > applied),
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(overtaken, 0);
    });
}

#[tokio::test]
async fn an_oversized_entry_fails_alone() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    life.propose(1, vec![0; (1 << 20) + 1]);
    life.propose(2, vec![0; 1 << 20]);
    let events = life.events(2);
    assert_eq!(failed(&events[0]), (1, ErrorCode::InvalidArgument));
    assert_eq!(committed(&events[1]).0, 1);
}

#[tokio::test]
async fn proposals_after_close_fail() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    life.log.close().unwrap();
    life.propose(1, "late");
    assert_eq!(failed(&life.events(1)[0]), (1, ErrorCode::MetadataStopped));
}

#[tokio::test]
async fn a_snapshot_stands_for_the_entries_it_covers() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    for id in 1..=5 {
        life.propose(id, "entry");
    }
    life.events(5);
    life.log.save_snapshot(3, b"state of three").unwrap();
    assert!(matches!(
        life.log.save_snapshot(6, b"of the future"),
        Err(MetadataError::Damaged(_))
    ));
    life.log.close().unwrap();
    let life = open(data.path()).unwrap();
    assert_eq!(life.snapshot, (3, b"state of three".to_vec()));
    assert_eq!(indexes(&life.events(2)), [(4, None), (5, None)]);
}

/// Segments of the metadata log hold 8 MiB: with entries of 1 MiB a snapshot lies in the middle of one.
#[tokio::test]
async fn removal_keeps_every_entry_after_the_older_snapshot() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    for id in 1..=30 {
        life.propose(id, vec![id as u8; 1 << 20]);
        if [12, 20, 27].contains(&id) {
            life.events(if id == 12 {
                12
            } else {
                id as usize - if id == 20 { 12 } else { 20 }
            });
            life.log.save_snapshot(id, b"state").unwrap();
        }
    }
    life.events(3);
    life.log.close().unwrap();
    let segments = std::fs::read_dir(data.path().join("metadata/log"))
        .unwrap()
        .filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            path.extension().is_some_and(|extension| extension == "seg")
        })
        .count();
    assert!(segments < 4, "{segments} segments: nothing was removed");
    // The newest snapshot is damaged: the one before it and the log after that must do.
    let newest = data.path().join(format!("metadata/snapshot-{:020}", 27));
    std::fs::write(newest, b"damaged").unwrap();
    let life = open(data.path()).unwrap();
    assert_eq!(life.snapshot.0, 20);
    let reported = life.events(1).remove(0);
    assert!(
        matches!(&reported, Event::Log { level: Level::Error, target, .. } if target == "metadata"),
        "{reported:?}"
    );
    let expected: Vec<_> = (21..=30).map(|index| (index, None)).collect();
    assert_eq!(indexes(&life.events(10)), expected);
}

#[tokio::test]
async fn a_directory_that_a_crash_left_empty_is_taken_over() {
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(data.path().join("metadata/log")).unwrap();
    let life = open(data.path()).unwrap();
    life.propose(1, "first");
    assert_eq!(indexes(&life.events(1)), [(1, Some(1))]);
}

#[test]
fn the_directory_of_a_voter_is_not_opened_as_that_of_a_broker_alone() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().join("metadata");
    std::fs::create_dir(&directory).unwrap();
    let vote = VoteFile::create(&directory, HardState::default()).unwrap();
    drop(vote);
    // Nor with a vote that is damaged.
    for content in [None, Some(b"damaged")] {
        if let Some(content) = content {
            std::fs::write(directory.join("vote"), content).unwrap();
        }
        let refused = open(data.path()).err().unwrap();
        assert!(
            matches!(&refused, MetadataError::Voter { path } if *path == directory.join("vote"))
        );
        assert!(!directory.join("log").exists(), "{refused}");
    }
}

#[tokio::test]
async fn lost_entries_are_reported_not_skipped() {
    let data = tempfile::tempdir().unwrap();
    let life = open(data.path()).unwrap();
    life.propose(1, "a");
    life.events(1);
    life.log.save_snapshot(1, b"one").unwrap();
    life.log.close().unwrap();
    std::fs::remove_dir_all(data.path().join("metadata/log")).unwrap();
    assert!(matches!(open(data.path()), Err(MetadataError::Damaged(_))));
}
