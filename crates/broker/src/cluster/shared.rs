//! What the parts of a member have in common.
use super::ClusterStatus;
use crate::clock::since_boot;
use crate::consensus::machine::Committed;
use crate::consensus::raft::Voter;
use crate::events::{Event, Events};
use crate::partition::PartitionContext;
use crate::peer::{Brokers, Dialer};
use crate::replication::heartbeat::OwnLease;
use crate::replication::liveness::Watch;
use bascule_log::GroupCommitter;
use bascule_wire::ErrorCode;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::watch;

/// Bits of the number of a proposal that are this broker's own; the others are the nonce of its run.
const OWN_BITS: u32 = 64;

/// Hands what is committed to the control plane.
#[derive(Debug)]
pub(super) struct Applied {
    events: Arc<Events>,
    nonce: u64,
    index: watch::Sender<u64>,
}

impl Applied {
    pub fn new(events: Arc<Events>, nonce: u64) -> Self {
        Self {
            events,
            nonce,
            index: watch::Sender::new(0),
        }
    }

    /// What a snapshot covers counts as handed over.
    pub fn begin_at(&self, index: u64) {
        self.index.send_replace(index);
    }

    /// Changes with the index of the last entry that was handed over.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.index.subscribe()
    }
}

/// The number of a proposal that no other run of any broker uses.
pub(super) fn proposal_number(nonce: u64, id: u64) -> u128 {
    u128::from(nonce) << OWN_BITS | u128::from(id)
}

impl Committed for Applied {
    fn committed(&self, index: u64, bytes: Bytes, proposal: u128) {
        let is_own = (proposal >> OWN_BITS) as u64 == self.nonce;
        self.events.push(Event::Committed {
            index,
            entry: bytes,
            proposal: is_own.then_some(proposal as u64),
        });
        // Behind the event: a barrier that sees the index comes after it.
        self.index.send_replace(index);
    }

    fn installed(&self, index: u64, state: Bytes) {
        self.events.push(Event::Installed { index, state });
        self.index.send_replace(index);
    }
}

/// A voter and its way to the others.
#[derive(Debug)]
pub(super) struct Running {
    pub voter: Arc<Voter>,
    pub brokers: Arc<Brokers>,
    pub dialer: Arc<Dialer>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub events: Arc<Events>,
    /// Of this broker.
    pub name: String,
    pub raft_id: u64,
    pub nonce: u64,
    /// Brokers by their numbers in the group of voters.
    pub names: BTreeMap<u64, String>,
    pub applied: Arc<Applied>,
    /// What heartbeats report of; they hold this, too.
    pub partitions: Weak<PartitionContext>,
    /// The same.
    pub committer: Weak<GroupCommitter>,
    /// Directory of the data.
    pub data: PathBuf,
    pub running: OnceLock<Running>,
    /// Whom this broker hears as the controller.
    pub watch: Watch,
    /// Of the present run.
    pub lease: Arc<OwnLease>,
    /// Why there is no voter yet.
    pub waiting: Mutex<String>,
    /// Why there will be none any more.
    pub stopped: Mutex<Option<(ErrorCode, String)>>,
}

impl Shared {
    /// The metadata cannot be served in this run any more. The first reason counts.
    pub fn stop(&self, code: ErrorCode, text: String) {
        let mut stopped = self.stopped.lock();
        if stopped.is_none() {
            *stopped = Some((code, text.clone()));
            self.events.push(Event::Failed {
                proposal: 0,
                code,
                message: text,
            });
        }
    }

    pub fn status(&self) -> ClusterStatus {
        let mut status = ClusterStatus {
            controller: None,
            office: None,
            term: 0,
            connected: Vec::new(),
            missing: BTreeMap::new(),
            live: Vec::new(),
            lease_ms: self.lease.rest_ms(since_boot()),
        };
        let Some(Running { voter, dialer, .. }) = self.running.get() else {
            let why = self.waiting.lock().clone();
            let others = self.names.values().filter(|name| **name != self.name);
            status.missing = others.map(|name| (name.clone(), why.clone())).collect();
            return status;
        };
        (status.office, status.term) = (voter.office(), voter.term());
        let live = self.watch.live().into_iter();
        status.live = live.filter_map(|id| self.names.get(&id).cloned()).collect();
        for (name, why) in dialer.others() {
            match why {
                None => status.connected.push(name.to_owned()),
                Some(why) => {
                    status.missing.insert(name.to_owned(), why.to_string());
                }
            }
        }
        let is_known = |leader: &u64| {
            let name = self.names.get(leader);
            name.is_some_and(|name| status.connected.contains(name))
        };
        let leader = voter.leader().filter(is_known);
        let holder = status.office.map(|_| self.raft_id).or(leader);
        status.controller = holder.and_then(|id| self.names.get(&id).cloned());
        status
    }

    /// Why no controller takes a request: who is missing.
    pub fn no_quorum(&self) -> String {
        if self.running.get().is_none() {
            return format!("this broker waits for its cluster: {}", self.waiting.lock());
        }
        let status = self.status();
        let all = self.names.len();
        let missing: Vec<String> = status
            .missing
            .iter()
            .map(|(name, why)| format!("{name} ({why})"))
            .collect();
        let missing = if missing.is_empty() {
            "all are connected, and none was elected in time".to_owned()
        } else {
            format!("not connected: {}", missing.join(", "))
        };
        format!(
            "no controller: {} of the {all} brokers have to agree; {missing}",
            all / 2 + 1
        )
    }
}
