//! Requests and their replies: the order, and what is not a request.
use super::client::{Client, serve, split, until};
use crate::iggy::tests::{OK, Served, ask, frame, login, refused};
use bascule_wire::iggy::Status;
use quinn::{ConnectionError, VarInt};
use serde_json::json;

const INVALID: u32 = 3;

#[test]
fn commands_and_sessions_are_those_of_tcp() {
    let served = Served::start(&json!({}));
    let client = Client::connect(serve(&served));
    assert_eq!(client.ask(1, &[]), (OK, vec![]));
    for code in [10, 20, 31, 39, 100, 101, 121, 200, 201, 302, 605] {
        assert_eq!(client.ask(code, &[]), refused(Status::Unauthenticated));
    }
    assert_eq!(client.ask(60_000, &[]), refused(Status::InvalidCommand));
    assert_eq!(client.ask(38, &login("wrong")), (42, vec![]));
    assert_eq!(client.ask(38, &login("secret")), (OK, vec![1, 0, 0, 0]));
    assert_eq!(client.ask(201, &[]), (OK, b"iggy:0".to_vec()));
    let other = Client::connect(client.connection.remote_address().port());
    assert_eq!(other.ask(201, &[]), refused(Status::Unauthenticated));
    assert_eq!(client.ask(39, &[]), (OK, vec![]));
    assert_eq!(client.ask(201, &[]), refused(Status::Unauthenticated));
}

#[test]
fn requests_are_carried_out_in_the_order_of_their_streams() {
    let served = Served::start(&json!({}));
    let client = Client::connect(serve(&served));
    let requests = [
        frame(38, &login("secret")),
        frame(201, &[]),
        frame(39, &[]),
        frame(201, &[]),
    ];
    let mut streams = [(); 4].map(|()| client.open());
    for (request, (send, _)) in requests.iter().zip(&mut streams).rev() {
        client.finish(send, request);
    }
    let replies = streams.map(|(_, mut receive)| split(&client.reply(&mut receive)));
    let expected = [
        (OK, vec![1, 0, 0, 0]),
        (OK, b"iggy:0".to_vec()),
        (OK, vec![]),
        refused(Status::Unauthenticated),
    ];
    assert_eq!(replies, expected);
}

#[test]
fn a_request_that_is_cut_or_changed_anywhere_has_a_status_and_the_connection_stays() {
    let served = Served::start(&json!({}));
    let client = Client::connect(serve(&served));
    let whole = frame(38, &login("secret"));
    for length in 0..whole.len() {
        let (status, payload) = split(&client.say(&whole[..length]));
        assert_eq!((status, payload), (INVALID, vec![]), "{length}");
    }
    // Without a login in between every change is seen by a stranger.
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= flip;
            let (status, _) = split(&client.say(&changed));
            assert!(status != OK || at >= 8, "{at} {flip}");
        }
    }
    let longer = [whole.clone(), vec![0]].concat();
    assert_eq!(split(&client.say(&longer)).0, INVALID);
    assert_eq!(client.ask(1, &[]), (OK, vec![]));
}

#[test]
fn a_request_of_v2_that_is_cut_anywhere_has_a_status_in_its_header() {
    let served = Served::start(&json!({}));
    let client = Client::connect(serve(&served));
    let mut ping = vec![0; 256];
    ping[48..52].copy_from_slice(&256_u32.to_le_bytes());
    (ping[60], ping[128], ping[176], ping[196]) = (5, 1, 2, 1);
    let status = |reply: &[u8]| {
        assert_eq!((reply.len(), reply[60]), (256, 8));
        u32::from_le_bytes(reply[216..220].try_into().unwrap())
    };
    assert_eq!(status(&client.say(&ping)), OK);
    for length in 0..ping.len() {
        assert_eq!(status(&client.say(&ping[..length])), INVALID, "{length}");
    }
    let mut other = ping.clone();
    other[60] = 6;
    assert_eq!(status(&client.say(&other)), INVALID);
    assert_eq!(status(&client.say(&[&ping[..], &[0]].concat())), INVALID);
    assert_eq!(status(&client.say(&ping)), OK);
    // The other way of framing is refused in its own words.
    assert_eq!(client.ask(1, &[]), refused(Status::InvalidCommand));
    assert_eq!(status(&client.say(&ping)), OK);
}

#[test]
fn a_stream_that_is_given_up_is_passed_over() {
    let served = Served::start(&json!({}));
    let client = Client::logged_in(serve(&served));
    for bytes in [&b""[..], &frame(39, &[])[..7]] {
        let (mut send, mut receive) = client.open();
        client.wait(send.write_all(bytes)).unwrap();
        send.reset(VarInt::from_u32(7)).unwrap();
        let ended = client.wait(receive.read_to_end(100));
        assert!(ended.is_err(), "no reply");
        assert_eq!(client.ask(201, &[]), (OK, b"iggy:0".to_vec()));
    }
}

#[test]
fn a_reply_that_nobody_wants_harms_nothing() {
    let served = Served::start(&json!({}));
    let client = Client::logged_in(serve(&served));
    for _ in 0..20 {
        let (mut send, mut receive) = client.open();
        let _ = receive.stop(VarInt::from_u32(7));
        client.finish(&mut send, &frame(201, &[]));
    }
    assert_eq!(client.ask(201, &[]), (OK, b"iggy:0".to_vec()));
}

#[test]
fn a_stream_without_data_holds_up_those_behind_it_until_it_ends() {
    let served = Served::start(&json!({}));
    let client = Client::connect(serve(&served));
    let (mut idle, mut nothing) = client.open();
    let (mut send, mut receive) = client.open();
    client.finish(&mut send, &frame(1, &[]));
    idle.finish().unwrap();
    let refusal = client.reply(&mut nothing);
    assert_eq!(split(&refusal), refused(Status::InvalidCommand));
    assert_eq!(split(&client.reply(&mut receive)), (OK, vec![]));
}

#[test]
fn a_connection_that_is_cut_in_a_request_is_forgotten() {
    let served = Served::start(&json!({}));
    let port = serve(&served);
    let mut observer = served.logged_in();
    let listed = |observer: &mut _| {
        let (status, list) = ask(observer, 22, &[]);
        assert_eq!(status, OK);
        list
    };
    let alone = listed(&mut observer);
    let client = Client::logged_in(port);
    let both = listed(&mut observer);
    // Number, user, and the transport.
    assert_eq!((alone[8], both[alone.len() + 8]), (1, 2));
    let (mut send, _receive) = client.open();
    let whole = frame(39, &[0; 1000]);
    client.wait(send.write_all(&whole[..500])).unwrap();
    client.close();
    until(|| listed(&mut observer) == alone);
    assert_eq!(Client::logged_in(port).ask(201, &[]).0, OK);
}

#[test]
fn clients_hear_that_the_broker_stops() {
    let served = Served::start(&json!({}));
    let client = Client::logged_in(serve(&served));
    drop(served);
    let ended = client.ended();
    let ConnectionError::ApplicationClosed(closed) = ended else {
        panic!("{ended}");
    };
    assert_eq!(&closed.reason[..], b"the broker stops");
}
