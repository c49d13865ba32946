//! From a data directory to a voter.
use super::checks::{check_begin, check_vote, open_vote};
use super::door::{ClusterDoor, Port, Reporter};
use super::heartbeats::Beat;
use super::node::NodeFile;
use super::shared::{Applied, Running, Shared};
use super::{ClusterSettings, ClusterStatus, Run};
use crate::consensus::log_store::LogStore;
use crate::consensus::machine::Machine;
use crate::consensus::raft::Voter;
use crate::consensus::vote::HardState;
use crate::consensus::{MetadataError, Opened, open_log};
use crate::engine::error::EngineError;
use crate::events::{Event, Events, Level};
use crate::forward::{Forwarder, server::ForwardServer};
use crate::nats::NatsLink;
use crate::owner_only;
use crate::partition::PartitionContext;
use crate::peer::{
    Broker, Brokers, Dialer, FirstVoter, Founded, Founding, FoundingError, ListenError, Own,
    PeerListener,
};
use crate::replication::liveness::Watch;
use crate::replication::{Hub, HubParts};
use crate::statistics::PeerRefusals;
use crate::tls::{PeerTls, TlsError};
use bascule_log::{GroupCommitter, Log};
use bascule_wire::ErrorCode;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Between two rounds of questions about the cluster.
const FIND: Duration = Duration::from_millis(200);
/// Between two looks at the office.
const WATCH: Duration = Duration::from_millis(50);
/// Level of features at which entries are written.
const LEVEL: u32 = 2;

/// This broker as a member. Dropping it ends its tasks and closes the port.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) shared: Arc<Shared>,
    founding: Arc<Founding>,
    node: Arc<Mutex<NodeFile>>,
    directory_id: String,
    data: PathBuf,
    task: AbortHandle,
    _beat: Beat,
}

/// What a start needs.
pub(crate) struct Start<'a> {
    pub data: &'a Path,
    pub cluster: &'a str,
    pub name: &'a str,
    pub directory_id: &'a str,
    pub settings: &'a ClusterSettings,
    pub committer: &'a Arc<GroupCommitter>,
    pub events: &'a Arc<Events>,
    pub refused: &'a Arc<PeerRefusals>,
    pub runtime: &'a Handle,
    pub uses: Uses,
}

/// What a member uses of its broker.
pub(crate) struct Uses {
    pub partitions: Arc<PartitionContext>,
    pub nats: NatsLink,
    pub forwarder: Arc<Forwarder>,
    pub publishes: Arc<ForwardServer>,
    pub requests: Arc<crate::client_requests::RequestServer>,
}

/// What the voter is made of.
struct Parts {
    shared: Arc<Shared>,
    founding: Arc<Founding>,
    node: Arc<Mutex<NodeFile>>,
    peers: BTreeMap<String, String>,
    metadata: PathBuf,
    log: Log,
    machine: Machine,
    port: PeerListener,
    tls: Option<Arc<PeerTls>>,
    uses: Uses,
}

