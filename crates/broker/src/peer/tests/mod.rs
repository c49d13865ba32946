//! Tests of connections between brokers, over real sockets.
mod certificates;
mod dialling;
mod founding;
mod handshake;
mod port;
mod publishes;
mod voters;

use super::{Broker, Brokers, Dialer, Own, PeerListener};
use crate::consensus::network::{Answer, Kind, Transport};
use crate::events::Events;
use crate::tls::PeerTls;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// Reached only when something is wrong.
const LIMIT: Duration = Duration::from_mins(1);
const CLUSTER: [u8; 16] = [7; 16];

fn name(id: u64) -> String {
    format!("b{id}")
}

/// Broker `id` of three; the addresses of the others by their numbers.
fn brokers(id: u64, addresses: &BTreeMap<u64, SocketAddr>) -> Brokers {
    let own = Own {
        name: name(id),
        cluster_id: CLUSTER,
        rescues: 1,
        level: 1,
        raft_id: id,
        nonce: 100 + id,
        boot_epoch: 5,
        nonces: vec![90 + id, 100 + id],
    };
    let other = |other: u64| {
        let address = addresses.get(&other).map(ToString::to_string);
        let broker = Broker {
            name: name(other),
            address: address.unwrap_or_else(|| "127.0.0.1:1".into()),
            boot_epoch: 0,
            nonce: 0,
        };
        (other, broker)
    };
    Brokers::new(
        own,
        (1..=3).filter(|other| *other != id).map(other).collect(),
    )
}

fn events() -> Arc<Events> {
    Arc::new(Events::new(4096).unwrap())
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Addresses that were free a moment ago.
fn free_addresses(ids: &[u64]) -> BTreeMap<u64, SocketAddr> {
    let sockets: Vec<_> = ids
        .iter()
        .map(|id| (*id, std::net::TcpListener::bind(local(0)).unwrap()))
        .collect();
    sockets
        .iter()
        .map(|(id, socket)| (*id, socket.local_addr().unwrap()))
        .collect()
}

/// Answers with who asked and what.
#[derive(Debug)]
struct Echo;

impl Answer for Echo {
    fn answer<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        request: &'a [u8],
    ) -> BoxFuture<'a, io::Result<Bytes>> {
        async move {
            match kind {
                Kind::Append => Ok([from.to_string().as_bytes(), b":", request].concat().into()),
                Kind::Vote => Err(io::Error::other("no vote")),
                Kind::Position
                | Kind::PreVote
                | Kind::Propagate
                | Kind::Snapshot
                | Kind::Heartbeat
                | Kind::Range
                | Kind::ClientRequest => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// The port of broker 2.
async fn port(address: SocketAddr, tls: Option<Arc<PeerTls>>) -> PeerListener {
    let brokers = Arc::new(brokers(2, &BTreeMap::new()));
    PeerListener::open(address, brokers, tls, Arc::new(Echo), events())
        .await
        .unwrap()
}

/// Broker `id`, which dials broker 2 at this address.
fn dialer(id: u64, address: SocketAddr, tls: Option<&Arc<PeerTls>>) -> Dialer {
    let brokers = Arc::new(brokers(id, &BTreeMap::from([(2, address)])));
    Dialer::start(brokers, tls, &events())
}

async fn ask(dialer: &Dialer, kind: Kind, request: &'static str) -> io::Result<String> {
    let answer = dialer.ask(2, kind, request.into(), SECOND).await?;
    Ok(String::from_utf8(answer.to_vec()).unwrap())
}

/// Asks until there is an answer.
async fn answered(dialer: &Dialer) -> String {
    let limit = Instant::now() + LIMIT;
    loop {
        match ask(dialer, Kind::Append, "hello").await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < limit, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asks until it is refused with a text that has this in it.
async fn refused(dialer: &Dialer, part: &str) {
    let limit = Instant::now() + LIMIT;
    loop {
        let outcome = ask(dialer, Kind::Append, "hello").await;
        if outcome
            .as_ref()
            .is_err_and(|error| error.to_string().contains(part))
        {
            return;
        }
        assert!(Instant::now() < limit, "{outcome:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < limit, "no {what} in {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
