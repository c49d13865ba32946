//! Batches of idempotent producers: stored whole, once, or not at all.
use super::harness::{Harness, to};
use bascule_record::Producer;
use bascule_wire::liftbridge::messages::{PublishRequest, PublishResponse};
use bascule_wire::liftbridge::publish::ProducerBatch;
use serde_json::json;
use tonic::Code;

/// The records of one batch; the first one says so.
fn batch(epoch: u32, base_sequence: u32, values: &[&str]) -> Vec<PublishRequest> {
    let mut requests: Vec<PublishRequest> =
        values.iter().map(|value| to("orders", value)).collect();
    let producer = Producer {
        id: 7,
        epoch,
        base_sequence,
    };
    let records = values.len() as u32;
    requests[0].producer_batch = ProducerBatch { producer, records }
        .to_bytes()
        .to_vec()
        .into();
    requests
}

/// Offset of each ack, text of each error.
fn said(responses: &[PublishResponse]) -> Vec<String> {
    let one = |response: &PublishResponse| match &response.async_error {
        Some(error) => error.message.clone(),
        None => response.ack.as_ref().unwrap().offset.to_string(),
    };
    responses.iter().map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_comes_again_is_answered_as_the_first_time() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let both = [batch(0, 0, &["a", "b"]), batch(0, 2, &["c"])].concat();
    let first = client.publish_async(both.clone()).await.unwrap();
    assert_eq!(said(&first), ["0", "1", "2"]);
    let again = client.publish_async(both).await.unwrap();
    assert_eq!(said(&again), ["0", "1", "2"]);
    let times = |responses: &[PublishResponse]| -> Vec<i64> {
        let acks = responses
            .iter()
            .filter_map(|response| response.ack.as_ref());
        acks.map(|ack| ack.reception_timestamp).collect()
    };
    assert_eq!(times(&first), times(&again));
    let other = client.publish(to("orders", "d")).await.unwrap();
    assert_eq!(other.ack.unwrap().offset, 3, "nothing was stored twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_record_is_a_batch_of_its_own() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    for (sequence, offset) in [(0, 0), (0, 0), (1, 1), (1, 1)] {
        let request = batch(0, sequence, &["a"]).remove(0);
        let ack = client.publish(request).await.unwrap().ack.unwrap();
        assert_eq!(ack.offset, offset, "sequence {sequence}");
    }
    let refused = client.publish(batch(0, 7, &["a"]).remove(0)).await;
    let status = refused.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::FailedPrecondition,
            "failed to append: sequence 7 does not follow: 2 is next"
        )
    );
    let long = client.publish(batch(0, 2, &["a", "b"]).remove(0)).await;
    assert_eq!(long.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_gap_refuses_the_whole_batch_and_a_new_epoch_restarts_sequences() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let mut send = async |requests| said(&client.publish_async(requests).await.unwrap());
    assert_eq!(send(batch(0, 0, &["a"])).await, ["0"]);
    let gap = "failed to append: sequence 5 does not follow: 1 is next";
    assert_eq!(send(batch(0, 5, &["x", "y"])).await, [gap, gap]);
    assert_eq!(send(batch(1, 0, &["b"])).await, ["1"]);
    let fenced = "failed to append: producer epoch 0 is fenced by 1";
    assert_eq!(send(batch(0, 1, &["x"])).await, [fenced]);
    assert_eq!(send(batch(1, 1, &["c"])).await, ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_record_that_cannot_be_stored_keeps_its_batch_out_and_the_sequence_stays() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let large = "x".repeat((1 << 20) + 1);
    let answers = client
        .publish_async(batch(0, 0, &["a", &large, "b"]))
        .await
        .unwrap();
    assert_eq!(
        said(&answers),
        [
            "another record of its batch was refused",
            "message exceeds max replication size",
            "another record of its batch was refused"
        ]
    );
    let answers = client
        .publish_async(batch(0, 0, &["a", "b"]))
        .await
        .unwrap();
    assert_eq!(said(&answers), ["0", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_plain_records_of_one_call_keep_their_order() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({}));
    let mut client = harness.connect().await;
    let mut requests = vec![to("orders", "plain")];
    requests.extend(batch(0, 0, &["a", "b"]));
    requests.push(to("orders", "plain"));
    requests.extend(batch(0, 2, &["c"]));
    requests.push(to("orders", "plain"));
    let answers = client.publish_async(requests).await.unwrap();
    assert_eq!(said(&answers), ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_for_a_paused_partition_waits_whole() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    harness.set("orders", 0, "paused", json!(true));
    let requests = [batch(0, 0, &["a", "b"]), vec![to("orders", "plain")]].concat();
    let (answers, ()) = tokio::join!(
        client.publish_async(requests.clone()),
        harness.answer_resume(None)
    );
    assert_eq!(said(&answers.unwrap()), ["0", "1", "2"]);
    let again = client.publish_async(requests).await.unwrap();
    assert_eq!(said(&again), ["0", "1", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_not_whole_ends_the_call() {
    let harness = Harness::new();
    harness.create("orders", 2, &json!({}));
    let mut client = harness.connect().await;
    let mut elsewhere = batch(0, 0, &["a", "b"]);
    elsewhere[1].partition = 1;
    let broken = [
        batch(0, 0, &["a", "b"])[..1].to_vec(),
        [batch(0, 0, &["a", "b"])[..1].to_vec(), batch(0, 2, &["c"])].concat(),
        elsewhere,
    ];
    for requests in broken {
        let status = client.publish_async(requests).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with("producerBatch: "), "{status}");
    }
    let mut garbage = to("orders", "a");
    garbage.producer_batch = vec![1; 7].into();
    let status = client.publish_async(vec![garbage.clone()]).await;
    assert_eq!(status.unwrap_err().code(), Code::InvalidArgument);
    let status = client.publish(garbage).await;
    assert_eq!(status.unwrap_err().code(), Code::InvalidArgument);
    for id in [Producer::FIRST_SINK_ID, u64::MAX] {
        let mut of_a_sink = to("orders", "a");
        let producer = Producer {
            id,
            epoch: 0,
            base_sequence: 0,
        };
        let batch = ProducerBatch {
            producer,
            records: 1,
        };
        of_a_sink.producer_batch = batch.to_bytes().to_vec().into();
        let refused = [
            client
                .publish_async(vec![of_a_sink.clone()])
                .await
                .map(drop),
            client.publish(of_a_sink).await.map(drop),
        ];
        for status in refused.map(Result::unwrap_err) {
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains("not below 2^63"), "{status}");
        }
    }
    let stored = client.publish(to("orders", "d")).await.unwrap();
    assert_eq!(stored.ack.unwrap().offset, 0, "nothing of them was stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_not_whole_is_charged_like_a_message_that_is_not() {
    let harness = Harness::with_limits(&json!({"request_bytes": 100_000}));
    harness.create("orders", 1, &json!({}));
    let mut client = harness.connect().await;
    let text = "x".repeat(1000);
    let values: Vec<&str> = std::iter::repeat_n(text.as_str(), 200).collect();
    let refused = client
        .publish_async(batch(0, 0, &values))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("limits.request_bytes (100000)"));
    for sequence in [0, 40, 80] {
        let answers = client
            .publish_async(batch(0, sequence, &values[..40]))
            .await
            .unwrap();
        assert_eq!(said(&answers)[39], (sequence + 39).to_string());
    }
    let admission = &harness.engine.parts.admission;
    assert_eq!(admission.request_bytes(), 0, "all is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_policy_of_no_meaning_or_none_too_many_decides_for_a_batch() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({"concurrency_control": true}));
    let mut client = harness.connect().await;
    let missing = "stream with concurrency control must have AckPolicy set";
    for (policies, text) in [
        ([0, 9, 2], "Unknown AckPolicy 9"),
        ([2, 1, 9], "Unknown AckPolicy 9"),
        ([0, 1, 2], missing),
        ([2, 0, 0], missing),
    ] {
        let mut requests = batch(0, 0, &["a", "b", "c"]);
        for (request, policy) in requests.iter_mut().zip(policies) {
            request.ack_policy = policy;
        }
        let refused = client.publish_async(requests).await.unwrap();
        assert_eq!(said(&refused), [text; 3], "{policies:?}");
    }
}
