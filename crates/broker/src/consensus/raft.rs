//! One voter of the metadata group. Nothing outside `consensus` knows the library behind it.
use super::door::MetadataError;
use super::elections::Elections;
use super::log_store::LogStore;
use super::machine::Machine;
use super::network::{Answer, Kind, Network, Transport, check_order, decode, encode};
use super::snapshot::{Answered, Chunk, Receiver};
use super::types::{Command, Types, index_of};
use bascule_replica::types::Instant64;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use openraft::error::{ClientWriteError, RaftError};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use openraft::{Config, Raft, SnapshotPolicy};
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

const HEARTBEAT_MS: u64 = 100;
/// Also the library's lease: it answers no vote while it heard a leader within this.
const LEASE_MS: u64 = 300;
/// For one chunk of a snapshot; the last one is answered when all of it is stored.
const CHUNK_MS: u64 = 30_000;
/// How long the library may take to note a snapshot that is stored.
const NOTED: Duration = Duration::from_secs(30);

/// Why an entry was not committed, or its outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Nothing was appended: another voter leads, if one is known.
    #[error("this broker is not the controller")]
    NotController {
        /// The voter that leads.
        leader: Option<u64>,
    },
    /// Nothing was appended: no majority answers.
    #[error("no majority of the voters answers")]
    NoQuorum,
    /// It may be committed later, or never.
    #[error("the metadata operation did not finish in time; its outcome is unknown")]
    Unknown,
    /// The voter has stopped: its storage failed, or it was closed.
    #[error("the metadata group has stopped on this broker: {0}")]
    Stopped(String),
}

/// One voter. Dropping it without [`Voter::stop`] ends its tasks, and the log is as after a crash.
pub struct Voter {
    raft: Raft<Types>,
    store: LogStore,
    elections: Arc<Elections>,
    machine: Machine,
    receiver: Mutex<Receiver>,
    tasks: [AbortHandle; 2],
}

impl Debug for Voter {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Voter")
            .field("elections", &self.elections)
            .finish_non_exhaustive()
    }
}

impl Voter {
    /// Starts a voter, or a learner that becomes one when a leader says so. Call inside the runtime.
    ///
    /// # Errors
    /// `InvalidData`, or others, when the storage cannot be read.
    pub async fn start(
        id: u64,
        store: LogStore,
        machine: Machine,
        transport: Arc<dyn Transport>,
    ) -> io::Result<Self> {
        let config = Config {
            cluster_name: "metadata".into(),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: LEASE_MS - 1,
            election_timeout_max: LEASE_MS,
            enable_elect: false,
            snapshot_policy: SnapshotPolicy::Never,
            // `save_snapshot` says what goes, never the library.
            max_in_snapshot_log_to_keep: u64::MAX,
            install_snapshot_timeout: CHUNK_MS,
            ..Config::default()
        };
        let config = Arc::new(config.validate().map_err(io::Error::other)?);
        let is_silent = Arc::<AtomicBool>::default();
        let network = Network {
            transport: transport.clone(),
            is_silent: is_silent.clone(),
        };
        let raft = Raft::new(id, config, network, store.clone(), machine.clone());
        let raft = raft.await.map_err(io::Error::other)?;
        let elections = Elections::new(id, raft.clone(), store.clone(), transport, is_silent);
        let tasks = [
            tokio::spawn(Elections::run(Arc::downgrade(&elections))).abort_handle(),
            tokio::spawn(Elections::hold_office(Arc::downgrade(&elections))).abort_handle(),
        ];
        Ok(Self {
            raft,
            store,
            elections,
            machine,
            receiver: Mutex::default(),
            tasks,
        })
    }

    /// Founds the group with these voters, this one among them. Only one of them may, and only once: the others receive it.
    ///
    /// # Errors
    /// The group exists already, or the storage failed.
    pub async fn found(&self, voters: BTreeSet<u64>) -> io::Result<()> {
        self.raft.initialize(voters).await.map_err(io::Error::other)
    }

