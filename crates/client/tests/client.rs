//! The client against a fake broker.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]
use bascule_client::ErrorCode;
mod fake;

use arrow_array::Array;
use bascule_client::{Client, Error, NewRecord, Options, Producer, PublishBatch, Subscription};
use bascule_wire::liftbridge::messages::SubscribeRequest;
use prost::Message;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn never_interrupt() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn connected(options: &[u8]) -> Client {
    Client::connect(
        &fake::start(),
        Options::from_json(options).unwrap(),
        &mut never_interrupt,
    )
    .unwrap()
}

fn batch(client: &Client, stream: &str, policy: i32, values: &[&str]) -> PublishBatch {
    let mut batch = client.publish_batch(stream, 0, policy);
    for value in values {
        batch.push(&NewRecord {
            value: Some(value.as_bytes()),
            ..NewRecord::default()
        });
    }
    batch
}

fn published(
    client: &Client,
    stream: &str,
    policy: i32,
    values: &[&str],
) -> Result<Vec<(i64, i64)>, Error> {
    let mut batch = batch(client, stream, policy, values);
    client.publish(&mut batch, None, SECOND * 60, &mut never_interrupt)?;
    Ok(batch.places().to_vec())
}

fn subscribed(client: &Client, stream: &str, count: i64) -> Result<Subscription, Error> {
    let request = SubscribeRequest {
        stream: stream.into(),
        stop_offset: count,
        ..SubscribeRequest::default()
    };
    client.subscribe(&request.encode_to_vec(), None, &mut never_interrupt)
}

