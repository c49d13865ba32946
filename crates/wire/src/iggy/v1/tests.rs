//! Against the recorded frames, and against every way of breaking them.
use super::*;
use crate::iggy::Generation::V1;
use crate::iggy::{Family, MAX_REQUEST_BYTES, Malformed, RequestHead, Status};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, HeaderEntry, RecordRef, Stamp};
use serde_json::Value;
use std::num::NonZeroU32;
use std::panic::catch_unwind;
use xxhash_rust::xxh32::xxh32;

struct Exchange {
    code: u32,
    payload: Vec<u8>,
    reply: Vec<u8>,
    text: String,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../../../specs/vectors/iggy/v1.json")).unwrap()
}

fn exchanges() -> Vec<Exchange> {
    let vectors = vectors();
    let entries = ["captures", "constructed"].map(|part| vectors[part].as_array().unwrap().clone());
    let entry = |entry: &Value| {
        let request = unhex(entry["request_hex"].as_str().unwrap());
        let head: [u8; 8] = request[..8].try_into().unwrap();
        assert_eq!(Family::of(request[..4].try_into().unwrap()), Family::Short);
        let head = RequestHead::read(head, MAX_REQUEST_BYTES).unwrap();
        assert_eq!(head.payload_bytes, request.len() - 8);
        assert_eq!(u64::from(head.code), entry["code"].as_u64().unwrap());
        assert_eq!(command_name(head.code, V1), entry["command"].as_str());
        Exchange {
            code: head.code,
            payload: request[8..].to_vec(),
            reply: unhex(entry["response_hex"].as_str().unwrap_or_default()),
            text: entry["description"]
                .as_str()
                .or(entry["what"].as_str())
                .unwrap_or_default()
                .into(),
        }
    };
    entries.concat().iter().map(entry).collect()
}

fn payload(code: u32, text: &str) -> Vec<u8> {
    let found = exchanges()
        .into_iter()
        .find(|exchange| exchange.code == code && exchange.text.contains(text));
    found.unwrap().payload
}

/// Decodes what is decoded here; `None` for commands of others.
fn decode(code: u32, payload: &[u8]) -> Option<Result<(), Status>> {
    let malformed = |_: Malformed| Status::InvalidCommand;
    Some(match code {
        Poll::CODE => Poll::read(payload, V1).map(drop).map_err(malformed),
        Send::CODE => Send::read(payload, V1)
            .map_err(|error| error.status())
            .map(|send| {
                let headers: usize = send
                    .messages
                    .iter()
                    .map(|message| message.headers().count())
                    .sum();
                assert!(headers * 11 <= payload.len());
                assert_eq!(send.messages.iter().count(), send.messages.count());
            }),
        Flush::CODE => Flush::read(payload, V1).map(drop).map_err(malformed),
        GetOffset::CODE => GetOffset::read(payload, V1).map(drop).map_err(malformed),
        StoreOffset::CODE => StoreOffset::read(payload, V1).map(drop).map_err(malformed),
        DeleteOffset::CODE => DeleteOffset::read(payload, V1).map(drop).map_err(malformed),
        _ => return None,
    })
}

#[test]
fn every_recorded_data_command_decodes() {
    let decoded = exchanges()
        .iter()
        .filter_map(|exchange| {
            decode(exchange.code, &exchange.payload).map(|read| (exchange, read))
        })
        .inspect(|(exchange, read)| assert_eq!(*read, Ok(()), "{}", exchange.text))
        .count();
    assert_eq!(decoded, 12);
}

#[test]
fn sends_read_as_they_were_sent() {
    let bytes = payload(Send::CODE, "two messages");
    let send = Send::read(&bytes, V1).unwrap();
    assert_eq!(send.stream, Identifier::Name("test-stream"));
    assert_eq!(send.topic, Identifier::Name("test-topic"));
    assert_eq!(send.partitioning, Partitioning::Partition(1));
    let payloads: Vec<_> = send
        .messages
        .iter()
        .map(|message| message.payload)
        .collect();
    assert_eq!(payloads, [b"hello 1", b"hello 2"]);
    assert_eq!(send.messages.payload_bytes(), 14);

    let bytes = payload(Send::CODE, "numeric stream");
    let send = Send::read(&bytes, V1).unwrap();
    assert_eq!(
        (send.stream, send.topic),
        (Identifier::Number(1), Identifier::Number(2))
    );

    let bytes = payload(Send::CODE, "key \"key\"");
    let send = Send::read(&bytes, V1).unwrap();
    assert_eq!(send.partitioning, Partitioning::Key(b"key"));
    let header = HeaderEntry {
        key_kind: 2,
        key: b"k",
        value_kind: 6,
        value: &[7, 0, 0, 0],
    };
    let message = send.messages.iter().next().unwrap();
    assert_eq!(message.headers().collect::<Vec<_>>(), [header]);

    let bytes = payload(Send::CODE, "balanced");
    assert_eq!(
        Send::read(&bytes, V1).unwrap().partitioning,
        Partitioning::Balanced
    );
}

