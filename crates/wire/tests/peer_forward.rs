//! Frames with forwarded publishes: bounds, and what is refused.
#![allow(clippy::unwrap_used)] // a test that cannot continue must stop
use bascule_wire::peer::forward::{
    DEADLINE_MS, FORWARD_RECORDS, ForwardProducer, ForwardRejected, ForwardedHeader, RejectedFor,
};
use bascule_wire::peer::frame::CONTROL_BYTES;
use bascule_wire::peer::{
    Forward, ForwardAnswer, ForwardOutcome, ForwardedRecord, Frame, FrameError, FrameType, Preamble,
};
use bytes::Bytes;
use prost::Message;

fn read(bytes: &[u8], most: usize) -> Result<Frame, FrameError> {
    let (preamble, payload) = bytes.split_first_chunk().unwrap();
    let preamble = Preamble::read(*preamble, most)?;
    preamble.with_payload(Bytes::copy_from_slice(payload))
}

fn forward() -> Forward {
    Forward {
        request: 1,
        deadline_ms: DEADLINE_MS,
        incarnation: 40,
        partition: 0,
        leader_epoch: 41,
        namespace: "default".into(),
        stream: "orders".into(),
        records: 1,
        ..Forward::default()
    }
}

#[test]
fn heads_of_forwarded_publishes_are_bounded() {
    let read_head = |head: &Forward| {
        Forward::read(&read(&Frame::write(FrameType::Forward, head, b""), CONTROL_BYTES).unwrap())
    };
    assert_eq!(read_head(&forward()), Ok(forward()));
    let changes: [fn(&mut Forward); 11] = [
        |head| head.request = 0,
        |head| head.incarnation = 0,
        |head| head.leader_epoch = 0,
        |head| head.deadline_ms = DEADLINE_MS + 1,
        |head| head.stream.clear(),
        |head| head.stream = "s".repeat(4097),
        |head| head.namespace = "n".repeat(4097),
        |head| head.principal = Some("p".repeat(4097)),
        |head| head.address = "a".repeat(4097),
        |head| head.producer = Some(ForwardProducer::default()),
        |head| head.records = FORWARD_RECORDS as u32 + 1,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut changed = forward();
        change(&mut changed);
        let refused = read_head(&changed);
        assert!(
            matches!(refused, Err(FrameError::Field { kind: 25, .. })),
            "{number}"
        );
    }
}

#[test]
fn records_of_forwarded_publishes_are_as_many_as_the_head_says_and_can_be_stored() {
    let written = |records: &[ForwardedRecord]| {
        let written = records
            .iter()
            .flat_map(Message::encode_length_delimited_to_vec);
        written.collect::<Bytes>()
    };
    let record = ForwardedRecord::default();
    assert_eq!(
        forward().read_records(written(std::slice::from_ref(&record))),
        Ok(vec![record.clone()])
    );
    let header = |name: usize| ForwardedHeader {
        name: vec![b'n'; name].into(),
        value: Bytes::new(),
    };
    let cases = [
        written(&[]),
        written(&[record.clone(), record.clone()]),
        Bytes::from_static(&[5, 1]),
        written(&[ForwardedRecord {
            subject: Bytes::from_static(&[0xff]),
            ..record.clone()
        }]),
        written(&[ForwardedRecord {
            reply: Bytes::from_static(&[0xff]),
            ..record.clone()
        }]),
        written(&[ForwardedRecord {
            headers: vec![header(65_536)],
            ..record.clone()
        }]),
        written(&[ForwardedRecord {
            headers: vec![header(0); 1025],
            ..record.clone()
        }]),
    ];
    for (number, body) in cases.into_iter().enumerate() {
        let refused = forward().read_records(body);
        assert!(
            matches!(refused, Err(FrameError::Field { kind: 25, .. })),
            "{number}"
        );
    }
    // A head may say much: memory follows the bytes that are there.
    let many = Forward {
        records: FORWARD_RECORDS as u32,
        ..forward()
    };
    assert!(many.read_records(Bytes::new()).is_err());
}

#[test]
fn answers_to_forwarded_publishes_say_what_is_known() {
    let read_head = |head: &ForwardAnswer| {
        let bytes = Frame::write(FrameType::ForwardAnswer, head, b"");
        ForwardAnswer::read(&read(&bytes, CONTROL_BYTES).unwrap())
    };
    let good = ForwardAnswer {
        request: 1,
        outcome: ForwardOutcome::Committed as i32,
        ..ForwardAnswer::default()
    };
    assert_eq!(read_head(&good), Ok(good.clone()));
    let rejected = |index: u32, reason: i32| ForwardRejected {
        index,
        reason,
        offset: 0,
    };
    let known = RejectedFor::TooLarge as i32;
    let bad = [
        ForwardAnswer {
            outcome: 0,
            ..good.clone()
        },
        ForwardAnswer {
            outcome: 99,
            ..good.clone()
        },
        ForwardAnswer {
            text: "t".repeat(1025),
            ..good.clone()
        },
        ForwardAnswer {
            rejected: vec![rejected(1, 0)],
            ..good.clone()
        },
        ForwardAnswer {
            rejected: vec![rejected(2, known), rejected(2, known)],
            ..good
        },
    ];
    for (number, head) in bad.iter().enumerate() {
        assert!(read_head(head).is_err(), "{number}");
    }
}