#[test]
fn a_batch_comes_back_with_offsets_in_order() {
    let client = connected(br#"{"max_in_flight": 16}"#);
    let values: Vec<String> = (0..5000).map(|i| format!("value {i}")).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let places = published(&client, "ok", 1, &values).unwrap();
    assert_eq!(
        places,
        (0..5000)
            .map(|offset| (offset, 1000 + offset))
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_single_record_is_acknowledged() {
    let client = connected(b"");
    assert_eq!(
        published(&client, "ok", 0, &["one"]).unwrap(),
        vec![(0, 1000)]
    );
}

#[test]
fn with_policy_none_publish_returns_without_offsets() {
    let client = connected(b"");
    assert_eq!(published(&client, "ok", 2, &["one"]).unwrap(), vec![]);
    assert_eq!(
        published(&client, "ok", 2, &["one", "two", "three"]).unwrap(),
        vec![]
    );
}

#[test]
fn the_first_refused_record_is_named() {
    let client = connected(b"");
    let error =
        published(&client, "picky", 1, &["good", "good", "bad", "good", "bad"]).unwrap_err();
    assert_eq!(error.code, ErrorCode::TooLarge);
    assert_eq!(
        (error.details.index, error.details.acknowledged),
        (Some(2), Some(3))
    );
    assert_eq!(
        error.details_json(),
        r#"{"index":2,"bytes":28,"acknowledged":3}"#
    );
}

#[test]
fn an_unknown_stream_is_the_same_error_for_one_record_and_for_many() {
    let client = connected(b"");
    for values in [&["one"][..], &["one", "two"][..]] {
        let error = published(&client, "missing", 1, values).unwrap_err();
        assert_eq!(
            (error.code, error.details.index),
            (ErrorCode::StreamNotFound, Some(0))
        );
        assert_eq!(error.message, "no such stream: missing");
    }
}

#[test]
fn a_deadline_leaves_the_outcome_unknown() {
    let client = connected(b"");
    for values in [&["one"][..], &["one", "two"][..]] {
        let mut batch = batch(&client, "silent", 1, values);
        let before = Instant::now();
        let error = client
            .publish(
                &mut batch,
                None,
                Duration::from_millis(150),
                &mut never_interrupt,
            )
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::OutcomeUnknown);
        assert!(before.elapsed() >= Duration::from_millis(150));
        assert_eq!(error.details.resend, None);
    }
}

#[test]
fn a_lost_connection_leaves_the_rest_unknown() {
    let client = connected(br#"{"max_in_flight": 4}"#);
    let error = published(&client, "going", 1, &["v"; 100]).unwrap_err();
    assert_eq!(
        (error.code, error.details.index),
        (ErrorCode::OutcomeUnknown, Some(3))
    );
}

#[test]
fn records_are_taken_in_order_in_batches_of_any_size() {
    let client = connected(b"");
    for most in [1, 3, 1000] {
        let subscription = subscribed(&client, "ok", 100).unwrap();
        let mut next = 0;
        while next < 100 {
            let records = subscription
                .next_batch(most, SECOND, &mut never_interrupt)
                .unwrap()
                .unwrap();
            assert!((1..=most).contains(&records.len()));
            for (i, value) in records.values().enumerate() {
                assert_eq!(records.offsets()[i], next);
                assert_eq!(records.timestamps()[i], 1000 + next);
                assert_eq!(value, Some(format!("value {next}").as_bytes()));
                assert_eq!(
                    records.headers(i).collect::<Vec<_>>(),
                    vec![(&b"mine"[..], &b"yes"[..])]
                );
                next += 1;
            }
            let keys: Vec<_> = records.keys().map(|key| key.map(<[u8]>::to_vec)).collect();
            let expected = records
                .offsets()
                .iter()
                .map(|offset| (offset % 2 == 1).then(|| b"k".to_vec()));
            assert_eq!(keys, expected.collect::<Vec<_>>());
        }
        let end = subscription
            .next_batch(most, SECOND, &mut never_interrupt)
            .unwrap_err();
        assert_eq!(
            (end.code, end.message.as_str()),
            (ErrorCode::EndOfStream, "Stop offset reached")
        );
    }
}

#[test]
fn records_export_as_arrow_with_the_documented_schema() {
    let client = connected(b"");
    let subscription = subscribed(&client, "ok", 4).unwrap();
    let records = subscription
        .next_batch(10, SECOND, &mut never_interrupt)
        .unwrap()
        .unwrap();
    let batch = records.arrow();
    let schema = batch.schema();
    let names: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| (field.name().as_str(), field.is_nullable()))
        .collect();
    let expected = [
        ("offset", false),
        ("timestamp", false),
        ("key", true),
        ("value", true),
        ("subject", false),
        ("headers", false),
        ("reply", true),
        ("origin_time", true),
    ];
    assert_eq!(names, expected);
    assert_eq!(
        batch.column(2).null_count(),
        records.keys().filter(Option::is_none).count()
    );
}

#[test]
fn null_values_repeated_names_and_names_that_are_not_text_are_kept() {
    let client = connected(b"");
    let subscription = subscribed(&client, "odd", 2).unwrap();
    let mut records = subscription
        .next_batch(1, SECOND, &mut never_interrupt)
        .unwrap()
        .unwrap();
    assert_eq!(records.values().collect::<Vec<_>>(), [None]);
    // The second one lies in a slice.
    records = subscription
        .next_batch(1, SECOND, &mut never_interrupt)
        .unwrap()
        .unwrap();
    assert_eq!(records.values().collect::<Vec<_>>(), [Some(&b""[..])]);
    let headers: Vec<(&[u8], &[u8])> = records.headers(0).collect();
    let expected: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"\xe9", b"2"), (b"a", b"3")];
    assert_eq!(headers, expected);
    assert_eq!(
        records.replies().unwrap().collect::<Vec<_>>(),
        ["answer.here"]
    );
    assert_eq!(
        records.origin_times().unwrap().collect::<Vec<_>>(),
        [Some(-7)]
    );
}

