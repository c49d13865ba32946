//! Frames, deadlines and statuses.
use crate::grpc_timeout::parse_timeout;
use crate::liftbridge::call::{new_inbox, unary_message};
use crate::liftbridge::frames::{FrameError, FrameReader, frame};
use crate::liftbridge::refusal::Refusal;
use crate::partition::{AppendError, RejectReason};
use bytes::Bytes;
use std::time::Duration;
use tonic::body::Body;
use tonic::{Code, Status};

/// Three messages, one of them empty, as one body.
fn three() -> (Vec<Bytes>, Vec<u8>) {
    let messages = vec![
        Bytes::from_static(b"first"),
        Bytes::new(),
        Bytes::from(vec![7; 300]),
    ];
    let body = messages
        .iter()
        .flat_map(|message| frame(message).to_vec())
        .collect();
    (messages, body)
}

fn read_all(reader: &mut FrameReader, chunk: &[u8]) -> Result<Vec<Bytes>, FrameError> {
    let mut chunk = Bytes::copy_from_slice(chunk);
    let mut messages = Vec::new();
    while let Some(message) = reader.next(&mut chunk)? {
        messages.push(message);
    }
    assert!(
        chunk.is_empty(),
        "a reader that wants more has used up its chunk"
    );
    Ok(messages)
}

#[test]
fn frames_split_at_every_byte_are_read_whole() {
    let (messages, body) = three();
    for cut in 0..=body.len() {
        let mut reader = FrameReader::new(300);
        let mut read = read_all(&mut reader, &body[..cut]).unwrap();
        read.extend(read_all(&mut reader, &body[cut..]).unwrap());
        assert_eq!(read, messages, "cut at {cut}");
        assert_eq!(reader.end(), Ok(()));
    }
}

#[test]
fn frames_that_come_byte_by_byte_are_read_whole() {
    let (messages, body) = three();
    let mut reader = FrameReader::new(300);
    let mut read = Vec::new();
    for byte in &body {
        read.extend(read_all(&mut reader, &[*byte]).unwrap());
    }
    assert_eq!(read, messages);
}

#[test]
fn a_body_cut_inside_a_frame_is_truncated_and_nowhere_else() {
    let (messages, body) = three();
    let mut ends = vec![0];
    for message in &messages {
        ends.push(ends.last().unwrap() + 5 + message.len());
    }
    for cut in 0..=body.len() {
        let mut reader = FrameReader::new(300);
        read_all(&mut reader, &body[..cut]).unwrap();
        assert_eq!(reader.end().is_ok(), ends.contains(&cut), "cut at {cut}");
    }
}

#[test]
fn a_message_over_the_limit_is_refused_by_its_prefix_alone() {
    let mut reader = FrameReader::new(10);
    assert_eq!(read_all(&mut reader, &frame(&[1; 10])).unwrap().len(), 1);
    let error = read_all(&mut reader, &[0, 0, 0, 0, 11]).unwrap_err();
    assert_eq!(error, FrameError::TooLarge { size: 11, max: 10 });
    let status = Status::from(error);
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(
        status.message(),
        "grpc: received message larger than max (11 vs. 10)"
    );
}

#[test]
fn compressed_and_damaged_flags_are_refused() {
    let refused = |flag| read_all(&mut FrameReader::new(10), &[flag]).unwrap_err();
    assert_eq!(Status::from(refused(1)).code(), Code::Unimplemented);
    assert_eq!(refused(2), FrameError::BadFlag(2));
    assert_eq!(Status::from(refused(255)).code(), Code::Internal);
}

#[tokio::test]
async fn a_unary_body_holds_exactly_one_message() {
    let body = |bytes: Vec<u8>| Body::new(http_body_util::Full::new(Bytes::from(bytes)));
    let read = |bytes| unary_message(body(bytes), 10);
    assert_eq!(
        read(frame(b"one").to_vec()).await.unwrap(),
        Bytes::from_static(b"one")
    );
    assert_eq!(read(Vec::new()).await.unwrap_err().code(), Code::Internal);
    assert_eq!(
        read(vec![0, 0, 0]).await.unwrap_err().code(),
        Code::Internal
    );
    let two = [frame(b"one"), frame(b"two")].concat();
    assert_eq!(read(two).await.unwrap_err().code(), Code::Internal);
}

#[test]
fn timeouts_are_read_in_every_unit() {
    let cases = [
        ("1H", Some(Duration::from_hours(1))),
        ("2M", Some(Duration::from_mins(2))),
        ("3S", Some(Duration::from_secs(3))),
        ("4m", Some(Duration::from_millis(4))),
        ("5u", Some(Duration::from_micros(5))),
        ("6n", Some(Duration::from_nanos(6))),
        ("99999999H", Some(Duration::from_hours(99_999_999))),
        ("123456789S", None),
        ("S", None),
        ("", None),
        ("-1S", None),
        ("1x", None),
        ("1", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_timeout(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn refusals_read_as_the_specification_says() {
    let rejected = |reason| Refusal::Rejected(reason);
    let cases = [
        (
            Refusal::StreamMissing,
            Code::InvalidArgument,
            2,
            "no stream provided",
        ),
        (
            Refusal::NoSuchStream("x".into()),
            Code::NotFound,
            2,
            "no such stream: x",
        ),
        (
            Refusal::NoSuchPartition(-1),
            Code::NotFound,
            2,
            "no such partition: -1",
        ),
        (
            Refusal::Readonly(3),
            Code::FailedPrecondition,
            4,
            "readonly partition: 3",
        ),
        (
            Refusal::PolicyMissing,
            Code::InvalidArgument,
            1,
            "stream with concurrency control must have AckPolicy set",
        ),
        (
            Refusal::PolicyUnknown(-1),
            Code::InvalidArgument,
            1,
            "Unknown AckPolicy -1",
        ),
        (
            rejected(RejectReason::TooLarge),
            Code::InvalidArgument,
            1,
            "message exceeds max replication size",
        ),
        (
            rejected(RejectReason::IncorrectOffset),
            Code::Unknown,
            5,
            "incorrect expected offset",
        ),
        (
            Refusal::Append(AppendError::NotLeader),
            Code::Unavailable,
            3,
            "failed to append: partition is not led here",
        ),
        (
            Refusal::Append(AppendError::Full),
            Code::ResourceExhausted,
            3,
            "failed to append: no space left on the data directory",
        ),
    ];
    for (refusal, code, async_code, text) in cases {
        assert_eq!(refusal.status().code(), code, "{text}");
        assert_eq!(refusal.status().message(), text);
        assert_eq!(refusal.async_code(), async_code, "{text}");
    }
}

#[test]
fn inboxes_differ_and_carry_the_namespace() {
    let (one, two) = (new_inbox("ns"), new_inbox("ns"));
    assert!(one.starts_with("ns.ack.") && one.len() == "ns.ack.".len() + 32);
    assert_ne!(one, two);
}