impl Member {
    /// Opens the metadata of the directory and the port for other brokers; the rest follows by itself. Blocks, not on others.
    ///
    /// # Errors
    /// `metadata_damaged`, `data_directory_…`, `configuration_invalid`, `address_in_use`, `address_unusable`, `storage_failed`.
    pub fn open(start: Start<'_>) -> Result<(Self, Opened), EngineError> {
        let metadata = start.data.join("metadata");
        owner_only::create_directories(&metadata).map_err(MetadataError::from)?;
        let (name, peers) = (start.name.to_owned(), start.settings.peers.clone());
        let names: BTreeMap<u64, String> = (1..).zip(peers.keys().cloned()).collect();
        let own = names.iter().find(|(_, other)| **other == name);
        let Some((&raft_id, _)) = own else {
            let text = format!("cluster.peers does not name this broker, {name:?}");
            return Err(EngineError::new(ErrorCode::ConfigurationInvalid, text));
        };
        let node = NodeFile::begin(start.data)?;
        let founding = Founding::open(
            &metadata,
            start.name,
            start.cluster,
            start.directory_id,
            peers.clone(),
        );
        let founding = Arc::new(founding.map_err(MetadataError::from)?);
        let tls = load_tls(start.settings)?;
        let log = open_log(&metadata, start.committer)?;
        let entries = log.reader().log_end();
        check_vote(&metadata, founding.founded().is_some(), entries)?;
        let applied = Arc::new(Applied::new(start.events.clone(), node.nonce()));
        let (machine, snapshot_index, snapshot) = Machine::open(metadata.clone(), applied.clone())?;
        check_begin(log.reader().log_start(), snapshot_index)?;
        applied.begin_at(snapshot_index);
        let shared = Arc::new(Shared {
            events: start.events.clone(),
            name,
            raft_id,
            nonce: node.nonce(),
            names,
            applied,
            partitions: Arc::downgrade(&start.uses.partitions),
            committer: Arc::downgrade(start.committer),
            data: start.data.to_owned(),
            running: OnceLock::new(),
            watch: Watch::default(),
            lease: Arc::default(),
            waiting: Mutex::new("it has not asked yet".into()),
            stopped: Mutex::default(),
        });
        let port = start.runtime.block_on(PeerListener::open_unfounded(
            resolved(&start.settings.listen)?,
            founding.clone(),
            tls.clone(),
            start.events.clone(),
            start.refused.clone(),
        ));
        let port = port.map_err(|error| listen_failed(&error))?;
        let node = Arc::new(Mutex::new(node));
        let door = ClusterDoor {
            shared: shared.clone(),
            machine: machine.clone(),
            last: entries,
            runtime: start.runtime.clone(),
        };
        let parts = Parts {
            shared: shared.clone(),
            founding: founding.clone(),
            node: node.clone(),
            peers,
            metadata,
            log,
            machine,
            port,
            tls,
            uses: start.uses,
        };
        let beat = Beat::start(&shared, start.runtime);
        let beat =
            beat.map_err(|error| EngineError::new(ErrorCode::Internal, error.to_string()))?;
        let task = start.runtime.spawn(parts.run()).abort_handle();
        let member = Self {
            shared,
            founding,
            node,
            directory_id: start.directory_id.to_owned(),
            data: start.data.to_owned(),
            task,
            _beat: beat,
        };
        let opened = Opened {
            door: Arc::new(door),
            snapshot_index,
            snapshot,
        };
        Ok((member, opened))
    }

    /// What a registration has to say of this run.
    pub fn run(&self) -> Run {
        let node = self.node.lock();
        let founded = self.founding.founded();
        let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let device = std::fs::metadata(&self.data).map(|found| found.dev());
        Run {
            nonce: node.nonce(),
            stored: node.state().boot_epoch,
            directory_id: self.directory_id.clone(),
            cluster_id: founded.map_or_else(String::new, |founded| founded.cluster_id.clone()),
            raft_id: self.shared.raft_id,
            // Unknown is another one each time: what memory alone held is not trusted then.
            kernel_boot_id: read
                .map_or_else(|_| node.nonce().to_string(), |text| text.trim().to_owned()),
            mount_id: device.map_or_else(|_| node.nonce().to_string(), |id| id.to_string()),
        }
    }

    /// Stores the boot epoch of this run's registration, durably. Blocks.
    ///
    /// # Errors
    /// `storage_failed`.
    pub fn store_boot_epoch(&self, boot_epoch: u64) -> Result<(), EngineError> {
        self.node.lock().store(boot_epoch)?;
        if let Some(running) = self.shared.running.get() {
            running.brokers.registered(boot_epoch);
        }
        Ok(())
    }

    /// Begins another run of this broker, which has yet to register: the present one is fenced. Blocks.
    ///
    /// # Errors
    /// `storage_failed`.
    pub fn begin_run(&self) -> Result<(), EngineError> {
        let nonce = {
            let mut node = self.node.lock();
            node.renew()?;
            node.nonce()
        };
        if let Some(running) = self.shared.running.get() {
            running.brokers.begin_run(nonce);
        }
        self.shared.lease.begin();
        Ok(())
    }

