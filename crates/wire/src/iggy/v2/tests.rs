//! Against the recorded frames of the client, and against every way of breaking them.
use crate::iggy::v1::{
    ConsumerKind, DeleteOffset, GetOffset, Group, Identifier, Message, Partitioning, Poll,
    PolledReply, Send, SendError, StoreOffset, Strategy, Topic, command_name,
};
use crate::iggy::v2::{
    Credentials, Eviction, HEADER_BYTES, HeaderError, Operation, PROTOCOL, Register, RequestHeader,
    assignment_reply, confirmation_reply, register_reply, write_eviction, write_reply,
};
use crate::iggy::{Family, Generation, MAX_REQUEST_BYTES, REPLY_HEAD_BYTES, Status};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, HeaderEntry, RecordRef, Stamp};
use serde_json::Value;
use std::num::NonZeroU32;
use std::panic::catch_unwind;
use xxhash_rust::xxh3::xxh3_64;

const V2: Generation = Generation::V2;

struct Capture {
    id: String,
    command: String,
    header: RequestHeader,
    body: Vec<u8>,
    reply: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn entries() -> Vec<Value> {
    let vectors = include_str!("../../../../../specs/vectors/iggy/v2.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    vectors["captures"].as_array().unwrap().clone()
}

fn captures() -> Vec<Capture> {
    let whole = |entry: &Value| entry.get("is_body").is_none();
    let read = |entry: Value| {
        let request = unhex(entry["request_hex"].as_str().unwrap());
        let (head, body) = request.split_first_chunk().unwrap();
        assert_eq!(Family::of(*head.first_chunk().unwrap()), Family::Long);
        let header = RequestHeader::read(head, MAX_REQUEST_BYTES).unwrap();
        assert_eq!(header.body_bytes, body.len());
        Capture {
            id: entry["id"].as_str().unwrap().to_owned(),
            command: entry["command"].as_str().unwrap().to_owned(),
            header,
            body: body.to_vec(),
            reply: unhex(entry["response_hex"].as_str().unwrap()),
        }
    };
    entries().into_iter().filter(whole).map(read).collect()
}

fn of(command: &str) -> Capture {
    let found = captures()
        .into_iter()
        .find(|capture| capture.command == command);
    found.unwrap()
}

fn operation(capture: &Capture) -> Operation {
    Operation::of(capture.header.operation, capture.header.code).unwrap()
}

#[test]
fn every_capture_is_an_operation_with_its_number_and_checksum() {
    let (mut session, mut next) = (0, 0);
    for capture in captures() {
        let (header, operation) = (capture.header, operation(&capture));
        let name = match operation {
            Operation::Register => Some("REGISTER"),
            Operation::Logout => command_name(39, V2),
            Operation::Read(code) | Operation::Change(code) => command_name(code, V2),
        };
        assert_eq!(name, Some(capture.command.as_str()), "{}", capture.id);
        assert_eq!((header.session, header.request), (session, next));
        if operation == Operation::Register {
            (session, next) = (42, 1);
        } else if operation.takes_number() {
            next += 1;
        }
        let is_checked = matches!(operation, Operation::Register | Operation::Logout)
            || (128..=149).contains(&header.operation);
        let expected = is_checked.then(|| xxh3_64(&capture.body).into());
        assert_eq!(header.checksum, expected.unwrap_or(0), "{}", capture.id);
    }
}

#[test]
fn replies_lie_as_the_client_accepted_them() {
    for capture in captures() {
        let (head, body) = capture.reply.split_first_chunk::<HEADER_BYTES>().unwrap();
        let mut head = *head;
        // Positions in the log of the recorded server: any will do.
        head[176..192].fill(0);
        head[144..160].fill(0);
        let written = write_reply(&capture.header, 0, body.len() as u32);
        assert_eq!(written, head, "{}", capture.id);
        if operation(&capture).has_results() {
            assert_eq!(body.first_chunk(), Some(&[0; 4]), "{}", capture.id);
        }
    }
    let refused = write_reply(&captures()[0].header, 1012, 0);
    assert_eq!(refused[216..220], 1012_u32.to_le_bytes());
    assert_eq!(refused[48..52], 256_u32.to_le_bytes());
}

#[test]
fn an_eviction_names_its_reason_and_for_a_version_what_is_spoken() {
    let frame = write_eviction(7, Eviction::Version);
    assert_eq!((frame[60], frame[255]), (13, 14));
    assert_eq!(frame[128..144], 7_u128.to_le_bytes());
    assert_eq!(frame[144..148], (PROTOCOL + 1023).to_le_bytes());
    assert_eq!(frame[148..152], PROTOCOL.to_le_bytes());
    let frame = write_eviction(7, Eviction::NoSession);
    assert_eq!((frame[144..255].iter().max(), frame[255]), (Some(&0), 1));
}

#[test]
fn a_login_is_by_password_or_by_token_and_cut_nowhere() {
    let capture = of("REGISTER");
    let register = Register::read(&capture.body).unwrap();
    assert_eq!(register.protocol, PROTOCOL);
    assert_eq!(register.sdk, ("rust-sdk", "0.11.0"));
    let expected = Credentials::Password {
        name: "iggy",
        password: "iggy",
    };
    assert_eq!(register.credentials, expected);
    let by_token = entries().pop().unwrap();
    let body = unhex(by_token["request_hex"].as_str().unwrap());
    let token = Register::read(&body).unwrap().credentials;
    assert_eq!(token, Credentials::Token("sometoken12345"));
    // The context may be absent, and a user's name alone is a token; every other end is within a field.
    let name_ends = capture.body.len() - 4 - 5;
    for (body, ends) in [
        (capture.body, vec![name_ends, name_ends + 5]),
        (body.clone(), vec![body.len() - 4]),
    ] {
        let read: Vec<usize> = (0..body.len())
            .filter(|length| Register::read(&body[..*length]).is_ok())
            .collect();
        assert_eq!(read, ends);
        assert!(Register::read(&[&body[..], b"\0"].concat()).is_err());
    }
    for (protocol, is_spoken) in [
        (0x2BFF, false),
        (0x2C00, true),
        (0x2FFF, true),
        (0x3000, false),
    ] {
        assert_eq!(Register::is_spoken(protocol), is_spoken, "{protocol:#x}");
    }
}

#[test]
fn a_header_has_bounds() {
    let mut header = [0; HEADER_BYTES];
    header[60] = 5;
    header[128] = 1;
    let mut read = |size: u32| {
        header[48..52].copy_from_slice(&size.to_le_bytes());
        RequestHeader::read(&header, 10).map(|header| header.body_bytes)
    };
    assert_eq!(read(256), Ok(0));
    assert_eq!(read(266), Ok(10));
    assert_eq!(read(255), Err(HeaderError::TooShort { size: 255 }));
    assert_eq!(read(0), Err(HeaderError::TooShort { size: 0 }));
    for (size, bytes) in [(267, 11), (u32::MAX, u32::MAX as usize - 256)] {
        let expected = HeaderError::TooLong { bytes, most: 10 };
        assert_eq!(read(size), Err(expected));
    }
    for command in (0..=255).filter(|command| *command != 5) {
        header[60] = command;
        let read = RequestHeader::read(&header, 10);
        assert_eq!(read, Err(HeaderError::Command { command }));
    }
    (header[60], header[128]) = (5, 0);
    header[48..52].copy_from_slice(&256_u32.to_le_bytes());
    assert_eq!(RequestHeader::read(&header, 10), Err(HeaderError::NoClient));
}

#[test]
fn operations_without_a_meaning_are_none() {
    let known = |number| Operation::of(number, 1).is_some();
    let found: Vec<u8> = (0..=255).filter(|number| known(*number)).collect();
    let expected: Vec<u8> = [1..=3, 128..=149, 160..=162]
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(found, expected);
    for code in [0, 33, 38, 39, 40, 44, 45, 101, 202, 503, 60_000] {
        assert_eq!(Operation::of(2, code), None, "{code}");
    }
    for number in expected {
        if let Some(Operation::Change(code)) = Operation::of(number, 0) {
            assert!(command_name(code, V2).is_some(), "{code}");
        }
    }
}

#[test]
fn commands_read_as_they_were_sent() {
    let poll = of("POLL_MESSAGES");
    let poll = Poll::read(&poll.body, V2).unwrap();
    assert_eq!(poll.consumer.number(), 1);
    assert_eq!(poll.partition, NonZeroU32::new(1));
    assert_eq!(
        (poll.strategy, poll.count, poll.auto_commit),
        (Strategy::Next, 10, true)
    );
    let store = of("STORE_CONSUMER_OFFSET");
    let store = StoreOffset::read(&store.body, V2).unwrap();
    assert_eq!((store.offset, store.waits), (1, true));
    assert_eq!(store.position.consumer.kind, ConsumerKind::Group);
    let delete = of("DELETE_CONSUMER_OFFSET");
    let delete = DeleteOffset::read(&delete.body, V2).unwrap();
    assert_eq!(delete.position.consumer.id, Identifier::Name("cg"));
    for command in [
        "JOIN_CONSUMER_GROUP",
        "SYNC_CONSUMER_GROUP",
        "GET_CONSUMER_GROUP",
    ] {
        let group = of(command);
        assert_eq!(
            Group::read(&group.body, V2).unwrap().group,
            Identifier::Name("cg")
        );
    }
}

#[test]
fn a_send_reads_as_it_was_sent() {
    let capture = of("SEND_MESSAGES");
    let send = Send::read(&capture.body, V2).unwrap();
    assert_eq!(send.partitioning, Partitioning::Partition(1));
    let messages: Vec<Message<'_>> = send.messages.iter().collect();
    assert_eq!(send.messages.count(), 2);
    let payloads: Vec<&[u8]> = messages.iter().map(|message| message.payload).collect();
    assert_eq!(payloads, [b"hello 1", b"hello 2"]);
    let header = HeaderEntry {
        key_kind: 2,
        key: b"k",
        value_kind: 6,
        value: &[7, 0, 0, 0],
    };
    assert_eq!(messages[0].headers().collect::<Vec<_>>(), [header]);
    assert_eq!(messages[1].headers().count(), 0);
    assert!(messages.iter().all(|message| message.id > 0));
    let first = messages[0].origin_us.unwrap();
    assert_eq!(messages[1].origin_us, Some(first + 3));
}

/// A send of one message of `payload`, whose batch was changed by `change` before its checksums were made.
fn sent(payload: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut batch = vec![0; 256 + 48];
    batch[24] = 5;
    batch[48] = 1;
    batch[256 + 36..256 + 40].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    batch.extend_from_slice(payload);
    let length = batch.len() as u64;
    batch[32..40].copy_from_slice(&length.to_le_bytes());
    change(&mut batch);
    let checksum = xxh3_64(&batch[264..]).to_le_bytes();
    batch[256..264].copy_from_slice(&checksum);
    let sum = xxh3_64(&[&batch[..40], &batch[48..52], &checksum].concat());
    batch[40..48].copy_from_slice(&sum.to_le_bytes());
    let place = b"\x02\x01s\x02\x01t\x01\x00\x01\0\0\0";
    let mut send = (place.len() as u32).to_le_bytes().to_vec();
    send.extend_from_slice(place);
    send.extend_from_slice(&batch);
    send
}

#[test]
fn a_batch_that_breaks_a_rule_is_refused_by_its_status() {
    assert!(Send::read(&sent(b"x", |_| ()), V2).is_ok());
    let status = |send: &[u8]| Send::read(send, V2).unwrap_err().status();
    for at in [0, 8, 16, 32, 48, 256 + 24, 256 + 40] {
        let broken = sent(b"x", |batch| batch[at] ^= 0x10);
        assert_eq!(status(&broken), Status::InvalidCommand, "{at}");
    }
    let reserved = sent(b"x", |batch| batch[255] = 1);
    assert_eq!(status(&reserved), Status::InvalidReservedField);
    assert_eq!(status(&sent(b"", |_| ())), Status::InvalidCommand);
    let whole = sent(b"x", |_| ());
    let begin = whole.len() - 305;
    let mut broken = whole.clone();
    *broken.last_mut().unwrap() ^= 1;
    assert_eq!(status(&broken), Status::InvalidMessageChecksum);
    let mut broken = whole.clone();
    broken[begin + 40] ^= 1;
    assert_eq!(status(&broken), Status::InvalidBatchChecksum);
    let mut none = whole;
    none[begin - 4] = 0;
    assert_eq!(status(&none), Status::InvalidMessagesCount);
    let most = V2.max_payload_bytes();
    assert!(Send::read(&sent(&vec![0; most], |_| ()), V2).is_ok());
    let above = sent(&vec![0; most + 1], |_| ());
    let expected = SendError::Payloads {
        bytes: most + 1,
        most,
    };
    assert_eq!(Send::read(&above, V2).unwrap_err(), expected);
}

fn stored(records: &[RecordRef<'_>], base_offset: u64) -> Batch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for record in records {
        builder.push(record).unwrap();
    }
    let sealed = builder.seal(Codec::None, None, None).unwrap();
    let stamp = Stamp {
        incarnation: 9,
        partition: 2,
        leader_epoch: 1,
        base_offset,
        chain: 0,
        not_before: 0,
    };
    Batch::read(&sealed.stamp(&stamp)).unwrap()
}

/// Of each batch of a poll: base offset, base timestamp, origin timestamp, and its frames as (offset, time, id, rest).
#[allow(clippy::type_complexity)] // read field by field
fn batches(mut rest: &[u8]) -> Vec<([u64; 3], Vec<(u32, u32, u128, Vec<u8>)>)> {
    let u64_at =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let u32_at =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (batch, next) = rest.split_at(u64_at(rest, 32) as usize);
        assert_eq!(u64_at(batch, 0), 2, "the partition as it is shown");
        assert!(batch[52..256].iter().all(|byte| *byte == 0));
        let (mut frames, mut at, mut sums) = (Vec::new(), 256, Vec::new());
        while at < batch.len() {
            let bytes = 48 + (u32_at(batch, at + 32) + u32_at(batch, at + 36)) as usize;
            let frame = &batch[at..at + bytes];
            assert_eq!(u64_at(frame, 0), xxh3_64(&frame[8..]));
            sums.extend_from_slice(&frame[..8]);
            let id = u128::from_le_bytes(frame[8..24].try_into().unwrap());
            frames.push((
                u32_at(frame, 24),
                u32_at(frame, 28),
                id,
                frame[48..].to_vec(),
            ));
            at += bytes;
        }
        assert_eq!(u32_at(batch, 48) as usize, frames.len());
        let summed = [&batch[..40], &batch[48..52], &sums].concat();
        assert_eq!(u64_at(batch, 40), xxh3_64(&summed));
        found.push(([8, 16, 24].map(|at| u64_at(batch, at)), frames));
        rest = next;
    }
    found
}

#[test]
fn polled_messages_share_a_batch_while_their_times_allow_it() {
    let record = |timestamp: i64, origin: Option<i64>, value: &'static [u8]| RecordRef {
        timestamp,
        origin_time: origin,
        id: 5,
        value: Some(value),
        ..RecordRef::default()
    };
    let batch = stored(
        &[
            record(9_000, Some(2_000), b"a"),
            record(9_999, Some(4_000), b"b"),
            record(9_999, Some(1_000), b"c"),
            record(12_000, None, b"d"),
        ],
        100,
    );
    let mut reply = PolledReply::new(3, 103, 1 << 20, V2);
    assert!((0..4).all(|i| reply.push(&batch, i)));
    let reply = reply.finish();
    let (head, rest) = reply[REPLY_HEAD_BYTES..].split_at(16);
    assert_eq!(head, b"\x02\0\0\0\x67\0\0\0\0\0\0\0\x04\0\0\0");
    let found = batches(rest);
    let frame = |offset, time, value: &[u8]| (offset, time, 5, value.to_vec());
    assert_eq!(
        found,
        [
            ([100, 9, 2], vec![frame(0, 0, b"a"), frame(1, 2, b"b")]),
            ([102, 9, 1], vec![frame(0, 0, b"c")]),
            ([103, 12, 12], vec![frame(0, 0, b"d")]),
        ]
    );
    let empty = PolledReply::new(3, 0, 0, V2).finish();
    assert_eq!(
        empty.len(),
        REPLY_HEAD_BYTES + 16,
        "the client fails without it"
    );
}

