//! Acks for JetStream publishers, decided by the writer: ids, conditions, failures, kills.
use super::*;
use bascule_log::{FileOver, OpenMode, Storage, StorageFile, StorageOver};
use bascule_wire::jetstream::Refusal;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// A disk that can be full, and whose syncs can be held up.
#[derive(Debug, Default)]
struct Disk(Arc<Faults>);

#[derive(Debug, Default)]
struct Faults {
    is_full: Mutex<bool>,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl StorageOver for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        Ok(Arc::new(FileOnDisk(file, self.0.clone())))
    }
}

#[derive(Debug)]
struct FileOnDisk(Arc<dyn StorageFile>, Arc<Faults>);

impl FileOver for FileOnDisk {
    fn below(&self) -> &dyn StorageFile {
        &*self.0
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if *self.1.is_full.lock() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut held = self.1.is_held.lock();
        self.1.released.wait_while(&mut held, |held| *held);
        drop(held);
        self.0.sync_data()
    }
}

impl Disk {
    fn hold(&self, held: bool) {
        *self.0.is_held.lock() = held;
        self.0.released.notify_all();
    }

    fn fill(&self, full: bool) {
        *self.0.is_full.lock() = full;
    }
}

fn acknowledging() -> PartitionSpec {
    PartitionSpec {
        nats_acks: NatsAcks::Jetstream,
        ..spec()
    }
}

/// A plain NATS message.
fn message(value: &str, headers: &[(&str, &str)]) -> IncomingRecord {
    let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let headers: Vec<_> = headers.iter().map(|(a, b)| (text(a), text(b))).collect();
    IncomingRecord {
        id: message_id(&headers),
        headers,
        is_plain_nats: true,
        expected_offset: 0,
        ..record(value)
    }
}

fn with_id(id: &str) -> IncomingRecord {
    message(id, &[("Nats-Msg-Id", id)])
}

async fn send(partition: &Partition, messages: Vec<IncomingRecord>) -> Committed {
    put(partition, Payload::Records(messages)).await.unwrap()
}

/// What became of one message: its offset, or why not.
async fn one(partition: &Partition, message: IncomingRecord) -> Result<u64, RejectReason> {
    let mut committed = send(partition, vec![message]).await;
    match committed.rejected.pop() {
        Some(rejected) => Err(rejected.reason),
        None => Ok(committed.base_offset),
    }
}

fn refused(refusal: Refusal) -> Result<u64, RejectReason> {
    Err(RejectReason::Refused(refusal))
}

/// Runs on a runtime that is dropped without a close, as a kill would.
fn until_killed<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

#[tokio::test]
async fn a_repeated_id_is_stored_once_and_answered_with_the_original() {
    let home = home();
    let partition = home.led(acknowledging());
    let first = send(
        &partition,
        vec![
            with_id("a"),
            message("none", &[]),
            with_id("a"),
            with_id("b"),
        ],
    )
    .await;
    assert_eq!((first.base_offset, first.count), (0, 3));
    let rejected: Vec<_> = first
        .rejected
        .iter()
        .map(|one| (one.index, one.reason.clone()))
        .collect();
    assert_eq!(
        rejected,
        [(2, RejectReason::Duplicate(0))],
        "within one append"
    );
    assert_eq!(
        one(&partition, with_id("b")).await,
        Err(RejectReason::Duplicate(2))
    );
    assert_eq!(one(&partition, with_id("c")).await, Ok(3));
    assert_eq!(values(&partition), ["a", "none", "b", "c"]);
}

#[tokio::test]
async fn ids_are_compared_by_their_text() {
    let home = home();
    let partition = home.led(acknowledging());
    let (mut one_text, mut other_text) = (with_id("one"), with_id("other"));
    // As if the two had the same hash.
    (one_text.id, other_text.id) = (7, 7);
    assert_eq!(one(&partition, one_text).await, Ok(0));
    assert_eq!(one(&partition, other_text).await, Ok(1));
    assert_eq!(
        one(&partition, with_id("one")).await,
        Err(RejectReason::Duplicate(0))
    );
}

