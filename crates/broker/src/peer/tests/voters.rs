//! Three voters over real sockets: elected, killed, elected again.
use super::certificates::Authority;
use super::{LIMIT, SECOND, brokers, events, free_addresses, name, until};
use crate::consensus::log_store::LogStore;
use crate::consensus::machine::Machine;
use crate::consensus::raft::Voter;
use crate::consensus::tests::recorder::Recorder;
use crate::consensus::vote::{HardState, VoteFile};
use crate::consensus::{Command, open_log};
use crate::peer::{Dialer, PeerListener};
use crate::tls::PeerTls;
use bascule_log::GroupCommitter;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ALL: [u64; 3] = [1, 2, 3];

struct Running {
    voter: Arc<Voter>,
    recorder: Arc<Recorder>,
    _port: PeerListener,
}

struct Cluster {
    addresses: BTreeMap<u64, SocketAddr>,
    directories: BTreeMap<u64, TempDir>,
    authority: Option<Authority>,
    running: BTreeMap<u64, Running>,
    proposals: u128,
}

impl Cluster {
    async fn founded(authority: Option<Authority>) -> Self {
        let mut cluster = Self {
            addresses: free_addresses(&ALL),
            directories: ALL.map(|id| (id, tempfile::tempdir().unwrap())).into(),
            authority,
            running: BTreeMap::new(),
            proposals: 0,
        };
        for id in ALL {
            cluster.start(id).await;
        }
        let founder = &cluster.running[&1].voter;
        founder.found(BTreeSet::from(ALL)).await.unwrap();
        cluster
    }

    fn tls(&self, id: u64) -> Option<Arc<PeerTls>> {
        let authority = self.authority.as_ref()?;
        Some(authority.tls(&name(id), authority))
    }

    async fn start(&mut self, id: u64) {
        let directory = self.directories[&id].path();
        let state = HardState {
            raft_id: id,
            ..HardState::default()
        };
        let vote = match VoteFile::find(directory).unwrap() {
            Some(_) => VoteFile::open(directory).unwrap(),
            None => VoteFile::create(directory, state).unwrap(),
        };
        let log = open_log(directory, &GroupCommitter::start()).unwrap();
        let store = LogStore::new(log, vote).unwrap();
        let recorder = Arc::<Recorder>::default();
        let machine = Machine::open(directory.to_path_buf(), recorder.clone());
        let brokers = Arc::new(brokers(id, &self.addresses));
        let dialer = Arc::new(Dialer::start(
            brokers.clone(),
            self.tls(id).as_ref(),
            &events(),
        ));
        let voter = Voter::start(id, store, machine.unwrap().0, dialer);
        let voter = Arc::new(voter.await.unwrap());
        let address = self.addresses[&id];
        let port = PeerListener::open(address, brokers, self.tls(id), voter.clone(), events());
        let running = Running {
            voter,
            recorder,
            _port: port.await.unwrap(),
        };
        self.running.insert(id, running);
    }

    async fn kill(&mut self, id: u64) {
        let killed = self.running.remove(&id).unwrap();
        killed.voter.stop().await.unwrap();
    }

    fn leader(&self) -> Option<u64> {
        let leads = |(_, one): &(&u64, &Running)| one.voter.office().is_some();
        self.running.iter().find(leads).map(|(id, _)| *id)
    }

    /// Commits that many entries through whoever leads.
    async fn propose(&mut self, count: usize) -> Vec<Bytes> {
        let mut committed = Vec::new();
        let limit = Instant::now() + LIMIT;
        while committed.len() < count {
            assert!(Instant::now() < limit, "{} of {count}", committed.len());
            let Some(leader) = self.leader() else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            self.proposals += 1;
            let bytes = Bytes::from(format!("entry {}", self.proposals));
            let command = Command {
                proposal: self.proposals,
                bytes: bytes.clone(),
            };
            let voter = &self.running[&leader].voter;
            match voter.propose(command, SECOND).await {
                Ok(_) => committed.push(bytes),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        committed
    }

    /// Waits until all have the same, with all of this in order; an entry of unknown outcome may be there too.
    async fn agreed_on(&self, committed: &[Bytes]) {
        until("agreement", || {
            let found: Vec<Vec<(u64, Bytes)>> = self
                .running
                .values()
                .map(|one| one.recorder.commands())
                .collect();
            let first = &found[0];
            let kept: Vec<&Bytes> = first
                .iter()
                .map(|(_, bytes)| bytes)
                .filter(|bytes| committed.contains(bytes))
                .collect();
            found.iter().all(|other| other == first) && kept == committed.iter().collect::<Vec<_>>()
        })
        .await;
        for one in self.running.values() {
            assert_eq!(one.voter.failure(), None);
        }
    }

    async fn loses_its_leader_twice(&mut self) {
        let mut committed = self.propose(10).await;
        for _ in 0..2 {
            until("a leader", || self.leader().is_some()).await;
            let leader = self.leader().unwrap();
            self.kill(leader).await;
            committed.extend(self.propose(10).await);
            self.start(leader).await;
            self.agreed_on(&committed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_voters_elect_commit_lose_a_leader_and_continue() {
    Cluster::founded(None).await.loses_its_leader_twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_voters_do_the_same_with_certificates() {
    let mut cluster = Cluster::founded(Some(Authority::new())).await;
    cluster.loses_its_leader_twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_committed_and_with_it_again() {
    let mut cluster = Cluster::founded(None).await;
    let mut committed = cluster.propose(3).await;
    for id in [1, 2] {
        cluster.kill(id).await;
    }
    let left = cluster.running[&3].voter.clone();
    until("end of office", || left.office().is_none()).await;
    let command = Command {
        proposal: 1 << 64,
        bytes: "alone".into(),
    };
    left.propose(command, SECOND).await.unwrap_err();
    for id in [1, 2] {
        cluster.start(id).await;
    }
    committed.extend(cluster.propose(3).await);
    cluster.agreed_on(&committed).await;
}
