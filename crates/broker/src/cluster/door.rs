//! The metadata log of several brokers: what is proposed here is committed by the controller, wherever that is.
use super::shared::{Running, Shared, proposal_number};
use crate::client_requests::RequestServer;
use crate::consensus::machine::Machine;
use crate::consensus::network::{Answer, Kind, Transport, decode, encode};
use crate::consensus::raft::{ProposeError, Voter};
use crate::consensus::{Command, Door, MetadataError, Proposal, over_the_limit};
use crate::events::Event;
use crate::forward::server::ForwardServer;
use crate::partition::PartitionContext;
use crate::replication::{Propose, take_over};
use bascule_wire::ErrorCode;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// How long a proposal waits for a controller, and less if its deadline is nearer: an election takes a second.
const NO_CONTROLLER: Duration = Duration::from_secs(4);
/// Between two tries to reach a controller.
const RETRY: Duration = Duration::from_millis(50);
/// How long the controller waits for a majority: less than the time after which a silent connection is given up.
const AT_CONTROLLER: Duration = Duration::from_secs(3);
/// One barrier; the control plane asks again.
const BARRIER: Duration = Duration::from_secs(1);
/// How long entries that a barrier stands behind are waited for.
const CATCH_UP: Duration = Duration::from_mins(1);

/// Body of a request to the controller (frame type 8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Propagated {
    /// Append this entry.
    Propose(Command),
    /// The index of the last entry that is committed now.
    Barrier,
}

/// Body of its answer (type 9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answered {
    /// Done, up to this index.
    Index(u64),
    /// Nothing was appended: this broker is not the controller, or no majority answers it.
    Later,
    /// It may be committed later, or never.
    Unknown,
}

/// The door of a member.
#[derive(Debug)]
pub(super) struct ClusterDoor {
    pub shared: Arc<Shared>,
    pub machine: Machine,
    /// Entries in the log when it was opened.
    pub last: u64,
    pub runtime: Handle,
}

impl Door for ClusterDoor {
    fn last_index(&self) -> u64 {
        let running = self.shared.running.get();
        running.map_or(self.last, |running| running.voter.last_index())
    }

    fn propose(&self, proposals: Vec<Proposal>, timeout: Duration) {
        let shared = self.shared.clone();
        // Answered before the proposer gives up, who would not know the outcome then.
        let end = Instant::now() + (timeout / 4 * 3).min(NO_CONTROLLER);
        tokio::spawn(async move {
            let all = proposals.into_iter().map(|each| shared.propose(each, end));
            join_all(all).await;
        });
    }

    fn read_barrier(&self, id: u64) {
        let shared = self.shared.clone();
        self.runtime.spawn(async move { shared.barrier(id).await });
    }

    /// Without a voter the log stays as long as it is: the next start stores another snapshot.
    fn save_snapshot(&self, index: u64, state: &[u8]) -> Result<(), MetadataError> {
        let Some(Running { voter, .. }) = self.shared.running.get() else {
            return self.machine.save(index, state).map(|_| ());
        };
        let state = Bytes::copy_from_slice(state);
        self.runtime.block_on(voter.save_snapshot(index, state))
    }

    fn close(&self) -> Result<(), MetadataError> {
        let Some(Running { voter, .. }) = self.shared.running.get() else {
            return Ok(());
        };
        Ok(self.runtime.block_on(voter.stop())?)
    }
}

impl Shared {
    async fn propose(&self, proposal: Proposal, end: Instant) {
        let fail = |code, message| {
            self.events.push(Event::Failed {
                proposal: proposal.id,
                code,
                message,
            });
        };
        if let Some(text) = over_the_limit(&proposal.bytes) {
            return fail(ErrorCode::InvalidArgument, text);
        }
        let command = Command {
            proposal: proposal_number(self.nonce, proposal.id),
            bytes: proposal.bytes,
        };
        loop {
            if let Some((code, text)) = self.stopped.lock().clone() {
                return fail(code, text);
            }
            match self
                .at_controller(Propagated::Propose(command.clone()))
                .await
            {
                // It comes back as an entry.
                Answered::Index(_) => return,
                Answered::Unknown => {
                    let text =
                        "the metadata operation did not finish in time; its outcome is unknown";
                    return fail(ErrorCode::MetadataTimeout, text.into());
                }
                Answered::Later if Instant::now() >= end => {
                    return fail(ErrorCode::NoQuorum, self.no_quorum());
                }
                Answered::Later => tokio::time::sleep(RETRY).await,
            }
        }
    }

