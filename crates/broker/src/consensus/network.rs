//! What brokers of the metadata group ask each other: appends, votes, pre-votes, chunks of snapshots (frame types 15 to 22), and
//! what else one question and one answer are enough for.
//!
//! The bodies are `MessagePack`. How they travel is a [`Transport`]'s business.
use super::snapshot;
use super::types::{SnapshotOf, Types, Vote, index_of};
use crate::forward::server::ForwardServer;
use crate::partition::PartitionContext;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::error::{
    Fatal, InstallSnapshotError, RPCError, RaftError, ReplicationClosed, StreamingError,
    Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, RaftLogId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two tries to reach a voter.
const RETRY: Duration = Duration::from_millis(100);
/// Between two tries to send a snapshot.
const SNAPSHOT_RETRY: Duration = Duration::from_secs(1);

/// A request between voters. The type of its answer's frame is one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Where the log of a replica ends; the metadata group knows nothing of it.
    Position = 6,
    /// A request to the controller; the metadata group knows nothing of it.
    Propagate = 8,
    /// Entries, or a heartbeat when there are none.
    Append = 15,
    /// A vote.
    Vote = 17,
    /// Whether the other one would vote; changes nothing.
    PreVote = 19,
    /// A chunk of a snapshot.
    Snapshot = 21,
    /// A heartbeat to the controller; the metadata group does not use it.
    Heartbeat = 23,
    /// Batches of a replica; the metadata group knows nothing of them.
    Range = 27,
    /// A client's read, or a position that it stores; the metadata group knows nothing of it.
    ClientRequest = 29,
}

/// Carries requests to other voters.
pub trait Transport: Debug + Send + Sync + 'static {
    /// Asks a voter, by its number, and returns the body of its answer. The caller gives up after `timeout`.
    ///
    /// # Errors
    /// It cannot be reached, did not answer, or refused. The request may have been served.
    fn ask(
        &self,
        to: u64,
        kind: Kind,
        request: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>>;
}

/// Answers requests of other voters.
pub trait Answer: Debug + Send + Sync + 'static {
    /// The body of the answer to a request of the voter with this number.
    ///
    /// # Errors
    /// Sent to the one that asked, as text.
    fn answer<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        request: &'a [u8],
    ) -> BoxFuture<'a, io::Result<Bytes>>;

    /// The partitions whose records followers may fetch; `None`: it has no records.
    fn partitions(&self) -> Option<Arc<PartitionContext>> {
        None
    }

    /// Who takes publishes of other brokers' clients; `None`: nobody.
    fn publishes(&self) -> Option<Arc<ForwardServer>> {
        None
    }
}

/// Body of a pre-vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PreVoteRequest {
    /// Term and index (from 1) of the last entry of who asks; zeros without one.
    pub last_term: u64,
    pub last_index: u64,
}

/// Connects the library with the transport.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub transport: Arc<dyn Transport>,
    /// A leader that no majority answers sends nothing: its entries would keep others from an election as heartbeats do.
    pub is_silent: Arc<AtomicBool>,
}

/// One voter as the library sees it.
#[derive(Debug)]
pub(super) struct Peer {
    transport: Arc<dyn Transport>,
    is_silent: Arc<AtomicBool>,
    id: u64,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> Peer {
        Peer {
            transport: self.transport.clone(),
            is_silent: self.is_silent.clone(),
            id: target,
        }
    }
}

type Failed<E> = RPCError<u64, EmptyNode, RaftError<u64, E>>;

impl Peer {
    async fn ask<R, A, E>(
        &self,
        kind: Kind,
        request: &R,
        option: &RPCOption,
    ) -> Result<A, Failed<E>>
    where
        R: Serialize,
        A: DeserializeOwned,
        E: std::error::Error,
    {
        let failed = |error: io::Error| RPCError::Unreachable(Unreachable::new(&error));
        let timeout = option.hard_ttl();
        let body = encode(request).map_err(failed)?;
        let answer = self.transport.ask(self.id, kind, body, timeout);
        let answer = tokio::time::timeout(timeout, answer)
            .await
            .map_err(|error| failed(error.into()))?
            .map_err(failed)?;
        decode(&answer).map_err(failed)
    }
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failed<openraft::error::Infallible>> {
        let mut checked = check_order(&request);
        if self.is_silent.load(Ordering::Acquire) {
            checked = Err(io::Error::other("no majority answers this leader"));
        }
        checked.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))?;
        self.ask(Kind::Append, &request, &option).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, Failed<openraft::error::Infallible>> {
        self.ask(Kind::Vote, &request, &option).await
    }

    /// The library's own chunks have no checksums; [`Self::full_snapshot`] sends others instead.
    async fn install_snapshot(
        &mut self,
        _request: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failed<InstallSnapshotError>> {
        let text = "snapshots are sent as a whole, in chunks of ours";
        let error = io::Error::new(io::ErrorKind::Unsupported, text);
        Err(RPCError::Unreachable(Unreachable::new(&error)))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let sent = async {
            let sent =
                snapshot::send(&*self.transport, self.id, vote, snapshot, option.hard_ttl()).await;
            if sent.is_err() {
                // Each try reads the whole snapshot again, also while the other one is away.
                tokio::time::sleep(SNAPSHOT_RETRY).await;
            }
            sent
        };
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = sent => sent.map_err(|error| StreamingError::Unreachable(Unreachable::new(&error))),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY))
    }
}

/// Refuses entries that do not follow the previous one, or each other, one by one: the library would store them at the wrong
/// place. A leader has no entry of a later term than its own.
///
/// # Errors
/// `InvalidData`.
pub(super) fn check_order(request: &AppendEntriesRequest<Types>) -> io::Result<()> {
    let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    let newest = request.vote.leader_id.term;
    let mut previous = request.prev_log_id;
    for entry in &request.entries {
        let found = *entry.get_log_id();
        let expected = previous
            .as_ref()
            .map_or(1, |log_id| index_of(log_id).saturating_add(1));
        if index_of(&found) != expected {
            let index = index_of(&found);
            return invalid(format!(
                "entry {index} stands where entry {expected} belongs"
            ));
        }
        let (term, oldest) = (
            found.leader_id.term,
            previous.map_or(0, |log_id| log_id.leader_id.term),
        );
        if !(oldest..=newest).contains(&term) {
            return invalid(format!(
                "entry {expected} is of term {term}, the one before it of {oldest}, and the leader's term is {newest}"
            ));
        }
        previous = Some(found);
    }
    Ok(())
}

pub(crate) fn encode(message: &impl Serialize) -> io::Result<Bytes> {
    let bytes = rmp_serde::to_vec(message);
    bytes.map(Bytes::from).map_err(io::Error::other)
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    rmp_serde::from_slice(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
