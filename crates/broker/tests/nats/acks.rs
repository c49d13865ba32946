//! Acks on NATS after commit, against a real nats-server.

use crate::support::{
    NatsServer, Stream, TestBroker, ack, envelope, fields, listen, next, nothing, until,
};
use bascule_broker::nats::NatsSettings;
use bascule_wire::liftbridge::messages::{Ack, AckError, AckPolicy};
use bascule_wire::liftbridge::publish::PublishFields;

fn wanting(value: &'static str, id: &'static str, policy: AckPolicy) -> PublishFields<'static> {
    PublishFields {
        ack_inbox: "acks",
        correlation_id: id,
        ack_policy: policy as i32,
        ..fields(value)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_go_to_the_inbox_in_offset_order() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "foo.*", 1)).await;
    let client = server.client().await;
    let mut acks = listen(&client, "acks").await;

    client.publish("foo.a", "plain".into()).await.unwrap();
    client
        .publish("foo.a", envelope(&wanting("1", "c1", AckPolicy::Leader)))
        .await
        .unwrap();
    client
        .publish("foo.b", envelope(&wanting("2", "c2", AckPolicy::None)))
        .await
        .unwrap();
    client
        .publish("foo.b", envelope(&wanting("3", "c3", AckPolicy::All)))
        .await
        .unwrap();
    client
        .publish("foo.b", envelope(&fields("4")))
        .await
        .unwrap();

    let first = ack(&next(&mut acks).await);
    let expected = Ack {
        stream: "s".into(),
        partition_subject: "foo.*".into(),
        msg_subject: "foo.a".into(),
        offset: 1,
        ack_inbox: "acks".into(),
        correlation_id: "c1".into(),
        ack_policy: AckPolicy::Leader as i32,
        reception_timestamp: first.reception_timestamp,
        commit_timestamp: first.commit_timestamp,
        ack_error: AckError::Ok as i32,
    };
    assert_eq!(first, expected);
    assert!(first.reception_timestamp > 0 && first.commit_timestamp >= first.reception_timestamp);
    let second = ack(&next(&mut acks).await);
    assert_eq!(
        (
            second.offset,
            &second.correlation_id[..],
            &second.msg_subject[..]
        ),
        (3, "c3", "foo.b")
    );
    assert_eq!(second.ack_policy, AckPolicy::All as i32);
    partition.holds(5).await;
    nothing(&mut acks).await;
    until("counted", || broker.statistics.nats_acks_sent.get() == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_is_answered_under_every_policy() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let stream = Stream {
        max_record_bytes: 100,
        ..Stream::new("s", "foo", 1)
    };
    let partition = broker.partition(&stream).await;
    let client = server.client().await;
    let mut acks = listen(&client, "acks").await;

    let large: &'static str = Box::leak("x".repeat(101).into_boxed_str());
    for (id, policy) in [
        ("l", AckPolicy::Leader),
        ("a", AckPolicy::All),
        ("n", AckPolicy::None),
    ] {
        client
            .publish("foo", envelope(&wanting(large, id, policy)))
            .await
            .unwrap();
        let ack = ack(&next(&mut acks).await);
        assert_eq!(
            (&ack.correlation_id[..], ack.ack_policy),
            (id, policy as i32)
        );
        assert_eq!(
            (ack.ack_error, ack.offset, ack.commit_timestamp),
            (AckError::TooLarge as i32, 0, 0)
        );
    }
    // Offsets continue without a gap.
    client
        .publish("foo", envelope(&wanting("small", "s", AckPolicy::All)))
        .await
        .unwrap();
    assert_eq!(ack(&next(&mut acks).await).offset, 0);
    partition.holds(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_are_withheld_from_other_inboxes_when_a_prefix_is_set() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::new("b1");
    broker
        .connect(NatsSettings {
            ack_inbox_prefixes: vec!["mine.".into(), "acks.".into()],
            ..server.settings()
        })
        .await;
    let partition = broker.partition(&Stream::new("s", "foo", 1)).await;
    let client = server.client().await;
    let mut all = listen(&client, "acks.>").await;
    let mut other = listen(&client, "other").await;

    for inbox in ["other", "not a subject", "acks.*", "acks.mine"] {
        client
            .publish(
                "foo",
                envelope(&PublishFields {
                    ack_inbox: inbox,
                    ..fields("v")
                }),
            )
            .await
            .unwrap();
    }
    let message = next(&mut all).await;
    assert_eq!(
        (message.subject.as_str(), ack(&message).offset),
        ("acks.mine", 3)
    );
    partition.holds(4).await;
    assert_eq!(broker.statistics.nats_acks_withheld.get(), 3);
    nothing(&mut other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_to_a_subject_waits_for_the_first_ack() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let partition = broker.partition(&Stream::new("s", "foo", 1)).await;

    let publish = envelope(&PublishFields {
        ack_inbox: "acks.1",
        ack_policy: AckPolicy::All as i32,
        ..fields("v")
    });
    let answer = broker
        .nats
        .publish_and_wait("foo", publish, "acks.1")
        .await
        .unwrap();
    let payload =
        bascule_wire::envelope::open(&answer, bascule_wire::envelope::MessageType::Ack).unwrap();
    let ack = <Ack as prost::Message>::decode(payload).unwrap();
    assert_eq!((&ack.stream[..], ack.offset), ("s", 0));
    broker
        .nats
        .publish("foo", Some("reply"), "plain".into())
        .await
        .unwrap();
    let records = partition.holds(2).await;
    assert_eq!(&records[1].reply[..], "reply");

    let nats = &broker.nats;
    for bad in ["", "a b", "a..b", "a.*", "a.>"] {
        assert_eq!(
            nats.publish(bad, None, "v".into()).await,
            Err("nats: invalid subject".to_owned()),
            "{bad:?}"
        );
    }
    let large = vec![0; (1 << 20) + 1].into();
    assert_eq!(
        nats.publish("foo", None, large).await,
        Err("nats: maximum payload exceeded".to_owned())
    );
    nats.close().await;
    assert_eq!(
        nats.publish("foo", None, "v".into()).await,
        Err("nats: connection closed".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_that_is_not_the_next_is_answered() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let broker = TestBroker::connected("b1", &server).await;
    let stream = Stream {
        concurrency_control: true,
        ..Stream::new("s", "foo", 1)
    };
    let partition = broker.partition(&stream).await;
    let client = server.client().await;
    let mut acks = listen(&client, "acks").await;

    for (expected_offset, id) in [
        (0, "first"),
        (0, "again"),
        (1, "second"),
        (-1, "any"),
        (-2, "none"),
    ] {
        let publish = PublishFields {
            expected_offset,
            ..wanting("v", id, AckPolicy::Leader)
        };
        client.publish("foo", envelope(&publish)).await.unwrap();
    }
    let (ok, refused) = (AckError::Ok as i32, AckError::IncorrectOffset as i32);
    for expected in [
        ("first", 0, ok),
        ("again", 0, refused),
        ("second", 1, ok),
        ("any", 2, ok),
        ("none", 0, refused),
    ] {
        let ack = ack(&next(&mut acks).await);
        assert_eq!(
            (&ack.correlation_id[..], ack.offset, ack.ack_error),
            expected
        );
    }
    // A plain message expects the first offset, and is dropped without a word.
    client.publish("foo", "plain".into()).await.unwrap();
    partition.holds(3).await;
    nothing(&mut acks).await;
}