#[test]
fn a_subject_filter_is_applied_when_the_broker_ignores_it() {
    let client = connected(b"");
    let subscribed = |subject: &str| {
        let request = SubscribeRequest {
            stream: "subjects".into(),
            stop_offset: 10,
            subject: subject.into(),
            ..SubscribeRequest::default()
        };
        client.subscribe(&request.encode_to_vec(), None, &mut never_interrupt)
    };
    let subscription = subscribed("s.*.x").unwrap();
    let mut offsets = Vec::new();
    let end = loop {
        match subscription.next_batch(3, SECOND, &mut never_interrupt) {
            Ok(records) => offsets.extend(records.unwrap().offsets().to_vec()),
            Err(end) => break end,
        }
    };
    assert_eq!(
        (offsets, end.code),
        (vec![0, 2, 4, 6, 8], ErrorCode::EndOfStream)
    );
    assert_eq!(
        subscribed("a..b").unwrap_err().code,
        ErrorCode::InvalidArgument
    );
}

#[test]
fn concurrent_batches_fail_independently() {
    let client = connected(b"");
    let mut batches: Vec<PublishBatch> = ["ok", "missing", "ok"]
        .map(|stream| batch(&client, stream, 1, &["a", "b"]))
        .into();
    let wanted = batches.iter_mut().map(|batch| (batch, None)).collect();
    let failures = client
        .publish_all(wanted, SECOND * 60, &mut never_interrupt)
        .unwrap();
    let codes: Vec<_> = failures
        .iter()
        .map(|failure| failure.as_ref().map(|failure| failure.code))
        .collect();
    assert_eq!(codes, [None, Some(ErrorCode::StreamNotFound), None]);
    let stored = |batch: &PublishBatch| batch.places().iter().all(|place| place.0 >= 0);
    let stored: Vec<_> = batches.iter().map(stored).collect();
    assert_eq!(stored, [true, false, true]);
}

#[test]
fn a_batch_that_cannot_start_before_the_deadline_is_not_sent() {
    let client = connected(b"");
    let mut batches: Vec<PublishBatch> = (0..40)
        .map(|_| batch(&client, "silent", 1, &["a", "b"]))
        .collect();
    let wanted = batches.iter_mut().map(|batch| (batch, None)).collect();
    let timeout = Duration::from_millis(150);
    let failures = client
        .publish_all(wanted, timeout, &mut never_interrupt)
        .unwrap();
    let codes: Vec<_> = failures
        .iter()
        .map(|failure| failure.as_ref().map(|failure| failure.code))
        .collect();
    assert_eq!(codes[..32], [Some(ErrorCode::OutcomeUnknown); 32]);
    assert_eq!(codes[32..], [Some(ErrorCode::DeadlineExceeded); 8]);
}

