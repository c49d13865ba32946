//! Copies of direct publishes, against a real nats-server.

use crate::support::{
    LIMIT, NatsServer, Stream, TestBroker, TestPartition, envelope, fields, listen, next, nothing,
    republish, round_trip, until, values,
};
use bascule_broker::partition::{CommitObserver as _, CommittedAppend, IncomingRecord, NatsCopy};
use bascule_wire::envelope::{Recognised, recognise};
use bascule_wire::liftbridge::publish::PublishFields;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

fn record(value: &'static str) -> IncomingRecord {
    IncomingRecord {
        key: Bytes::from_static(b"k"),
        value: Some(Bytes::from_static(value.as_bytes())),
        headers: vec![(Bytes::from_static(b"h"), Bytes::from_static(b"1"))],
        ..IncomingRecord::default()
    }
}

fn copy(
    broker: &TestBroker,
    partition: &TestPartition,
    mode: NatsCopy,
    base: u64,
    values: &[&'static str],
) {
    let records: Vec<_> = values.iter().map(|value| record(value)).collect();
    republish(broker, partition, mode, base, &records);
}

/// Reports `count` committed records that only the log holds.
fn republish_stored(broker: &TestBroker, partition: &TestPartition, base_offset: u64, count: u32) {
    let append = CommittedAppend {
        mode: NatsCopy::Envelope,
        base_offset,
        count,
        records: &[],
        rejected: &[],
    };
    let nats = &broker.nats;
    nats.on_commit(&partition.0, &mut std::iter::once(append));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_reaches_subscribers_and_other_streams_but_not_its_own_partition() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let (home, away) = (
        TestBroker::connected("b1", &server).await,
        TestBroker::connected("b2", &server).await,
    );
    let own = home.partition(&Stream::new("own", "foo", 1)).await;
    let beside = home.partition(&Stream::new("beside", "foo", 2)).await;
    let wild = home.partition(&Stream::new("wild", "*", 3)).await;
    let remote = away.partition(&Stream::new("remote", "foo", 4)).await;
    let client = server.client().await;
    let mut plain = listen(&client, "foo").await;

    copy(&home, &own, NatsCopy::Envelope, 7, &["a", "b"]);
    for (offset, value) in [(7, "a"), (8, "b")] {
        let message = next(&mut plain).await;
        let headers = message.headers.unwrap();
        assert_eq!(
            headers.get("Bascule-Origin").unwrap().as_str(),
            format!("cluster/65536/0/{offset}")
        );
        let Recognised::Publish(publish) = recognise(&message.payload) else {
            panic!("an envelope")
        };
        assert_eq!(
            (&publish.key[..], publish.value.as_deref()),
            (&b"k"[..], Some(value.as_bytes()))
        );
        assert_eq!((publish.ack_policy, publish.expected_offset), (2, -1));
    }
    for partition in [&beside, &wild, &remote] {
        let records = partition.holds(2).await;
        assert_eq!(values(&records), ["a", "b"]);
        assert_eq!(
            (
                &records[0].key[..],
                &records[0].subject[..],
                records[0].reply.len()
            ),
            (&b"k"[..], "foo", 0)
        );
        assert_eq!(records[0].headers, [("h".into(), b"1".to_vec())]);
    }
    own.holds(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_null_and_headers_that_a_map_cannot_show_survive_a_copy() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let (home, away) = (
        TestBroker::connected("b1", &server).await,
        TestBroker::connected("b2", &server).await,
    );
    let own = home.partition(&Stream::new("own", "foo", 1)).await;
    let beside = home.partition(&Stream::new("beside", "foo", 2)).await;
    let remote = away.partition(&Stream::new("remote", "foo", 3)).await;
    let pair = |name: &'static [u8]| (Bytes::from_static(name), Bytes::from_static(b"1"));
    let tombstone = IncomingRecord {
        value: None,
        headers: vec![pair(b"h"), pair(b"h"), pair(b"\xff")],
        ..record("")
    };

    republish(&home, &own, NatsCopy::Envelope, 0, &[tombstone, record("")]);

    for partition in [&beside, &remote] {
        let records = partition.holds(2).await;
        let nulls: Vec<_> = records.iter().map(|record| record.is_null).collect();
        assert_eq!(nulls, [true, false]);
        let names: Vec<_> = records[0]
            .headers
            .iter()
            .map(|(name, _)| &name[..])
            .collect();
        assert_eq!(names, [&b"h"[..], b"h", b"\xff"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_in_a_queue_group_drops_its_own_copies() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let own = broker
        .partition(&Stream {
            group: "g",
            ..Stream::new("own", "foo", 1)
        })
        .await;
    copy(&broker, &own, NatsCopy::Envelope, 0, &["a", "b", "c"]);
    until("they came back", || {
        broker.statistics.nats_own_copies_dropped.get() == 3
    })
    .await;
    own.holds(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bare_value_is_copied_where_the_stream_wants_it() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let away = TestBroker::connected("b2", &server).await;
    let own = broker.partition(&Stream::new("own", "foo", 1)).await;
    let beside = broker.partition(&Stream::new("beside", "foo", 2)).await;
    let header = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
    let odd = IncomingRecord {
        headers: vec![
            header("h", "1"),
            header("h", "2"),
            header("Nats-Msg-Id", "forged"),
            header("nats-Expected-Stream", "forged"),
            header("Bascule-Origin", "cluster/131072/0/0"),
            header("no token", "x"),
            header("", "x"),
            header("lines", "a\r\nInjected: x"),
            (Bytes::from_static(b"\xff"), Bytes::from("x")),
            (Bytes::from("bytes"), Bytes::from_static(b"\xff\x00")),
        ],
        ..record("a")
    };
    republish(&broker, &own, NatsCopy::Value, 0, &[odd]);
    copy(&broker, &own, NatsCopy::None, 1, &["b"]);
    let records = beside.holds(1).await;
    assert_eq!(values(&records), ["a"]);
    assert!(records[0].key.is_empty() && records[0].id == 0);
    let expected = [
        ("h".into(), b"1".to_vec()),
        ("h".into(), b"2".to_vec()),
        ("bytes".into(), b"\xff\x00".to_vec()),
        ("Bascule-Key".into(), b"aw==".to_vec()),
    ];
    assert_eq!(records[0].headers, expected, "fed without NATS");
    // What a listener elsewhere stores of it is the same.
    let remote = away.partition(&Stream::new("remote", "foo", 4)).await;
    let odd = IncomingRecord {
        headers: vec![header("h", "1"), header("Nats-Msg-Id", "forged")],
        ..record("a")
    };
    let client = server.client().await;
    let mut plain = listen(&client, "foo").await;
    republish(&broker, &own, NatsCopy::Value, 2, &[odd]);
    assert_eq!(&next(&mut plain).await.payload[..], b"a");
    nothing(&mut plain).await;
    let records = remote.holds(1).await;
    assert_eq!(
        records[0].headers,
        [expected[0].clone(), expected[3].clone()]
    );
    assert_eq!((values(&records), records[0].id), (vec!["a".to_owned()], 0));
    let statistics = &broker.statistics;
    until("left out headers are counted", || {
        statistics.nats_copy_headers_left_out.get() == 8
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wildcard_stream_copies_nothing_whatever_subject_a_record_names() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let own = broker.partition(&Stream::new("own", "foo.>", 1)).await;
    let beside = broker.partition(&Stream::new("beside", "foo.a", 2)).await;
    let plain = broker.partition(&Stream::new("plain", "foo.b", 3)).await;
    let client = server.client().await;
    let mut all = listen(&client, "foo.>").await;

    let named = |subject: &'static str| IncomingRecord {
        subject: Bytes::from_static(subject.as_bytes()),
        ..record("v")
    };
    for records in [
        [named("foo.a"), record("unnamed")],
        [named("foo.b.c"), named("bar")],
    ] {
        republish(&broker, &own, NatsCopy::Envelope, 0, &records);
    }
    republish_stored(&broker, &own, 0, 2);
    // A stream on one subject copies to that one, whatever its records name.
    republish(&broker, &plain, NatsCopy::Envelope, 0, &[named("foo.a")]);

    assert_eq!(next(&mut all).await.subject.as_str(), "foo.b");
    nothing(&mut all).await;
    assert_eq!(beside.0.reader().high_watermark(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_subscribed_before_a_publish_gets_it_though_nobody_listened_until_then() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let own = broker.partition(&Stream::new("own", "foo", 1)).await;
    let client = server.client().await;
    let offered = Offered::new(&broker, &own);
    for round in 0..5 {
        // Nobody listens: one copy of each wave is published, nobody receives it, the others are skipped.
        offered.until_skipped(4000, 100).await;

        // From here on everything must arrive, in order.
        let mut heard = listen(&client, "foo").await;
        let first = offered.count();
        for _ in 0..50 {
            offered.copy(10);
        }
        let mut wanted = first;
        while wanted < offered.count() {
            let offset = offset(&next(&mut heard).await);
            // Copies of before may come too: those that still waited when the subscriber came.
            if offset >= first {
                assert_eq!(offset, wanted, "round {round}");
                wanted += 1;
            }
        }
        heard.unsubscribe().await.unwrap();
        round_trip(&client).await;
        // While somebody was heard, a probe takes 1,000 copies and a while to find out that nobody is left.
        offered.until_skipped(1, 500).await;
    }
    assert_eq!(broker.statistics.nats_copies_dropped.get(), 0);
}

/// The offset in a copy's origin.
fn offset(message: &async_nats::Message) -> u64 {
    let origin = message.headers.as_ref().unwrap().get("Bascule-Origin");
    let origin = origin.unwrap().as_str();
    origin.rsplit('/').next().unwrap().parse().unwrap()
}

/// Offers copies of one partition, with consecutive offsets, and counts them.
struct Offered<'a> {
    broker: &'a TestBroker,
    partition: &'a TestPartition,
    count: AtomicU64,
}

impl<'a> Offered<'a> {
    fn new(broker: &'a TestBroker, partition: &'a TestPartition) -> Self {
        Self {
            broker,
            partition,
            count: AtomicU64::new(0),
        }
    }

    /// So many so far: the offset of the next.
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn copy(&self, records: u64) {
        let base = self.count.fetch_add(records, Ordering::Relaxed);
        let values = vec!["v"; records as usize];
        copy(
            self.broker,
            self.partition,
            NatsCopy::Envelope,
            base,
            &values,
        );
    }

    /// Offers appends of `records` until `wanted` more were found to be wanted by nobody. A server that does not say so
    /// within 50 ms is taken for a listener, so it takes as many appends as it takes.
    async fn until_skipped(&self, wanted: u64, records: u64) {
        let statistics = &self.broker.statistics;
        let before = statistics.nats_copies_skipped.get();
        let start = Instant::now();
        while statistics.nats_copies_skipped.get() < before + wanted {
            assert!(start.elapsed() < LIMIT, "nothing is skipped");
            for _ in 0..10 {
                self.copy(records);
            }
            until("each copy is published or skipped", || {
                let skipped = statistics.nats_copies_skipped.get();
                statistics.nats_copies_sent.get() + skipped == self.count()
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_only_the_log_holds_are_copied_from_there() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let own = broker.partition(&Stream::new("own", "foo", 1)).await;
    let client = server.client().await;
    // 3,000 records with key and header, stored but not copied.
    for i in 0..3_000 {
        let value: &'static str = Box::leak(i.to_string().into_boxed_str());
        let headers = [(&b"h"[..], &b"1"[..])];
        let publish = PublishFields {
            key: b"k",
            headers: &headers,
            ..fields(value)
        };
        client.publish("foo", envelope(&publish)).await.unwrap();
    }
    own.holds(3_000).await;

    let statistics = &broker.statistics;
    let start = Instant::now();
    let mut offered = 0;
    // Nobody wants them; a server that does not say so within 50 ms is taken for a listener, and asked again.
    while statistics.nats_copies_skipped.get() == 0 {
        assert!(start.elapsed() < LIMIT, "nothing is skipped");
        republish_stored(&broker, &own, 0, 2_000);
        offered += 2_000;
        until("each copy is published or skipped", || {
            statistics.nats_copies_sent.get() + statistics.nats_copies_skipped.get() == offered
        })
        .await;
    }
    assert_eq!(statistics.nats_copies_skipped.get(), 1_999);

    let beside = broker.partition(&Stream::new("beside", "foo", 2)).await;
    let mut plain = listen(&client, "foo").await;
    republish_stored(&broker, &own, 500, 2_000);
    republish_stored(&broker, &own, 2_900, 200);
    for offset in 500..2_500 {
        let message = next(&mut plain).await;
        let origin = message.headers.unwrap();
        let origin = origin.get("Bascule-Origin").unwrap().as_str();
        assert_eq!(origin, format!("cluster/65536/0/{offset}"));
        let Recognised::Publish(publish) = recognise(&message.payload) else {
            panic!("an envelope")
        };
        assert_eq!(publish.value.unwrap(), offset.to_string());
        assert_eq!((&publish.key[..], publish.headers.len()), (&b"k"[..], 1));
    }
    let records = beside.holds(2_100).await;
    assert_eq!(
        (&records[0].value[..], &records[2_000].value[..]),
        (&b"500"[..], &b"2900"[..])
    );
    assert_eq!(records[0].headers, [("h".into(), b"1".to_vec())]);
    until("those that are not there are counted", || {
        statistics.nats_copies_dropped.get() == 100
    })
    .await;
}
