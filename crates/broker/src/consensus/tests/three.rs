//! Three voters in one process, on real logs, with a network that can be cut.
use super::recorder::Recorder;
use crate::consensus::log_store::LogStore;
use crate::consensus::machine::Machine;
use crate::consensus::network::{Kind, Transport};
use crate::consensus::raft::{ProposeError, Voter};
use crate::consensus::vote::{HardState, VoteFile};
use crate::consensus::{Command, open_log};
use bascule_log::GroupCommitter;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, pending};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);
/// Far beyond an election; reached only when something is wrong.
const LIMIT: Duration = Duration::from_mins(1);

/// What happens to the request, or to the connection, of the next chunk of a snapshot that is not the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    Lost,
    Damaged,
}

/// Which voters run, and which links are cut: (from, to).
#[derive(Debug, Default)]
pub(super) struct Links {
    voters: Mutex<BTreeMap<u64, Weak<Voter>>>,
    pub cut: Mutex<HashSet<(u64, u64)>>,
    /// Once each, in this order, with the second chunk that is sent.
    pub faults: Mutex<VecDeque<Chunks>>,
    /// Chunks that were sent, those with a fault among them.
    pub chunks: AtomicU64,
}

impl Links {
    fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cut.lock().contains(&(from, to))
    }

    /// A request as it arrives.
    fn carried(&self, kind: Kind, request: Bytes) -> io::Result<Bytes> {
        if kind != Kind::Snapshot {
            return Ok(request);
        }
        let is_second = self.chunks.fetch_add(1, Ordering::AcqRel) % 2 == 1;
        let fault = is_second.then(|| self.faults.lock().pop_front()).flatten();
        match fault {
            None => Ok(request),
            Some(Chunks::Lost) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(Chunks::Damaged) => {
                let mut bytes = request.to_vec();
                // Of the chunk's bytes: they are the last field.
                *bytes.last_mut().unwrap() ^= 1;
                Ok(bytes.into())
            }
        }
    }

    fn cut(&self, a: u64, b: u64) {
        self.cut.lock().extend([(a, b), (b, a)]);
    }
}

#[derive(Debug)]
struct End {
    from: u64,
    links: Arc<Links>,
}

impl Transport for End {
    fn ask(
        &self,
        to: u64,
        kind: Kind,
        request: Bytes,
        _timeout: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let (from, links) = (self.from, self.links.clone());
        async move {
            if links.is_cut(from, to) {
                return pending().await;
            }
            let request = links.carried(kind, request)?;
            let voter = links.voters.lock().get(&to).and_then(Weak::upgrade);
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let answer = voter
                .ok_or_else(refused)?
                .answer(from, kind, &request)
                .await;
            if links.is_cut(to, from) {
                return pending().await;
            }
            answer
        }
        .boxed()
    }
}

pub(super) struct Broker {
    pub voter: Arc<Voter>,
    pub recorder: Arc<Recorder>,
}

pub(super) struct Group {
    pub links: Arc<Links>,
    pub directories: BTreeMap<u64, TempDir>,
    pub running: BTreeMap<u64, Broker>,
    proposals: u128,
}

impl Group {
    async fn started() -> Self {
        let mut group = Self {
            links: Arc::default(),
            directories: BTreeMap::new(),
            running: BTreeMap::new(),
            proposals: 0,
        };
        for id in ALL {
            group.directories.insert(id, tempfile::tempdir().unwrap());
            group.start(id).await;
        }
        group
    }

    pub async fn founded() -> Self {
        let group = Self::started().await;
        let founder = &group.running[&1].voter;
        founder.found(BTreeSet::from([1, 2, 3])).await.unwrap();
        assert!(founder.found(BTreeSet::from([1])).await.is_err());
        group
    }