    async fn barrier(&self, id: u64) {
        let end = Instant::now() + BARRIER;
        loop {
            if let Some((code, message)) = self.stopped.lock().clone() {
                let proposal = id;
                return self.events.push(Event::Failed {
                    proposal,
                    code,
                    message,
                });
            }
            if let Answered::Index(index) = self.at_controller(Propagated::Barrier).await {
                let mut applied = self.applied.watch();
                let reached = applied.wait_for(|applied| *applied >= index);
                if matches!(tokio::time::timeout(CATCH_UP, reached).await, Ok(Ok(_))) {
                    self.events.push(Event::Barrier { id, index });
                }
                return;
            }
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Asks the controller: this broker, or the one that it knows as such.
    async fn at_controller(&self, request: Propagated) -> Answered {
        let Some(Running { voter, dialer, .. }) = self.running.get() else {
            return Answered::Later;
        };
        if voter.office().is_some() {
            return self.as_controller(voter, request).await;
        }
        let Some(leader) = voter.leader().filter(|leader| *leader != self.raft_id) else {
            return Answered::Later;
        };
        let Ok(body) = encode(&request) else {
            return Answered::Later;
        };
        let limit = AT_CONTROLLER + BARRIER;
        let asked = dialer.ask(leader, Kind::Propagate, body, limit);
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(answer)) => decode(&answer).unwrap_or(Answered::Unknown),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotConnected => Answered::Later,
            Ok(Err(_)) | Err(_) => Answered::Unknown,
        }
    }

    async fn as_controller(&self, voter: &Voter, request: Propagated) -> Answered {
        let outcome = match request {
            Propagated::Propose(command) => voter.propose(command, AT_CONTROLLER).await,
            Propagated::Barrier => voter.read_index(BARRIER).await,
        };
        match outcome {
            Ok(index) => Answered::Index(index),
            Err(ProposeError::NotController { .. } | ProposeError::NoQuorum) => Answered::Later,
            Err(ProposeError::Unknown | ProposeError::Stopped(_)) => Answered::Unknown,
        }
    }
}

/// Answers the other brokers: the voter, and this broker as the controller.
#[derive(Debug)]
pub(super) struct Port {
    pub shared: Arc<Shared>,
    pub partitions: Arc<PartitionContext>,
    pub publishes: Arc<ForwardServer>,
    pub requests: Arc<RequestServer>,
}

impl Answer for Port {
    fn answer<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        request: &'a [u8],
    ) -> BoxFuture<'a, io::Result<Bytes>> {
        async move {
            if matches!(kind, Kind::Position | Kind::Range) {
                return take_over::answer(&self.partitions.replicas, kind, request).await;
            }
            if kind == Kind::ClientRequest {
                return self.requests.answer(request).await;
            }
            let Some(Running { voter, .. }) = self.shared.running.get() else {
                return Err(io::Error::other("the voter has not started yet"));
            };
            if kind == Kind::Heartbeat {
                return encode(&self.shared.heard(voter, from, &decode(request)?));
            }
            if kind != Kind::Propagate {
                return voter.answer(from, kind, request).await;
            }
            let request: Propagated = decode(request)?;
            if let Propagated::Propose(command) = &request
                && let Some(text) = over_the_limit(&command.bytes)
            {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            encode(&self.shared.as_controller(voter, request).await)
        }
        .boxed()
    }

    fn partitions(&self) -> Option<Arc<PartitionContext>> {
        Some(self.partitions.clone())
    }

    fn publishes(&self) -> Option<Arc<ForwardServer>> {
        Some(self.publishes.clone())
    }
}

/// Proposes entries that the data plane writes: what replicas report. Nobody waits for one, and who reports repeats it.
#[derive(Debug)]
pub(super) struct Reporter {
    pub shared: Arc<Shared>,
    /// Proposals so far; their numbers are counted down, so that they differ from those of the control plane.
    pub count: AtomicU64,
}

impl Propose for Reporter {
    fn propose(&self, entry: Bytes) -> BoxFuture<'static, bool> {
        let shared = self.shared.clone();
        let id = u64::MAX - self.count.fetch_add(1, Ordering::Relaxed);
        async move {
            let command = Command {
                proposal: proposal_number(shared.nonce, id),
                bytes: entry,
            };
            let answered = shared.at_controller(Propagated::Propose(command)).await;
            matches!(answered, Answered::Index(_))
        }
        .boxed()
    }
}
