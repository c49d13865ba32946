//! What comes to the port.
use super::{answered, brokers, dialer, local, port, until};
use crate::peer::PeerListener;
use bascule_wire::peer::frame::CONTROL_BYTES;
use bascule_wire::peer::{
    Frame, FrameType, Hello, HelloAnswer, Preamble, Purpose, RaftHead, RefusalCode,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Change = fn(&mut Hello);

fn hello() -> Hello {
    let one = brokers(1, &BTreeMap::new());
    one.hello(2, &one.others[&2], Purpose::Control, 1)
}

/// The next frame; `None` at the end.
async fn read(stream: &mut TcpStream) -> Option<Frame> {
    let mut preamble = [0; Preamble::BYTES];
    stream.read_exact(&mut preamble).await.ok()?;
    let preamble = Preamble::read(preamble, CONTROL_BYTES).unwrap();
    let mut payload = vec![0; preamble.payload_bytes];
    stream.read_exact(&mut payload).await.unwrap();
    Some(preamble.with_payload(payload.into()).unwrap())
}

async fn greeted(port: &PeerListener, hello: &Hello) -> (TcpStream, HelloAnswer) {
    let mut stream = TcpStream::connect(port.address()).await.unwrap();
    let frame = Frame::write(FrameType::Hello, hello, b"");
    stream.write_all(&frame).await.unwrap();
    let answer = read(&mut stream).await.expect("an answer");
    (stream, HelloAnswer::read(&answer).unwrap())
}

fn request(kind: FrameType, request: u64, body: &[u8]) -> Vec<u8> {
    let error = String::new();
    Frame::write(kind, &RaftHead { request, error }, body)
}

#[tokio::test]
async fn requests_that_wait_stop_no_other_request_for_reads() {
    let port = port(local(0), None).await;
    let hello = Hello {
        purpose: Purpose::Reads as i32,
        ..hello()
    };
    let (mut stream, answer) = greeted(&port, &hello).await;
    assert_eq!(answer.code, 0);
    // None of them is ever answered.
    let waiting = (1..=200).map(|number| request(FrameType::ClientRequest, number, b""));
    stream
        .write_all(&waiting.collect::<Vec<_>>().concat())
        .await
        .unwrap();
    let last = request(FrameType::Append, 201, b"x");
    stream.write_all(&last).await.unwrap();
    let frame = read(&mut stream).await.unwrap();
    assert_eq!(RaftHead::read(&frame).unwrap().request, 201);
}

#[tokio::test]
async fn requests_are_answered_with_their_numbers_in_any_order() {
    let port = port(local(0), None).await;
    let (mut stream, answer) = greeted(&port, &hello()).await;
    assert_eq!((answer.code, answer.version, answer.raft_id), (0, 1, 2));
    // The first of them is never answered.
    let frames = [
        request(FrameType::PreVote, 1, b""),
        request(FrameType::Vote, 2, b""),
        request(FrameType::Append, 3, b"x"),
    ];
    stream.write_all(&frames.concat()).await.unwrap();
    let mut answers = BTreeMap::new();
    for _ in 0..2 {
        let frame = read(&mut stream).await.unwrap();
        let head = RaftHead::read(&frame).unwrap();
        answers.insert(head.request, (frame.kind, head.error, frame.body));
    }
    let failed = (
        FrameType::VoteAnswer,
        "failed: no vote".to_owned(),
        Bytes::new(),
    );
    assert_eq!(answers[&2], failed);
    let answered = (
        FrameType::AppendAnswer,
        String::new(),
        Bytes::from_static(b"1:x"),
    );
    assert_eq!(answers[&3], answered);
}

#[tokio::test]
async fn whoever_does_not_belong_is_answered_why_and_closed() {
    let port = port(local(0), None).await;
    let changes: [(RefusalCode, Change); 3] = [
        (RefusalCode::OtherCluster, |hello| {
            hello.cluster_id = Bytes::from_static(&[1; 16]);
        }),
        (RefusalCode::SameBroker, |hello| hello.broker = "b2".into()),
        (RefusalCode::UnknownBroker, |hello| {
            hello.broker = "b7".into();
        }),
    ];
    for (code, change) in changes {
        let mut hello = hello();
        change(&mut hello);
        let (mut stream, answer) = greeted(&port, &hello).await;
        assert_eq!(answer.code, code as u32);
        assert!(answer.text.contains(&hello.broker), "{}", answer.text);
        assert_eq!(read(&mut stream).await, None);
    }
    until("three refusals", || {
        port.refused().get("refused") == Some(&3)
    })
    .await;
    assert!(port.connections().is_empty());
}

/// Each ends its connection, is counted, and does not keep a broker out.
#[tokio::test]
async fn garbage_ends_its_connection_only() {
    let port = port(local(0), None).await;
    let good = Frame::write(FrameType::Hello, &hello(), b"");
    let mut checksum = good.clone();
    *checksum.last_mut().unwrap() ^= 1;
    let too_long = (64_u32 << 10 | 1).to_be_bytes();
    let mut long = good.clone();
    long[..4].copy_from_slice(&too_long);
    let mut nobody = hello();
    nobody.broker.clear();
    let garbage: [(&str, Vec<u8>); 7] = [
        ("malformed", b"GET / HTTP/1.1\r\nHost: b2\r\n\r\n".to_vec()),
        ("malformed", vec![0xff; 4096]),
        ("checksum", checksum),
        ("length", long),
        ("malformed", Frame::write(FrameType::Hello, &nobody, b"")),
        ("type", request(FrameType::Append, 1, b"")),
        ("io", good[..good.len() - 1].to_vec()),
    ];
    let mut expected = BTreeMap::<&str, u64>::new();
    for (reason, bytes) in &garbage {
        let mut stream = TcpStream::connect(port.address()).await.unwrap();
        // It may be closed before all of it was taken.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"", "{reason}");
        *expected.entry(*reason).or_default() += 1;
    }
    until("a count of each", || port.refused() == expected).await;
    assert_eq!(answered(&dialer(1, port.address(), None)).await, "1:hello");
}

#[tokio::test]
async fn garbage_behind_the_handshake_ends_its_connection_only() {
    let port = port(local(0), None).await;
    let mut long = request(FrameType::Append, 1, b"");
    long[..4].copy_from_slice(&(CONTROL_BYTES as u32 + 1).to_be_bytes());
    let garbage: [(&str, Vec<u8>); 4] = [
        ("length", long),
        ("type", Frame::write(FrameType::Hello, &hello(), b"")),
        ("type", request(FrameType::AppendAnswer, 1, b"")),
        ("malformed", request(FrameType::Append, 0, b"")),
    ];
    let mut expected = BTreeMap::<&str, u64>::new();
    for (reason, bytes) in &garbage {
        let (mut stream, _) = greeted(&port, &hello()).await;
        stream.write_all(bytes).await.unwrap();
        assert_eq!(read(&mut stream).await, None, "{reason}");
        *expected.entry(*reason).or_default() += 1;
    }
    until("a count of each", || port.refused() == expected).await;
    assert_eq!(answered(&dialer(3, port.address(), None)).await, "3:hello");
}

/// 32 may be silent at a time: a flood closes the oldest of itself. One that stays silent is closed after its time.
#[tokio::test]
async fn connections_that_say_nothing_are_closed() {
    let port = port(local(0), None).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(port.address()).await.unwrap());
    }
    let mut byte = [0];
    for stream in &mut silent[..8] {
        assert!(matches!(stream.read(&mut byte).await, Ok(0) | Err(_)));
    }
    assert_eq!(answered(&dialer(1, port.address(), None)).await, "1:hello");
    for stream in &mut silent[8..] {
        assert!(matches!(stream.read(&mut byte).await, Ok(0) | Err(_)));
    }
    until("a count of all", || {
        port.refused().get("silent") == Some(&40)
    })
    .await;
}

/// The older one may be half open: its broker's machine is gone, and nobody has noticed.
#[tokio::test]
async fn the_newest_connection_of_a_broker_counts_for_each_purpose() {
    let port = port(local(0), None).await;
    let mut streams = Vec::new();
    for purpose in [Purpose::Control, Purpose::Records].repeat(2) {
        let hello = Hello {
            purpose: purpose as i32,
            ..hello()
        };
        streams.push(greeted(&port, &hello).await.0);
    }
    for stream in &mut streams[..2] {
        assert_eq!(read(stream).await, None);
    }
    for stream in &mut streams[2..] {
        stream
            .write_all(&request(FrameType::Append, 1, b"x"))
            .await
            .unwrap();
        assert_eq!(&read(stream).await.unwrap().body[..], b"1:x");
    }
    assert_eq!(port.connections(), BTreeMap::from([(1, 2)]));
}
