//! The engine through its methods: one data directory from life to life.
use super::*;
use crate::events::{Event, PartitionChange};
use crate::partition::{AckLevel, Append, Committed, EndReason, IncomingRecord, Payload};
use bascule_wire::ErrorCode;
use bytes::Bytes;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn settings(data: &Path, limits: &Value) -> EngineSettings {
    serde_json::from_value(json!({
        "data_dir": data, "cluster_id": "c", "broker_id": "b", "runtime_threads": 2, "namespace": "n",
        "limits": limits,
    }))
    .unwrap()
}

fn engine(data: &Path) -> Engine {
    Engine::new(&settings(data, &json!({}))).unwrap()
}

fn partition_spec(incarnation: u64) -> Value {
    json!({
        "namespace": "default", "stream": "s", "number": 0, "incarnation": incarnation,
        "subject": "s", "base_subject": "s", "durability": "disk", "codec": "none", "nats_copy": "none",
        "max_record_bytes": 1000, "batch_records": 1024, "batch_bytes": 1 << 20,
        "retention_age_ms": 0, "retention_bytes": 0, "retention_messages": 0, "cleaner_interval_ms": 0,
        "segment_bytes": 1 << 20, "segment_age_ms": 0,
    })
}

fn open(engine: &Engine, incarnation: u64) {
    let specs = serde_json::from_value(json!([partition_spec(incarnation)])).unwrap();
    assert_eq!(engine.open(specs).unwrap(), []);
    engine.lead(&[(incarnation, 1)]).unwrap();
}

fn view(incarnation: u64) -> ViewChanges {
    serde_json::from_value(json!({"streams": [{
        "namespace": "default", "name": "s", "id": 1, "subject": "s", "created_ns": 0,
        "partitions": [{"number": 0, "incarnation": incarnation, "leader": "b", "leader_epoch": 1}],
    }]}))
    .unwrap()
}

/// Appends through the view, as a server does.
fn append(engine: &Engine) -> Committed {
    let view = engine.parts.view.load();
    let stream = view.stream("default", "s").unwrap();
    let partition = stream.partition(0).unwrap().handle.clone().unwrap();
    let (done, outcome) = mpsc::channel();
    let append = Append {
        payload: Payload::Records(vec![IncomingRecord {
            value: Some(Bytes::from_static(b"v")),
            ..IncomingRecord::default()
        }]),
        producer: None,
        republish: false,
        ack: AckLevel::All,
        done: Box::new(move |result| done.send(result).unwrap()),
    };
    partition.try_append(append).unwrap();
    outcome
        .recv_timeout(Duration::from_mins(1))
        .unwrap()
        .unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_closed_engine_leaves_the_directory_to_the_next() {
    let data = tempfile::tempdir().unwrap();
    let first = engine(data.path());
    let second = Engine::new(&settings(data.path(), &json!({}))).unwrap_err();
    assert_eq!(second.code, ErrorCode::DataDirectoryLocked);
    assert_eq!(second.details["process"], std::process::id());
    open(&first, 7);
    first.publish_view(1, view(7)).unwrap();
    assert_eq!(append(&first).base_offset, 0);
    first.close(Duration::ZERO);
    first.close(Duration::ZERO);
    assert_eq!(first.open(Vec::new()).unwrap_err().code, ErrorCode::Closed);
    // The first is closed, not dropped.
    let second = engine(data.path());
    open(&second, 7);
    second.publish_view(1, view(7)).unwrap();
    assert_eq!(append(&second).base_offset, 1);
    let (incarnation, status) = second.status(&[99, 7])[0];
    assert_eq!(
        (incarnation, status.high_watermark, status.log_end),
        (7, 2, 2)
    );
}

#[test]
fn a_dropped_engine_frees_what_the_view_held() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    open(&engine, 7);
    engine.publish_view(1, view(7)).unwrap();
    let partitions = std::sync::Arc::downgrade(&engine.parts.partitions);
    drop(engine);
    until("the partition and what it refers to are gone", || {
        partitions.strong_count() == 0
    });
}