#[test]
fn a_poll_ends_before_its_bound_but_has_one_message() {
    let record = RecordRef {
        value: Some(b"value"),
        ..RecordRef::default()
    };
    let batch = stored(&[record; 3], 0);
    let one = REPLY_HEAD_BYTES + 16 + 256 + 48 + 5;
    for (most, count) in [
        (0, 1),
        (one, 1),
        (one + 53, 1),
        (one + 309, 2),
        (1 << 20, 3),
    ] {
        let mut reply = PolledReply::new(3, 0, most, V2);
        let taken = (0..3).take_while(|i| reply.push(&batch, *i)).count();
        assert_eq!(taken, count, "{most}");
        let reply = reply.finish();
        assert!(count == 1 || reply.len() <= most);
        assert_eq!(batches(&reply[REPLY_HEAD_BYTES + 16..])[0].1.len(), count);
    }
}

#[test]
fn replies_of_this_generation_count_from_0() {
    let body = |reply: bytes::Bytes| reply[REPLY_HEAD_BYTES..].to_vec();
    let expected = &of("REGISTER").reply[HEADER_BYTES + 4..];
    assert_eq!(body(register_reply(1, 42, "0.9.0")), expected);
    let expected = &of("SEND_MESSAGES").reply[HEADER_BYTES..];
    assert_eq!(body(confirmation_reply(1, 1, 1, 0)), expected);
    let expected = &of("SYNC_CONSUMER_GROUP").reply[HEADER_BYTES..];
    assert_eq!(body(assignment_reply(1, &[1, 2, 3])), expected);
}

