//! The engine as a member of a cluster.
use super::{Engine, EngineError, EngineSettings};
use crate::cluster::{ClusterSettings, ClusterStatus, KnownRun, Member, Run, Start, Uses};
use crate::consensus::Opened;
use crate::partition::{Partition, RoleChanges};
use bascule_wire::ErrorCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a planned stop waits for followers.
const CAUGHT_UP: Duration = Duration::from_millis(250);
/// Between two looks at them.
const LOOK: Duration = Duration::from_millis(2);

/// What joining needs of the settings.
#[derive(Debug)]
pub(super) struct ClusterStart {
    cluster_id: String,
    broker_id: String,
    settings: ClusterSettings,
}

impl ClusterStart {
    pub fn of(settings: &EngineSettings) -> Option<Self> {
        Some(Self {
            cluster_id: settings.cluster_id.clone(),
            broker_id: settings.broker_id.clone(),
            settings: settings.cluster.clone()?,
        })
    }
}

impl Engine {
    pub(super) fn join(&self, cluster: &ClusterStart) -> Result<Opened, EngineError> {
        let runtime = self.runtime()?;
        let directory_id = {
            let state = self.state.lock();
            let directory = state.directory.as_ref();
            directory.map_or_else(String::new, |directory| directory.id().to_owned())
        };
        let (member, opened) = Member::open(Start {
            data: &self.data,
            cluster: &cluster.cluster_id,
            name: &cluster.broker_id,
            directory_id: &directory_id,
            settings: &cluster.settings,
            committer: &self.committer,
            events: &self.parts.events,
            refused: &self.parts.statistics.peer_refusals,
            runtime: runtime.handle(),
            uses: Uses {
                partitions: self.parts.partitions.clone(),
                nats: self.parts.nats.clone(),
                forwarder: self.parts.forwarder.clone(),
                publishes: self.parts.publishes.clone(),
                requests: self.parts.requests.clone(),
            },
        })?;
        self.state.lock().member = Some(Arc::new(member));
        Ok(opened)
    }

    fn member(&self) -> Result<Arc<Member>, EngineError> {
        let member = self.state.lock().member.clone();
        let text = "this broker is of no cluster, or its metadata log is not open";
        member.ok_or_else(|| EngineError::new(ErrorCode::InvalidArgument, text))
    }

    /// What the registration of this run has to say.
    ///
    /// # Errors
    /// `invalid_argument`: the broker is of no cluster.
    pub fn cluster_run(&self) -> Result<Run, EngineError> {
        Ok(self.member()?.run())
    }

    /// Stores the boot epoch of this run's registration, durably. Blocks.
    ///
    /// # Errors
    /// `storage_failed`; `invalid_argument`: the broker is of no cluster.
    pub fn store_boot_epoch(&self, boot_epoch: u64) -> Result<(), EngineError> {
        self.member()?.store_boot_epoch(boot_epoch)
    }

    /// Begins another run of this broker, which has yet to register: the present one is fenced. Blocks.
    ///
    /// # Errors
    /// `storage_failed`; `invalid_argument`: the broker is of no cluster.
    pub fn begin_run(&self) -> Result<(), EngineError> {
        self.member()?.begin_run()
    }

    /// Takes no more records as the leader of streams with several replicas, for ever, and waits a moment for followers to have what is
    /// there. Blocks.
    pub fn stop_leading(&self) {
        let led: Vec<Partition> = {
            let state = self.state.lock();
            let open = state.partitions.values();
            open.filter(|open| open.is_leading()).cloned().collect()
        };
        led.iter().for_each(Partition::stop_leading);
        let end = Instant::now() + CAUGHT_UP;
        while Instant::now() < end && !led.iter().all(Partition::is_committed) {
            std::thread::sleep(LOOK);
        }
    }

    /// Registrations of brokers, for handshakes and for the controller.
    ///
    /// # Errors
    /// `invalid_argument`: the broker is of no cluster.
    pub fn know_brokers(&self, runs: &[KnownRun]) -> Result<(), EngineError> {
        self.member()?.know(runs);
        Ok(())
    }

    /// Watches the brokers as the controller of this term: `expired` events report who is silent, `stopped` events who has stopped ended
    /// roles, until the term ends. Everything that was committed before the term must be applied, and the registrations of that state
    /// known; `ended` has its ended roles that their brokers may not know of (index of the entry, broker).
    ///
    /// # Errors
    /// `invalid_argument`: the broker is of no cluster.
    pub fn watch_brokers(&self, term: u64, ended: &[(u64, u64)]) -> Result<(), EngineError> {
        self.member()?.watch_brokers(term, ended);
        Ok(())
    }

    /// Roles of replicas as of entry `index`; those of an older entry are ignored. Never waits.
    ///
    /// # Errors
    /// `invalid_argument`: the broker is of no cluster.
    pub fn set_roles(&self, index: u64, changes: RoleChanges) -> Result<(), EngineError> {
        let (member, changed) = (self.member()?, changes.changed.clone());
        self.parts.partitions.replicas.set_roles(index, changes);
        member.roles_changed(index, &changed);
        Ok(())
    }

    /// Where this broker stands in its cluster.
    ///
    /// # Errors
    /// `invalid_argument`: the broker is of no cluster.
    pub fn cluster_status(&self) -> Result<ClusterStatus, EngineError> {
        Ok(self.member()?.status())
    }
}