#[test]
fn polls_and_positions_read_as_they_were_sent() {
    let strategies = [
        ("offset 5", Strategy::Offset(5)),
        ("timestamp", Strategy::Timestamp(1_700_000_000_000_000)),
        ("strategy first", Strategy::First),
        ("strategy last", Strategy::Last),
        ("strategy next", Strategy::Next),
    ];
    for (text, strategy) in strategies {
        let bytes = payload(Poll::CODE, text);
        let poll = Poll::read(&bytes, V1).unwrap();
        assert_eq!(poll.strategy, strategy);
        let one = Consumer {
            kind: ConsumerKind::One,
            id: Identifier::Number(1),
        };
        assert_eq!(
            (poll.consumer, poll.partition, poll.count),
            (one, NonZeroU32::new(1), 10)
        );
        assert_eq!(poll.auto_commit, strategy == Strategy::Next);
    }
    let bytes = payload(StoreOffset::CODE, "group cg");
    let store = StoreOffset::read(&bytes, V1).unwrap();
    let group = Consumer {
        kind: ConsumerKind::Group,
        id: Identifier::Name("cg"),
    };
    assert_eq!(
        (
            store.position.consumer,
            store.position.partition,
            store.offset
        ),
        (group, None, 41)
    );
    let flush = payload(Flush::CODE, "fsync");
    assert!(Flush::read(&flush, V1).unwrap().fsync);
    let reply = exchanges()
        .into_iter()
        .find(|exchange| exchange.code == GetOffset::CODE);
    assert_eq!(offset_reply(2, 99, 41, V1).to_vec(), reply.unwrap().reply);
}

#[test]
fn hashes_are_those_of_clients() {
    let vectors = vectors();
    for entry in vectors["xxh32"].as_array().unwrap() {
        let name = entry["input_utf8"].as_str().unwrap();
        let hash = u32::from_str_radix(entry["hex"].as_str().unwrap(), 16).unwrap();
        assert_eq!(xxh32(name.as_bytes(), 0), hash);
        let consumer = Consumer {
            kind: ConsumerKind::One,
            id: Identifier::Name(name),
        };
        assert_eq!(consumer.number(), hash);
        let remainder = u32::try_from(entry["mod_3"].as_u64().unwrap()).unwrap();
        let partition = Partitioning::of_key(name.as_bytes(), NonZeroU32::new(3).unwrap(), V1);
        assert_eq!(partition, if remainder == 0 { 3 } else { remainder });
    }
}

#[test]
fn bounds_of_a_send_have_their_own_status() {
    let start = [
        &[1, 4, 1, 0, 0, 0, 1, 4, 1, 0, 0, 0][..],
        &[2, 4, 1, 0, 0, 0],
    ]
    .concat();
    let with = |messages: &[Vec<u8>]| {
        let bytes = [start.clone(), messages.concat()].concat();
        Send::read(&bytes, V1)
            .map(|send| send.messages.count())
            .map_err(|error| error.status())
    };
    let header = |value: usize| {
        let length = u32::try_from(value).unwrap().to_le_bytes();
        [&[1, 0, 0, 0, b'k', 1][..], &length, &vec![0; value]].concat()
    };
    let message = |headers: &[u8], payload: usize| {
        let lengths = [headers.len(), payload].map(|n| u32::try_from(n).unwrap().to_le_bytes());
        [
            &[0; 16][..],
            &lengths[0],
            headers,
            &lengths[1],
            &vec![0; payload],
        ]
        .concat()
    };
    assert_eq!(with(&[]), Err(Status::InvalidMessagesCount));
    assert_eq!(with(&[message(&[], 0)]), Err(Status::InvalidCommand));
    assert_eq!(with(&[message(&[], V1.max_payload_bytes())]), Ok(1));
    let over = [message(&[], V1.max_payload_bytes()), message(&[], 1)];
    assert_eq!(with(&over), Err(Status::TooBigMessagePayload));
    let full = header(250).repeat(400);
    assert_eq!(with(&[message(&full, 1)]), Ok(1));
    let over = [message(&full, 1), message(&header(1), 1)];
    assert_eq!(with(&over), Err(Status::TooBigHeadersPayload));
    for value in [0, 256] {
        assert_eq!(
            with(&[message(&header(value), 1)]),
            Err(Status::InvalidCommand)
        );
    }
    let key = [&start[..12], &[3, 0], &message(&[], 1)].concat();
    assert_eq!(Send::read(&key, V1).unwrap_err(), SendError::EmptyKey);
}

