//! Leading, closing, deleting, dying, going on.
use super::*;
use crate::clock::since_boot;
use bascule_log::{DeletedLogs, OpenMode, Storage, StorageFile, StorageWrapper};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The operating system's storage, on which no file can be made while it is full.
#[derive(Debug, Default)]
struct Tight {
    full: AtomicBool,
}

impl StorageWrapper for Tight {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if mode == OpenMode::Replace && self.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        OsStorage.open(path, mode)
    }
}

#[tokio::test]
async fn only_a_leader_appends() {
    let home = home();
    let (partition, recovery) = home.open(spec());
    assert!(recovery.is_none());
    let refused = put(&partition, records(&["a"])).await;
    assert!(matches!(refused, Err(AppendError::NotLeader)));
    partition.lead(1);
    assert!(put(&partition, records(&["a"])).await.is_ok());
    // An epoch that is over: nothing is stored, the partition stays usable.
    partition.lead(0);
    let refused = put(&partition, records(&["b"])).await;
    assert!(
        matches!(refused, Err(AppendError::NotLeader)),
        "{refused:?}"
    );
    partition.lead(2);
    assert_eq!(
        put(&partition, records(&["c"])).await.unwrap().base_offset,
        1
    );
}

#[tokio::test]
async fn closing_commits_queued_appends_and_a_reopen_continues() {
    let home = home();
    let partition = home.led(spec());
    let (waiting, outcome) = append(records(&["a", "b"]));
    partition.try_append(waiting).unwrap();
    let mut watch = partition.watch();
    partition.close(EndReason::Paused).await;
    assert_eq!(outcome.await.unwrap().unwrap().base_offset, 0);
    while watch.changed().await.is_ok() {}
    assert_eq!(*watch.borrow(), 2);
    assert_eq!(partition.end(), EndReason::Paused);
    assert!(partition.reader().is_closed() && !partition.is_leading());
    let refused = put(&partition, records(&["c"])).await;
    assert!(matches!(refused, Err(AppendError::Closed)));
    // Closing twice is closing once.
    partition.close(EndReason::Closed).await;
    assert_eq!(partition.end(), EndReason::Paused);

    let (partition, recovery) = home.open(spec());
    assert!(recovery.unwrap().clean);
    partition.lead(2);
    assert_eq!(partition.reader().high_watermark(), 2);
    assert_eq!(
        put(&partition, records(&["c"])).await.unwrap().base_offset,
        2
    );
    assert_eq!(values(&partition), ["a", "b", "c"]);
}

#[tokio::test]
async fn deleting_ends_readers_and_marks_the_files() {
    let home = home();
    let partition = home.led(spec());
    put(&partition, records(&["a"])).await.unwrap();
    partition.close(EndReason::Deleted).await;
    assert_eq!(partition.end(), EndReason::Deleted);
    assert!(!home.directory().exists());
    let left: Vec<_> = std::fs::read_dir(home.folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "recoverable until the grace period is over");
    assert_eq!(
        DeletedLogs::default().sweep(home.folder.path(), 0).unwrap(),
        1
    );
    // The same incarnation never comes back, but a directory may.
    let partition = home.led(spec());
    assert_eq!(
        put(&partition, records(&["b"])).await.unwrap().base_offset,
        0
    );
}

#[test]
fn nothing_acked_is_lost_when_the_broker_dies() {
    let home = home();
    for life in 0..5_u64 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let partition = home.led(spec());
            assert_eq!(partition.reader().high_watermark(), life * 2);
            let committed = put(&partition, records(&["a", "b"])).await.unwrap();
            assert_eq!(committed.base_offset, life * 2);
        });
        // Without a close: the task is dropped where it stands.
        drop(runtime);
    }
}

#[tokio::test]
async fn a_panic_ends_writing_but_not_reading_and_the_process_lives() {
    let home = home();
    let partition = home.led(memory());
    put(&partition, records(&["kept"])).await.unwrap();
    let (mut bad, _) = append(records(&["b"]));
    // In class memory `done` runs on the partition's task.
    bad.done = Box::new(|_| panic!("a defect, on purpose"));
    let (behind, outcome) = append(records(&["c"]));
    partition.try_append(bad).unwrap();
    partition.try_append(behind).unwrap();
    assert!(outcome.await.unwrap().is_err());
    let refused = put(&partition, records(&["d"])).await;
    assert!(
        matches!(refused, Err(AppendError::Storage(_))),
        "{refused:?}"
    );
    assert_eq!(home.changes(PartitionChange::Failed), 1);
    assert_eq!(values(&partition)[0], "kept");
    assert_eq!(partition.end(), EndReason::Open);
    partition.close(EndReason::Closed).await;
    assert_eq!(partition.end(), EndReason::Closed);
}