#[tokio::test]
async fn an_enveloped_message_is_known_by_its_id_and_has_no_other_condition() {
    let home = home();
    let partition = home.led(acknowledging());
    let enveloped = |headers: &[(&str, &str)]| IncomingRecord {
        is_plain_nats: false,
        expected_offset: -1,
        ..message("e", headers)
    };
    let both = [
        ("Nats-Msg-Id", "a"),
        ("Nats-Expected-Stream", "other"),
        ("Nats-Rollup", "all"),
    ];
    assert_eq!(one(&partition, enveloped(&both)).await, Ok(0));
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
    assert_eq!(
        one(&partition, enveloped(&both)).await,
        Err(RejectReason::Duplicate(0))
    );
    // A header that a gRPC client sets is not an id.
    let mut foreign = enveloped(&[("Nats-Msg-Id", "a")]);
    foreign.id = 0;
    assert_eq!(one(&partition, foreign).await, Ok(1));
}

#[tokio::test]
async fn conditions_are_checked_in_the_order_of_nats_server() {
    let home = home();
    let partition = home.led(PartitionSpec {
        concurrency_control: true,
        ..acknowledging()
    });
    assert_eq!(one(&partition, with_id("a")).await, Ok(0));
    let send = async |headers: &[(&str, &str)]| one(&partition, message("x", headers)).await;
    let (id, stream, sequence, last) = (
        ("Nats-Msg-Id", "a"),
        ("Nats-Expected-Stream", "other"),
        ("Nats-Expected-Last-Sequence", "7"),
        ("Nats-Expected-Last-Msg-Id", "z"),
    );
    let rollup = ("Nats-Rollup", "all");
    let unsupported = Refusal::Unsupported(Bytes::from_static(b"Nats-Rollup"));
    assert_eq!(
        send(&[id, stream, sequence, last, rollup]).await,
        refused(unsupported)
    );
    assert_eq!(
        send(&[id, sequence, last, stream]).await,
        refused(Refusal::WrongStream)
    );
    assert_eq!(
        send(&[id, last, sequence]).await,
        refused(Refusal::WrongLastSequence(1))
    );
    assert_eq!(send(&[id, last]).await, Err(RejectReason::Duplicate(0)));
    let wrong_id = Refusal::WrongLastId(Bytes::from_static(b"a"));
    assert_eq!(send(&[last]).await, refused(wrong_id));
    let right = [
        ("Nats-Expected-Stream", "s"),
        ("Nats-Expected-Last-Sequence", "1"),
        ("Nats-Expected-Last-Msg-Id", "a"),
        ("Nats-Msg-Id", "b"),
    ];
    assert_eq!(send(&right).await, Ok(1));
    assert_eq!(
        send(&[]).await,
        Ok(2),
        "the envelope's expected offset is not a plain message's"
    );
    let none = Refusal::WrongLastId(Bytes::new());
    assert_eq!(
        send(&[("Nats-Expected-Last-Msg-Id", "b")]).await,
        refused(none)
    );
    // What was refused left nothing behind: its id may come.
    assert_eq!(
        send(&[("Nats-Msg-Id", "new"), sequence]).await,
        refused(Refusal::WrongLastSequence(3))
    );
    assert_eq!(send(&[("Nats-Msg-Id", "new")]).await, Ok(3));
}

#[tokio::test]
async fn conditions_count_what_the_same_append_stores() {
    let home = home();
    let partition = home.led(acknowledging());
    let expecting =
        |sequence: &str| message(sequence, &[("Nats-Expected-Last-Sequence", sequence)]);
    let committed = send(&partition, ["0", "1", "1", "2"].map(expecting).to_vec()).await;
    let rejected: Vec<_> = committed
        .rejected
        .iter()
        .map(|one| (one.index, one.reason.clone()))
        .collect();
    assert_eq!(
        rejected,
        [(2, RejectReason::Refused(Refusal::WrongLastSequence(2)))]
    );
    assert_eq!(values(&partition), ["0", "1", "2"]);
}

#[tokio::test]
async fn without_the_option_headers_are_content() {
    let home = home();
    let partition = home.led(spec());
    for offset in 0..2 {
        let control = [
            ("Nats-Msg-Id", "a"),
            ("Nats-Expected-Stream", "x"),
            ("Nats-TTL", "1s"),
        ];
        assert_eq!(one(&partition, message("v", &control)).await, Ok(offset));
    }
}