#[test]
fn views_ascend_and_removed_streams_are_gone() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    engine.publish_view(5, view(7)).unwrap();
    let stream = engine
        .parts
        .view
        .load()
        .stream("default", "s")
        .cloned()
        .unwrap();
    assert!(
        stream.partition(0).unwrap().handle.is_none(),
        "it is not open here"
    );
    assert!(stream.partition(1).is_none() && stream.partition(-1).is_none());
    let again = engine.publish_view(5, ViewChanges::default()).unwrap_err();
    assert_eq!(again.code, ErrorCode::InvalidArgument);
    let removed =
        serde_json::from_value(json!({"removed": [["default", "s"], ["x", "y"]]})).unwrap();
    engine.publish_view(6, removed).unwrap();
    assert!(engine.parts.view.load().stream("default", "s").is_none());
}

#[test]
fn unknown_keys_in_documents_are_refused() {
    let mut spec = partition_spec(1);
    spec["segment_byte"] = json!(1);
    let refused = serde_json::from_value::<crate::partition::PartitionSpec>(spec).unwrap_err();
    assert!(refused.to_string().contains("segment_byte"));
    assert!(serde_json::from_value::<ViewChanges>(json!({"stream": []})).is_err());
}

#[test]
fn deleted_partitions_vanish_after_the_grace_period_open_or_not() {
    let data = tempfile::tempdir().unwrap();
    let engine = Engine::new(&settings(data.path(), &json!({"grace_ms": 300}))).unwrap();
    let partitions = data.path().join("partitions");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&partitions).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    open(&engine, 7);
    open(&engine, 8);
    open(&engine, 9);
    engine.end(&[7, 8], EndReason::Paused).unwrap();
    assert_eq!(names().len(), 3);
    // 7 is not open any more, 8 is not touched, 9 is open, 10 never was.
    engine.end(&[7, 9, 10], EndReason::Deleted).unwrap();
    let marked = names()
        .iter()
        .filter(|name| name.contains(".deleted-"))
        .count();
    assert_eq!((marked, names().len()), (2, 3));
    until("the files are gone", || names() == ["8"]);
}

#[test]
fn a_partition_that_cannot_be_opened_is_named_and_the_others_open() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    std::fs::write(data.path().join("partitions/8"), "a file").unwrap();
    let specs = serde_json::from_value(json!([partition_spec(7), partition_spec(8)])).unwrap();
    let failed = engine.open(specs).unwrap();
    assert_eq!(
        (failed.len(), failed[0].0, failed[0].1),
        (1, 8, ErrorCode::StorageFailed)
    );
    assert_eq!(engine.status(&[7, 8]).len(), 1);
}

#[test]
fn a_torn_tail_is_reported_and_what_was_acked_is_there() {
    let data = tempfile::tempdir().unwrap();
    let first = engine(data.path());
    open(&first, 7);
    first.publish_view(1, view(7)).unwrap();
    append(&first);
    // As a kill leaves it: the files as they are, without the mark of a clean end.
    let copy = tempfile::tempdir().unwrap();
    copy_all(data.path(), copy.path());
    drop(first);
    let second = engine(copy.path());
    open(&second, 7);
    let recovered: Vec<Event> = second.events().poll(99);
    assert!(recovered.iter().any(|event| matches!(
        event,
        Event::Partition {
            change: PartitionChange::Recovered,
            ..
        }
    )));
    assert_eq!(second.status(&[7])[0].1.high_watermark, 1);
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_all(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn a_port_in_use_is_named() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    let port = engine.bind("127.0.0.1", 0).unwrap();
    engine.listen().unwrap();
    let refused = engine.bind("127.0.0.1", port).unwrap_err();
    assert_eq!(refused.code, ErrorCode::AddressInUse);
    assert!(refused.text.contains(&port.to_string()));
    assert_eq!(
        engine.bind("256.0.0.1", 0).unwrap_err().code,
        ErrorCode::AddressUnusable
    );
    engine.close(Duration::from_secs(5));
    std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[test]
fn a_bound_port_refuses_connections_until_the_engine_listens() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    assert_eq!(
        engine.listen().unwrap_err().code,
        ErrorCode::InvalidArgument
    );
    let port = engine.bind("127.0.0.1", 0).unwrap();
    let refused = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    engine.listen().unwrap();
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    engine.close(Duration::from_secs(5));
}

#[test]
fn a_port_that_is_taken_between_bind_and_listen_is_named() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (engine(first.path()), engine(second.path()));
    let port = first.bind("127.0.0.1", 0).unwrap();
    second.bind("127.0.0.1", port).unwrap();
    second.listen().unwrap();
    assert_eq!(first.listen().unwrap_err().code, ErrorCode::AddressInUse);
}

