//! Deliveries and NATS copies, straight from batches, say what the records say.
mod records;

use bascule_wire::envelope::{self, Recognised};
use bascule_wire::liftbridge::delivery::{DeliveryEncoder, MessageView};
use bascule_wire::liftbridge::messages::{Header, Message as Delivery};
use bascule_wire::liftbridge::publish::put_record_copy;
use proptest::prelude::*;
use prost::Message;
use records::{BASE_OFFSET, Record, batch};
use std::collections::BTreeMap;

const OWN_SUBJECT: &str = "own.subject";

fn delivery(i: usize, record: &Record) -> Delivery {
    let subject = record
        .subject
        .clone()
        .unwrap_or_else(|| OWN_SUBJECT.to_owned());
    let mut headers: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (kind, key, value) in &record.headers {
        if let (2, Ok(name)) = (kind, String::from_utf8(key.clone())) {
            headers.insert(name, value.clone());
        }
    }
    // Only where the map leaves something out.
    let hidden = |(kind, key, _): &(u8, Vec<u8>, Vec<u8>)| {
        *kind != 2 || key == b"subject" || key == b"reply" || std::str::from_utf8(key).is_err()
    };
    let has_list = headers.len() != record.headers.len() || record.headers.iter().any(hidden);
    let header_list = record.headers.iter().filter(|_| has_list);
    let header_list = header_list.map(|(_, key, value)| Header {
        name: key.clone().into(),
        value: value.clone().into(),
    });
    let header_list = header_list.collect();
    headers.insert("subject".into(), subject.clone().into_bytes());
    headers.insert("reply".into(), record.reply.clone().into_bytes());
    Delivery {
        offset: BASE_OFFSET as i64 + i as i64,
        key: record.key.clone().unwrap_or_default().into(),
        value: record.value.clone().unwrap_or_default().into(),
        timestamp: record.timestamp,
        stream: "orders".into(),
        partition: 3,
        subject,
        reply_subject: record.reply.clone(),
        headers,
        null_value: record.value.is_none(),
        header_list,
        origin_time: record.origin_time,
        ..Default::default()
    }
}

/// Splits a buffer into its frames.
fn frames(mut buffer: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let [0, a, b, c, d, rest @ ..] = buffer {
        let (frame, rest) = rest.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        frames.push(frame);
        buffer = rest;
    }
    assert!(buffer.is_empty());
    frames
}

fn any_record() -> impl Strategy<Value = Record> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    let name = prop_oneof![
        Just(b"subject".to_vec()),
        Just(b"reply".to_vec()),
        "[a-z]{0,5}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..4)
    ];
    let header = (1u8..4, name, prop::collection::vec(any::<u8>(), 0..8));
    let subject = prop::option::of(prop::sample::select(vec![
        "a.b".to_owned(),
        "a.c".to_owned(),
    ]));
    (
        prop::option::of(bytes()),
        prop::option::of(bytes()),
        prop::collection::vec(header, 0..4),
        subject,
        "[a-z]{0,3}",
        0i64..9,
        prop::option::of(any::<i64>().prop_filter("stands for none", |time| *time != i64::MIN)),
    )
        .prop_map(
            |(key, value, headers, subject, reply, timestamp, origin_time)| Record {
                timestamp,
                origin_time,
                key,
                value,
                headers,
                subject,
                reply,
                ..Record::default()
            },
        )
}

fn any_records() -> impl Strategy<Value = Vec<Record>> {
    (
        prop::collection::vec(any_record(), 1..20),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(mut records, has_headers, has_reply)| {
            records.sort_by_key(|record| record.timestamp);
            for record in &mut records {
                if !has_headers {
                    record.headers.clear();
                }
                if !has_reply {
                    record.reply.clear();
                }
            }
            records
        })
}