    /// Where this member stands.
    pub fn status(&self) -> ClusterStatus {
        self.shared.status()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Parts {
    async fn run(self) {
        let shared = self.shared.clone();
        let founded = match self.find().await {
            Ok(founded) => founded,
            Err(FoundingError::Io(text)) => return shared.stop(ErrorCode::StorageFailed, text),
            Err(error) => return shared.stop(ErrorCode::BrokerIdInUse, error.to_string()),
        };
        match self.start(&founded).await {
            Ok(port) => watch(&shared, port).await,
            Err(error) => shared.stop(ErrorCode::MetadataStopped, error.to_string()),
        }
    }

    /// Asks the others until there is a cluster.
    async fn find(&self) -> Result<Arc<Founded>, FoundingError> {
        let mut founded = self.founding.founded();
        loop {
            if let Some(founded) = founded {
                return Ok(founded);
            }
            match self.founding.find(self.tls.as_deref()).await {
                Ok(found) => {
                    let id = &found.cluster_id;
                    self.line(Level::Info, format!("this broker is of cluster {id}"));
                    founded = Some(found);
                }
                Err(FoundingError::Waiting(text)) => {
                    let before = std::mem::replace(&mut *self.shared.waiting.lock(), text.clone());
                    if before != text {
                        let text = format!("waiting for the cluster: {text}");
                        self.line(Level::Info, text);
                    }
                    tokio::time::sleep(FIND).await;
                    // Another one may have founded it and been asked by nobody.
                    founded = self.founding.founded();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The voter; the first of its group founds that.
    async fn start(self, founded: &Founded) -> io::Result<PeerListener> {
        let Self {
            shared,
            node,
            peers,
            metadata,
            log,
            machine,
            port,
            tls,
            uses,
            ..
        } = self;
        let voters: Vec<u64> = founded.voters.iter().map(|voter| voter.raft_id).collect();
        let state = HardState {
            cluster: founded.id(),
            raft_id: shared.raft_id,
            first_voters: voters.clone(),
            ..HardState::default()
        };
        let vote = tokio::task::spawn_blocking(move || open_vote(&metadata, state)).await;
        let vote = vote.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let brokers = Arc::new(brokers(founded, &shared, &node.lock(), &peers));
        let dialer = Dialer::start(brokers.clone(), tls.as_ref(), &shared.events);
        let (dialer, store) = (Arc::new(dialer), LogStore::new(log, vote)?);
        let is_empty = store.last_index() == 0;
        let voter = Voter::start(shared.raft_id, store, machine, dialer.clone());
        let voter = Arc::new(voter.await?);
        let running = Running {
            voter: voter.clone(),
            brokers: brokers.clone(),
            dialer: dialer.clone(),
        };
        // Set once: this is the only start of the run.
        let _ = shared.running.set(running);
        let hub = Hub::new(HubParts {
            brokers: brokers.clone(),
            tls: tls.clone(),
            dialer,
            lease: shared.lease.clone(),
            nats: uses.nats,
            events: shared.events.clone(),
            proposer: Arc::new(Reporter {
                shared: shared.clone(),
                count: AtomicU64::new(0),
            }),
        });
        uses.partitions.replicas.connect(Arc::new(hub));
        uses.forwarder.connect(brokers.clone(), tls);
        port.found(
            brokers,
            Arc::new(Port {
                shared: shared.clone(),
                partitions: uses.partitions,
                publishes: uses.publishes,
                requests: uses.requests,
            }),
        );
        if is_empty && voters.first() == Some(&shared.raft_id) {
            // Refused when an earlier run has voted: the others have elected then, or will.
            if let Err(error) = voter.found(BTreeSet::from_iter(voters)).await {
                let text = format!("the metadata group is not founded again: {error}");
                let fields = serde_json::json!({});
                shared.events.log(Level::Info, "cluster", text, fields);
            }
        }
        Ok(port)
    }

    fn line(&self, level: Level, text: String) {
        let fields = serde_json::json!({"broker": self.shared.name});
        self.shared.events.log(level, "cluster", text, fields);
    }
}

/// Reports the office, as long as the voter runs; keeps the port open.
async fn watch(shared: &Shared, port: PeerListener) {
    let Some(Running { voter, brokers, .. }) = shared.running.get() else {
        return;
    };
    let (mut office, mut controller) = (None, None);
    loop {
        tokio::time::sleep(WATCH).await;
        if let Some(text) = voter.failure() {
            let text = format!("the metadata group has stopped on this broker: {text}");
            drop(port);
            return shared.stop(ErrorCode::MetadataStopped, text);
        }
        if brokers.is_superseded() {
            let text = "a later run of this broker is registered: its directory is a copy, or was put back from a backup";
            return shared.stop(ErrorCode::BrokerIdInUse, text.into());
        }
        let held = voter.office();
        if held != office {
            if let Some(term) = office {
                shared.events.push(Event::Office { term, held: false });
            }
            if let Some(term) = held {
                shared.events.push(Event::Office { term, held: true });
            }
            office = held;
        }
        let status = shared.status();
        if status.controller != controller {
            let text = match &status.controller {
                Some(name) => format!("broker {name:?} is the controller"),
                None => shared.no_quorum(),
            };
            let level = status
                .controller
                .as_ref()
                .map_or(Level::Warning, |_| Level::Info);
            let fields = serde_json::json!({"controller": status.controller, "term": status.term});
            shared.events.log(level, "cluster", text, fields);
            controller = status.controller;
        }
    }
}

fn brokers(
    founded: &Founded,
    shared: &Shared,
    node: &NodeFile,
    peers: &BTreeMap<String, String>,
) -> Brokers {
    let own = Own {
        name: shared.name.clone(),
        cluster_id: founded.id(),
        rescues: 0,
        level: LEVEL,
        raft_id: shared.raft_id,
        nonce: shared.nonce,
        boot_epoch: node.state().boot_epoch,
        nonces: node.state().nonces.clone(),
    };
    let others = founded
        .voters
        .iter()
        .filter(|voter| voter.raft_id != shared.raft_id);
    let other = |voter: &FirstVoter| {
        let address = peers.get(&voter.broker_id).cloned().unwrap_or_default();
        let broker = Broker {
            name: voter.broker_id.clone(),
            address,
            boot_epoch: 0,
            nonce: 0,
        };
        (voter.raft_id, broker)
    };
    Brokers::new(own, others.map(other).collect())
}

fn load_tls(settings: &ClusterSettings) -> Result<Option<Arc<PeerTls>>, EngineError> {
    let Some(files) = &settings.tls else {
        return Ok(None);
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let loaded = PeerTls::load(files, now.map_or(0, |now| now.as_secs()));
    let invalid =
        |error: TlsError| EngineError::new(ErrorCode::ConfigurationInvalid, error.to_string());
    Ok(Some(Arc::new(loaded.map_err(invalid)?.0)))
}

fn resolved(listen: &str) -> Result<SocketAddr, EngineError> {
    let unusable = |text: String| EngineError::new(ErrorCode::AddressUnusable, text);
    let found = listen.to_socket_addrs();
    let mut found = found.map_err(|error| unusable(format!("{listen}: {error}")))?;
    found
        .next()
        .ok_or_else(|| unusable(format!("{listen}: the name has no address")))
}

fn listen_failed(error: &ListenError) -> EngineError {
    let code = match error {
        ListenError::Address(_) => ErrorCode::ConfigurationInvalid,
        ListenError::Io { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            ErrorCode::AddressInUse
        }
        ListenError::Io { .. } => ErrorCode::AddressUnusable,
    };
    EngineError::new(code, error.to_string())
}
