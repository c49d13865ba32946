//! Stored positions: what lies on `__cursors` from before only the broker wrote there, and what fences members.
use super::harness::{Harness, PATIENCE, Plain};
use crate::events::Event;
use crate::partition::{AckLevel, Append, IncomingRecord, Partition, Payload};
use bascule_log::ReadMode;
use bascule_record::Batches;
use bascule_wire::liftbridge::cursors::Cursor;
use bascule_wire::liftbridge::messages::{
    Consumer, FetchCursorRequest, FetchCursorResponse, SetCursorRequest, SetCursorResponse,
};
use prost::Message as _;
use serde_json::json;
use std::time::{Duration, Instant};
use tonic::{Code, Status};

fn cursor(id: &str, stream: &str, offset: i64) -> Cursor {
    Cursor {
        stream: stream.into(),
        cursor_id: id.into(),
        offset,
        ..Cursor::default()
    }
}

/// Stores a record as nobody but the broker can, any more.
async fn plant(partition: &Partition, key: &str, value: Vec<u8>) {
    let record = IncomingRecord {
        received_bytes: (key.len() + value.len()) as u32,
        key: key.to_owned().into(),
        value: Some(value.into()),
        expected_offset: -1,
        ..IncomingRecord::default()
    };
    let (done, stored) = tokio::sync::oneshot::channel();
    let append = Append {
        payload: Payload::Records(vec![record]),
        producer: None,
        republish: false,
        ack: AckLevel::All,
        done: Box::new(move |outcome| {
            let _ = done.send(outcome);
        }),
    };
    partition.append(append).await;
    stored.await.unwrap().unwrap();
}

fn records(partition: &Partition) -> usize {
    let reader = partition.reader();
    let mut cursor = reader.cursor(0);
    let mut count = 0;
    while let Some(bytes) = cursor
        .next(reader.high_watermark(), 1 << 20, ReadMode::Blocking)
        .unwrap()
    {
        count += Batches::new(bytes)
            .map(|bytes| bascule_record::Batch::read(&bytes.unwrap()).unwrap().len())
            .sum::<usize>();
    }
    count
}

async fn fetch(client: &mut Plain, id: &str, stream: &str) -> i64 {
    let request = FetchCursorRequest {
        stream: stream.into(),
        partition: 0,
        cursor_id: id.into(),
    };
    let answer: FetchCursorResponse = client
        .unary("proto.API/FetchCursor", request, Some(PATIENCE))
        .await
        .unwrap();
    answer.offset
}

