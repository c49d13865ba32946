//! Against the recorded frames of four releases, and against every way of breaking them.
use crate::iggy::v1::{
    Consumer, ConsumerKind, GetOffset, Group, Identifier, Login, Message, Partitioning, Poll,
    PolledReply, Send, SendError, StoreOffset, Strategy, command_name, offset_reply,
};
use crate::iggy::{Generation, MAX_REQUEST_BYTES, RequestHead};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, HeaderEntry, RecordRef, Stamp};
use serde_json::Value;
use std::num::NonZeroU32;
use std::panic::catch_unwind;
use xxhash_rust::xxh3::xxh3_64;

struct Capture {
    generation: Generation,
    code: u32,
    payload: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn captures() -> Vec<Capture> {
    let vectors = include_str!("../../../../../specs/vectors/iggy/v1b.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let entry = |entry: &Value| {
        let request = unhex(entry["request_hex"].as_str().unwrap());
        let head = RequestHead::read(request[..8].try_into().unwrap(), MAX_REQUEST_BYTES).unwrap();
        assert_eq!(head.payload_bytes, request.len() - 8);
        let generation = Generation::of_version(entry["sdk"].as_str().unwrap()).unwrap();
        assert_eq!(
            command_name(head.code, generation),
            entry["command"].as_str()
        );
        Capture {
            generation,
            code: head.code,
            payload: request[8..].to_vec(),
        }
    };
    let captures = vectors["captures"].as_array().unwrap();
    captures.iter().map(entry).collect()
}

fn of(code: u32) -> Vec<Capture> {
    let found: Vec<_> = captures()
        .into_iter()
        .filter(|capture| capture.code == code)
        .collect();
    assert_eq!(found.len(), 4, "one of each release");
    found
}

fn messages<'a>(send: &Send<'a>) -> Vec<Message<'a>> {
    send.messages.iter().collect()
}

#[test]
fn every_release_states_its_generation() {
    let stated: Vec<_> = of(Login::CODE)
        .iter()
        .map(|capture| {
            Generation::of_version(Login::read(&capture.payload).unwrap().version).unwrap()
        })
        .collect();
    let expected = [
        Generation::Sdk7,
        Generation::Sdk8,
        Generation::Sdk9,
        Generation::Sdk9,
    ];
    assert_eq!(stated, expected);
}

#[test]
fn sends_read_as_they_were_sent() {
    for capture in of(Send::CODE) {
        let send = Send::read(&capture.payload, capture.generation).unwrap();
        assert_eq!(send.stream, Identifier::Name("test-stream"));
        assert_eq!(send.topic, Identifier::Name("test-topic"));
        // The caller gave 0, which names no partition for who counts from 1.
        let number = 1 - capture.generation.first_number();
        assert_eq!(send.partitioning, Partitioning::Partition(number));
        let read = messages(&send);
        let payloads: Vec<_> = read.iter().map(|message| message.payload).collect();
        assert_eq!(payloads, [b"hello 1", b"hello 2"]);
        for message in read {
            assert_eq!(message.headers().count(), 0);
            assert!(message.origin_us.unwrap() > 1_700_000_000_000_000);
        }
    }
}

#[test]
fn a_send_of_another_head_is_refused() {
    for capture in of(Send::CODE) {
        for other in Generation::ALL {
            let is_same = other.message_head_bytes() == capture.generation.message_head_bytes();
            let read = Send::read(&capture.payload, other);
            assert_eq!(read.is_ok(), is_same, "{other} of {}", capture.generation);
        }
    }
}

