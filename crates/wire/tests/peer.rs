//! Frames between brokers: golden bytes, bounds, and what is refused.
#![allow(clippy::unwrap_used)] // a test that cannot continue must stop
use bascule_wire::peer::frame::{CONTROL_BYTES, DATA_BYTES, GREETING_BYTES};
use bascule_wire::peer::{Fetch, FetchAnswer, Slot, SlotAnswer, SlotOutcome};
use bascule_wire::peer::{Forward, ForwardAnswer};
use bascule_wire::peer::{
    Frame, FrameError, FrameType, Hello, HelloAnswer, Join, JoinAnswer, Preamble, Purpose,
    RaftHead, RefusalCode,
};
use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use std::fmt::Write;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Bytes {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

fn read(bytes: &[u8], most: usize) -> Result<Frame, FrameError> {
    let (preamble, payload) = bytes.split_first_chunk().unwrap();
    let preamble = Preamble::read(*preamble, most)?;
    assert_eq!(preamble.payload_bytes, payload.len());
    preamble.with_payload(Bytes::copy_from_slice(payload))
}

fn hello() -> Hello {
    Hello {
        broker: "b1".into(),
        cluster_id: (1..=16).collect(),
        rescues: 2,
        level: 1,
        oldest_version: 1,
        newest_version: 1,
        raft_id: 1,
        nonce: 0x1122_3344_5566_7788,
        boot_epoch: 7,
        receiver: "b2".into(),
        receiver_boot_epoch: 6,
        receiver_nonce: 0x8877_6655_4433_2211,
        time_ns: 1_800_000_000_000_000_000,
        purpose: Purpose::Control as i32,
    }
}

fn join() -> Join {
    Join {
        broker: "b2".into(),
        receiver: "b1".into(),
        cluster: "bascule-default".into(),
        directory_id: "0f".repeat(16),
        peers: (0..32).collect(),
        oldest_version: 1,
        newest_version: 1,
    }
}

#[test]
fn a_question_about_the_cluster_is_bounded() {
    let changes: [fn(&mut Join); 8] = [
        |join| join.broker.clear(),
        |join| join.cluster.clear(),
        |join| join.cluster = "c".repeat(256),
        |join| join.receiver = "b".repeat(256),
        |join| join.directory_id.clear(),
        |join| join.directory_id = "0".repeat(65),
        |join| join.peers = Bytes::from_static(&[1; 31]),
        |join| join.oldest_version = 2,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut changed = join();
        change(&mut changed);
        let bytes = Frame::write(FrameType::Join, &changed, b"");
        let refused = Join::read(&read(&bytes, GREETING_BYTES).unwrap()).unwrap_err();
        assert!(
            matches!(refused, FrameError::Field { kind: 4, .. }),
            "{number}"
        );
    }
    let answer = JoinAnswer {
        directory_id: "0".repeat(65),
        ..JoinAnswer::default()
    };
    let bytes = Frame::write(FrameType::JoinAnswer, &answer, b"");
    assert!(JoinAnswer::read(&read(&bytes, GREETING_BYTES).unwrap()).is_err());
}

fn refused(hello: &Hello) -> FrameError {
    let bytes = Frame::write(FrameType::Hello, hello, b"");
    Hello::read(&read(&bytes, GREETING_BYTES).unwrap()).unwrap_err()
}

#[test]
fn golden_frames_are_read_and_written() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../specs/vectors/peer/frames.json"
    );
    let vectors: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut names = Vec::new();
    for vector in vectors.as_array().unwrap() {
        let text = |name: &str| vector[name].as_str().unwrap();
        let frame = read(&unhex(text("frame")), CONTROL_BYTES).unwrap();
        assert_eq!(u64::from(frame.kind as u8), vector["kind"]);
        assert_eq!(hex(&frame.head), text("head"));
        assert_eq!(hex(&frame.body), text("body"));
        let again = match frame.kind {
            FrameType::Hello => {
                let head = Hello::read(&frame).unwrap();
                let expected = Hello {
                    purpose: head.purpose,
                    ..hello()
                };
                assert_eq!(head, expected);
                let is_named = text("name") == "hello_publishes";
                assert_eq!(head.purpose() == Purpose::Publishes, is_named);
                Frame::write(frame.kind, &head, &frame.body)
            }
            FrameType::Join => {
                let head = Join::read(&frame).unwrap();
                assert_eq!(head, join());
                Frame::write(frame.kind, &head, &frame.body)
            }
            FrameType::JoinAnswer => {
                let head = JoinAnswer::read(&frame).unwrap();
                Frame::write(frame.kind, &head, &frame.body)
            }
            FrameType::HelloAnswer => {
                let head = HelloAnswer::read(&frame).unwrap();
                Frame::write(frame.kind, &head, &frame.body)
            }
            FrameType::Forward => {
                let head = Forward::read(&frame).unwrap();
                let records = head.read_records(frame.body.clone()).unwrap();
                let body = if records.is_empty() {
                    frame.body.to_vec()
                } else {
                    let written = records
                        .iter()
                        .flat_map(Message::encode_length_delimited_to_vec);
                    written.collect()
                };
                Frame::write(frame.kind, &head, &body)
            }
            FrameType::ForwardAnswer => {
                Frame::write(frame.kind, &ForwardAnswer::read(&frame).unwrap(), b"")
            }
            FrameType::Fetch => Frame::write(frame.kind, &Fetch::read(&frame).unwrap(), b""),
            FrameType::FetchAnswer => {
                let head = FetchAnswer::read(&frame).unwrap();
                Frame::write(frame.kind, &head, &frame.body)
            }
            _ => Frame::write(frame.kind, &RaftHead::read(&frame).unwrap(), &frame.body),
        };
        assert_eq!(hex(&again), text("frame"), "{}", text("name"));
        names.push(text("name"));
    }
    assert_eq!(names.len(), 27, "{names:?}");
}

