//! Subscribe: positions, delivery and every way to end.
use super::harness::{Harness, PATIENCE, to};
use bascule_wire::liftbridge::messages::{
    Consumer, Header, Message, PublishRequest, StartPosition as Start, StopPosition as Stop,
    SubscribeRequest,
};
use serde_json::json;
use std::time::Duration;
use tonic::{Code, Status};

fn at(start: Start, stop: Stop) -> SubscribeRequest {
    SubscribeRequest {
        stream: "orders".into(),
        start_position: start as i32,
        stop_position: stop as i32,
        ..SubscribeRequest::default()
    }
}

/// A broker with values `0` … `count − 1` in `orders`.
async fn filled(count: usize) -> (Harness, super::harness::Plain) {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let values: Vec<String> = (0..count).map(|i| i.to_string()).collect();
    client
        .fill(
            "orders",
            &values.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    (harness, client)
}

fn group(group: &str, consumer: &str) -> Consumer {
    Consumer {
        group_id: group.into(),
        consumer_id: consumer.into(),
        group_epoch: 1,
        generation: 0,
    }
}

fn offsets(messages: &[Message]) -> Vec<i64> {
    messages.iter().map(|message| message.offset).collect()
}

fn is(status: &Status, code: Code, text: &str) {
    assert_eq!((status.code(), status.message()), (code, text));
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_carry_every_field() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({"subject": "base"}));
    let mut client = harness.connect().await;
    let request = PublishRequest {
        key: "key".into(),
        partition: 1,
        headers: [
            ("mine".to_owned(), b"yes".to_vec()),
            ("subject".to_owned(), b"fake".to_vec()),
        ]
        .into(),
        ..to("orders", "v")
    };
    let stored = client.publish(request).await.unwrap().ack.unwrap();
    let request = SubscribeRequest {
        partition: 1,
        ..at(Start::Earliest, Stop::StopLatest)
    };
    let (mut messages, end) = client.read(request).await.unwrap();
    is(&end, Code::ResourceExhausted, "Stop offset reached");
    // A map has its entries in any order.
    messages[0]
        .header_list
        .sort_by_key(|header| header.name.clone());
    let header = |name: &'static str, value: &'static str| Header {
        name: name.into(),
        value: value.into(),
    };
    let expected = Message {
        key: "key".into(),
        value: "v".into(),
        timestamp: stored.reception_timestamp,
        stream: "orders".into(),
        partition: 1,
        subject: "base.1".into(),
        headers: [("mine", "yes"), ("subject", "base.1"), ("reply", "")]
            .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
            .into(),
        // The map has the broker's own `subject`.
        header_list: vec![header("mine", "yes"), header("subject", "fake")],
        ..Message::default()
    };
    assert_eq!(messages, vec![expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_start_position_begins_where_it_should() {
    let (harness, mut client) = filled(5).await;
    let stop = |request: SubscribeRequest| SubscribeRequest {
        stop_offset: 6,
        ..request
    };
    let (all, _) = client
        .read(at(Start::Earliest, Stop::StopLatest))
        .await
        .unwrap();
    let time = |i: usize| all[i].timestamp;
    let cases = [
        (at(Start::Earliest, Stop::StopOffset), 0),
        (at(Start::Latest, Stop::StopOffset), 4),
        (at(Start::NewOnly, Stop::StopOffset), 5),
        (
            SubscribeRequest {
                start_offset: 2,
                ..at(Start::Offset, Stop::StopOffset)
            },
            2,
        ),
        (
            SubscribeRequest {
                start_offset: -9,
                ..at(Start::Offset, Stop::StopOffset)
            },
            0,
        ),
        (
            SubscribeRequest {
                start_timestamp: time(3),
                ..at(Start::Timestamp, Stop::StopOffset)
            },
            3,
        ),
        (
            SubscribeRequest {
                start_timestamp: i64::MIN,
                ..at(Start::Timestamp, Stop::StopOffset)
            },
            0,
        ),
        (
            SubscribeRequest {
                start_timestamp: i64::MAX,
                ..at(Start::Timestamp, Stop::StopOffset)
            },
            5,
        ),
    ];
    let mut open = Vec::new();
    for (request, first) in cases {
        open.push((client.subscribe(stop(request)).await.unwrap(), first));
    }
    let mut beyond = client
        .subscribe(SubscribeRequest {
            start_offset: 100,
            ..at(Start::Offset, Stop::StopOnCancel)
        })
        .await
        .unwrap();
    client.fill("orders", &["5", "6"]).await;
    for (mut messages, first) in open {
        for offset in first..=6 {
            assert_eq!(messages.message().await.unwrap().unwrap().offset, offset);
        }
        is(
            &messages.message().await.unwrap_err(),
            Code::ResourceExhausted,
            "Stop offset reached",
        );
    }
    assert_eq!(
        beyond.message().await.unwrap().unwrap().offset,
        5,
        "beyond the end begins at the next commit"
    );
    drop(harness);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stop_position_ends_where_it_should() {
    let (_harness, mut client) = filled(5).await;
    let (all, end) = client
        .read(at(Start::Earliest, Stop::StopLatest))
        .await
        .unwrap();
    assert_eq!(offsets(&all), [0, 1, 2, 3, 4]);
    is(&end, Code::ResourceExhausted, "Stop offset reached");
    let request = SubscribeRequest {
        start_offset: 1,
        stop_offset: 3,
        ..at(Start::Offset, Stop::StopOffset)
    };
    assert_eq!(offsets(&client.read(request).await.unwrap().0), [1, 2, 3]);
    let request = SubscribeRequest {
        stop_timestamp: all[2].timestamp,
        ..at(Start::Earliest, Stop::StopTimestamp)
    };
    assert_eq!(offsets(&client.read(request).await.unwrap().0), [0, 1, 2]);
    let request = SubscribeRequest {
        stop_timestamp: i64::MAX,
        ..at(Start::Latest, Stop::StopTimestamp)
    };
    assert_eq!(offsets(&client.read(request).await.unwrap().0), [4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_come_instead_of_the_handshake() {
    let (harness, mut client) = filled(5).await;
    harness.create("empty", 1, &json!({}));
    let empty = |request: SubscribeRequest| SubscribeRequest {
        stream: "empty".into(),
        ..request
    };
    let early =
        "Failed to lookup offset for timestamp: timestamp is before the beginning of the log";
    let cases = [
        (
            SubscribeRequest {
                consumer: Some(group("g", "")),
                stream: "none".into(),
                ..SubscribeRequest::default()
            },
            Code::InvalidArgument,
            "Consumer id cannot be empty when group id is provided",
        ),
        (
            SubscribeRequest {
                stream: "none".into(),
                ..SubscribeRequest::default()
            },
            Code::NotFound,
            "No such partition",
        ),
        (
            SubscribeRequest {
                partition: 1,
                ..at(Start::Earliest, Stop::StopLatest)
            },
            Code::NotFound,
            "No such partition",
        ),
        (
            SubscribeRequest {
                partition: -1,
                ..at(Start::Earliest, Stop::StopLatest)
            },
            Code::NotFound,
            "No such partition",
        ),
        (
            SubscribeRequest {
                start_position: 9,
                ..at(Start::Earliest, Stop::StopLatest)
            },
            Code::InvalidArgument,
            "Unknown StartPosition 9",
        ),
        (
            SubscribeRequest {
                stop_position: 9,
                ..at(Start::Earliest, Stop::StopLatest)
            },
            Code::InvalidArgument,
            "Unknown StopPosition 9",
        ),
        (
            at(Start::NewOnly, Stop::StopLatest),
            Code::InvalidArgument,
            "Stop offset is before start offset: 4 < 5",
        ),
        (
            SubscribeRequest {
                stop_offset: -2,
                ..at(Start::Earliest, Stop::StopOffset)
            },
            Code::InvalidArgument,
            "Stop offset is before start offset: -2 < 0",
        ),
        (
            SubscribeRequest {
                stop_timestamp: 1,
                ..at(Start::Earliest, Stop::StopTimestamp)
            },
            Code::Internal,
            early,
        ),
        (
            empty(at(Start::NewOnly, Stop::StopLatest)),
            Code::ResourceExhausted,
            "Stream is empty",
        ),
        (
            empty(at(Start::Earliest, Stop::StopTimestamp)),
            Code::Internal,
            "Failed to lookup offset for timestamp: the log is empty",
        ),
    ];
    for (request, code, text) in cases {
        is(&client.subscribe(request).await.unwrap_err(), code, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_led_elsewhere_is_refused_unless_a_replica_of_the_isr_may_answer() {
    let (harness, mut client) = filled(1).await;
    harness.set("orders", 0, "leader", json!("b2"));
    is(
        &client
            .subscribe(at(Start::Earliest, Stop::StopLatest))
            .await
            .unwrap_err(),
        Code::FailedPrecondition,
        "Server not partition leader",
    );
    let from_replica = SubscribeRequest {
        read_isr_replica: true,
        ..at(Start::Earliest, Stop::StopLatest)
    };
    is(
        &client.subscribe(from_replica.clone()).await.unwrap_err(),
        Code::FailedPrecondition,
        "Server not partition leader",
    );
    harness.set("orders", 0, "isr", json!(["b2", "b1"]));
    is(
        &client
            .subscribe(SubscribeRequest {
                consumer: Some(group("g", "c")),
                ..from_replica.clone()
            })
            .await
            .unwrap_err(),
        Code::InvalidArgument,
        "Consumer groups not compatible with ReadISRReplica",
    );
    assert!(client.subscribe(from_replica).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_partition_is_refused_unless_it_is_to_be_resumed() {
    let (harness, mut client) = filled(1).await;
    harness.set("orders", 0, "paused", json!(true));
    let request = at(Start::Earliest, Stop::StopOnCancel);
    is(
        &client.subscribe(request.clone()).await.unwrap_err(),
        Code::FailedPrecondition,
        "commit log was closed",
    );
    let resuming = SubscribeRequest {
        resume: true,
        ..request
    };
    let refusal = Some((13, "Failed to resume stream: no"));
    let (status, ()) = tokio::join!(
        client.subscribe(resuming.clone()),
        harness.answer_resume(refusal)
    );
    is(
        &status.unwrap_err(),
        Code::Internal,
        "Failed to resume stream: no",
    );
    let (stream, ()) = tokio::join!(client.subscribe(resuming), harness.answer_resume(None));
    assert!(stream.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_partitions_end_where_they_end() {
    let (harness, mut client) = filled(3).await;
    harness.create("empty", 1, &json!({}));
    let mut live = client
        .subscribe(at(Start::Latest, Stop::StopOnCancel))
        .await
        .unwrap();
    assert_eq!(live.message().await.unwrap().unwrap().offset, 2);
    harness.set("orders", 0, "readonly", json!(true));
    harness.set("empty", 0, "readonly", json!(true));
    let end = tokio::time::timeout(PATIENCE, live.message())
        .await
        .unwrap()
        .unwrap_err();
    is(&end, Code::ResourceExhausted, "End of readonly partition");
    let (messages, end) = client
        .read(at(Start::Earliest, Stop::StopOnCancel))
        .await
        .unwrap();
    assert_eq!(offsets(&messages), [0, 1, 2]);
    is(&end, Code::ResourceExhausted, "Stop offset reached");
    let refused = client
        .subscribe(at(Start::NewOnly, Stop::StopOnCancel))
        .await
        .unwrap_err();
    is(
        &refused,
        Code::InvalidArgument,
        "Stop offset is before start offset: 2 < 3",
    );
    let request = SubscribeRequest {
        stream: "empty".into(),
        ..at(Start::NewOnly, Stop::StopOnCancel)
    };
    is(
        &client.read(request).await.unwrap().1,
        Code::ResourceExhausted,
        "End of readonly partition",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_stream_ends_its_subscriptions() {
    let (harness, mut client) = filled(3).await;
    let mut live = client
        .subscribe(at(Start::NewOnly, Stop::StopOnCancel))
        .await
        .unwrap();
    harness.delete("orders");
    let end = tokio::time::timeout(PATIENCE, live.message())
        .await
        .unwrap()
        .unwrap_err();
    is(&end, Code::NotFound, "commit log was deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn live_messages_arrive_in_order_while_they_are_published() {
    let (_harness, mut client) = filled(1).await;
    let mut live = client
        .subscribe(at(Start::Earliest, Stop::StopOnCancel))
        .await
        .unwrap();
    let requests = (1..30_000)
        .map(|i| PublishRequest {
            ack_policy: 2,
            ..to("orders", &i.to_string())
        })
        .collect();
    let publishing = client.publish_async(requests);
    let reading = async {
        for i in 0..30_000 {
            let message = tokio::time::timeout(PATIENCE, live.message())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            assert_eq!(
                (message.offset, &message.value[..]),
                (i, i.to_string().as_bytes())
            );
        }
    };
    let (published, ()) = tokio::join!(publishing, reading);
    assert_eq!(published.unwrap(), vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_does_not_read_holds_nobody_up() {
    let (harness, mut client) = filled(0).await;
    let mut slow = client
        .subscribe(at(Start::Earliest, Stop::StopOnCancel))
        .await
        .unwrap();
    let value = "x".repeat(10_000);
    let requests = (0..2_000).map(|_| to("orders", &value)).collect();
    assert_eq!(client.publish_async(requests).await.unwrap().len(), 2_000);
    let delivered = harness.engine.parts.statistics.records_delivered.get();
    assert!(
        delivered < 1_000,
        "{delivered} of 20 MB wait for a subscriber that does not read"
    );
    for offset in 0..2_000 {
        assert_eq!(slow.message().await.unwrap().unwrap().offset, offset);
    }
    drop(slow);
    let open = || harness.engine.parts.statistics.subscriptions_open.get();
    let until = tokio::time::Instant::now() + PATIENCE;
    while open() > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(open(), 0, "a cancelled subscription is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_subscriptions_is_named() {
    let harness = Harness::with_limits(&json!({"subscriptions": 1}));
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let request = at(Start::NewOnly, Stop::StopOnCancel);
    let _first = client.subscribe(request.clone()).await.unwrap();
    let refused = client.subscribe(request).await.unwrap_err();
    is(
        &refused,
        Code::ResourceExhausted,
        "limits.subscriptions (1) subscriptions are open: end some, try again later, or raise it",
    );
}
