//! A broker as a member of a cluster: several brokers agree on the metadata (`docs/spec/replication.md`).
//!
//! [`Member::open`] reads what the directory has, opens the port for other brokers, and returns. Its tasks find or found the cluster, start
//! the voter and watch it. Until then, and while no majority answers, proposals fail with `no_quorum` and barriers wait; what was
//! committed can still be read.
//!
//! * `node`: the file of this broker's runs. `heartbeats`: to the controller, and as the controller. `watched`: what the state says of brokers. `start`: from the directory to a voter; `checks`: what it refuses. `door`: proposals and barriers, here or at the
//!   controller. `shared`: what they have in common.
mod checks;
mod door;
mod heartbeats;
mod node;
mod shared;
mod start;
mod watched;

pub(crate) use start::{Member, Start, Uses};

use crate::tls::PeerTlsSettings;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `EngineSettings::cluster`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// `host:port` of the port for other brokers.
    pub listen: String,
    /// `host:port` of every broker by name, this one among them.
    pub peers: BTreeMap<String, String>,
    /// `None` = loopback only.
    pub tls: Option<PeerTlsSettings>,
}

/// What a registration has to say of this run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Run {
    /// Random, 1…2^63 − 1.
    pub nonce: u64,
    /// The boot epoch that the directory has; 0 = none.
    pub stored: u64,
    /// Of the data directory.
    pub directory_id: String,
    /// Of the cluster; empty = it is not known yet.
    pub cluster_id: String,
    /// Number in the group of voters.
    pub raft_id: u64,
    /// Of the kernel's run.
    pub kernel_boot_id: String,
    /// Of the file system of the data.
    pub mount_id: String,
}

/// A registration of a broker: its number in the group of voters, boot epoch, nonce, and whether that run is fenced.
pub type KnownRun = (u64, u64, u64, bool);

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ClusterStatus {
    /// The controller, as far as this broker knows.
    pub controller: Option<String>,
    /// The term that this broker holds the office in.
    pub office: Option<u64>,
    /// Of the metadata group; 0 = none yet.
    pub term: u64,
    /// The other brokers that are connected.
    pub connected: Vec<String>,
    /// The others, and why they are not.
    pub missing: BTreeMap<String, String>,
    /// The brokers that the controller hears, this one among them; empty on any other broker.
    pub live: Vec<String>,
    /// What is left of this broker's lease, ms; 0 = it has none.
    pub lease_ms: u64,
}