#[test]
fn a_refusal_has_a_code_that_is_known() {
    let answer = HelloAnswer {
        code: RefusalCode::OtherCluster as u32,
        text: "the cluster is another one".into(),
        ..HelloAnswer::default()
    };
    let bytes = Frame::write(FrameType::HelloAnswer, &answer, b"");
    let found = HelloAnswer::read(&read(&bytes, GREETING_BYTES).unwrap()).unwrap();
    assert_eq!(found, answer);
    let known = RefusalCode::try_from(found.code as i32);
    assert_eq!(known, Ok(RefusalCode::OtherCluster));
}

/// Lengths at both ends of each bound, before a byte of the payload is there.
#[test]
fn a_length_out_of_bounds_is_refused_before_anything_is_read() {
    let mut bytes: [u8; Preamble::BYTES] = Frame::write(FrameType::Hello, &hello(), b"")
        [..Preamble::BYTES]
        .try_into()
        .unwrap();
    for most in [GREETING_BYTES, CONTROL_BYTES] {
        for length in [16, most] {
            bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
            let preamble = Preamble::read(bytes, most).unwrap();
            assert_eq!(preamble.payload_bytes, length - 12);
        }
        for length in [0, 15, most as u32 + 1, u32::MAX] {
            bytes[..4].copy_from_slice(&length.to_be_bytes());
            let refused = Preamble::read(bytes, most).unwrap_err();
            assert_eq!(
                refused,
                FrameError::Length {
                    bytes: length,
                    least: 16,
                    most
                }
            );
        }
    }
}

#[test]
fn every_changed_byte_is_found() {
    let bytes = Frame::write(
        FrameType::Append,
        &RaftHead {
            request: 9,
            error: String::new(),
        },
        b"body",
    );
    // The length is compared with what arrives by the reader of a connection.
    for at in 4..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(read(&changed, CONTROL_BYTES).is_err(), "byte {at}");
    }
}

#[test]
fn unknown_types_and_foreign_protocols_are_named() {
    let bytes = Frame::write(FrameType::Vote, &RaftHead::default(), b"");
    for number in (0..=255).filter(|number| FrameType::from_number(*number).is_none()) {
        let mut changed = bytes.clone();
        changed[11] = number;
        assert_eq!(read(&changed, CONTROL_BYTES), Err(FrameError::Type(number)));
    }
    let http = *b"GET / HTTP/1.1\r\n";
    let refused = Preamble::read(http, GREETING_BYTES).unwrap_err();
    assert!(matches!(refused, FrameError::Envelope(_)), "{refused}");
}

