//! Connections to others: found again, and refused by name.
use super::{SECOND, answered, ask, brokers, dialer, events, free_addresses, local, port, refused};
use crate::consensus::network::{Kind, Transport};
use crate::peer::{Broker, Brokers, Dialer};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::TcpListener;

#[tokio::test]
async fn a_broker_that_restarts_is_found_again() {
    let address = free_addresses(&[2])[&2];
    let dialer = dialer(1, address, None);
    refused(&dialer, "refused").await;
    for _ in 0..3 {
        let port = port(address, None).await;
        assert_eq!(answered(&dialer).await, "1:hello");
        let failed = ask(&dialer, Kind::Vote, "").await.unwrap_err();
        assert_eq!(failed.to_string(), "failed: no vote");
        drop(port);
        refused(&dialer, "").await;
    }
}

#[tokio::test]
async fn the_own_address_and_that_of_another_broker_are_named() {
    let port = port(local(0), None).await;
    // Broker 2 dials what it takes for broker 1, and reaches itself.
    let own = brokers(2, &BTreeMap::from([(1, port.address())]));
    let own = Dialer::start(Arc::new(own), None, &events());
    let limit = std::time::Instant::now() + super::LIMIT;
    loop {
        let error = own
            .ask(1, Kind::Append, "".into(), SECOND)
            .await
            .unwrap_err();
        if error.to_string().contains("a broker of the same name") {
            break;
        }
        assert!(std::time::Instant::now() < limit, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let three = Broker {
        name: "b3".into(),
        address: port.address().to_string(),
        boot_epoch: 0,
        nonce: 0,
    };
    let wrong = Brokers::new(
        brokers(1, &BTreeMap::new()).own,
        BTreeMap::from([(2, three)]),
    );
    let wrong = Dialer::start(Arc::new(wrong), None, &events());
    refused(&wrong, "expects \"b3\" at the address of broker \"b2\"").await;
}

#[tokio::test]
async fn a_number_that_nobody_has_is_named() {
    let port = port(local(0), None).await;
    let dialer = dialer(1, port.address(), None);
    let unknown = dialer.ask(9, Kind::Append, "".into(), SECOND).await;
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "no broker with number 9 is known"
    );
}

/// A port that takes connections and never says anything, as behind a firewall that drops.
#[tokio::test]
async fn one_that_is_silent_is_given_up() {
    let silent = TcpListener::bind(local(0)).await.unwrap();
    let dialer = dialer(1, silent.local_addr().unwrap(), None);
    refused(&dialer, "sent nothing within").await;
}

/// Requests that nobody waits for any more take no place for ever.
#[tokio::test]
async fn a_connection_without_answers_is_given_up_and_dialled_again() {
    let port = port(local(0), None).await;
    let dialer = dialer(1, port.address(), None);
    answered(&dialer).await;
    for _ in 0..600 {
        let never = dialer.ask(2, Kind::PreVote, "".into(), SECOND);
        assert!(tokio::time::timeout(SECOND / 1000, never).await.is_err());
    }
    // Nothing comes back over it: sixteen requests are being answered, and the others wait behind them.
    let stalled = dialer.ask(2, Kind::PreVote, "".into(), SECOND).await;
    assert!(stalled.is_err());
    assert_eq!(answered(&dialer).await, "1:hello");
}

#[tokio::test]
async fn an_oversized_request_is_refused_here() {
    let port = port(local(0), None).await;
    let dialer = dialer(1, port.address(), None);
    answered(&dialer).await;
    let large = vec![0; 4 << 20];
    let refused = dialer.ask(2, Kind::Append, large.into(), SECOND).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
    assert_eq!(answered(&dialer).await, "1:hello");
}