    pub async fn start(&mut self, id: u64) {
        let directory = self.directories[&id].path();
        let state = HardState {
            raft_id: id,
            ..HardState::default()
        };
        let vote = if VoteFile::find(directory).unwrap().is_some() {
            VoteFile::open(directory).unwrap()
        } else {
            VoteFile::create(directory, state).unwrap()
        };
        let log = open_log(directory, &GroupCommitter::start()).unwrap();
        let store = LogStore::new(log, vote).unwrap();
        let recorder = Arc::<Recorder>::default();
        let machine = Machine::open(directory.to_path_buf(), recorder.clone());
        let transport = Arc::new(End {
            from: id,
            links: self.links.clone(),
        });
        let voter = Voter::start(id, store, machine.unwrap().0, transport);
        let voter = Arc::new(voter.await.unwrap());
        self.links.voters.lock().insert(id, Arc::downgrade(&voter));
        self.running.insert(id, Broker { voter, recorder });
    }

    /// Ends a voter at once: nobody hears of it any more.
    pub async fn kill(&mut self, id: u64) {
        self.links.voters.lock().remove(&id);
        let broker = self.running.remove(&id).unwrap();
        broker.voter.stop().await.unwrap();
    }

    /// Waits for one of these to lead with a majority.
    pub async fn leader(&self, among: &[u64]) -> u64 {
        let leads = |id: &&u64| self.running[*id].voter.office().is_some();
        until("a leader", || among.iter().find(leads).copied()).await
    }

    pub fn command(&mut self) -> Command {
        self.proposals += 1;
        Command {
            proposal: self.proposals,
            bytes: format!("entry {}", self.proposals).into(),
        }
    }

    /// Commits that many entries through whoever leads; returns them.
    pub async fn propose(&mut self, count: usize, among: &[u64]) -> Vec<Bytes> {
        let mut committed = Vec::new();
        while committed.len() < count {
            let leader = self.leader(among).await;
            let command = self.command();
            let voter = self.running[&leader].voter.clone();
            if voter.propose(command.clone(), SECOND).await.is_ok() {
                committed.push(command.bytes);
            }
        }
        committed
    }

    /// Waits until all that run have committed as much as the furthest, and the same; returns it.
    pub async fn agreed(&self) -> Vec<(u64, Bytes)> {
        until("agreement", || {
            for (id, broker) in &self.running {
                assert_eq!(broker.voter.failure(), None, "voter {id} has stopped");
            }
            let last: BTreeSet<u64> = self
                .running
                .values()
                .map(|broker| broker.voter.last_index())
                .collect();
            let mut found = self
                .running
                .values()
                .map(|broker| broker.recorder.commands());
            let first = found.next()?;
            (last.len() == 1 && found.all(|other| other == first)).then_some(first)
        })
        .await
    }
}

/// What was reported as committed is there, in order, and nothing twice. An entry of unknown outcome may be there too.
fn assert_kept(agreed: &[Bytes], committed: &[Bytes]) {
    let known: HashSet<&Bytes> = agreed.iter().collect();
    assert_eq!(known.len(), agreed.len(), "an entry is there twice");
    let reported: HashSet<&Bytes> = committed.iter().collect();
    let kept: Vec<&Bytes> = agreed
        .iter()
        .filter(|entry| reported.contains(entry))
        .collect();
    assert_eq!(kept, committed.iter().collect::<Vec<_>>());
}

pub(super) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < limit, "no {what} in {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn bytes_of(entries: &[(u64, Bytes)]) -> Vec<Bytes> {
    entries.iter().map(|(_, bytes)| bytes.clone()).collect()
}

pub(super) fn without(ids: &[u64], id: u64) -> Vec<u64> {
    ids.iter().copied().filter(|other| *other != id).collect()
}

pub(super) const ALL: [u64; 3] = [1, 2, 3];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_elected_killed_and_elected_and_nothing_is_lost() {
    let mut group = Group::founded().await;
    let mut committed = group.propose(20, &ALL).await;
    let mut terms = Vec::new();
    for _ in 0..3 {
        let leader = group.leader(&ALL).await;
        terms.push(group.running[&leader].voter.term());
        group.kill(leader).await;
        committed.extend(group.propose(20, &without(&ALL, leader)).await);
        group.start(leader).await;
        let agreed = bytes_of(&group.agreed().await);
        assert_kept(&agreed, &committed);
    }
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
}