#[tokio::test]
async fn a_duplicate_waits_until_its_original_is_durable() {
    let disk = Arc::new(Disk::default());
    let mut home = home();
    home.committer = GroupCommitter::start_on(disk.clone());
    let partition = home.led(acknowledging());
    one(&partition, with_id("before")).await.unwrap();
    disk.hold(true);
    let (original, mut first) = append(Payload::Records(vec![with_id("a")]));
    partition.append(original).await;
    while partition.reader().log_end() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (duplicate, mut second) = append(Payload::Records(vec![with_id("a")]));
    partition.append(duplicate).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        first.try_recv().is_err() && second.try_recv().is_err(),
        "nothing is synced yet"
    );
    disk.hold(false);
    let (first, second) = (
        first.await.unwrap().unwrap(),
        second.await.unwrap().unwrap(),
    );
    assert_eq!((first.base_offset, first.rejected.len()), (1, 0));
    assert_eq!(second.rejected[0].reason, RejectReason::Duplicate(1));
    assert!(partition.reader().durable_end() >= 2);
}

#[tokio::test]
async fn what_a_full_disk_refused_is_not_remembered_and_its_duplicate_fails_with_it() {
    let disk = Arc::new(Disk::default());
    let mut home = home();
    home.committer = GroupCommitter::start_on(disk.clone());
    let partition = home.led(acknowledging());
    assert_eq!(one(&partition, with_id("before")).await, Ok(0));
    disk.fill(true);
    // One group: what is queued before the task runs.
    let mut outcomes = Vec::new();
    let expecting = message("x", &[("Nats-Expected-Last-Sequence", "9")]);
    for message in [with_id("a"), with_id("a"), with_id("before"), expecting] {
        let (append, outcome) = append(Payload::Records(vec![message]));
        partition.try_append(append).unwrap();
        outcomes.push(outcome);
    }
    let mut answers = Vec::new();
    for outcome in outcomes {
        answers.push(outcome.await.unwrap());
    }
    assert!(
        matches!(answers[0], Err(AppendError::Full)),
        "{:?}",
        answers[0]
    );
    assert!(
        matches!(answers[1], Err(AppendError::Full)),
        "a duplicate of nothing: {:?}",
        answers[1]
    );
    let known = answers[2].as_ref().unwrap();
    assert_eq!(known.rejected[0].reason, RejectReason::Duplicate(0));
    assert!(
        answers[3].is_err(),
        "its last sequence counted what was not stored"
    );
    disk.fill(false);
    let last = message(
        "y",
        &[
            ("Nats-Expected-Last-Msg-Id", "before"),
            ("Nats-Msg-Id", "a"),
        ],
    );
    assert_eq!(one(&partition, last).await, Ok(1));
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(1))
    );
}

#[test]
fn ids_survive_kills() {
    let home = home();
    for run in 0..4_u64 {
        until_killed(async {
            let partition = home.led(acknowledging());
            for earlier in 0..run {
                let id = format!("id-{earlier}");
                assert_eq!(
                    one(&partition, with_id(&id)).await,
                    Err(RejectReason::Duplicate(earlier))
                );
            }
            let last = run.checked_sub(1).map(|earlier| format!("id-{earlier}"));
            let mut message = with_id(&format!("id-{run}"));
            if let Some(last) = last {
                message
                    .headers
                    .push(("Nats-Expected-Last-Msg-Id".into(), last.into()));
            }
            assert_eq!(one(&partition, message).await, Ok(run));
        });
    }
}

#[test]
fn ids_of_trimmed_records_survive_kills() {
    let home = home();
    until_killed(async {
        let partition = home.led(acknowledging());
        for id in ["a", "b", "c"] {
            one(&partition, with_id(id)).await.unwrap();
        }
        partition.configure(PartitionSpec {
            trimmed_to: 3,
            ..acknowledging()
        });
        assert_eq!(one(&partition, message("d", &[])).await, Ok(3));
        assert_eq!(partition.reader().log_start(), 3);
    });
    until_killed(async {
        let partition = home.led(acknowledging());
        assert_eq!(
            one(&partition, with_id("b")).await,
            Err(RejectReason::Duplicate(1))
        );
        assert_eq!(one(&partition, with_id("e")).await, Ok(4));
    });
}

#[test]
fn ids_of_records_that_retention_removed_survive_kills() {
    let home = home();
    let removing = || PartitionSpec {
        segment_bytes: 4096,
        retention_messages: 2,
        cleaner_interval_ms: 20,
        ..acknowledging()
    };
    until_killed(async {
        let partition = home.led(removing());
        assert_eq!(one(&partition, with_id("a")).await, Ok(0));
        let limit = std::time::Instant::now() + Duration::from_mins(1);
        while partition.reader().log_start() == 0 {
            assert!(std::time::Instant::now() < limit);
            one(&partition, message(&"v".repeat(900), &[]))
                .await
                .unwrap();
        }
    });
    until_killed(async {
        let partition = home.led(removing());
        assert_eq!(
            one(&partition, with_id("a")).await,
            Err(RejectReason::Duplicate(0))
        );
    });
}