#[tokio::test]
async fn settings_change_while_it_is_open() {
    let home = home();
    let partition = home.led(spec());
    put(&partition, records(&["a", "b"])).await.unwrap();
    partition.configure(PartitionSpec {
        max_record_bytes: 1,
        batch_records: 1,
        ..spec()
    });
    let committed = put(&partition, records(&["cc", "d", "e"])).await.unwrap();
    assert_eq!(committed.rejected.len(), 1);
    assert_eq!(read(&partition).1, 3);
}

#[tokio::test]
async fn a_checkpoint_follows_every_change() {
    let home = home();
    let partition = home.led(spec());
    let read = || std::fs::read(home.directory().join("checkpoint")).unwrap_or_default();
    for _ in 0..2 {
        let (before, limit) = (read(), std::time::Instant::now() + Duration::from_mins(1));
        put(&partition, records(&["a"])).await.unwrap();
        while read() == before {
            assert!(std::time::Instant::now() < limit, "no checkpoint");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn partitions_at_rest_are_not_woken() {
    let homes: Vec<_> = (0..40).map(|_| home()).collect();
    let partitions: Vec<_> = homes.iter().map(|home| home.led(spec())).collect();
    put(&partitions[0], records(&["a"])).await.unwrap();
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..10 {
        let before = metrics.worker_park_count(0);
        tokio::time::sleep(Duration::from_secs(6)).await;
        if metrics.worker_park_count(0) - before < 20 {
            return;
        }
    }
    panic!("partitions with nothing to do are woken over and over");
}

#[tokio::test]
async fn retention_runs_by_itself_under_load() {
    let home = home();
    let partition = home.led(PartitionSpec {
        segment_bytes: 4096,
        retention_messages: 10,
        cleaner_interval_ms: 20,
        ..spec()
    });
    let value = "v".repeat(900);
    let limit = std::time::Instant::now() + Duration::from_mins(1);
    while partition.reader().log_start() == 0 {
        assert!(std::time::Instant::now() < limit);
        put(&partition, records(&[&value])).await.unwrap();
    }
    assert!(partition.failure().is_none());
}

/// The callback of a refused append runs on the task too: here while others of its group lie in the log, not committed.
#[tokio::test]
async fn what_a_panic_meets_halfway_is_answered_at_once() {
    let home = home();
    let partition = home.led(spec());
    put(&partition, Payload::Sealed(sealed(0, &["a"])))
        .await
        .unwrap();
    let (halfway, outcome) = append(records(&["b"]));
    let (mut bad, _) = append(Payload::Sealed(sealed(7, &["out of sequence"])));
    bad.done = Box::new(|_| panic!("a defect, on purpose"));
    partition.try_append(halfway).unwrap();
    partition.try_append(bad).unwrap();
    let outcome = tokio::time::timeout(Duration::from_mins(1), outcome).await;
    let outcome = outcome.expect("an answer").unwrap();
    assert!(
        matches!(outcome, Err(AppendError::Storage(_))),
        "{outcome:?}"
    );
    partition.close(EndReason::Closed).await;
}

#[tokio::test]
async fn a_trim_beyond_the_end_that_found_no_space_comes_before_the_next_append() {
    let storage = Arc::new(Tight::default());
    let mut home = home();
    home.committer = GroupCommitter::start_on(storage.clone());
    let partition = home.led(spec());
    put(&partition, records(&["a", "b"])).await.unwrap();
    storage.full.store(true, Ordering::Relaxed);
    partition.configure(PartitionSpec {
        trimmed_to: 10,
        ..spec()
    });
    for _ in 0..2 {
        let refused = put(&partition, records(&["c"])).await;
        assert!(matches!(refused, Err(AppendError::Full)), "{refused:?}");
    }
    assert_eq!(values(&partition), ["a", "b"]);
    storage.full.store(false, Ordering::Relaxed);
    let stored = put(&partition, records(&["d", "e"])).await.unwrap();
    assert_eq!((stored.base_offset, stored.count), (10, 2));
    assert_eq!(partition.reader().log_start(), 10);
    assert_eq!(values(&partition), ["d", "e"]);
}

#[tokio::test]
async fn damage_that_retention_has_removed_counts_no_more() {
    let home = home();
    let partition = home.led(spec());
    put(&partition, records(&["a", "b"])).await.unwrap();
    assert_eq!(partition.damaged_ms(since_boot()), None);
    let reader = partition.reader();
    let bytes = reader.cursor(0).next(2, 1 << 20, ReadMode::Blocking);
    let mut batches = Batches::new(bytes.unwrap().unwrap());
    let batch = Batch::read(&batches.next().unwrap().unwrap()).unwrap();
    reader.damaged(batch.header());
    assert!(partition.damaged_ms(since_boot()).is_some());
    partition.configure(PartitionSpec {
        trimmed_to: 2,
        ..spec()
    });
    put(&partition, records(&["c"])).await.unwrap();
    assert_eq!(partition.reader().log_start(), 2);
    assert_eq!(partition.damaged_ms(since_boot()), None);
}