/// The library asks for votes once; after that only pre-votes lead to an election, and the others know no group yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founding_whose_first_votes_are_lost_is_completed() {
    let mut group = Group::started().await;
    for other in [2, 3] {
        group.links.cut(1, other);
    }
    let founder = group.running[&1].voter.clone();
    founder.found(BTreeSet::from(ALL)).await.unwrap();
    until("a vote", || (founder.term() > 0).then_some(())).await;
    // Its requests are on their way, and are never answered.
    tokio::time::sleep(SECOND).await;
    assert_eq!(founder.office(), None);
    group.links.cut.lock().clear();
    let committed = group.propose(3, &ALL).await;
    assert_kept(&bytes_of(&group.agreed().await), &committed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_restart_and_commit_more() {
    let mut group = Group::founded().await;
    let committed = group.propose(5, &ALL).await;
    let before = group.agreed().await;
    for id in ALL {
        group.kill(id).await;
    }
    for id in ALL {
        group.start(id).await;
    }
    let more = group.propose(5, &ALL).await;
    let agreed = group.agreed().await;
    assert_eq!(agreed[..before.len()], before);
    assert_kept(&bytes_of(&agreed), &[committed, more].concat());
}

/// N50: the link between the leader and one other is cut. The third hears the leader, so it refuses pre-votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_link_moves_no_office() {
    let mut group = Group::founded().await;
    group.propose(3, &ALL).await;
    let leader = group.leader(&ALL).await;
    let term = group.running[&leader].voter.term();
    let other = without(&ALL, leader)[0];
    group.links.cut(leader, other);
    // Six rounds of pre-votes and more.
    let end = Instant::now() + 4 * SECOND;
    while Instant::now() < end {
        let command = group.command();
        let voter = group.running[&leader].voter.clone();
        voter.propose(command, 10 * SECOND).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for broker in group.running.values() {
        assert_eq!(broker.voter.term(), term);
    }
    assert_eq!(group.leader(&ALL).await, leader);
    group.links.cut.lock().clear();
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_loses_office_and_what_it_alone_wrote() {
    let mut group = Group::founded().await;
    let mut committed = group.propose(3, &ALL).await;
    let leader = group.leader(&ALL).await;
    let others = without(&ALL, leader);
    for other in &others {
        group.links.cut(leader, *other);
    }
    let cut_off = group.running[&leader].voter.clone();
    let lost = group.command();
    let outcome = cut_off.propose(lost.clone(), SECOND).await;
    assert_eq!(outcome, Err(ProposeError::Unknown));
    until("end of office", || cut_off.office().is_none().then_some(())).await;
    let refused = cut_off.propose(group.command(), SECOND).await;
    assert_eq!(refused, Err(ProposeError::NoQuorum));
    committed.extend(group.propose(3, &others).await);
    group.links.cut.lock().clear();
    let agreed = bytes_of(&group.agreed().await);
    assert_kept(&agreed, &committed);
    assert!(!agreed.contains(&lost.bytes));
}

/// One that hears nobody but is heard asks in vain, and disturbs nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_away_deposes_nobody() {
    let mut group = Group::founded().await;
    group.propose(3, &ALL).await;
    let leader = group.leader(&ALL).await;
    let term = group.running[&leader].voter.term();
    let away = without(&ALL, leader)[0];
    for other in without(&ALL, away) {
        group.links.cut.lock().insert((other, away));
    }
    group.propose(3, &[leader]).await;
    tokio::time::sleep(3 * SECOND).await;
    group.links.cut.lock().clear();
    group.propose(3, &[leader]).await;
    group.agreed().await;
    assert_eq!(group.running[&leader].voter.term(), term);
}

/// The leader is heard by all and hears nobody: it goes silent, so that the others elect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hears_nobody_is_replaced() {
    let mut group = Group::founded().await;
    group.propose(3, &ALL).await;
    let leader = group.leader(&ALL).await;
    let others = without(&ALL, leader);
    for other in &others {
        group.links.cut.lock().insert((*other, leader));
    }
    group.propose(3, &others).await;
    group.links.cut.lock().clear();
    group.agreed().await;
    assert_eq!(group.running[&leader].voter.office(), None);
}
