//! From NATS into partitions, against a real nats-server.

use crate::support::{NatsServer, Stream, TestBroker, envelope, fields, listen, until, values};
use bascule_broker::limits::Limits;
use bascule_broker::nats::NatsSettings;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_message_is_stored_as_it_is() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "foo", 1)).await;
    let client = server.client().await;
    let mut answers = listen(&client, "answers").await;

    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-Msg-Id", "a");
    headers.append("Other", "one");
    headers.append("Other", "two");
    client
        .publish_with_reply_and_headers("foo", "answers", headers, "one".into())
        .await
        .unwrap();
    client.publish("foo", "".into()).await.unwrap();
    client.publish("foo.bar", "elsewhere".into()).await.unwrap();
    client.flush().await.unwrap();

    let records = partition.holds(2).await;
    assert_eq!(values(&records), ["one", ""]);
    assert_eq!(
        (&records[0].subject[..], &records[0].reply[..]),
        ("foo", "answers")
    );
    assert!(records[0].key.is_empty());
    let mut headers = records[0].headers.clone();
    headers.sort();
    assert_eq!(
        headers,
        [
            ("Nats-Msg-Id".into(), b"a".to_vec()),
            ("Other".into(), b"one".to_vec()),
            ("Other".into(), b"two".to_vec()),
        ]
    );
    assert_eq!(
        records[0].id, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964,
        "the FNV-1a hash of `a`"
    );
    assert_eq!((records[1].id, records[1].reply.len()), (0, 0));
    assert_eq!(broker.statistics.nats_messages.get(), 2);
    assert_eq!(broker.statistics.nats_enveloped.get(), 0);
    crate::support::nothing(&mut answers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enveloped_message_gives_key_value_and_headers() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "foo", 1)).await;
    let client = server.client().await;

    let headers = [(&b"h"[..], &b"1"[..]), (&b"i"[..], &b"2"[..])];
    let publish = bascule_wire::liftbridge::publish::PublishFields {
        key: b"k",
        headers: &headers,
        ..fields("v")
    };
    let mut of_nats = async_nats::HeaderMap::new();
    of_nats.insert("h", "3");
    client
        .publish_with_headers("foo", of_nats, envelope(&publish))
        .await
        .unwrap();

    let records = partition.holds(1).await;
    assert_eq!(
        (&records[0].key[..], values(&records)),
        (&b"k"[..], vec!["v".to_owned()])
    );
    assert_eq!(
        records[0].headers,
        [
            ("h".into(), b"1".to_vec()),
            ("i".into(), b"2".to_vec()),
            ("h".into(), b"3".to_vec()),
        ],
        "the headers of NATS follow those of the envelope"
    );
    assert_eq!(broker.statistics.nats_enveloped.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_envelope_is_a_plain_message() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "foo", 1)).await;
    let client = server.client().await;

    let good = envelope(&fields("value"));
    let mut expected = Vec::new();
    for (position, byte) in [(0, 0), (4, 1), (5, 200), (5, 4), (6, 1), (7, 1), (8, 0xff)] {
        let mut bad = good.to_vec();
        bad[position] = byte;
        client.publish("foo", bad.clone().into()).await.unwrap();
        expected.push(bad);
    }
    let records = partition.holds(expected.len()).await;
    let stored: Vec<_> = records.iter().map(|record| record.value.clone()).collect();
    assert_eq!(stored, expected);
    assert_eq!(broker.statistics.nats_enveloped.get(), 0);
    // All but the one without the magic.
    assert_eq!(broker.statistics.nats_malformed.get(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_stores_what_matches_its_subject() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let one = broker.partition(&Stream::new("one", "a.b", 1)).await;
    let two = broker.partition(&Stream::new("two", "a.b", 2)).await;
    let star = broker.partition(&Stream::new("star", "a.*", 3)).await;
    let all = broker.partition(&Stream::new("all", "a.>", 4)).await;
    let client = server.client().await;

    for subject in ["a.b", "a.c", "a.c.d", "b"] {
        client.publish(subject, subject.into()).await.unwrap();
    }
    assert_eq!(values(&all.holds(3).await), ["a.b", "a.c", "a.c.d"]);
    assert_eq!(values(&star.holds(2).await), ["a.b", "a.c"]);
    assert_eq!(values(&one.holds(1).await), ["a.b"]);
    let records = two.holds(1).await;
    assert_eq!(
        (values(&records), &records[0].subject[..]),
        (vec!["a.b".to_owned()], "a.b")
    );
    assert_eq!(star.records()[1].subject, "a.c");

    // Leading again changes nothing; the others continue when one stops.
    broker.nats.lead(&one.0).await;
    broker.nats.stop_feeding(2 << 16);
    broker.nats.stop_feeding(3 << 16);
    client.publish("a.b", "later".into()).await.unwrap();
    assert_eq!(values(&one.holds(2).await), ["a.b", "later"]);
    all.holds(4).await;
    two.holds(1).await;
    star.holds(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_after_lead_returned_is_stored_from_the_first_message() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let client = server.client().await;
    for incarnation in 1..=50 {
        let subject: &'static str = Box::leak(format!("first.{incarnation}").into_boxed_str());
        let partition = broker
            .partition(&Stream::new("s", subject, incarnation))
            .await;
        client.publish(subject, "x".into()).await.unwrap();
        partition.holds_at_least(1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_queue_group_share_the_messages() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let (one, two) = (
        TestBroker::connected("b1", &server).await,
        TestBroker::connected("b2", &server).await,
    );
    let mut stream = Stream::new("s", "work", 1);
    stream.group = "g";
    let a = one.partition(&stream).await;
    let b = two
        .partition(&Stream {
            incarnation: 2,
            ..stream
        })
        .await;
    let alone = two.partition(&Stream::new("alone", "work", 3)).await;
    let client = server.client().await;

    for i in 0..200 {
        client.publish("work", i.to_string().into()).await.unwrap();
    }
    let expected: Vec<_> = (0..200).map(|i: i32| i.to_string()).collect();
    assert_eq!(values(&alone.holds(200).await), expected);
    until("the group has all", || a.count() + b.count() == 200).await;
    assert!(
        a.count() > 0 && b.count() > 0,
        "{} and {}",
        a.count(),
        b.count()
    );
    let mut all = [values(&a.records()), values(&b.records())].concat();
    all.sort_by_key(|value| value.parse::<u32>().unwrap());
    assert_eq!(all, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_is_kept_and_nothing_is_lost_in_a_burst() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "burst", 1)).await;
    let client = server.client().await;
    for i in 0..20_000 {
        client.publish("burst", i.to_string().into()).await.unwrap();
    }
    let records = partition.holds(20_000).await;
    let expected: Vec<_> = (0..20_000).map(|i: i32| i.to_string()).collect();
    assert_eq!(values(&records), expected);
    assert_eq!(broker.statistics.nats_dropped.get(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ingest_resumes_after_nats_was_away() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let before = broker.partition(&Stream::new("before", "x", 1)).await;
    server.kill();
    until("the loss is noticed", || !broker.nats.is_connected()).await;
    // That is one of two connections; what is published while the other's loss is not yet known is on its way to nobody.
    let start = std::time::Instant::now();
    let mut published = Ok(());
    while published.is_ok() && start.elapsed() < crate::support::LIMIT {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        published = broker.nats.publish("x", None, "lost".into()).await;
    }
    assert_eq!(published, Err("nats: server is disconnected".to_owned()));
    let during = broker.partition(&Stream::new("during", "x.y", 2)).await;

    server.restart();
    until("connected again", || broker.nats.is_connected()).await;
    let client = server.client().await;
    // Subscriptions are sent right after the connection is up, so the first messages may come too early.
    let start = std::time::Instant::now();
    while before.count() == 0 || during.count() == 0 {
        assert!(
            start.elapsed() < crate::support::LIMIT,
            "ingest did not resume"
        );
        client.publish("x", "again".into()).await.unwrap();
        client.publish("x.y", "again".into()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // An event follows what it reports.
    let names = || {
        let mut names = broker.event_names();
        // Attempts that failed while the server was away.
        names.retain(|name| name != "error");
        names
    };
    until("reported", || {
        names().len() >= 3 && names().last().is_some_and(|name| name == "connected")
    })
    .await;
    // Connected, disconnected, connected; twice when one connection is back before the loss of the other is noticed.
    for (i, name) in names().iter().enumerate() {
        let expected = if i % 2 == 0 {
            "connected"
        } else {
            "disconnected"
        };
        assert_eq!(name, expected, "{:?}", names());
    }
    assert_eq!(
        broker.statistics.nats_gaps.get() as usize,
        names().len() / 2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_reported_and_tried_again() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    server.kill();
    let broker = TestBroker::new("b1");
    broker.nats.connect(server.settings());
    let partition = broker.partition(&Stream::new("s", "x", 1)).await;
    until("reported", || !broker.event_names().is_empty()).await;
    // Two more attempts of each connection.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let names = broker.event_names();
    assert!(names.iter().all(|name| name == "error"), "{names:?}");
    assert!(
        names.len() <= 2,
        "one per connection, not one per attempt: {names:?}"
    );

    server.restart();
    until("connected", || broker.nats.is_connected()).await;
    let client = server.client().await;
    let start = std::time::Instant::now();
    while partition.count() == 0 {
        assert!(start.elapsed() < crate::support::LIMIT, "nothing is stored");
        client.publish("x", "hello".into()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    until("reported", || {
        broker.event_names().last().map(String::as_str) == Some("connected")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_do_not_fit_are_dropped_counted_and_reported() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::new("b1");
    broker
        .connect(NatsSettings {
            pending_bytes: Some(300_000),
            ..server.settings()
        })
        .await;
    let partition = broker.partition(&Stream::new("s", "burst", 1)).await;
    let client = server.client().await;
    let statistics = &broker.statistics;
    let start = std::time::Instant::now();
    // Nothing can be appended for a while, and 1,127 messages of 10 and 256 bytes may wait.
    let inflight = &broker.partitions.inflight;
    let room = inflight.available_permits() as u32;
    let taken = inflight.acquire_many(room).await.unwrap();
    for i in 0..5_000 {
        client
            .publish("burst", format!("{i:010}").into())
            .await
            .unwrap();
    }
    until(
        "all were received, and those dropped for which there is no room",
        || {
            statistics.nats_messages.get() == 5_000
                && statistics.nats_dropped.get() >= 5_000 - 1_127
        },
    )
    .await;
    drop(taken);

    let dropped = || statistics.nats_dropped.get() as usize;
    until("all are stored or counted", || {
        partition.count() + dropped() == 5_000
    })
    .await;
    let stored = values(&partition.records());
    assert!(
        !stored.is_empty() && stored.len() <= 1_127,
        "{} stored",
        stored.len()
    );
    assert!(stored.is_sorted(), "order is kept");
    let names = broker.event_names();
    let reported = names.iter().filter(|name| *name == "slow_consumer").count();
    let at_most = 2 + start.elapsed().as_secs() as usize;
    assert!(
        (1..=at_most).contains(&reported),
        "once at first, the others of each second together: {names:?}"
    );

    client.publish("burst", "later".into()).await.unwrap();
    partition.holds(stored.len() + 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_had_to_wait_is_stored_in_order() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "burst", 1)).await;
    let client = server.client().await;
    let inflight = &broker.partitions.inflight;
    let all_room = Limits::default().inflight_bytes as u32;
    let received = |count| broker.statistics.nats_messages.get() >= count;
    let mut taken = None;
    for i in 0..20_000 {
        match i {
            5_000 => taken = Some(inflight.acquire_many(all_room).await.unwrap()),
            10_000 => {
                until("received without room", || received(9_000)).await;
                assert!(partition.count() < 9_000);
                drop(taken.take());
            }
            _ => {}
        }
        client.publish("burst", i.to_string().into()).await.unwrap();
    }
    let expected: Vec<_> = (0..20_000).map(|i: i32| i.to_string()).collect();
    assert_eq!(values(&partition.holds(20_000).await), expected);
}