proptest! {
    #[test]
    fn deliveries_say_what_the_records_say(records in any_records()) {
        let batch = batch(&records);
        let mut encoder = DeliveryEncoder::new("orders", 3, OWN_SUBJECT);
        let mut out = Vec::new();
        prop_assert_eq!(encoder.put_frames(&mut out, &batch, 0, records.len(), usize::MAX), records.len());
        let frames = frames(&out);
        prop_assert_eq!(frames.len(), records.len());
        for (i, frame) in frames.into_iter().enumerate() {
            let expected = delivery(i, &records[i]);
            let view = MessageView::read(bytes::Bytes::copy_from_slice(frame)).unwrap_or_default();
            prop_assert_eq!((view.offset(), view.key(), view.value()), (expected.offset, &expected.key[..], &expected.value[..]));
            prop_assert_eq!(view.header("subject"), Some(expected.subject.as_bytes()));
            prop_assert_eq!(view.header("reply"), Some(expected.reply_subject.as_bytes()));
            prop_assert_eq!(view.is_null(), records[i].value.is_none());
            let kept: Vec<_> = view.record_headers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            let sent: Vec<_> = records[i].headers.iter().map(|(_, name, value)| (name.clone(), value.clone())).collect();
            prop_assert_eq!(kept, sent);
            prop_assert_eq!(Delivery::decode(frame), Ok(expected));
        }
    }

    #[test]
    fn copies_for_nats_are_publishes_that_ask_for_nothing(records in any_records()) {
        let batch = batch(&records);
        for (i, record) in records.iter().enumerate() {
            let mut out = Vec::new();
            put_record_copy(&mut out, &batch, i, "orders", "x.y");
            let Recognised::Publish(publish) = envelope::recognise(&out.into()) else { panic!("not recognised") };
            let expected = delivery(i, record);
            prop_assert_eq!((publish.key, publish.value), (expected.key, record.value.clone().map(Into::into)));
            prop_assert_eq!((publish.ack_policy, publish.expected_offset), (2, -1));
            prop_assert!(publish.ack_inbox.is_empty() && publish.correlation_id.is_empty());
            let mut headers = expected.headers;
            headers.retain(|name, _| name != "subject" && name != "reply");
            let found: BTreeMap<String, Vec<u8>> =
                publish.headers.iter().map(|(name, value)| (String::from_utf8_lossy(name).into(), value.to_vec())).collect();
            prop_assert_eq!(found, headers);
        }
    }
}

#[test]
fn frames_stop_at_the_limit_and_continue_there() {
    let records: Vec<Record> = (0..10).map(|i| Record::of(&i.to_string())).collect();
    let batch = batch(&records);
    let mut encoder = DeliveryEncoder::new("orders", 0, OWN_SUBJECT);
    let (mut out, mut at, mut rounds) = (Vec::new(), 2, 0);
    let mut offsets = Vec::new();
    while at < 9 {
        out.clear();
        at = encoder.put_frames(&mut out, &batch, at, 9, 150);
        offsets.extend(
            frames(&out)
                .into_iter()
                .filter_map(|frame| Delivery::decode(frame).ok())
                .map(|message| message.offset),
        );
        rounds += 1;
    }
    assert!(rounds > 1);
    assert_eq!(offsets, (1002..1009).collect::<Vec<_>>());
    assert_eq!(encoder.put_frames(&mut out, &batch, 9, 9, usize::MAX), 9);
}

#[test]
fn the_subject_is_prepared_again_when_it_changes() {
    let subjects = [Some("a"), Some("a"), None, Some("b"), None];
    let records: Vec<Record> = subjects
        .iter()
        .map(|subject| Record {
            subject: subject.map(str::to_owned),
            ..Record::of("v")
        })
        .collect();
    let batch = batch(&records);
    let mut encoder = DeliveryEncoder::new("orders", 3, OWN_SUBJECT);
    let mut out = Vec::new();
    for i in 0..records.len() {
        encoder.put_frame(&mut out, &batch, i);
    }
    let shown: Vec<String> = frames(&out)
        .into_iter()
        .map(|frame| Delivery::decode(frame).unwrap_or_default().subject)
        .collect();
    assert_eq!(shown, ["a", "a", OWN_SUBJECT, "b", OWN_SUBJECT]);
}