#[test]
fn polls_and_positions_read_as_they_were_sent() {
    for capture in of(Poll::CODE) {
        let first = capture.generation.first_number();
        let poll = Poll::read(&capture.payload, capture.generation).unwrap();
        let one = Consumer {
            kind: ConsumerKind::One,
            id: Identifier::Number(first),
        };
        assert_eq!(poll.consumer, one);
        assert_eq!(poll.consumer.number(), first, "consumers are not counted");
        assert_eq!(poll.partition, NonZeroU32::new(1 - first));
        assert_eq!((poll.strategy, poll.count), (Strategy::Next, 10));
        assert!(poll.auto_commit);
    }
    let group = b"\x02\x01\x04\0\0\0\0\x01\x04\x02\0\0\0\x02\x01t";
    let given = [&group[..], &[1, 5, 0, 0, 0]].concat();
    let place = GetOffset::read(&given, Generation::Sdk8).unwrap();
    assert_eq!(place.consumer.id, Identifier::Number(1));
    assert_eq!(place.stream, Identifier::Number(3));
    assert_eq!(place.partition, NonZeroU32::new(6));
    let left_out = [&group[..], &[0, 5, 0, 0, 0], &[9; 8]].concat();
    let store = StoreOffset::read(&left_out, Generation::Sdk9).unwrap();
    assert_eq!(store.position.partition, None);
    assert!(GetOffset::read(&given, Generation::Sdk7).is_err());
    assert_eq!(
        offset_reply(2, 9, 4, Generation::Sdk8)[8..12],
        1_u32.to_le_bytes()
    );
}

#[test]
fn groups_are_named_in_every_release() {
    for capture in of(Group::GET) {
        let group = Group::read(&capture.payload, capture.generation).unwrap();
        assert_eq!(group.group, Identifier::Name("cg"));
    }
}

#[test]
fn a_key_chooses_as_the_generation_counts() {
    let three = NonZeroU32::new(3).unwrap();
    let chosen = |key: &str, generation| Partitioning::of_key(key.as_bytes(), three, generation);
    for (key, remainder) in [("key", 0), ("cg", 1), ("user_123", 2)] {
        let last_is_zero = if remainder == 0 { 3 } else { remainder };
        assert_eq!(chosen(key, Generation::Sdk7), last_is_zero);
        assert_eq!(chosen(key, Generation::Sdk8), remainder + 1);
    }
}

#[test]
fn broken_payloads_are_refused_at_every_byte_and_length() {
    let read = |capture: &Capture, payload: &[u8]| match capture.code {
        Send::CODE => Send::read(payload, capture.generation)
            .map(|send| {
                let read = messages(&send);
                assert_eq!(read.len(), send.messages.count());
                for message in read {
                    message.headers().for_each(drop);
                }
            })
            .is_ok(),
        Poll::CODE => Poll::read(payload, capture.generation).is_ok(),
        _ => Group::read(payload, capture.generation).is_ok(),
    };
    let decoded = [Send::CODE, Poll::CODE, Group::GET];
    for capture in decoded.into_iter().flat_map(of) {
        let whole = &capture.payload;
        for cut in 0..whole.len() {
            assert!(!read(&capture, &whole[..cut]), "{cut} of {}", capture.code);
        }
        assert!(!read(&capture, &[&whole[..], &[0]].concat()));
        for at in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[at] = value;
                assert!(catch_unwind(|| read(&capture, &changed)).is_ok());
            }
        }
    }
}

/// A send of one message to the first partition of the first topic.
fn send_of(generation: Generation, payload: usize, headers: &[u8]) -> Vec<u8> {
    let number = generation.first_number().to_le_bytes();
    let identifier = [&[1, 4][..], &number].concat();
    let place = [
        &identifier[..],
        &identifier,
        &[2, 4],
        &number,
        &[1, 0, 0, 0],
    ]
    .concat();
    let head = generation.message_head_bytes().unwrap();
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
    let end = length(head + payload + headers.len());
    let mut message = vec![0; head];
    message[48..52].copy_from_slice(&length(headers.len()));
    message[52..56].copy_from_slice(&length(payload));
    message.resize(head + payload, 7);
    let index = [&[0; 4][..], &end, &[0; 8]].concat();
    [&length(place.len())[..], &place, &index, &message, headers].concat()
}

