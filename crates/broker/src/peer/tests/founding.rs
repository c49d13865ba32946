//! How three brokers become a cluster, over real sockets.
use super::{events, free_addresses, name};
use crate::peer::{Founded, Founding, FoundingError, PeerListener};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

struct Place {
    directory: TempDir,
    founding: Arc<Founding>,
    _port: PeerListener,
}

fn peers(addresses: &BTreeMap<u64, SocketAddr>) -> BTreeMap<String, String> {
    let peer = |(id, address): (&u64, &SocketAddr)| (name(*id), address.to_string());
    addresses.iter().map(peer).collect()
}

fn founding(
    path: &Path,
    id: u64,
    directory_id: &str,
    peers: BTreeMap<String, String>,
) -> std::io::Result<Founding> {
    Founding::open(path, &name(id), "cluster", directory_id, peers)
}

async fn place(id: u64, addresses: &BTreeMap<u64, SocketAddr>) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let found = founding(directory.path(), id, &format!("d{id}"), peers(addresses));
    let founding = Arc::new(found.unwrap());
    let port = PeerListener::open_unfounded(
        addresses[&id],
        founding.clone(),
        None,
        events(),
        Arc::default(),
    );
    Place {
        directory,
        founding,
        _port: port.await.unwrap(),
    }
}

async fn places(addresses: &BTreeMap<u64, SocketAddr>, ids: &[u64]) -> BTreeMap<u64, Place> {
    let mut places = BTreeMap::new();
    for id in ids {
        places.insert(*id, place(*id, addresses).await);
    }
    places
}

fn waiting(found: Result<Arc<Founded>, FoundingError>) -> String {
    match found.unwrap_err() {
        FoundingError::Waiting(text) => text,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_first_founds_once_all_are_there_and_the_others_follow() {
    let addresses = free_addresses(&[1, 2, 3]);
    let mut all = places(&addresses, &[1, 2]).await;
    let text = waiting(all[&1].founding.find(None).await);
    assert!(text.contains("b3"), "{text}");
    all.extend(places(&addresses, &[3]).await);
    let text = waiting(all[&2].founding.find(None).await);
    assert!(text.contains("\"b1\" is to found"), "{text}");
    let founded = all[&1].founding.find(None).await.unwrap();
    let names: Vec<_> = founded
        .voters
        .iter()
        .map(|voter| (voter.raft_id, &voter.broker_id[..], &voter.directory_id[..]))
        .collect();
    assert_eq!(names, [(1, "b1", "d1"), (2, "b2", "d2"), (3, "b3", "d3")]);
    for id in [3, 2] {
        assert_eq!(all[&id].founding.find(None).await.unwrap(), founded);
        let again = founding(
            all[&id].directory.path(),
            id,
            &format!("d{id}"),
            peers(&addresses),
        );
        assert_eq!(again.unwrap().founded(), Some(founded.clone()));
    }
}

#[tokio::test]
async fn another_directory_under_the_name_of_a_voter_is_refused_for_good() {
    let addresses = free_addresses(&[1, 2, 3]);
    let all = places(&addresses, &[1, 2, 3]).await;
    all[&1].founding.find(None).await.unwrap();
    let empty = tempfile::tempdir().unwrap();
    let second = founding(empty.path(), 2, "another", peers(&addresses)).unwrap();
    let refused = second.find(None).await.unwrap_err();
    assert!(
        matches!(&refused, FoundingError::InUse(text) if text.contains("another data directory")),
        "{refused}"
    );
    let moved = founding(all[&1].directory.path(), 1, "another", peers(&addresses));
    assert!(
        moved
            .unwrap_err()
            .to_string()
            .contains("another data directory")
    );
}

#[tokio::test]
async fn other_peers_and_other_clusters_are_named() {
    let addresses = free_addresses(&[1, 2, 3]);
    let _all = places(&addresses, &[1, 2, 3]).await;
    let empty = tempfile::tempdir().unwrap();
    let mut others = peers(&addresses);
    others.insert("b3".into(), "127.0.0.1:1".into());
    let second = founding(empty.path(), 2, "d2", others).unwrap();
    let text = waiting(second.find(None).await);
    assert!(
        text.contains("cluster.peers of broker \"b2\" differs"),
        "{text}"
    );
    let foreign = Founding::open(empty.path(), "b2", "else", "d2", peers(&addresses)).unwrap();
    let text = waiting(foreign.find(None).await);
    assert!(text.contains("is of cluster \"else\""), "{text}");
    let same = Founding::open(empty.path(), "b1", "cluster", "d1", {
        let mut swapped = peers(&addresses);
        let (one, two) = (swapped["b1"].clone(), swapped["b2"].clone());
        swapped.extend([("b1".into(), two), ("b2".into(), one)]);
        swapped
    });
    let text = waiting(same.unwrap().find(None).await);
    assert!(
        text.contains("was asked by a broker of the same name"),
        "{text}"
    );
}
