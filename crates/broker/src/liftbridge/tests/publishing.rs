//! Publish, PublishAsync, and what is forwarded.
use super::harness::{Harness, PATIENCE, sender, to};
use bascule_wire::liftbridge::messages::{PublishRequest, PublishResponse, SetCursorResponse};
use serde_json::json;
use std::time::Duration;
use tonic::Code;

fn with(change: impl FnOnce(&mut PublishRequest)) -> PublishRequest {
    let mut request = to("orders", "v");
    change(&mut request);
    request
}

/// `(correlation id, async error code, text)` of errors, `(correlation id, −1, offset)` of acks.
fn summary(responses: &[PublishResponse]) -> Vec<(String, i32, String)> {
    let one = |response: &PublishResponse| {
        let ack = response.ack.as_ref().expect("every response has an ack");
        if let Some(error) = &response.async_error {
            assert_eq!(ack.correlation_id, "", "the ack beside an error is empty");
            return (
                response.correlation_id.clone(),
                error.code,
                error.message.clone(),
            );
        }
        assert_eq!(ack.correlation_id, response.correlation_id);
        (response.correlation_id.clone(), -1, ack.offset.to_string())
    };
    responses.iter().map(one).collect()
}

fn entry(correlation: &str, code: i32, text: &str) -> (String, i32, String) {
    (correlation.into(), code, text.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unary_publish_answers_with_the_whole_ack() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({"subject": "base"}));
    let mut client = harness.connect().await;
    let request = with(|request| {
        request.partition = 1;
        request.ack_policy = 0;
        request.expected_offset = 77;
    });
    let response = client.publish(request).await.unwrap();
    assert_eq!(response.correlation_id, "", "only the ack carries it");
    let ack = response.ack.unwrap();
    assert_eq!((ack.stream.as_str(), ack.offset), ("orders", 0));
    assert_eq!(
        (ack.partition_subject.as_str(), ack.msg_subject.as_str()),
        ("base", "base.1")
    );
    assert_eq!(
        (ack.correlation_id.as_str(), ack.ack_policy, ack.ack_error),
        ("c-v", 0, 0)
    );
    assert!(ack.ack_inbox.starts_with("ns.ack."), "{}", ack.ack_inbox);
    assert!(ack.reception_timestamp > 0 && ack.commit_timestamp >= ack.reception_timestamp);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_deadline_or_with_policy_none_a_publish_answers_at_once_and_empty() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let answer: PublishResponse = client
        .unary("proto.API/Publish", with(|_| ()), None)
        .await
        .unwrap();
    assert_eq!(answer, PublishResponse::default());
    let answer = client
        .publish(with(|request| request.ack_policy = 2))
        .await
        .unwrap();
    assert_eq!(answer, PublishResponse::default());
    let third = client.publish(with(|_| ())).await.unwrap().ack.unwrap();
    assert_eq!(third.offset, 2, "both were stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn unary_checks_come_in_order_with_their_texts() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({"concurrency_control": true}));
    harness.set("orders", 1, "readonly", json!(true));
    let mut client = harness.connect().await;
    let cases: [(PublishRequest, Code, &str); 8] = [
        (
            with(|r| r.stream = String::new()),
            Code::InvalidArgument,
            "no stream provided",
        ),
        (
            with(|r| r.stream = "none".into()),
            Code::NotFound,
            "no such stream: none",
        ),
        (
            with(|r| r.partition = 2),
            Code::NotFound,
            "no such partition: 2",
        ),
        (
            with(|r| r.partition = -1),
            Code::NotFound,
            "no such partition: -1",
        ),
        (
            with(|r| (r.partition, r.ack_policy) = (1, 2)),
            Code::FailedPrecondition,
            "readonly partition: 1",
        ),
        (
            with(|r| r.ack_policy = 2),
            Code::InvalidArgument,
            "stream with concurrency control must have AckPolicy set",
        ),
        (
            with(|r| r.expected_offset = 5),
            Code::Unknown,
            "incorrect expected offset",
        ),
        (
            with(|r| r.value = vec![1; (1 << 20) + 1].into()),
            Code::InvalidArgument,
            "message exceeds max replication size",
        ),
    ];
    for (request, code, text) in cases {
        let status = client.publish(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_resumes_a_paused_partition_or_says_why_not() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({}));
    let mut client = harness.connect().await;
    harness.set("orders", 0, "paused", json!(true));
    let refusal = Some((5, "No such stream: orders"));
    let (status, ()) = tokio::join!(client.publish(with(|_| ())), harness.answer_resume(refusal));
    let status = status.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "No such stream: orders")
    );
    let (answer, ()) = tokio::join!(client.publish(with(|_| ())), harness.answer_resume(None));
    assert_eq!(answer.unwrap().ack.unwrap().offset, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_publishes_wait_for_their_partition_in_order() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({}));
    let mut client = harness.connect().await;
    let requests = || {
        ["a", "b", "c", "d"]
            .map(|id| {
                with(|request| {
                    request.correlation_id = id.into();
                    request.partition = i32::from(id == "c");
                })
            })
            .to_vec()
    };
    harness.set("orders", 0, "paused", json!(true));
    let (answers, ()) = tokio::join!(
        client.publish_async(requests()),
        harness.answer_resume(None)
    );
    let mut answers = summary(&answers.unwrap());
    answers.sort();
    let offset = |id: &str, offset: &str| entry(id, -1, offset);
    let expected = vec![
        offset("a", "0"),
        offset("b", "1"),
        offset("c", "0"),
        offset("d", "2"),
    ];
    assert_eq!(answers, expected);

    harness.set("orders", 0, "paused", json!(true));
    let refusal = Some((13, "Failed to resume stream: raft operation timed out"));
    let (answers, ()) = tokio::join!(
        client.publish_async(requests()),
        harness.answer_resume(refusal)
    );
    let mut answers = summary(&answers.unwrap());
    answers.sort();
    let failed = |id: &str| entry(id, 3, "failed to resume stream: raft operation timed out");
    assert_eq!(
        answers,
        vec![failed("a"), failed("b"), offset("c", "1"), failed("d")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_publishes_answer_each_message_in_order_of_commit() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let requests = (0..20_000)
        .map(|i| with(|r| r.correlation_id = i.to_string()))
        .collect();
    let responses = client.publish_async(requests).await.unwrap();
    let expected: Vec<_> = (0..20_000)
        .map(|i| entry(&i.to_string(), -1, &i.to_string()))
        .collect();
    assert_eq!(summary(&responses), expected);
    let acks: Vec<_> = responses
        .iter()
        .filter_map(|response| response.ack.as_ref())
        .collect();
    assert!(
        acks.iter()
            .all(|ack| ack.ack_inbox == acks[0].ack_inbox && ack.ack_inbox.starts_with("ns.ack."))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_errors_come_for_every_policy_and_fail_nothing_else() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({}));
    harness.create("careful", 1, &json!({"concurrency_control": true}));
    harness.set("orders", 1, "readonly", json!(true));
    let mut client = harness.connect().await;
    let id = |id: &str, change: fn(&mut PublishRequest)| {
        with(|request| {
            change(request);
            request.correlation_id = id.into();
        })
    };
    let requests = vec![
        id("none", |r| (r.stream, r.ack_policy) = ("none".into(), 2)),
        id("empty", |r| r.stream = String::new()),
        id("partition", |r| (r.partition, r.ack_policy) = (9, 2)),
        id("readonly", |r| (r.partition, r.ack_policy) = (1, 2)),
        id("policy", |r| {
            (r.stream, r.ack_policy) = ("careful".into(), 2);
        }),
        id("large", |r| {
            (r.value, r.ack_policy) = (vec![0; (1 << 20) + 1].into(), 2);
        }),
        id("quiet", |r| r.ack_policy = 2),
        id("first", |r| r.stream = "careful".into()),
        id("second", |r| r.stream = "careful".into()),
        id("stored", |_| ()),
    ];
    let mut answers = summary(&client.publish_async(requests).await.unwrap());
    answers.sort();
    let mut expected = vec![
        entry("none", 2, "no such stream: none"),
        entry("empty", 2, "no such stream: "),
        entry("partition", 2, "no such partition: 9"),
        entry("readonly", 4, "readonly partition: 1"),
        entry(
            "policy",
            1,
            "stream with concurrency control must have AckPolicy set",
        ),
        entry("large", 1, "message exceeds max replication size"),
        entry("first", -1, "0"),
        entry("second", 5, "incorrect expected offset"),
        entry("stored", -1, "1"),
    ];
    expected.sort();
    assert_eq!(answers, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_changes_is_seen_by_an_open_call() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let (requests, stream) = sender();
    let mut responses = client.open_publish_async(stream).await.unwrap();
    requests.send(with(|_| ())).unwrap();
    assert!(
        responses
            .message()
            .await
            .unwrap()
            .unwrap()
            .async_error
            .is_none()
    );
    harness.set("orders", 0, "readonly", json!(true));
    requests.send(with(|_| ())).unwrap();
    let refused = responses
        .message()
        .await
        .unwrap()
        .unwrap()
        .async_error
        .unwrap();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (4, "readonly partition: 0")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_does_not_read_its_acks_is_held_up_and_loses_none() {
    const COUNT: u64 = 100_000;
    let harness = Harness::with_limits(&json!({"queue_bytes": 1 << 20}));
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let requests = (0..COUNT).map(|i| with(|r| r.correlation_id = format!("{i:0>50}")));
    let requests: Vec<_> = requests.collect();
    let mut responses = client
        .open_publish_async(tokio_stream::iter(requests))
        .await
        .unwrap();
    let stored = || harness.engine.parts.statistics.records_appended.get();
    let (mut before, mut now) = (0, stored());
    while now == 0 || now > before {
        tokio::time::sleep(Duration::from_millis(300)).await;
        (before, now) = (now, stored());
    }
    assert!(now < COUNT / 2, "{now} were stored with no ack read");
    for offset in 0..COUNT {
        let response = tokio::time::timeout(PATIENCE, responses.message())
            .await
            .unwrap();
        assert_eq!(
            response.unwrap().unwrap().ack.unwrap().offset as u64,
            offset
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_call_ends_unavailable_when_the_broker_stops_serving() {
    let harness = Harness::new();
    let mut client = harness.connect().await;
    let (_requests, stream) = sender();
    let mut responses = client.open_publish_async(stream).await.unwrap();
    harness.engine.set_serving(false);
    let status = tokio::time::timeout(PATIENCE, responses.message())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let status = client.publish(with(|_| ())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "new calls are refused");
}

/// The beginning of a `FetchMetadataRequest`, which the data plane does not read.
#[derive(Clone, PartialEq, prost::Message)]
struct Streams {
    #[prost(string, repeated, tag = "1")]
    streams: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_admin_kind_cross_to_the_control_plane() {
    let harness = Harness::new();
    let mut client = harness.connect().await;
    for (path, handler) in [
        ("proto.API/FetchMetadata", "liftbridge/FetchMetadata"),
        ("bascule.admin.v1.Admin/PurgeStream", "admin/PurgeStream"),
    ] {
        let request = Streams {
            streams: vec!["a".into()],
        };
        let call = client.unary::<_, SetCursorResponse>(path, request, Some(PATIENCE));
        let request = tokio::select! {
            _ = call => panic!("nobody answers here"),
            request = next_request(&harness) => request,
        };
        assert_eq!(
            (request.method.as_str(), &request.body[..]),
            (handler, &b"\x0a\x01a"[..])
        );
        let address = &request.caller.address;
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        assert!(request.timeout.unwrap() <= Duration::from_mins(1));
    }
    for path in [
        "proto.API/Nothing",
        "proto.API/PurgeStream",
        "bascule.admin.v1.Admin/CreateStream",
        "bascule.admin.v1.Admin/Publish",
    ] {
        let unknown = client.unary::<_, SetCursorResponse>(path, Streams::default(), None);
        assert_eq!(unknown.await.unwrap_err().code(), Code::Unimplemented);
    }
}

async fn next_request(harness: &Harness) -> crate::events::Request {
    loop {
        for event in harness.engine.events().poll(100) {
            if let crate::events::Event::Request(request) = event {
                return request;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