#[test]
fn the_metadata_log_needs_to_be_opened_once() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    assert_eq!(
        engine.read_barrier(1).unwrap_err().code,
        ErrorCode::MetadataStopped
    );
    assert_eq!(engine.metadata_open().unwrap(), (0, Vec::new(), 0));
    assert_eq!(
        engine.metadata_open().unwrap_err().code,
        ErrorCode::InvalidArgument
    );
    engine.read_barrier(1).unwrap();
    until("the barrier", || {
        engine
            .events()
            .poll(9)
            .iter()
            .any(|event| matches!(event, Event::Barrier { .. }))
    });
}

#[test]
fn files_that_vanished_are_not_begun_again() {
    let data = tempfile::tempdir().unwrap();
    let first = engine(data.path());
    open(&first, 7);
    first.close(Duration::ZERO);
    let files = data.path().join("partitions/7");
    std::fs::rename(&files, data.path().join("elsewhere")).unwrap();
    let second = engine(data.path());
    let specs = || serde_json::from_value(json!([partition_spec(7)])).unwrap();
    let failures = second.open(specs()).unwrap();
    assert_eq!(
        (failures.len(), failures[0].1),
        (1, ErrorCode::PartitionMissing)
    );
    assert!(!files.exists(), "nothing was made in its place");
    std::fs::rename(data.path().join("elsewhere"), &files).unwrap();
    assert_eq!(
        second.open(specs()).unwrap(),
        [],
        "restored, they are opened"
    );
    second.end(&[7], EndReason::Deleted).unwrap();
    assert!(!data.path().join("created/7").exists());
}

#[test]
fn files_that_cannot_be_deleted_are_reported() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    open(&engine, 7);
    // The parent is gone, so the files cannot be renamed in it.
    std::fs::rename(data.path().join("partitions"), data.path().join("away")).unwrap();
    let error = engine.end(&[7], EndReason::Deleted).unwrap_err();
    assert_eq!(error.code, ErrorCode::StorageFailed);
}

#[test]
fn the_journal_is_used_from_so_many_partitions_on_as_is_set() {
    let data = tempfile::tempdir().unwrap();
    let limits = json!({"journal_from_dirty_files": 1});
    let engine = Engine::new(&settings(data.path(), &limits)).unwrap();
    open(&engine, 7);
    engine.publish_view(1, view(7)).unwrap();
    // The first rounds find no journal file and have one made.
    until("no round was journaled", || {
        append(&engine);
        engine.statistics()["sync_journaled_rounds"].as_u64() > Some(0)
    });
    assert!(data.path().join("journal").exists());
    engine.close(Duration::ZERO);
}

#[test]
fn an_epoch_is_confirmed_with_an_offset_that_a_power_cut_does_not_move() {
    let data = tempfile::tempdir().unwrap();
    let engine = engine(data.path());
    let mut spec = partition_spec(7);
    spec["durability"] = json!("memory");
    let specs = serde_json::from_value(json!([spec])).unwrap();
    assert_eq!(engine.open(specs).unwrap(), []);
    engine.lead(&[(7, 1)]).unwrap();
    engine.publish_view(1, view(7)).unwrap();
    append(&engine);
    assert_eq!(append(&engine).base_offset, 1);
    let digits = "0".repeat(32);
    let request = json!({
        "sink": 1, "generation": 1, "epoch": 0, "token": digits, "winners": [],
        "targets": [{"incarnation": 7, "rows": 1, "digest": digits}],
    });
    let request = serde_json::from_value(request).unwrap();
    let answer = engine.confirm_stage(&request).unwrap();
    let synced = engine.partition(7).unwrap().reader().durable_end();
    assert!(answer.from_offsets[&7] <= synced, "{answer:?}, {synced}");
}
