//! What a client may hold of the broker.
use super::client::{Client, serve, split, until};
use crate::iggy::tests::{OK, Served, frame, login, refused};
use bascule_wire::iggy::Status;
use futures_util::FutureExt;
use futures_util::future::join_all;
use quinn::SendStream;
use serde_json::json;

/// As `transport` has it.
const STREAMS: usize = 8;

#[test]
fn a_request_that_is_too_large_is_refused_before_it_is_read() {
    let served = Served::start(&json!({}));
    let port = serve(&served);
    let client = Client::connect(port);
    let head = |bytes: u32| [(bytes + 4).to_le_bytes(), 201_u32.to_le_bytes()].concat();
    let refusal = refused(Status::InvalidCommand);
    // Nothing but the head comes, and the stream stays open.
    for (client, most) in [(&client, 64 << 10), (&Client::logged_in(port), 64 << 20)] {
        for bytes in [most + 1, u32::MAX - 4] {
            let (mut send, mut receive) = client.open();
            client.wait(send.write_all(&head(bytes))).unwrap();
            assert_eq!(split(&client.reply(&mut receive)), refusal);
        }
    }
    let largest = vec![0; 64 << 10];
    assert_eq!(client.ask(201, &largest), refused(Status::Unauthenticated));
    assert_eq!(client.ask(38, &login("secret")).0, OK);
    assert_eq!(client.ask(201, &vec![0; 1 << 20]).0, OK);
}

#[test]
fn a_connection_has_so_many_requests_at_once() {
    let served = Served::start(&json!({}));
    let client = Client::connect(serve(&served));
    assert!(client.connection.open_uni().now_or_never().is_none());
    let mut open: Vec<_> = (0..STREAMS).map(|_| client.open()).collect();
    assert!(client.connection.open_bi().now_or_never().is_none());
    for (send, receive) in &mut open {
        client.finish(send, &frame(1, &[]));
        assert_eq!(split(&client.reply(receive)), (OK, vec![]));
    }
    assert_eq!(client.ask(1, &[]), (OK, vec![]));
}

#[test]
fn requests_that_wait_keep_none_before_them_from_arriving() {
    let served = Served::start(&json!({}));
    let client = Client::logged_in(serve(&served));
    let request = frame(201, &vec![0; 1 << 20]);
    // The stream of the login counts until more have ended.
    let mut streams: Vec<_> = (1..STREAMS).map(|_| client.open()).collect();
    let (first, others) = streams.split_first_mut().unwrap();
    client.wait(async {
        let mut waiting = Box::pin(join_all(
            others.iter_mut().map(|(send, _)| sent(send, &request)),
        ));
        // They go as far as their windows: then the first one begins.
        for _ in 0..1000 {
            assert!(waiting.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        tokio::join!(sent(&mut first.0, &request), waiting);
    });
    for (_, receive) in &mut streams {
        assert_eq!(split(&client.reply(receive)).0, OK);
    }
}

async fn sent(stream: &mut SendStream, request: &[u8]) {
    stream.write_all(request).await.unwrap();
    stream.finish().unwrap();
}

#[test]
fn the_oldest_connection_without_a_login_gives_way() {
    let served = Served::start(&json!({"handshakes": 2}));
    let port = serve(&served);
    let known = Client::logged_in(port);
    let first = Client::connect(port);
    assert_eq!(first.ask(1, &[]).0, OK);
    let others = [Client::connect(port), Client::connect(port)];
    for other in &others {
        assert_eq!(other.ask(1, &[]).0, OK);
    }
    first.ended();
    assert_eq!(known.ask(201, &[]).0, OK);
    assert_eq!(others[1].ask(1, &[]).0, OK);
}

#[test]
fn connections_count_in_the_limits_of_all_transports() {
    let served = Served::start(&json!({"connections": 1, "connections_per_address": 3}));
    let port = serve(&served);
    let _known = served.logged_in();
    let second = Client::connect(port);
    assert_eq!(second.ask(38, &login("secret")), refused(Status::Error));
    assert_eq!(second.ask(201, &[]), refused(Status::Unauthenticated));
    let third = Client::connect(port);
    assert!(Client::try_connect(port, None).is_err(), "it is refused");
    third.close();
    second.close();
    until(|| Client::try_connect(port, None).is_ok());
}

#[test]
fn bytes_of_requests_are_counted_and_given_back() {
    let served = Served::start(&json!({"request_bytes": 256 << 10}));
    let client = Client::logged_in(serve(&served));
    for _ in 0..3 {
        assert_eq!(client.ask(201, &vec![0; 1 << 20]), refused(Status::Error));
        assert_eq!(client.ask(201, &vec![0; 200 << 10]).0, OK);
    }
}