#[test]
fn bounds_of_a_send_are_those_of_the_generation() {
    for generation in [Generation::Sdk7, Generation::Sdk8, Generation::Sdk9] {
        let most = generation.max_payload_bytes();
        assert!(Send::read(&send_of(generation, most, &[]), generation).is_ok());
        let over = send_of(generation, most + 1, &[]);
        let bytes = most + 1;
        let error = Send::read(&over, generation).unwrap_err();
        assert_eq!(error, SendError::Payloads { bytes, most });
        assert!(Send::read(&send_of(generation, 0, &[]), generation).is_err());
    }
}

#[test]
fn keys_of_headers_have_a_kind_in_the_last_release_alone() {
    let text = b"\x01\0\0\0k\x06\x04\0\0\0\x07\0\0\0";
    let typed = b"\x0b\x04\0\0\0\xff\0\0\0\x02\x01\0\0\0v";
    let headers = |generation, block: &[u8]| -> Option<Vec<(u8, Vec<u8>, u8)>> {
        let bytes = send_of(generation, 1, block);
        let send = Send::read(&bytes, generation).ok()?;
        let header = |one: HeaderEntry<'_>| (one.key_kind, one.key.to_vec(), one.value_kind);
        Some(messages(&send)[0].headers().map(header).collect())
    };
    for generation in [Generation::Sdk7, Generation::Sdk8] {
        assert_eq!(headers(generation, text), Some(vec![(2, b"k".to_vec(), 6)]));
        assert_eq!(headers(generation, typed), None);
    }
    let expected = vec![(11, b"\xff\0\0\0".to_vec(), 2)];
    assert_eq!(headers(Generation::Sdk9, typed), Some(expected));
    assert_eq!(headers(Generation::Sdk9, text), None);
}

fn batch(record: &RecordRef<'_>) -> Batch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    builder.push(record).unwrap();
    let sealed = builder.seal(Codec::None, None, None).unwrap();
    let place = Stamp {
        incarnation: 9,
        partition: 0,
        leader_epoch: 1,
        base_offset: 41,
        chain: 0,
        not_before: 0,
    };
    Batch::read(&sealed.stamp(&place)).unwrap()
}

#[test]
fn a_polled_message_has_the_head_of_the_generation() {
    let header = |key_kind, key| HeaderEntry {
        key_kind,
        key,
        value_kind: 9,
        value: &[5],
    };
    let headers = [header(2, b"k"), header(9, b"\x03")];
    let record = RecordRef {
        timestamp: 7_000_999,
        origin_time: Some(5_000_000),
        id: 0x1234,
        value: Some(b"payload"),
        headers: &headers,
        ..RecordRef::default()
    };
    let batch = batch(&record);
    let text = b"\x01\0\0\0k\x09\x01\0\0\0\x05";
    let typed = [&[2][..], text, b"\x09\x01\0\0\0\x03\x09\x01\0\0\0\x05"].concat();
    for (generation, block) in [
        (Generation::Sdk7, &text[..]),
        (Generation::Sdk8, text),
        (Generation::Sdk9, &typed),
    ] {
        let mut reply = PolledReply::new(3, 41, usize::MAX, generation);
        assert!(reply.push(&batch, 0));
        let frame = reply.finish();
        assert_eq!(frame[8..12], generation.show(3).to_le_bytes());
        assert_eq!(frame[20..24], 1_u32.to_le_bytes());
        let (message, head) = (&frame[24..], generation.message_head_bytes().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap());
        assert_eq!(u64_at(0), xxh3_64(&message[8..]));
        assert_eq!((u64_at(8), u64_at(16)), (0x1234, 0));
        assert_eq!((u64_at(24), u64_at(32), u64_at(40)), (41, 7_000, 5_000));
        let lengths = [block.len(), 7].map(|length| u32::try_from(length).unwrap());
        assert_eq!(message[48..52], lengths[0].to_le_bytes());
        assert_eq!(message[52..56], lengths[1].to_le_bytes());
        assert!(message[56..head].iter().all(|byte| *byte == 0));
        assert_eq!(message[head..], [b"payload", block].concat());
    }
}
