//! The connections to NATS: what a server permits, why it cannot be reached, and what is counted of a paused stream.

use crate::support::{NatsServer, Stream, TestBroker, until, values};
use bascule_broker::nats::{NatsSettings, NatsTls, PausedPartition, Reason};
use std::io::{Read, Write};
use std::net::TcpListener;

/// Settings for a user.
fn user(server: &NatsServer, password: &str) -> NatsSettings {
    NatsSettings {
        user: Some("broker".to_owned()),
        password: Some(password.to_owned()),
        ..server.settings()
    }
}

fn config(permissions: &str) -> String {
    let broker = format!("{{ user: broker, password: secret{permissions} }}");
    format!("authorization {{ users: [ {broker}, {{ user: other, password: secret }} ] }}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_subscription_is_shown_on_the_stream_and_costs_no_other() {
    let denied = config(", permissions: { subscribe: { deny: [\"secret.>\", \"work\"] } }");
    let Some(mut server) = NatsServer::with_config(&denied) else {
        return;
    };
    let broker = TestBroker::new("b1");
    broker.connect(user(&server, "secret")).await;
    let good = broker.partition(&Stream::new("good", "open", 1)).await;
    let _bad = broker.partition(&Stream::new("bad", "secret.a", 2)).await;
    let grouped = Stream {
        group: "g",
        ..Stream::new("grouped", "work", 3)
    };
    let _grouped = broker.partition(&grouped).await;
    let nats = &broker.nats;
    let of = |stream: u64| nats.partitions(&[stream << 16])[0].clone();
    until("both are denied", || {
        (2..=3).all(|stream| of(stream)["subscription"] == "denied")
    })
    .await;
    let text = of(2)["text"].as_str().unwrap().to_owned();
    assert!(text.contains("secret.a"), "{text}");
    assert_eq!(of(1)["subscription"], "subscribed");
    let reported = broker.event_texts();
    let named = |name: &str| {
        reported
            .iter()
            .any(|text| text.contains(name) && text.contains("permit"))
    };
    assert!(named("bad/0") && named("grouped/0"), "{reported:?}");

    let url = format!("nats://other:secret@127.0.0.1:{}", server.port);
    let options =
        async_nats::ConnectOptions::with_user_and_password("other".into(), "secret".into());
    let client = options.connect(url).await.unwrap();
    client.publish("open", "one".into()).await.unwrap();
    assert_eq!(values(&good.holds(1).await), ["one"]);

    // Permitted after all: the next connection subscribes.
    server.configure(&config(""));
    server.kill();
    until("the stream waits", || of(1)["subscription"] == "waiting").await;
    server.restart();
    until("all are subscribed", || {
        (1..=3).all(|stream| of(stream)["subscription"] == "subscribed")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_for_a_paused_stream_are_counted_until_it_is_resumed() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let stream = Stream::new("s", "p.a", 1);
    let partition = broker.partition(&stream).await;
    let beside = broker.partition(&Stream::new("beside", "p.a", 2)).await;
    let client = server.client().await;
    let nats = &broker.nats;
    let missed = || nats.partitions(&[1 << 16])[0]["not_stored"]["paused"].as_u64();
    client.publish("p.a", "1".into()).await.unwrap();
    partition.holds(1).await;

    nats.pause(PausedPartition::from(&partition.0), true);
    partition
        .0
        .close(bascule_broker::partition::EndReason::Paused)
        .await;
    client.publish("p.a", "2".into()).await.unwrap();
    client.publish("p.a", "3".into()).await.unwrap();
    beside.holds(3).await;
    assert_eq!(missed(), Some(2));
    // What the view says of a stream that is paused already changes nothing.
    nats.pause(PausedPartition::from(&partition.0), false);
    client.publish("p.a", "4".into()).await.unwrap();
    beside.holds(4).await;
    assert_eq!(missed(), Some(3));
    let reported = broker.event_texts();
    assert!(
        reported.iter().any(|text| text.contains("s/0 is paused")),
        "{reported:?}"
    );

    drop(partition);
    let resumed = broker.partition(&stream).await;
    client.publish("p.a", "5".into()).await.unwrap();
    assert_eq!(values(&resumed.holds(2).await), ["1", "5"]);
    assert_eq!(missed(), Some(3));
    // Nor does it stop what was resumed meanwhile.
    nats.pause(PausedPartition::from(&resumed.0), false);
    client.publish("p.a", "6".into()).await.unwrap();
    resumed.holds(3).await;
    nats.forget(1 << 16);
    assert_eq!(missed(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_readonly_stream_counts_what_it_does_not_take() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let stream = Stream::new("s", "p.a", 1);
    let partition = broker.partition(&stream).await;
    let mut spec = stream.spec();
    spec.readonly = true;
    partition.0.configure(spec);
    until("it is read-only", || partition.0.is_readonly()).await;
    let client = server.client().await;
    client.publish("p.a", "1".into()).await.unwrap();
    until("it is counted", || {
        broker.nats.partitions(&[1 << 16])[0]["not_stored"]["readonly"] == 1
    })
    .await;
    assert_eq!(partition.0.status().nats_dropped, 1);
}

async fn reason_of(settings: NatsSettings) -> (Reason, String) {
    let broker = TestBroker::new("b1");
    broker.nats.connect(settings);
    let state = || broker.nats.state();
    until("a reason", || state().reason != Some(Reason::Starting)).await;
    let state = state();
    assert_eq!(state.state, "connecting");
    assert!(state.since_ms > 0 && state.connections.len() == 2);
    broker.nats.close().await;
    (state.reason.unwrap(), state.text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_says_why_there_is_no_connection() {
    let Some(mut server) = NatsServer::with_config(&config("")) else {
        return;
    };
    let (reason, text) = reason_of(user(&server, "wrong")).await;
    assert_eq!(reason, Reason::LoginRefused, "{text}");
    assert!(
        text.contains("Authorization Violation") && !text.contains("wrong"),
        "{text}"
    );
    assert!(text.contains(&server.port.to_string()), "{text}");

    let tls = NatsSettings {
        tls: Some(NatsTls {
            required: true,
            ..NatsTls::default()
        }),
        ..user(&server, "secret")
    };
    let (reason, text) = reason_of(tls).await;
    assert_eq!(reason, Reason::TlsFailed, "{text}");

    let mut unreadable = user(&server, "secret");
    unreadable.tls = Some(NatsTls {
        first: true,
        ca: Some("/nowhere/ca.pem".into()),
        ..NatsTls::default()
    });
    let (reason, text) = reason_of(unreadable).await;
    assert_eq!(reason, Reason::Settings, "{text}");
    assert!(text.contains("/nowhere/ca.pem"), "{text}");

    let url = |url: &str| NatsSettings {
        servers: vec![url.to_owned()],
        ..NatsSettings::default()
    };
    assert_eq!(
        reason_of(url("ws://user:secret@127.0.0.1:1")).await.0,
        Reason::Settings
    );
    assert_eq!(
        reason_of(url("nats://no-such-host.invalid:4222")).await.0,
        Reason::AddressUnknown
    );
    let login = format!("nats://broker:secret@127.0.0.1:{}", server.port);
    let broker = TestBroker::new("b1");
    broker.connect(url(&login)).await;
    server.kill();
    let (reason, text) = reason_of(url(&login)).await;
    assert_eq!(reason, Reason::Unreachable, "{text}");
    assert!(!text.contains("secret"), "{text}");
}

/// A server that answers every connection with these bytes, and closes it.
fn answering(bytes: &'static [u8]) -> NatsSettings {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(bytes);
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
        }
    });
    NatsSettings {
        servers: vec![format!("127.0.0.1:{port}")],
        ..NatsSettings::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_a_nats_server_is_named_so() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"INFO nonsense\r\n",
        b"INFO {}\r\nMSG a b c d e f\r\n",
        b"INFO {}\r\n\xff\xff\r\n",
    ] {
        let (reason, text) = reason_of(answering(bytes)).await;
        let expected = [Reason::Protocol, Reason::Lost];
        assert!(expected.contains(&reason), "{bytes:?}: {reason:?} {text}");
    }
    let (reason, _) = reason_of(answering(b"INFO {}\r\n-ERR 'Authentication Timeout'\r\n")).await;
    assert_eq!(reason, Reason::LoginRefused);
    assert_eq!(reason_of(answering(b"")).await.0, Reason::TimedOut);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_server_of_a_cluster_is_replaced_by_one_that_it_named() {
    let Some(mut first) = NatsServer::with_config("cluster { name: c, listen: \"127.0.0.1:-1\" }")
    else {
        return;
    };
    let route = first.cluster_port.expect("the port of the cluster");
    let second = format!(
        "cluster {{ name: c, listen: \"127.0.0.1:-1\", routes: [ \"nats://127.0.0.1:{route}\" ] }}"
    );
    let second = NatsServer::with_config(&second).unwrap();
    let broker = TestBroker::connected("b1", &first).await;
    let partition = broker.partition(&Stream::new("s", "p.a", 1)).await;
    let client = second.client().await;
    let sent = std::sync::atomic::AtomicUsize::new(0);
    let publish = async || {
        client.publish("p.a", "x".into()).await.unwrap();
        client.flush().await.unwrap();
        sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    while partition.count() == 0 {
        publish().await;
    }
    // The broker has heard of the second server, since messages come over it.
    first.kill();
    until("the loss is noticed", || !broker.nats.is_connected()).await;
    until("connected to the other", || broker.nats.is_connected()).await;
    let before = partition.count();
    while partition.count() == before {
        publish().await;
    }
    assert!(partition.count() <= sent.load(std::sync::atomic::Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_is_refused_and_the_connection_stays() {
    let Some(server) = NatsServer::with_config("max_payload: 1000") else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "p.a", 1)).await;
    let publish = async |bytes: usize| {
        broker
            .nats
            .publish("p.a", None, vec![b'x'; bytes].into())
            .await
    };
    assert_eq!(
        publish(1_001).await,
        Err("nats: maximum payload exceeded".to_owned())
    );
    assert_eq!(publish(1_000).await, Ok(()));
    assert_eq!(partition.holds(1).await[0].value.len(), 1_000);
    assert_eq!(broker.event_names(), ["connected"]);
}
