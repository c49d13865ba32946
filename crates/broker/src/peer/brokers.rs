//! Who this broker is, and whom it knows.
use bascule_wire::peer::heads::CLUSTER_ID_BYTES;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// This broker, as it says in each handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its name, 1 to 255 bytes; off loopback the common name of its certificate.
    pub name: String,
    /// Of the cluster.
    pub cluster_id: [u8; CLUSTER_ID_BYTES],
    /// Rescues of the cluster that it knows of.
    pub rescues: u64,
    /// Level of features at which entries are written.
    pub level: u32,
    /// Its number in the group of voters, > 0.
    pub raft_id: u64,
    /// Of this run: random.
    pub nonce: u64,
    /// Of its last registration; 0 = it has not registered.
    pub boot_epoch: u64,
    /// Nonces of its last runs, this one among them: a registration under one of them is its own.
    pub nonces: Vec<u64>,
}

/// Another broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its name.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// The newest boot epoch of it that is known, and the nonce that it was registered under; zeros = none.
    pub boot_epoch: u64,
    /// See `boot_epoch`.
    pub nonce: u64,
}

/// This broker and the others, by their numbers in the group of voters.
#[derive(Debug)]
pub struct Brokers {
    pub(super) own: Own,
    pub(super) others: BTreeMap<u64, Broker>,
    runs: Mutex<Runs>,
    is_superseded: AtomicBool,
}

/// The newest registrations that this broker knows of.
#[derive(Debug)]
struct Runs {
    own: u64,
    /// Nonces of the own runs, the present one last.
    nonces: Vec<u64>,
    /// Boot epoch and nonce, by number.
    others: BTreeMap<u64, (u64, u64)>,
}

impl Brokers {
    /// Fixed for the run, but for registrations.
    pub fn new(own: Own, others: BTreeMap<u64, Broker>) -> Self {
        let known = |(id, other): (&u64, &Broker)| (*id, (other.boot_epoch, other.nonce));
        let runs = Runs {
            own: own.boot_epoch,
            nonces: own_nonces(&own),
            others: others.iter().map(known).collect(),
        };
        Self {
            own,
            others,
            runs: Mutex::new(runs),
            is_superseded: AtomicBool::new(false),
        }
    }

    /// This run was registered with this boot epoch.
    pub fn registered(&self, boot_epoch: u64) {
        let mut runs = self.runs.lock();
        runs.own = runs.own.max(boot_epoch);
    }

    /// That broker was registered with this boot epoch, under this nonce: handshakes say so from now on.
    pub fn know(&self, raft_id: u64, boot_epoch: u64, nonce: u64) {
        let mut runs = self.runs.lock();
        if let Some(known) = runs.others.get_mut(&raft_id)
            && known.0 < boot_epoch
            && nonce != 0
        {
            *known = (boot_epoch, nonce);
        }
    }

    /// Another run of this broker begins, under this nonce.
    pub fn begin_run(&self, nonce: u64) {
        self.runs.lock().nonces.push(nonce);
    }

    /// The nonce of the present run.
    pub(super) fn own_nonce(&self) -> u64 {
        self.runs.lock().nonces.last().copied().unwrap_or_default()
    }

    /// Whether one of the own runs, the last ones, had this nonce.
    pub(super) fn is_own_nonce(&self, nonce: u64) -> bool {
        self.runs.lock().nonces.contains(&nonce)
    }

    /// The name of this broker.
    pub(crate) fn own_name(&self) -> &str {
        &self.own.name
    }

    /// The number of this broker.
    pub(crate) fn own_number(&self) -> u64 {
        self.own.raft_id
    }

    /// The name of the broker with this number; empty = no such broker is known.
    pub(crate) fn name(&self, raft_id: u64) -> &str {
        if raft_id == self.own.raft_id {
            return &self.own.name;
        }
        self.others.get(&raft_id).map_or("", |other| &other.name)
    }

    /// The number of another broker.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let mut others = self.others.iter();
        others
            .find(|(_, other)| other.name == name)
            .map(|(id, _)| *id)
    }

    /// The boot epoch of this broker.
    pub(crate) fn own_boot_epoch(&self) -> u64 {
        self.runs.lock().own
    }

    /// Boot epoch and nonce of another broker; zeros = none known.
    pub(super) fn run_of(&self, raft_id: u64) -> (u64, u64) {
        let runs = self.runs.lock();
        runs.others.get(&raft_id).copied().unwrap_or_default()
    }

    /// Whether another broker knows a later run of this one: it asks and answers nobody any more (W41).
    pub fn is_superseded(&self) -> bool {
        self.is_superseded.load(Ordering::Acquire)
    }

    pub(super) fn supersede(&self) {
        self.is_superseded.store(true, Ordering::Release);
    }
}

/// Those of the last runs, the present one last.
fn own_nonces(own: &Own) -> Vec<u64> {
    let earlier = own.nonces.iter().filter(|nonce| **nonce != own.nonce);
    earlier.copied().chain([own.nonce]).collect()
}
