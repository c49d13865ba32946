//! Raw frames that nats-server accepts from a publisher and hands on: each is stored or refused by name, and costs no
//! other message of any stream, nor the connection.

use crate::support::{LIMIT, NatsServer, Stored, Stream, TestBroker, republish, until, values};
use bascule_broker::partition::{IncomingRecord, NatsCopy};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// A publisher that writes what it wants.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn connect(server: &NatsServer) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut raw = Self(BufReader::new(stream));
        raw.send(b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n");
        raw.sync();
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// Waits until the server has handled what was sent; an error of the server fails the test.
    fn sync(&mut self) {
        let refused = self.refused();
        assert!(refused.is_none(), "{refused:?}");
    }

    /// Waits until the server has handled what was sent: what it refused.
    fn refused(&mut self) -> Option<String> {
        self.send(b"PING\r\n");
        let mut refused = None;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            assert!(!line.is_empty(), "the server closed the connection");
            if line == "PONG\r\n" {
                return refused;
            }
            if line.starts_with("-ERR") {
                refused = Some(line);
            }
        }
    }
}

fn hpub(block: &[u8], reply: &str) -> Vec<u8> {
    let line = format!("HPUB p.a {reply} {} {}\r\n", block.len(), block.len() + 1);
    [line.as_bytes(), block, b"x\r\n"].concat()
}