#[test]
fn heads_out_of_their_bounds_are_refused() {
    let changes: [fn(&mut Hello); 10] = [
        |hello| hello.purpose = 4,
        |hello| hello.cluster_id = Bytes::from_static(&[1; 15]),
        |hello| hello.cluster_id = Bytes::from_static(&[1; 17]),
        |hello| hello.cluster_id = Bytes::from_static(&[0; 16]),
        |hello| hello.broker.clear(),
        |hello| hello.broker = "b".repeat(256),
        |hello| hello.receiver = "b".repeat(256),
        |hello| hello.raft_id = 0,
        |hello| hello.oldest_version = 2,
        |hello| hello.receiver_nonce = 0,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut changed = hello();
        change(&mut changed);
        assert!(
            matches!(refused(&changed), FrameError::Field { kind: 10, .. }),
            "{number}"
        );
    }
    let mut longest = hello();
    longest.broker = "b".repeat(255);
    let bytes = Frame::write(FrameType::Hello, &longest, b"");
    assert_eq!(
        Hello::read(&read(&bytes, GREETING_BYTES).unwrap()),
        Ok(longest)
    );
    let bytes = Frame::write(FrameType::Vote, &RaftHead::default(), b"");
    let frame = read(&bytes, CONTROL_BYTES).unwrap();
    assert!(RaftHead::read(&frame).is_err());
    assert_eq!(Hello::read(&frame), Err(FrameError::Type(17)));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        request in 1..=u64::MAX,
        error in ".{0,200}",
        body in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let head = RaftHead { request, error };
        let frame = read(&Frame::write(FrameType::AppendAnswer, &head, &body), CONTROL_BYTES).unwrap();
        prop_assert_eq!(RaftHead::read(&frame).unwrap(), head);
        prop_assert_eq!(&frame.body[..], &body[..]);
    }

    #[test]
    fn a_head_length_beyond_the_frame_is_refused(extra in 1..=u32::MAX - 8) {
        let head = RaftHead { request: 1, error: String::new() }.encode_to_vec();
        let payload = [&(head.len() as u32 + extra).to_be_bytes(), &head[..]].concat();
        let whole = Frame::write(FrameType::Vote, &RaftHead { request: 1, error: String::new() }, b"");
        let mut bytes = whole[..Preamble::BYTES].to_vec();
        bytes[12..].copy_from_slice(&crc32c::crc32c(&payload).to_be_bytes());
        bytes.extend_from_slice(&payload);
        let refused = matches!(read(&bytes, CONTROL_BYTES), Err(FrameError::Head { .. }));
        prop_assert!(refused);
    }
}

fn fetch() -> Fetch {
    Fetch {
        request: 1,
        boot_epoch: 7,
        session: 0,
        sequence: 1,
        max_bytes: 8 << 20,
        wait_ms: 500,
        changed: vec![Slot {
            slot: 3,
            incarnation: 5 << 16,
            partition: 2,
            leader_epoch: 9,
            end: 40,
            last_epoch: 8,
            link: 0xdead_beef,
            durable: 30,
            durable_link: 0xfeed_f00d,
            high_watermark: 20,
            attempt: 4,
        }],
        dropped: vec![1, 2],
    }
}

#[test]
fn a_fetch_is_bounded_and_names_everything() {
    let bytes = Frame::write(FrameType::Fetch, &fetch(), b"");
    let frame = read(&bytes, CONTROL_BYTES).unwrap();
    assert_eq!(Fetch::read(&frame).unwrap(), fetch());
    assert!(RaftHead::read(&frame).is_err() && FetchAnswer::read(&frame).is_err());
    let changes: [fn(&mut Fetch); 8] = [
        |fetch| fetch.boot_epoch = 0,
        |fetch| fetch.sequence = 0,
        |fetch| fetch.max_bytes = 0,
        |fetch| fetch.max_bytes += 1,
        |fetch| fetch.wait_ms = 501,
        |fetch| fetch.changed[0].incarnation = 0,
        |fetch| fetch.changed[0].leader_epoch = 0,
        |fetch| fetch.changed[0].attempt = 0,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut changed = fetch();
        change(&mut changed);
        let bytes = Frame::write(FrameType::Fetch, &changed, b"");
        let refused = Fetch::read(&read(&bytes, CONTROL_BYTES).unwrap());
        assert!(
            matches!(refused, Err(FrameError::Field { kind: 2, .. })),
            "{number}: {refused:?}"
        );
    }
}

#[test]
fn the_answers_to_a_fetch_have_all_bytes_of_the_body() {
    let one = |slot, bytes| SlotAnswer {
        slot,
        attempt: 1,
        leader_epoch: 9,
        outcome: SlotOutcome::Ok as i32,
        bytes,
        ..SlotAnswer::default()
    };
    let answer = FetchAnswer {
        request: 1,
        session: 2,
        answers: vec![one(1, 3), one(2, 0), one(3, 2)],
    };
    let written = |answer: &FetchAnswer, body: &[u8]| {
        let bytes = Frame::write(FrameType::FetchAnswer, answer, body);
        FetchAnswer::read(&read(&bytes, DATA_BYTES).unwrap())
    };
    assert_eq!(written(&answer, b"abcde"), Ok(answer.clone()));
    for body in [&b"abcd"[..], b"abcdef"] {
        let refused = written(&answer, body);
        assert!(
            matches!(refused, Err(FrameError::Field { kind: 3, .. })),
            "{refused:?}"
        );
    }
    let unnamed = FetchAnswer {
        request: 0,
        ..answer
    };
    assert!(written(&unnamed, b"abcde").is_err());
}