#[test]
fn broken_payloads_are_refused_at_every_byte_and_length() {
    for exchange in exchanges() {
        let whole = &exchange.payload;
        if decode(exchange.code, whole).is_none() {
            continue;
        }
        for cut in 0..whole.len() {
            let read = decode(exchange.code, &whole[..cut]).unwrap();
            // What is cut between its two messages is a send of the first.
            let is_whole = exchange.text.contains("two messages") && cut + 31 == whole.len();
            assert_eq!(read.is_ok(), is_whole, "{cut} of {}", exchange.text);
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(
            decode(exchange.code, &longer),
            Some(Err(Status::InvalidCommand))
        );
        for at in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[at] = value;
                assert!(catch_unwind(|| decode(exchange.code, &changed)).is_ok());
            }
        }
    }
}

fn batch(records: &[RecordRef<'_>]) -> Batch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for record in records {
        builder.push(record).unwrap();
    }
    let sealed = builder.seal(Codec::None, None, None).unwrap();
    let place = Stamp {
        incarnation: 9,
        partition: 0,
        leader_epoch: 1,
        base_offset: 0,
        chain: 0,
        not_before: 0,
    };
    Batch::read(&sealed.stamp(&place)).unwrap()
}

#[test]
fn a_polled_reply_is_the_recorded_one() {
    let time = 1_700_000_000_000_000_i64;
    let text = HeaderEntry {
        key_kind: 2,
        key: b"k",
        value_kind: 2,
        value: b"v",
    };
    let hidden = [
        HeaderEntry {
            key_kind: 1,
            ..text
        },
        HeaderEntry {
            value_kind: 16,
            ..text
        },
        HeaderEntry { value: b"", ..text },
        HeaderEntry {
            value: &[0; 256],
            ..text
        },
        HeaderEntry {
            key: &[0xFF],
            ..text
        },
    ];
    let mut shown = vec![text];
    shown.extend(hidden);
    let record = |i: i64, value: &'static [u8]| RecordRef {
        timestamp: (time + i) * 1000 + 999,
        id: 0x1234 + i as u128,
        value: Some(value),
        ..RecordRef::default()
    };
    let second = RecordRef {
        headers: &shown,
        ..record(1, b"hello 2")
    };
    let records = [record(0, b"hello 1"), second, record(2, b"x")];
    let batch = batch(&records);
    let recorded = exchanges()
        .into_iter()
        .find(|exchange| exchange.code == Poll::CODE)
        .unwrap();

    let mut reply = PolledReply::new(1, 2, usize::MAX, V1);
    assert!((0..3).all(|i| reply.push(&batch, i)));
    assert_eq!(reply.finish().to_vec(), recorded.reply);

    let mut full = PolledReply::new(1, 2, 0, V1);
    assert!(full.push(&batch, 0), "one message always fits");
    assert!(!full.push(&batch, 1));
    assert_eq!(full.count(), 1);
}

#[test]
fn a_derived_id_is_a_time_ordered_uuid() {
    let millisecond = 1_700_000_000_000_i64;
    let id = |ms: i64, partition, offset| derived_id(ms * 1_000_000 + 5, 9, partition, offset);
    let first = id(millisecond, 0, 7);
    assert_eq!(first, id(millisecond, 0, 7));
    assert_eq!(first >> 80, millisecond as u128);
    assert_eq!((first >> 76 & 0xF, first >> 62 & 3), (7, 2));
    assert!(first < id(millisecond, 0, 8) && id(millisecond, 0, 8) < id(millisecond + 1, 0, 0));
    assert_ne!(first, id(millisecond, 1, 7));
}
