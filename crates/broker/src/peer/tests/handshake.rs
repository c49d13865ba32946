//! Who is let in, by what it says of itself.
use super::{brokers, name};
use crate::peer::handshake::{Proof, short};
use crate::peer::{Brokers, PeerError};
use bascule_wire::peer::{Hello, Purpose, RefusalCode};
use bytes::Bytes;
use std::collections::BTreeMap;

type Change = fn(&mut Hello);

/// What broker 1 says to broker 2.
fn hello() -> Hello {
    let one = brokers(1, &BTreeMap::new());
    one.hello(2, &one.others[&2], Purpose::Control, 1)
}

fn two() -> Brokers {
    brokers(2, &BTreeMap::new())
}

fn judged(change: impl FnOnce(&mut Hello)) -> Result<u32, RefusalCode> {
    let mut hello = hello();
    change(&mut hello);
    let judged = two().judge(&hello, &Proof::Loopback);
    judged.map_err(|refusal| {
        assert!(refusal.text.contains(&hello.broker), "{}", refusal.text);
        refusal.code
    })
}

#[test]
fn a_known_broker_of_the_cluster_is_let_in() {
    assert_eq!(judged(|_| {}), Ok(1));
    assert_eq!(judged(|hello| hello.newest_version = 9), Ok(1));
}

#[test]
fn each_other_one_is_refused_with_its_code() {
    use RefusalCode as Code;
    let matrix: [(Code, Change); 11] = [
        (Code::OtherCluster, |hello| {
            hello.cluster_id = Bytes::from_static(&[8; 16]);
        }),
        (Code::SameBroker, |hello| hello.broker = name(2)),
        (Code::OtherReceiver, |hello| hello.receiver = name(3)),
        (Code::OtherReceiver, |hello| hello.receiver.clear()),
        (Code::UnknownBroker, |hello| hello.broker = name(9)),
        (Code::UnknownBroker, |hello| hello.raft_id = 3),
        (Code::UnknownBroker, |hello| hello.raft_id = 9),
        (Code::Rescued, |hello| hello.rescues = 0),
        (Code::Rescued, |hello| hello.rescues = 2),
        (Code::Version, |hello| {
            (hello.oldest_version, hello.newest_version) = (2, 3);
        }),
        (Code::Version, |hello| {
            (hello.oldest_version, hello.newest_version) = (0, 0);
        }),
    ];
    for (code, change) in matrix {
        assert_eq!(judged(change), Err(code));
    }
}

#[test]
fn a_certificate_has_the_name_that_the_hello_has() {
    let check = |common_name: Option<&str>| {
        let proof = Proof::Certificate(common_name.map(Into::into));
        two()
            .judge(&hello(), &proof)
            .map_err(|refusal| refusal.code)
    };
    assert_eq!(check(Some("b1")), Ok(1));
    for wrong in [Some("b2"), Some("B1"), Some(""), None] {
        assert_eq!(check(wrong), Err(RefusalCode::Certificate));
    }
}

/// W41: a directory that was put back, or copied, must not vote with what it forgot.
#[test]
fn who_hears_of_a_later_run_of_itself_answers_nobody_any_more() {
    let two = two();
    let mut knows_later = hello();
    (knows_later.receiver_boot_epoch, knows_later.receiver_nonce) = (6, 77);
    let refused = two.judge(&knows_later, &Proof::Loopback).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Superseded);
    assert!(two.is_superseded());
    let refused = two.judge(&hello(), &Proof::Loopback).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Superseded);
}

/// N49: it was registered, and ended before it stored its boot epoch.
#[test]
fn a_later_registration_under_an_own_nonce_is_its_own() {
    let two = two();
    for (epoch, nonce) in [(6, 92), (6, 102), (5, 77), (4, 77)] {
        let mut hello = hello();
        (hello.receiver_boot_epoch, hello.receiver_nonce) = (epoch, nonce);
        assert_eq!(two.judge(&hello, &Proof::Loopback).unwrap(), 1);
    }
    assert!(!two.is_superseded());
}

/// What the state says of registrations goes into handshakes, newest first.
#[test]
fn registrations_that_become_known_are_in_later_hellos() {
    let one = brokers(1, &BTreeMap::new());
    let said = || {
        let hello = one.hello(2, &one.others[&2], Purpose::Control, 1);
        (hello.receiver_boot_epoch, hello.receiver_nonce)
    };
    assert_eq!(said(), (0, 0));
    one.know(2, 9, 102);
    one.know(2, 8, 101);
    one.know(2, 10, 0);
    one.know(7, 11, 107);
    assert_eq!(said(), (9, 102));
    let hello = one.hello(2, &one.others[&2], Purpose::Control, 1);
    assert_eq!(two().judge(&hello, &Proof::Loopback).unwrap(), 1);
    one.know(2, 12, 77);
    let later = one.hello(2, &one.others[&2], Purpose::Control, 1);
    let registered = two();
    registered.registered(12);
    assert_eq!(registered.judge(&later, &Proof::Loopback).unwrap(), 1);
    assert!(two().judge(&later, &Proof::Loopback).is_err());
}

/// Nobody becomes superseded by a hello of a stranger.
#[test]
fn only_a_broker_that_is_let_in_otherwise_is_believed() {
    let two = two();
    let mut stranger = hello();
    (stranger.receiver_boot_epoch, stranger.receiver_nonce) = (6, 77);
    let proof = Proof::Certificate(Some("b3".into()));
    assert!(two.judge(&stranger, &proof).is_err());
    stranger.cluster_id = Bytes::from_static(&[8; 16]);
    assert!(two.judge(&stranger, &Proof::Loopback).is_err());
    assert!(!two.is_superseded());
}

#[test]
fn the_answer_is_of_the_broker_that_was_meant() {
    let one = brokers(1, &BTreeMap::new());
    let meant = &one.others[&2];
    let check = |answering: u64, version: u32| {
        let answer = brokers(answering, &BTreeMap::new()).answer(&Ok(version), 1);
        Brokers::check_answer(2, meant, &answer, &Proof::Loopback)
    };
    check(2, 1).unwrap();
    for (answering, version) in [(3, 1), (2, 0), (2, 2)] {
        let refused = check(answering, version).unwrap_err();
        assert!(matches!(refused, PeerError::Refused { .. }), "{refused}");
    }
}

#[test]
fn a_text_is_cut_at_a_character() {
    let text = "ü".repeat(600);
    assert_eq!(short(&text), "ü".repeat(512));
    assert_eq!(short(&format!("a{text}")).len(), 1023);
}