#[tokio::test]
async fn a_clean_stop_leaves_a_file_and_a_damaged_one_is_not_needed() {
    let home = home();
    let path = home.directory().join("message-ids");
    for (run, damage) in [false, true, true].into_iter().enumerate() {
        let partition = home.led(acknowledging());
        let expected = if run == 0 {
            Ok(0)
        } else {
            Err(RejectReason::Duplicate(0))
        };
        assert_eq!(one(&partition, with_id("a")).await, expected);
        partition.close(EndReason::Closed).await;
        let mut bytes = fs::read(&path).expect("a file");
        if damage {
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
}

/// All files of a directory.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[tokio::test]
async fn a_file_of_another_history_is_not_believed() {
    let home = home();
    let partition = home.led(acknowledging());
    one(&partition, with_id("a")).await.unwrap();
    partition.close(EndReason::Closed).await;
    let older = files(&home.directory());
    let partition = home.led(acknowledging());
    one(&partition, with_id("lost")).await.unwrap();
    partition.close(EndReason::Closed).await;
    let newer = fs::read(home.directory().join("message-ids")).unwrap();
    // The log is the older one, as after a power cut in class memory or from a backup; the file is the newer one.
    for (path, bytes) in &older {
        fs::write(path, bytes).unwrap();
    }
    let forge = |path: &Path| fs::write(path.join("message-ids"), &newer).unwrap();
    forge(&home.directory());
    let partition = home.led(acknowledging());
    assert_eq!(
        one(&partition, with_id("lost")).await,
        Ok(1),
        "it is not stored"
    );
    partition.close(EndReason::Closed).await;
    // The same when the log has gone on with other records.
    for (path, bytes) in &older {
        fs::write(path, bytes).unwrap();
    }
    let partition = home.led(spec());
    one(&partition, message("another", &[])).await.unwrap();
    partition.close(EndReason::Closed).await;
    forge(&home.directory());
    let partition = home.led(acknowledging());
    assert_eq!(
        one(&partition, with_id("lost")).await,
        Ok(2),
        "it is not stored"
    );
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
}

#[tokio::test]
async fn an_edit_to_on_reads_what_the_log_has() {
    let home = home();
    let partition = home.led(spec());
    assert_eq!(one(&partition, with_id("a")).await, Ok(0));
    partition.configure(acknowledging());
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
    assert!(partition.acknowledges_jetstream());
    partition.configure(spec());
    assert_eq!(one(&partition, with_id("a")).await, Ok(1));
    assert!(!partition.acknowledges_jetstream());
}

#[tokio::test]
async fn a_full_window_refuses_new_ids_and_knows_the_old_ones() {
    let home = Home::new(Limits {
        nats_message_id_bytes: 400,
        ..Limits::default()
    });
    let partition = home.led(acknowledging());
    for (offset, id) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(one(&partition, with_id(id)).await, Ok(offset as u64));
    }
    assert_eq!(
        one(&partition, with_id("c")).await,
        refused(Refusal::WindowFull)
    );
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
    assert_eq!(one(&partition, message("without", &[])).await, Ok(2));
    // The bound is the broker's: what a partition remembered is given back when it ends.
    partition.close(EndReason::Deleted).await;
    let partition = home.led(acknowledging());
    assert_eq!(one(&partition, with_id("c")).await, Ok(0));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_makes_ids_unknown_and_not_new() {
    let home = home();
    let partition = home.led(acknowledging());
    one(&partition, with_id("a")).await.unwrap();
    partition.close(EndReason::Closed).await;
    let path = home.directory().join("message-ids");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let partition = home.led(acknowledging());
    let answer = one(&partition, with_id("a")).await;
    assert!(
        matches!(&answer, Err(RejectReason::Refused(Refusal::Unavailable(why))) if why.contains("message-ids")),
        "{answer:?}"
    );
    assert_eq!(one(&partition, message("without", &[])).await, Ok(1));
    assert_eq!(home.changes(PartitionChange::MessageIdsUnknown), 1);
}