async fn set(
    client: &mut Plain,
    id: &str,
    offset: i64,
    member: Option<(&str, &str, u64)>,
) -> Result<(), Status> {
    let request = SetCursorRequest {
        stream: "s".into(),
        cursor_id: id.into(),
        offset,
        consumer: member.map(|(group, consumer, generation)| Consumer {
            group_id: group.into(),
            consumer_id: consumer.into(),
            generation,
            ..Consumer::default()
        }),
        ..SetCursorRequest::default()
    };
    let answer: Result<SetCursorResponse, Status> = client
        .unary("proto.API/SetCursor", request, Some(PATIENCE))
        .await;
    answer.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_and_keys_of_before_hide_no_position_after_compaction() {
    let harness = Harness::new();
    harness.create(
        "__cursors",
        1,
        &json!({"compact": true, "cleaner_interval_ms": 20, "segment_bytes": 256}),
    );
    let view = harness.engine.parts.view.load();
    let stream = view.stream("default", "__cursors").unwrap();
    let partition = stream.partitions[0].handle.clone().unwrap();
    plant(&partition, "c,s,0", cursor("c", "s", 7).encode_to_vec()).await;
    // Two places that had one key.
    let one_key = "x,a,b,0";
    plant(&partition, one_key, cursor("x,a", "b", 1).encode_to_vec()).await;
    plant(&partition, one_key, cursor("x", "a,b", 2).encode_to_vec()).await;
    for junk in [&b"\xff"[..], b"", &cursor("d", "s", 99).encode_to_vec()] {
        plant(&partition, "c,s,0", junk.to_vec()).await;
        plant(&partition, one_key, junk.to_vec()).await;
    }
    let planted = 9;
    let filler = 60;
    for offset in 0..filler {
        plant(
            &partition,
            "f,s,0",
            cursor("f", "s", offset).encode_to_vec(),
        )
        .await;
    }
    let limit = Instant::now() + PATIENCE;
    while records(&partition) > planted + filler as usize / 2 {
        assert!(Instant::now() < limit, "not compacted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut client = harness.connect().await;
    assert_eq!(fetch(&mut client, "c", "s").await, 7);
    assert_eq!(fetch(&mut client, "x,a", "b").await, 1);
    assert_eq!(fetch(&mut client, "x", "a,b").await, 2);
    assert_eq!(
        fetch(&mut client, "d", "s").await,
        -1,
        "not under its own key"
    );
    let events = harness.engine.events().poll(1000);
    let ignored = |event: &Event| match event {
        Event::Log {
            target, message, ..
        } => target == "cursors" && message.contains("are not valid cursor positions"),
        _ => false,
    };
    assert!(events.iter().any(ignored), "{events:?}");
}

const GROUP: &str = "__group:g";

fn is_not_assigned(refused: &Status) {
    let text = "Consumer is not currently assigned this partition";
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, text)
    );
}

async fn with_cursors() -> (Harness, Plain) {
    let harness = Harness::new();
    harness.create("s", 1, &json!({}));
    harness.create("__cursors", 1, &json!({}));
    let client = harness.connect().await;
    (harness, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_an_earlier_generation_moves_no_position_of_a_later_one() {
    let (harness, mut client) = with_cursors().await;
    harness.group("g", 5, 9, &json!({"old": 7, "new": 9}));
    set(&mut client, GROUP, 10, Some(("g", "old", 7)))
        .await
        .unwrap();
    set(&mut client, GROUP, 20, Some(("g", "new", 9)))
        .await
        .unwrap();
    is_not_assigned(
        &set(&mut client, GROUP, 11, Some(("g", "old", 7)))
            .await
            .unwrap_err(),
    );
    assert_eq!(fetch(&mut client, GROUP, "s").await, 20);
    // Who is not a member moves it, also back, and lets nobody in again; nor does who removes it.
    for offset in [5, -1] {
        set(&mut client, GROUP, offset, None).await.unwrap();
        assert_eq!(fetch(&mut client, GROUP, "s").await, offset);
        is_not_assigned(
            &set(&mut client, GROUP, 12, Some(("g", "old", 7)))
                .await
                .unwrap_err(),
        );
    }
    set(&mut client, GROUP, 6, Some(("g", "new", 9)))
        .await
        .unwrap();
    assert_eq!(fetch(&mut client, GROUP, "s").await, 6);
    let other = set(&mut client, GROUP, 6, Some(("h", "new", 9)))
        .await
        .unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument, "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_stores_for_a_group_after_its_membership_or_the_group_has_ended() {
    let (harness, mut client) = with_cursors().await;
    let first = Some(("g", "first", 10));
    harness.group("g", 10, 10, &json!({"first": 10}));
    set(&mut client, GROUP, 1, first).await.unwrap();
    harness.group("g", 10, 12, &json!({"second": 11}));
    is_not_assigned(&set(&mut client, GROUP, 2, first).await.unwrap_err());
    harness.remove_group("g");
    is_not_assigned(&set(&mut client, GROUP, 2, first).await.unwrap_err());
    // A group of the same id; the member may even have the same id.
    for id in ["first", "other"] {
        harness.group("g", 20, 20, &json!({id: 20}));
        is_not_assigned(&set(&mut client, GROUP, 2, first).await.unwrap_err());
        set(&mut client, GROUP, 3, Some(("g", id, 20)))
            .await
            .unwrap();
        is_not_assigned(&set(&mut client, GROUP, 2, first).await.unwrap_err());
        harness.remove_group("g");
    }
    assert_eq!(fetch(&mut client, GROUP, "s").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_that_the_group_has_not_reached_is_refused_by_name() {
    let (harness, mut client) = with_cursors().await;
    harness.group("g", 10, 10, &json!({"me": 10}));
    let ahead = set(&mut client, GROUP, 1, Some(("g", "me", u64::MAX))).await;
    let ahead = ahead.unwrap_err();
    assert_eq!(ahead.code(), Code::FailedPrecondition);
    let expected = format!(
        "generation {} of consumer group \"g\" is above its present one, 10",
        u64::MAX
    );
    assert!(ahead.message().starts_with(&expected), "{ahead}");
    is_not_assigned(
        &set(&mut client, "__group:h", 1, Some(("h", "me", u64::MAX)))
            .await
            .unwrap_err(),
    );
    set(&mut client, GROUP, 1, Some(("g", "me", 10)))
        .await
        .unwrap();
    // A view that lags behind what the control plane has answered: the claim waits for it.
    let later = set(&mut client, GROUP, 2, Some(("g", "me", 11)));
    let (later, ()) = tokio::join!(later, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        harness.group("g", 10, 11, &json!({"me": 10, "you": 11}));
    });
    later.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_generation_that_no_member_can_have_shuts_out_nobody() {
    let (harness, mut client) = with_cursors().await;
    let view = harness.engine.parts.view.load_full();
    let stream = view.stream("default", "__cursors").unwrap();
    let partition = stream.partitions[0].handle.clone().unwrap();
    let incarnation = view.stream("default", "s").unwrap().partitions[0].incarnation;
    let poisoned = Cursor {
        incarnation,
        generation: u64::MAX,
        ..cursor(GROUP, "s", 4)
    };
    let poisoned = poisoned.encode_to_vec();
    plant(&partition, "__group:g,s,0", poisoned.clone()).await;
    assert_eq!(fetch(&mut client, GROUP, "s").await, 4);
    harness.group("g", 10, 10, &json!({"me": 10}));
    set(&mut client, GROUP, 5, Some(("g", "me", 10)))
        .await
        .unwrap();
    assert_eq!(fetch(&mut client, GROUP, "s").await, 5);
    // Nor does one that an operator's store would otherwise keep.
    plant(&partition, "__group:g,s,0", poisoned).await;
    set(&mut client, GROUP, -1, None).await.unwrap();
    set(&mut client, GROUP, 6, Some(("g", "me", 10)))
        .await
        .unwrap();
    assert_eq!(fetch(&mut client, GROUP, "s").await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_have_a_bound_that_its_refusal_names_and_known_ones_move_on() {
    let harness = Harness::with_limits(&json!({"cursors": 2}));
    harness.create("s", 1, &json!({}));
    harness.create("__cursors", 1, &json!({}));
    let mut client = harness.connect().await;
    set(&mut client, "a", 1, None).await.unwrap();
    set(&mut client, "b", 1, None).await.unwrap();
    let refused = set(&mut client, "c", 1, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().starts_with("limits.cursors (2) "),
        "{refused}"
    );
    set(&mut client, "a", 2, None).await.unwrap();
    assert_eq!(fetch(&mut client, "a", "s").await, 2);
}