    /// Answers another voter.
    ///
    /// # Errors
    /// `InvalidData`: the request is none; others when this voter has stopped.
    pub async fn answer(&self, from: u64, kind: Kind, request: &[u8]) -> io::Result<Bytes> {
        match kind {
            Kind::Append => {
                let request: AppendEntriesRequest<Types> = decode(request)?;
                check_order(&request)?;
                let answer = self.raft.append_entries(request).await;
                let answer = answer.map_err(io::Error::other)?;
                if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
                    self.elections.leader_heard();
                }
                if let Ok(mut receiver) = self.receiver.try_lock() {
                    receiver.expire();
                }
                encode(&answer)
            }
            Kind::Vote => {
                let request: VoteRequest<u64> = decode(request)?;
                let mut answer = self.raft.vote(request).await.map_err(io::Error::other)?;
                // Otherwise a leader that restarts would get back the office of before.
                answer.vote.committed = false;
                encode(&answer)
            }
            Kind::PreVote => encode(&self.elections.would_vote(from, decode(request)?)),
            Kind::Snapshot => {
                let chunk: Chunk = decode(request)?;
                let answer = self.receiver.lock().await.take(&self.raft, chunk).await?;
                if matches!(answer, Answered::Next(_)) {
                    self.elections.leader_heard();
                }
                encode(&answer)
            }
            Kind::Position
            | Kind::Propagate
            | Kind::Heartbeat
            | Kind::Range
            | Kind::ClientRequest => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a request to the controller or to a replica is not one to a voter",
            )),
        }
    }

    /// Stores a snapshot of the control plane that covers entries 1…`index`, and shortens the log: entries that the older one of the
    /// two newest snapshots covers are removed, once no follower is being sent them.
    ///
    /// # Errors
    /// Those of [`Machine::save`]; [`MetadataError::Damaged`] when this voter has stopped. The log is as long as before then.
    pub async fn save_snapshot(&self, index: u64, state: Bytes) -> Result<(), MetadataError> {
        let machine = self.machine.clone();
        let saved = tokio::task::spawn_blocking(move || machine.save(index, &state)).await;
        let older = saved.map_err(|error| MetadataError::Damaged(error.to_string()))??;
        let stopped =
            |error: String| MetadataError::Damaged(format!("the log was not shortened: {error}"));
        // The library's build reads what was just stored; after that it lets entries go.
        let trigger = self.raft.trigger();
        trigger
            .snapshot()
            .await
            .map_err(|error| stopped(error.to_string()))?;
        let is_noted = |metrics: &openraft::RaftMetrics<u64, openraft::EmptyNode>| {
            metrics.snapshot.as_ref().map_or(0, index_of) >= index
        };
        let wait = self.raft.wait(Some(NOTED));
        let noted = wait.metrics(is_noted, "the snapshot").await;
        noted.map_err(|error| stopped(error.to_string()))?;
        let Some(last) = older.checked_sub(1) else {
            return Ok(());
        };
        let purged = trigger.purge_log(last).await;
        purged.map_err(|error| stopped(error.to_string()))
    }

    /// Proposes an entry and waits until it is committed: its index.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub async fn propose(&self, command: Command, timeout: Duration) -> Result<u64, ProposeError> {
        if let Some(text) = self.failure() {
            return Err(ProposeError::Stopped(text));
        }
        if self.elections.office().is_none() {
            let (leads, leader) = {
                let metrics = self.raft.metrics();
                let metrics = metrics.borrow();
                (metrics.state.is_leader(), metrics.current_leader)
            };
            return Err(if leads {
                ProposeError::NoQuorum
            } else {
                ProposeError::NotController { leader }
            });
        }
        let written = tokio::time::timeout(timeout, self.raft.client_write(command)).await;
        match written {
            Ok(Ok(written)) => Ok(index_of(&written.log_id)),
            // It led a moment ago, so the entry may have been appended and sent.
            Err(_) | Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                Err(ProposeError::Unknown)
            }
            Ok(Err(error)) => Err(ProposeError::Stopped(error.to_string())),
        }
    }

    /// Index of the last entry that was committed when this was called, as the controller: a majority has confirmed that no other
    /// one leads, and an entry of its own term is applied.
    ///
    /// # Errors
    /// [`ProposeError::NotController`], [`ProposeError::NoQuorum`], [`ProposeError::Stopped`].
    pub async fn read_index(&self, timeout: Duration) -> Result<u64, ProposeError> {
        if let Some(text) = self.failure() {
            return Err(ProposeError::Stopped(text));
        }
        let Some(term) = self.office() else {
            let leader = self.leader();
            return Err(ProposeError::NotController { leader });
        };
        let is_own = |metrics: &openraft::RaftMetrics<u64, openraft::EmptyNode>| {
            let applied = metrics.last_applied;
            applied.is_some_and(|applied| applied.leader_id.term >= term)
        };
        let wait = self.raft.wait(Some(timeout));
        let Ok(applied) = wait.metrics(is_own, "own entry").await else {
            return Err(ProposeError::NoQuorum);
        };
        let read = tokio::time::timeout(timeout, self.raft.get_read_log_id()).await;
        let Ok(Ok((read, _))) = read else {
            return Err(ProposeError::NoQuorum);
        };
        let applied = applied.last_applied.as_ref().map_or(0, index_of);
        Ok(read.as_ref().map_or(0, index_of).max(applied))
    }

    /// The term that this broker leads, with a majority that answers; `None` = it is not the controller.
    pub fn office(&self) -> Option<u64> {
        self.elections.office()
    }

    /// The term that this broker leads, and when the last round began that a majority answered; `None` = it does not lead.
    pub fn authority(&self) -> Option<(u64, Instant64)> {
        self.elections.authority()
    }

    /// Gives the office to another voter: this one is silent until they have elected.
    pub fn hand_over(&self) {
        self.elections.hand_over();
    }

    /// The voter that leads, as far as this one knows.
    pub fn leader(&self) -> Option<u64> {
        self.raft.metrics().borrow().current_leader
    }

    /// Why this voter has stopped, until the next start; `None` = it runs.
    pub fn failure(&self) -> Option<String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let state = metrics.running_state.as_ref();
        state.err().map(ToString::to_string)
    }

    /// The present term.
    pub fn term(&self) -> u64 {
        self.raft.metrics().borrow().current_term
    }

    /// Index of the last entry, committed or not; 0 = none.
    pub fn last_index(&self) -> u64 {
        self.store.last_index()
    }

    /// Index of the first entry that the log has, or would have.
    #[cfg(test)]
    pub fn first_index(&self) -> u64 {
        self.store.first_index()
    }

    /// Ends its tasks and closes its log cleanly. Idempotent.
    ///
    /// # Errors
    /// Those of [`bascule_log::Log::close`].
    pub async fn stop(&self) -> io::Result<()> {
        self.end_tasks();
        self.raft.shutdown().await.map_err(io::Error::other)?;
        let store = self.store.clone();
        let closed = tokio::task::spawn_blocking(move || store.close()).await;
        closed.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    fn end_tasks(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Answer for Voter {
    fn answer<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        request: &'a [u8],
    ) -> BoxFuture<'a, io::Result<Bytes>> {
        Self::answer(self, from, kind, request).boxed()
    }
}

impl Drop for Voter {
    fn drop(&mut self) {
        self.end_tasks();
    }
}