/// A frame, and the subject and reply it is stored with; `None` = refused.
type SubjectFrame = (&'static [u8], Option<(&'static str, &'static str)>);
type Pairs = Vec<(&'static [u8], &'static [u8])>;

/// Name, frame, and the headers it is stored with; then the lines that are left out.
fn stored_frames() -> Vec<(&'static str, Vec<u8>, Pairs, u64)> {
    let case = |name, block: &[u8], headers: &[(&'static [u8], &'static [u8])], unusable| {
        (name, hpub(block, ""), headers.to_vec(), unusable)
    };
    vec![
        case(
            "value, Latin-1",
            b"NATS/1.0\r\nA: ol\xe9\r\n\r\n",
            &[(b"A", b"ol\xe9")],
            0,
        ),
        case(
            "value, NUL and 0xFF",
            b"NATS/1.0\r\nA: \x00\xff\r\n\r\n",
            &[(b"A", b"\x00\xff")],
            0,
        ),
        case(
            "value, UTF-8",
            b"NATS/1.0\r\nA: \xc3\xbc\r\n\r\n",
            &[(b"A", b"\xc3\xbc")],
            0,
        ),
        case(
            "value, control character",
            b"NATS/1.0\r\nA: a\x01b\r\n\r\n",
            &[(b"A", b"a\x01b")],
            0,
        ),
        case(
            "value, bare LF",
            b"NATS/1.0\r\nA: a\nb\r\n\r\n",
            &[(b"A", b"a\nb")],
            0,
        ),
        case("value, empty", b"NATS/1.0\r\nA:\r\n\r\n", &[(b"A", b"")], 0),
        case(
            "name, UTF-8",
            b"NATS/1.0\r\n\xc3\x84: x\r\n\r\n",
            &[(b"\xc3\x84", b"x")],
            0,
        ),
        case(
            "name, not UTF-8",
            b"NATS/1.0\r\n\xff\xfe: x\r\n\r\n",
            &[(b"\xff\xfe", b"x")],
            0,
        ),
        case(
            "name with a space",
            b"NATS/1.0\r\nA b: x\r\n\r\n",
            &[(b"A b", b"x")],
            0,
        ),
        case("name, empty", b"NATS/1.0\r\n: x\r\n\r\n", &[], 1),
        case(
            "name twice",
            b"NATS/1.0\r\nA: 1\r\nA: 2\r\na: 3\r\n\r\n",
            &[(b"A", b"1"), (b"A", b"2"), (b"a", b"3")],
            0,
        ),
        case(
            "line without colon",
            b"NATS/1.0\r\nno colon\r\nB: 2\r\n\r\n",
            &[(b"B", b"2")],
            1,
        ),
        case("no end of block", b"NATS/1.0\r\nA: b", &[(b"A", b"b")], 0),
        case("other version line", b"HTTP/1.1\r\nA: b\r\n\r\n", &[], 1),
        case("inline status", b"NATS/1.0 404 No Messages\r\n\r\n", &[], 1),
        case("no responders", b"NATS/1.0 503\r\n\r\n", &[], 1),
        case("empty block", b"", &[], 0),
        case(
            "names of ours",
            b"NATS/1.0\r\nsubject: fake\r\nreply: fake\r\nBascule-Origin: x\r\n\r\n",
            &[
                (b"subject", b"fake"),
                (b"reply", b"fake"),
                (b"Bascule-Origin", b"x"),
            ],
            0,
        ),
    ]
}

fn owned(pairs: &[(&[u8], &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_header_blocks_are_stored_as_bytes_and_cost_no_other_message() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let odd = broker.partition(&Stream::new("odd", "p.a", 1)).await;
    let other = broker.partition(&Stream::new("other", "q.>", 2)).await;
    let mut raw = Raw::connect(&server);
    let statistics = &broker.statistics;
    let (mut count, mut unusable) = (0, 0);
    for (name, frame, headers, lines) in stored_frames() {
        raw.send(b"PUB q.before 1\r\nb\r\n");
        raw.send(&frame);
        raw.send(b"PUB p.a 4\r\ngood\r\nPUB q.after 1\r\na\r\n");
        raw.sync();
        count += 2;
        let records = odd.holds(count).await;
        let [stored, good] = &records[count - 2..] else {
            panic!("{name}")
        };
        assert_eq!(stored.headers, owned(&headers), "{name}");
        assert_eq!(
            (&stored.value[..], &stored.subject[..], &stored.reply[..]),
            (&b"x"[..], "p.a", ""),
            "{name}"
        );
        assert_eq!(
            (&good.value[..], good.headers.len()),
            (&b"good"[..], 0),
            "{name}"
        );
        unusable += lines;
        assert_eq!(statistics.nats_headers_unusable.get(), unusable, "{name}");
    }
    let expected = ["b", "a"].repeat(count / 2);
    assert_eq!(values(&other.holds(count).await), expected);
    assert_eq!(broker.event_names(), ["connected"], "the connection stayed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_subjects_and_replies_are_refused_by_name_or_stored_and_cost_no_other_message() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let all = broker.partition(&Stream::new("all", "p.>", 1)).await;
    let other = broker.partition(&Stream::new("other", "q.>", 2)).await;
    let mut raw = Raw::connect(&server);
    let frames: [SubjectFrame; 6] = [
        (b"PUB p.\xff\xfe 3\r\nabc\r\n", None),
        (b"PUB p.a in\xff 3\r\nabc\r\n", None),
        (b"PUB p.a\x00b 3\r\nabc\r\n", Some(("p.a\0b", ""))),
        (
            b"PUB p.\xc3\xbc in.\xc3\xbc 3\r\nabc\r\n",
            Some(("p.\u{fc}", "in.\u{fc}")),
        ),
        // Which of them are routed is for nats-server to say; that nothing else is lost, for us.
        (b"PUB p..a 3\r\nabc\r\n", None),
        (b"PUB p.a. 3\r\nabc\r\n", None),
    ];
    let (mut good, mut expected) = (0, Vec::<&(&str, &str)>::new());
    for (frame, stored) in &frames {
        raw.send(b"PUB q.x 1\r\nb\r\n");
        raw.send(frame);
        raw.send(b"PUB p.good 4\r\ngood\r\nPUB q.x 1\r\na\r\n");
        let refused = raw.refused();
        assert!(
            refused.is_none_or(|text| text.contains("Invalid Publish Subject")),
            "nothing else is the server's to refuse"
        );
        good += 1;
        expected.extend(stored);
        let is_good = |record: &Stored| record.value == b"good";
        until("the good message is stored", || {
            all.records()
                .iter()
                .filter(|record| is_good(record))
                .count()
                == good
        })
        .await;
    }
    let records = all.records();
    let odd = records.iter().filter(|record| record.value == b"abc");
    let odd: Vec<_> = odd
        .map(|record| (&record.subject[..], &record.reply[..]))
        .collect();
    let is_for_nats = |subject: &str| ["p..a", "p.a."].contains(&subject);
    let plain: Vec<_> = odd
        .iter()
        .filter(|(subject, _)| !is_for_nats(subject))
        .collect();
    assert_eq!(plain, expected);
    assert!(odd.len() - plain.len() <= 2);
    other.holds(2 * frames.len()).await;
    let statistics = &broker.statistics;
    assert_eq!(statistics.nats_refused.get(), 2);
    let counted = broker.nats.partitions(&[1 << 16]);
    assert_eq!(counted[0]["not_stored"]["invalid"], 2, "{counted}");
    let events = broker.event_texts();
    let refused = |shown: &str| {
        events
            .iter()
            .any(|text| text.contains("refused") && text.contains(shown))
    };
    assert!(refused(r"p.\xff\xfe"), "{events:?}");
    until("both are reported", || {
        broker
            .event_texts()
            .iter()
            .any(|text| text.contains("whose reply subject"))
    })
    .await;
    assert!(!broker.event_names().contains(&"disconnected".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_odd_frames_loses_nothing_of_two_streams() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let odd = broker.partition(&Stream::new("odd", "p.a", 1)).await;
    let other = broker.partition(&Stream::new("other", "q", 2)).await;
    let frames = stored_frames();
    let mut raw = Raw::connect(&server);
    for i in 0..3_000 {
        if i % 10 == 0 {
            raw.send(&frames[i / 10 % frames.len()].1);
        }
        raw.send(format!("PUB q 4\r\n{i:04}\r\n").as_bytes());
    }
    raw.sync();
    let expected: Vec<_> = (0..3_000).map(|i: i32| format!("{i:04}")).collect();
    assert_eq!(values(&other.holds(3_000).await), expected);
    odd.holds(300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_headers_and_too_large_ones_are_counted_by_stream() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let stream = Stream {
        max_record_bytes: 2_000,
        ..Stream::new("s", "p.a", 1)
    };
    let partition = broker.partition(&stream).await;
    let large = broker.partition(&Stream::new("large", "p.>", 2)).await;
    let mut raw = Raw::connect(&server);
    let lines = |count: usize| format!("NATS/1.0\r\n{}\r\n", "a: b\r\n".repeat(count));
    let long = format!("NATS/1.0\r\nA: {}\r\n\r\n", "v".repeat(2_000));
    for block in [lines(1_025), lines(1_024), long] {
        raw.send(&hpub(block.as_bytes(), ""));
    }
    raw.send(b"PUB p.a 4\r\ngood\r\n");
    raw.sync();
    // The limit of a record counts headers.
    assert_eq!(values(&partition.holds(1).await), ["good"]);
    let records = large.holds(3).await;
    assert_eq!(records[0].headers.len(), 1_024);
    let counted = broker.nats.partitions(&[1 << 16, 2 << 16]);
    let of = |i: usize, why: &str| counted[i]["not_stored"][why].as_u64();
    assert_eq!(
        (of(0, "too_large"), of(0, "invalid")),
        (Some(2), Some(1)),
        "{counted}"
    );
    assert_eq!(
        (of(1, "too_large"), of(1, "invalid")),
        (Some(0), Some(1)),
        "{counted}"
    );
    assert_eq!(partition.0.status().nats_dropped, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_origin_neither_keeps_a_message_out_nor_takes_its_reply() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let plain = broker.partition(&Stream::new("plain", "p.a", 1)).await;
    let grouped = broker
        .partition(&Stream {
            group: "g",
            ..Stream::new("grouped", "p.a", 2)
        })
        .await;
    let mut raw = Raw::connect(&server);
    raw.send(b"SUB p.a 1\r\n");
    raw.sync();
    // A copy of the grouped stream, with its seal.
    let record = IncomingRecord {
        value: Some("copied".into()),
        ..IncomingRecord::default()
    };
    republish(&broker, &grouped, NatsCopy::Value, 0, &[record]);
    let block = raw.block();
    assert!(block.contains("Bascule-Seal: "), "{block}");
    let statistics = &broker.statistics;
    until("the copy came back", || {
        statistics.nats_own_copies_dropped.get() == 1
    })
    .await;
    assert_eq!(plain.holds(1).await[0].headers, []);

    // The same headers with another content, and without the seal.
    let unsealed = "NATS/1.0\r\nBascule-Origin: cluster/131072/0/0\r\n\r\n".to_owned();
    for block in [block, unsealed] {
        raw.send(&hpub(block.as_bytes(), "inbox.1"));
    }
    raw.sync();
    for records in [plain.holds(3).await.split_off(1), grouped.holds(2).await] {
        for record in records {
            assert_eq!(
                (&record.value[..], &record.reply[..]),
                (&b"x"[..], "inbox.1")
            );
        }
    }
    assert_eq!(statistics.nats_own_copies_dropped.get(), 1);
}

impl Raw {
    /// The header block of the next message.
    fn block(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with("HMSG") {
            line.clear();
            self.0.read_line(&mut line).unwrap();
        }
        let mut block = String::new();
        while !block.ends_with("\r\n\r\n") {
            self.0.read_line(&mut block).unwrap();
        }
        block
    }
}