/// Reads a body as the command of its capture; whether that succeeded.
fn read(capture: &Capture, body: &[u8]) -> Option<bool> {
    Some(match capture.command.as_str() {
        "REGISTER" => Register::read(body).is_ok(),
        "SEND_MESSAGES" => Send::read(body, V2).is_ok(),
        "POLL_MESSAGES" => Poll::read(body, V2).is_ok(),
        "STORE_CONSUMER_OFFSET" => StoreOffset::read(body, V2).is_ok(),
        "DELETE_CONSUMER_OFFSET" => DeleteOffset::read(body, V2).is_ok(),
        "GET_CONSUMER_OFFSET" => GetOffset::read(body, V2).is_ok(),
        "GET_CONSUMER_GROUPS" => Topic::read(body, V2).is_ok(),
        "GET_CONSUMER_GROUP"
        | "JOIN_CONSUMER_GROUP"
        | "LEAVE_CONSUMER_GROUP"
        | "SYNC_CONSUMER_GROUP" => Group::read(body, V2).is_ok(),
        _ => return None,
    })
}

#[test]
fn every_cut_and_every_flipped_byte_is_an_error_or_a_value() {
    let mut commands = 0;
    for capture in captures() {
        if read(&capture, &capture.body).is_none() {
            continue;
        }
        commands += 1;
        assert_eq!(read(&capture, &capture.body), Some(true), "{}", capture.id);
        for length in 0..capture.body.len() {
            let is_read = read(&capture, &capture.body[..length]) == Some(true);
            let may_end = capture.command == "REGISTER";
            assert!(may_end || !is_read, "{} cut at {length}", capture.id);
        }
        for at in 0..capture.body.len() {
            for flip in [1, 0x80, 0xff] {
                let mut body = capture.body.clone();
                body[at] ^= flip;
                let outcome = catch_unwind(|| read(&capture, &body));
                assert!(outcome.is_ok(), "{} flipped at {at}", capture.id);
            }
        }
    }
    assert!(commands > 10, "{commands}");
}