#[test]
fn a_refused_subscription_fails_when_it_is_opened() {
    let client = connected(br#"{"connect_timeout_ms": 300}"#);
    assert_eq!(
        subscribed(&client, "missing", 1).unwrap_err().code,
        ErrorCode::PartitionNotFound
    );
    assert_eq!(
        subscribed(&client, "mute", 1).unwrap_err().code,
        ErrorCode::DeadlineExceeded
    );
}

#[test]
fn waiting_for_records_ends_at_the_timeout_and_on_interrupt() {
    let client = connected(b"");
    let subscription = subscribed(&client, "ok", 1).unwrap();
    assert_eq!(
        subscription
            .next_batch(9, SECOND, &mut never_interrupt)
            .unwrap()
            .unwrap()
            .len(),
        1
    );
    subscription.close();
    assert_eq!(
        subscription
            .next_batch(9, SECOND, &mut never_interrupt)
            .unwrap_err()
            .code,
        ErrorCode::Closed
    );
    let mut silent = batch(&client, "silent", 1, &["one", "two"]);
    let interrupted = client.publish(&mut silent, None, Duration::from_mins(1), &mut || {
        ControlFlow::Break(())
    });
    assert_eq!(interrupted.unwrap_err().code, ErrorCode::Closed);
}

#[test]
fn calls_pass_bytes_through_and_reject_unknown_methods() {
    let client = connected(b"");
    assert_eq!(
        client
            .call("FetchMetadata", b"abc", SECOND, &mut never_interrupt)
            .unwrap(),
        b"abc"
    );
    assert_eq!(
        client
            .call("Subscribe", b"", SECOND, &mut never_interrupt)
            .unwrap_err()
            .code,
        ErrorCode::Unimplemented
    );
    assert_eq!(
        client
            .call("No/Such", b"", SECOND, &mut never_interrupt)
            .unwrap_err()
            .code,
        ErrorCode::Unimplemented
    );
    assert_eq!(
        client
            .call("DeleteStream", b"", SECOND, &mut never_interrupt)
            .unwrap_err()
            .code,
        ErrorCode::Unimplemented
    );
    client.close();
    assert_eq!(
        client
            .call("FetchMetadata", b"", SECOND, &mut never_interrupt)
            .unwrap_err()
            .code,
        ErrorCode::Closed
    );
}

#[test]
fn connect_errors_name_the_address_or_the_option() {
    let connect = |address: &str| {
        Client::connect(address, Options::default(), &mut never_interrupt).unwrap_err()
    };
    let nobody = connect("127.0.0.1:1");
    assert_eq!(nobody.code, ErrorCode::Unavailable);
    assert!(nobody.message.contains("127.0.0.1:1"), "{}", nobody.message);
    assert_eq!(connect("not an address").code, ErrorCode::InvalidArgument);
    let error = Options::from_json(br#"{"max_inflight": 1}"#).unwrap_err();
    assert!(
        error.code == ErrorCode::InvalidArgument && error.message.contains("max_inflight"),
        "{}",
        error.message
    );
}

#[test]
fn unanswered_records_may_be_resent_only_to_a_broker_that_deduplicates() {
    let producer = Some(Producer {
        id: 7,
        epoch: 0,
        base_sequence: 0,
    });
    for (address, resend) in [(fake::start_once(), Some(true)), (fake::start(), None)] {
        let client = Client::connect(&address, Options::default(), &mut never_interrupt).unwrap();
        let mut batch = batch(&client, "going", 1, &["a", "b", "c", "d", "e"]);
        let error = client
            .publish(&mut batch, producer, SECOND * 30, &mut never_interrupt)
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::OutcomeUnknown);
        assert_eq!(
            (error.details.index, error.details.acknowledged),
            (Some(3), Some(3))
        );
        assert_eq!(error.details.resend, resend);
        let stored: Vec<i64> = batch.places().iter().map(|place| place.0).collect();
        assert_eq!(stored, [0, 1, 2, -1, -1]);
    }
}

#[test]
fn nothing_is_sent_after_a_rejected_batch_of_a_producer() {
    let client = Client::connect(
        &fake::start_once(),
        Options::default(),
        &mut never_interrupt,
    )
    .unwrap();
    let producer = Producer {
        id: 7,
        epoch: 0,
        base_sequence: 0,
    };
    let mut values = vec!["bad"];
    values.resize(5000, "good");
    let mut batch = batch(&client, "picky", 1, &values);
    let error = client
        .publish(
            &mut batch,
            Some(producer),
            SECOND * 30,
            &mut never_interrupt,
        )
        .unwrap_err();
    assert_eq!(
        (error.code, error.details.index),
        (ErrorCode::TooLarge, Some(0))
    );
    let (first, behind) = batch.places().split_at(4096);
    assert!(
        first.iter().skip(1).all(|place| place.0 >= 0),
        "this broker takes records one by one"
    );
    assert!(behind.iter().all(|place| place.0 == -1));
}

#[test]
fn a_call_that_breaks_names_the_broker() {
    let address = fake::start();
    let client = Client::connect(&address, Options::default(), &mut never_interrupt).unwrap();
    let error = client
        .call("PauseStream", b"", SECOND * 30, &mut never_interrupt)
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::OutcomeUnknown);
    let beginning = format!("broker at {address}: the connection broke during the call: ");
    assert!(error.message.starts_with(&beginning), "{}", error.message);
}
